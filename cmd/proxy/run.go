package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"time"

	"remora/memory"
	"remora/providers"
	"remora/proxy"
)

// run serves until ctx ends. It starts from the bottom up, so that nothing is ever called that is not there yet, and
// stops in reverse, each deferred line saying why it may stop only then.
func run(ctx context.Context, c Config, stderr io.Writer) (err error) {
	ballast := make([]byte, ballastBytes)
	defer runtime.KeepAlive(ballast)
	log := slog.New(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: c.Log.Level}))

	kept, err := openStorage(ctx, c.Store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.close()) }() // last: memory writes to it to the end

	upstreams, err := providers.NewSet(c.Providers)
	if err != nil {
		return err
	}
	minds, err := c.minds(upstreams, log)
	if err != nil {
		return err
	}
	defer minds.close()                                       // after memory, whose layers use it
	mem := memory.New(kept, kept.queue, c.memory(log, minds)) //nolint:contextcheck // ends by Close, not by a signal
	defer mem.Close()                                         // after the server, whose turns it commits

	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Server.Listen)
	if err != nil {
		return fmt.Errorf("open server.listen %s: %w", c.Server.Listen, err)
	}
	srv := proxy.New(c.Server, mem, upstreams, log, time.Now)
	ended := make(chan struct{})
	var broken error
	go func() {
		defer close(ended)
		broken = srv.Serve(ln)
	}()

	greet(stderr, ln.Addr(), c, upstreams)
	select {
	case <-ended: // the listener broke; answers under way can still be finished
	case <-ctx.Done():
		log.Info("stopping", "grace", c.Server.ShutdownGrace.String())
	}
	// First of all: no new turns; those under way end, or are cut when the grace is over.
	if err := srv.Shutdown(context.WithoutCancel(ctx)); err != nil {
		log.Warn("stopped before all answers had ended", "error", err.Error())
	}
	<-ended
	return broken
}

// ballastBytes is memory that is never touched, and so never resident. Remora lives on a few megabytes, which the
// collector, whose pace follows the size of the heap, would go through hundreds of times a second: with it a sixth of
// the processor time of a loaded proxy is saved (go run ./bench), and a heap that is large of itself is collected as
// usual, which a larger GOGC would not do.
const ballastBytes = 32 << 20

// greet tells a person who started this by hand where it is and how to try it.
func greet(w io.Writer, addr net.Addr, c Config, upstreams *providers.Set) {
	var to []string
	for _, p := range upstreams.All() {
		to = append(to, showUpstream(p))
	}
	scheme := "http"
	if c.Server.TLSCert != "" {
		scheme = "https"
	}
	url := scheme + "://" + addr.String() + "/v1"
	// A console that is gone must not stop a server.
	_, _ = fmt.Fprintf(w, "remora listens on %s, forwards to %s, remembers in %s\n"+
		"try: curl %s/chat/completions -H \"Authorization: Bearer $OPENAI_API_KEY\" -H \"Content-Type: application/json\""+
		" -H \"X-Session-Id: first\" -d '{\"model\":\"gpt-5-mini\",\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}'\n",
		url, strings.Join(to, ", "), showStoreURL(c.Store.URL.Reveal()), url)
}
