// Package proxy is the HTTP server that clients of OpenAI-compatible APIs talk to. It forwards each request to a
// provider and streams the answer back. For a request that names a session, package memory decides which messages are
// sent, and stores the answer.
//
// The command makes one [Server] and calls Serve. To follow a request, read exchange.run in exchange.go: it lists the
// steps. A request is what the client sent, an attempt is one try upstream, and an answer goes to the client.
//
// The one rule to know: a request without a session passes through unchanged, byte for byte, in both directions.
package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy/limit"
	"remora/proxy/listener"
	"remora/telemetry"
	"remora/telemetry/seldom"
	"remora/wire"
)

// Memory is the part of package memory that the proxy uses: it begins turns and looks up earlier answers.
type Memory interface {
	Begin(ctx context.Context, c memory.Call) (*memory.Turn, error)
	// Response finds an answer by the id that its client has.
	Response(ctx context.Context, tenant, id string) (memory.Response, error)
	// Late finds the turn that waits for an answer which upstream makes in the background.
	Late(tenant, id string, known memory.Response) *memory.Late
	// Guards reports whether the answers of requests without a session have to be judged too: Begin is then called with
	// Call.Unkept.
	Guards() bool
}

// Server is the proxy. It may serve several listeners.
type Server struct {
	o      Options
	memory Memory
	begin  beginTurn   // of the memory
	hints  *wire.Names // every body that names a session has at least one of these names
	routes atomic.Pointer[routes]
	limits *limit.Limiter // nil for none
	client *providers.Client
	log    *slog.Logger
	now    func() time.Time

	names     *headerTable
	http      *fasthttp.Server
	room      *listener.Room
	watcher   *watcher
	commits   commitGate
	exchanges sync.Pool
	bodies    sync.Pool // *[]byte
	heads     sync.Pool // *[]byte, of requests to upstream

	answerHeads sync.Pool // *answerHead
	draining    atomic.Bool
	stopping    atomic.Bool
	mu          sync.Mutex
	listeners   []net.Listener // guarded by mu
	lessons     lessons
	bypasses    seldom.Lines         // reasons why a request with a session, or its answer, is not remembered
	failures    seldom.Lines         // of upstream
	telemetry   *telemetry.Telemetry // nil for none
	// certificate is nil for plain HTTP.
	certificate *listener.Certificate
}

// sweepEvery is the interval at which client connections are checked. A client that leaves is noticed after two sweeps at
// the beginning of its request, and after one later on.
const sweepEvery = 25 * time.Millisecond

// writeBuffer is the size in bytes of the buffer that gathers small writes. Every stream has one; larger writes bypass it.
const writeBuffer = 2 << 10

// New makes a Server from valid options. Call Shutdown to stop the Server, even if Serve was never called.
func New(o Options, m Memory, up *providers.Set, log *slog.Logger, now func() time.Time) *Server {
	if o.Upstream.Now == nil {
		o.Upstream.Now = now
	}
	s := &Server{
		o: o, memory: m, begin: adapt(m), log: log, now: now, telemetry: o.Telemetry, limits: o.Limits,
		client:  providers.NewClient(o.Upstream),
		names:   newHeaderTable(&o.Session),
		hints:   o.Session.hints(),
		watcher: newWatcher(sweepEvery),
		commits: newCommitGate(),
	}
	if o.TLSCert != "" {
		s.certificate = listener.NewCertificate(o.TLSCert, o.TLSKey)
	}
	s.Route(up, nil)
	s.exchanges.New = func() any { return newExchange(s) }
	s.bodies.New = func() any { return new([]byte) }
	s.heads.New = func() any { return new(make([]byte, 0, 4<<10)) }
	s.answerHeads.New = func() any { return &answerHead{pool: &s.answerHeads} }
	s.room = listener.NewRoom(o.MaxConnections, errCrowded(o.MaxConnections).response())
	s.http = &fasthttp.Server{
		Handler:        s.handle,
		ErrorHandler:   s.onProtocolError,
		HeaderReceived: s.onHead,
		ExpectHandler:  s.onExpect,
		Logger:         silent{},

		ConnState:          s.room.State,
		Concurrency:        o.MaxConnections + listener.Spare,
		ReadBufferSize:     int(o.MaxHeader),
		WriteBufferSize:    writeBuffer,
		ReadTimeout:        o.ReadTimeout,
		IdleTimeout:        o.IdleTimeout,
		WriteTimeout:       o.WriteTimeout,
		MaxRequestBodySize: int(o.MaxBody),
		// The handler reads the body itself: into a buffer of its own, growing with what really arrives instead of
		// what Content-Length claims, and with an answer that a client can read when it is too much.
		StreamRequestBody: true,

		DisableHeaderNamesNormalizing: true,
		DisablePreParseMultipartForm:  true,
		NoDefaultServerHeader:         true,
		NoDefaultContentType:          true,
		NoDefaultDate:                 true,
		SecureErrorLogMessage:         true,
		CloseOnShutdown:               true,
		// Package net turns keep-alive on as it accepts. fasthttp would end Serve where that fails for a client that is gone.
		TCPKeepalive: false,
	}
	return s
}

// routes are the providers of requests, and the retry policy.
type routes struct {
	upstreams  *providers.Set
	resilience *retry.Policy // nil for nothing
	noPath     sync.Map      // names of providers of which a 404 was logged for want of a path
}

// Route sets the providers and the retry policy of all requests that begin after it. A nil policy means no retries.
func (s *Server) Route(up *providers.Set, p *retry.Policy) {
	s.routes.Store(&routes{upstreams: up, resilience: p})
}

// silent drops fasthttp's log: it has a line for every client that disconnects, and quotes what the client sent.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Serve serves a listener until Shutdown, and returns nil then.
func (s *Server) Serve(ln net.Listener) error {
	ln = listener.Retrying(ln, s.log, s.now)
	s.listening(ln)
	if s.certificate != nil {
		if _, err := s.certificate.Load(); err != nil {
			return err
		}
		ln = s.certificate.Listen(ln)
	}

	err := s.http.Serve(listener.Wrap(ln))
	if err != nil && !s.stopping.Load() {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// ReloadCertificate reads the files of server.tls_cert and tls_key again, and reports whether clients get another
// certificate from now on. An error changes nothing.
func (s *Server) ReloadCertificate() (changed bool, err error) {
	if s.certificate == nil {
		return false, nil
	}
	return s.certificate.Load()
}

// Drain goes on serving, and closes each connection after its next answer. A load balancer then has no unused connections left
// that Shutdown would close just as it sends a request on one.
func (s *Server) Drain() { s.draining.Store(true) }

// CertificateExpiry returns when the certificate that clients get expires, the zero time without one.
func (s *Server) CertificateExpiry() time.Time {
	if s.certificate == nil {
		return time.Time{}
	}
	return s.certificate.Expiry()
}

// Shutdown stops accepting, ends tunnels, lets answers under way finish within the grace time or until ctx ends,
// aborts the rest, and returns when nothing is left. Its error says that something had to be aborted.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stopping.Swap(true) {
		return errors.New("shut down: already under way")
	}
	close(s.commits.hurry)
	s.watcher.endAll(endShutdown, func(w *watch) bool { return w.conn == nil }) // tunnels
	s.closeListeners()

	grace, cancel := context.WithTimeout(ctx, s.o.ShutdownGrace)
	defer cancel()
	err := s.http.ShutdownWithContext(grace)
	if err != nil {
		n := s.watcher.len()
		s.watcher.endAll(endShutdown, func(*watch) bool { return true })
		err = fmt.Errorf("shut down: %d answers were cut off: %w", n, err)
	}

	s.settle()
	s.watcher.close()
	s.client.Close()
	return err
}

// listening adds a listener for closeListeners to close.
func (s *Server) listening(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, ln)
	if s.stopping.Load() {
		_ = ln.Close()
	}
}

// closeListeners closes all listeners. fasthttp's own Shutdown does not know a listener that it is just being given, and
// Serve would never return.
func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
}

// settle waits until all aborted requests have returned. Their connections fail at once, so only a commit can take time,
// and memory bounds that. The limit is for hijacked connections that broke before fasthttp called the hijack handler.
func (s *Server) settle() {
	const pace, limit = 2 * time.Millisecond, 5 * time.Second
	tick := time.NewTicker(pace) //nolint:forbidigo // paces a wait, measures nothing
	defer tick.Stop()
	for range limit / pace {
		if s.watcher.len() == 0 {
			return
		}
		<-tick.C
		// Abort the requests that began meanwhile, too.
		s.watcher.endAll(endShutdown, func(*watch) bool { return true })
	}
}

// handle serves one request. It turns every error, panics included, into an answer.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	x, _ := s.exchanges.Get().(*exchange)
	x.open(ctx)
	defer s.recoverPanic() // of the steps below, which follow a request and its panic
	defer func() {
		if !x.stream.owns {
			x.close()
		}
	}()
	defer func() {
		if v := recover(); v != nil {
			s.recovered(v)
			x.fail(&Error{Status: fasthttp.StatusInternalServerError, Code: codeInternal, Message: "internal error"})
		}
		if s.draining.Load() {
			ctx.SetConnectionClose()
		}
		x.answer.arrangeHead(s.now().Add(s.o.WriteTimeout))
	}()
	if err := x.run(); err != nil {
		x.fail(err)
	}
}

// recovered logs and counts a panic. A panic's value may hold content, so only errors of the runtime are quoted.
func (s *Server) recovered(v any) {
	s.telemetry.Panic()
	text := fmt.Sprintf("%T", v)
	var re runtime.Error
	if err, ok := v.(error); ok && errors.As(err, &re) {
		text = re.Error()
	}
	s.log.Error("recovered from a panic", "panic", text, "stack", string(debug.Stack()))
}

// recoverPanic ends a panic. It is to be deferred.
func (s *Server) recoverPanic() {
	if v := recover(); v != nil {
		s.recovered(v)
	}
}

// logUpstream logs a failed call. In an outage all calls fail, and metrics count them.
func (s *Server) logUpstream(p *providers.Provider, e *Error) {
	unlogged, due := s.failures.Due(p.Name()+" "+e.Code, s.now(), failureEvery)
	if !due {
		return
	}
	s.log.LogAttrs(context.Background(), slog.LevelWarn, "upstream failed",
		slog.String("provider", p.Name()), slog.String("code", e.Code), slog.String("error", e.Err.Error()), slog.Int("unlogged", unlogged))
}

// bypassed logs why memory is off for a request that names a session.
func (s *Server) bypassed(reason string) {
	kind, _, _ := strings.Cut(reason, " at byte ")
	if _, due := s.bypasses.Due(kind, s.now(), bypassEvery); due {
		s.log.Warn("memory is off for a request that names a session", "reason", reason)
	}
}

// How often one kind of line is logged: a client that is not remembered once mostly is so with every request, while every failure of
// upstream that is not part of an outage is worth a line.
const (
	bypassEvery  = time.Minute
	failureEvery = time.Second
)

// onHead is called with each head before fasthttp reads the body. fasthttp reads up to 8 KB of the body before it calls the
// handler; for a body that is announced as too large it reads one byte, so that a slow client is refused at once.
func (s *Server) onHead(h *fasthttp.RequestHeader) (config fasthttp.RequestConfig) {
	spellExpect(h)
	if int64(h.ContentLength()) > int64(s.o.MaxBody) {
		config.MaxRequestBodySize = 1
	}
	return config
}

// spellExpect rewrites the name of an Expect header to the spelling that fasthttp looks for. Clients on Node write it in lower
// case, and would wait for 100 Continue until their own timeout. The head that goes upstream is made of the original bytes.
func spellExpect(h *fasthttp.RequestHeader) {
	if !bytes.Contains(h.RawHeaders(), []byte("100-")) {
		return // as in almost all requests
	}
	for key, value := range h.All() {
		if len(key) == len(fasthttp.HeaderExpect) && string(key) != fasthttp.HeaderExpect && strings.EqualFold(string(key), fasthttp.HeaderExpect) {
			h.SetCanonical([]byte(fasthttp.HeaderExpect), bytes.Clone(value))
			break
		}
	}
}

// onExpect refuses a body that is announced as too large to be read here before it is sent.
func (s *Server) onExpect(ctx *fasthttp.RequestCtx) int {
	if int64(ctx.Request.Header.ContentLength()) <= int64(s.o.MaxBody) {
		return fasthttp.StatusContinue
	}
	r := request{s: s, ctx: ctx, routes: s.routes.Load()}
	if err := r.identify(); err != nil || !r.readsBody() {
		return fasthttp.StatusContinue // the handler reports the error
	}
	errBodyTooLarge(s.o.MaxBody).write(&ctx.Response, wire.Dialect{})
	return fasthttp.StatusRequestEntityTooLarge
}

// onProtocolError answers a request whose head, or the beginning of whose body, could not be read. fasthttp closes the connection
// after it. What the client still sends is drained first, since closing a connection with unread bytes resets it, and the client
// loses the answer.
func (s *Server) onProtocolError(ctx *fasthttp.RequestCtx, err error) {
	e := badRequest("request is not valid HTTP", err)
	var small *fasthttp.ErrSmallBuffer
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &small):
		e.Status, e.Code = fasthttp.StatusRequestHeaderFieldsTooLarge, codeHeadTooLarge
		e.Message = fmt.Sprintf("request head is larger than %s (server.max_header)", s.o.MaxHeader)
		drainHead(ctx, s.now())
	case errors.Is(err, io.ErrUnexpectedEOF): // of heads the error is another
		e = errBrokenBody(err)
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Status, e.Code = fasthttp.StatusRequestTimeout, codeSlowRequest
		e.Message = fmt.Sprintf("request head, or the beginning of its body, took longer than %s to arrive (server.read_timeout)", s.o.ReadTimeout)
	}
	e.write(&ctx.Response, wire.Dialect{})
}

// hijack runs f on the client's connection after the handler has returned. A shutdown calls stop, which must make f return.
func (s *Server) hijack(ctx *fasthttp.RequestCtx, stop func(), f func(net.Conn)) {
	w := &watch{onEnd: func(end) { stop() }}
	s.watcher.assign(w)
	s.watcher.add(w, nil)
	if s.stopping.Load() {
		stop() // it may have come too late to be ended by Shutdown
	}

	s.takeConn(ctx, func(c net.Conn) {
		defer s.watcher.remove(w)
		defer s.recoverPanic()
		f(c)
	})
}

// takeConn has f use a client's connection when the handler has returned, in place of fasthttp, which closes it after that. Until
// then it counts as one of max_connections.
func (s *Server) takeConn(ctx *fasthttp.RequestCtx, f func(net.Conn)) {
	conn := ctx.Conn()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		defer s.room.Leave(conn)
		f(c)
	})
}
