// Package proxy takes requests of OpenAI-compatible APIs, lets package memory choose what goes upstream in their place,
// and hands the answers back as they arrive. It knows HTTP and no message format.
//
// A request without a session passes through with every byte the same. exchange.go lists the steps of one request;
// tee.go passes the answer on while it is folded; watch.go notices clients that leave.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/resilience"
	"remora/proxy/limit"
	"remora/proxy/listener"
	"remora/telemetry"
	"remora/wire"
)

// Memory is what the proxy needs of package memory: the view for a call, and a turn to commit its answer to; and the
// session that a response belongs to, "" if it is not known.
type Memory interface {
	Begin(ctx context.Context, c memory.Call) (*memory.Turn, error)
	SessionOf(ctx context.Context, tenant, responseID string) (string, error)
	// Guards tells whether the answers of requests without a session have to be judged too: Begin is then called with
	// Call.Unkept.
	Guards() bool
}

// Upstreams chooses a provider by the model that a request names, "" if it names none. Pick returns nil where no
// provider takes the model. NeedsModel tells whether the model matters, that is, whether a body must be read for it.
type Upstreams interface {
	Pick(model string) providers.Provider
	NeedsModel() bool
}

// Server is the proxy. It serves one listener after another or several at once.
type Server struct {
	o         Options
	begin     beginTurn // nil without a memory
	sessionOf func(ctx context.Context, tenant, responseID string) (string, error)
	guards    func() bool // nil for never
	hints     *wire.Names // one of them is in every body that names a session
	routes    atomic.Pointer[routes]
	limits    *limit.Limiter // nil for none
	client    *providers.Client
	log       *slog.Logger
	now       func() time.Time

	names     *headerTable
	http      *fasthttp.Server
	room      *listener.Room
	watcher   *watcher
	parts     parts
	exchanges sync.Pool
	bodies    sync.Pool // *[]byte
	heads     sync.Pool // *[]byte, of requests to upstream
	stopping  atomic.Bool
	mu        sync.Mutex
	listeners []net.Listener // guarded by mu
	stats     counters
	toolless  toolless
	telemetry *telemetry.Telemetry // nil for none
	// certificate is nil for plain HTTP.
	certificate *listener.Certificate
}

// sweepEvery is how often clients are looked at. An abort is noticed two sweeps after the request began at the
// earliest, and after one sweep later on.
const sweepEvery = 25 * time.Millisecond

// writeBuffer is what gathers a small piece of an answer to be sent at once, in bytes. Every stream has one, and whatever
// is larger passes by it.
const writeBuffer = 2 << 10

type counters struct {
	requests, remembered, refused, clientGone, upstreamFailed, panics atomic.Uint64
}

// Stats are counts since the start.
type Stats struct {
	// Requests is all that reached the handler, Remembered those of them that had a turn.
	Requests, Remembered uint64
	// Refused counts answers that the proxy made itself because of the request, UpstreamFailed those because of upstream.
	Refused, UpstreamFailed uint64
	// ClientGone counts clients that left before the end of their answer (status 499, never sent).
	ClientGone uint64
	// Panics is 0 in a correct program.
	Panics uint64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	c := &s.stats
	return Stats{
		Requests: c.requests.Load(), Remembered: c.remembered.Load(), Refused: c.refused.Load(),
		UpstreamFailed: c.upstreamFailed.Load(), ClientGone: c.clientGone.Load(), Panics: c.panics.Load(),
	}
}

// InFlight is how many requests and tunnels are being served.
func (s *Server) InFlight() int { return s.watcher.len() }

// New makes a Server from valid options. Without a memory (nil) everything is passed through. Shutdown must be called
// to stop it, also if Serve was not.
func New(o Options, m Memory, up Upstreams, log *slog.Logger, now func() time.Time) *Server {
	if o.Upstream.Now == nil {
		o.Upstream.Now = now
	}
	s := &Server{
		o: o, log: log, now: now, telemetry: o.Telemetry, limits: o.Limits,
		client:  providers.NewClient(o.Upstream),
		names:   newHeaderTable(&o.Session),
		hints:   o.Session.hints(),
		watcher: newWatcher(sweepEvery),
		parts:   newParts(),
	}
	if o.TLSCert != "" {
		s.certificate = listener.NewCertificate(o.TLSCert, o.TLSKey)
	}
	s.Route(up, nil)
	if m != nil {
		s.begin, s.sessionOf, s.guards = adapt(m), m.SessionOf, m.Guards
	}
	s.exchanges.New = func() any { return newExchange(s) }
	s.bodies.New = func() any { return new([]byte) }
	s.heads.New = func() any { return new(make([]byte, 0, 4<<10)) }
	s.room = listener.NewRoom(o.MaxConnections, errCrowded(o.MaxConnections).response())
	s.http = &fasthttp.Server{
		Handler:       s.handle,
		ErrorHandler:  s.onProtocolError,
		ExpectHandler: s.onExpect,
		Logger:        silent{},

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

// routes say where requests go, and what is done when that fails.
type routes struct {
	upstreams  Upstreams
	resilience *resilience.Policy // nil for nothing
}

// Route sends requests that begin from now on elsewhere. p says what to do about calls that fail, nil for nothing.
func (s *Server) Route(up Upstreams, p *resilience.Policy) { s.routes.Store(&routes{up, p}) }

// silent drops fasthttp's log: it tells of clients that broke off, and quotes what they sent.
type silent struct{}

func (silent) Printf(string, ...any) {}

// Serve serves a listener until Shutdown, and returns nil then.
func (s *Server) Serve(ln net.Listener) error {
	ln = listener.Patient(ln, s.log, s.now)
	s.listening(ln)
	if s.certificate != nil {
		if _, err := s.certificate.Load(); err != nil {
			return err
		}
		ln = s.certificate.Listen(ln)
	}
	err := s.http.Serve(ln)
	if err != nil && !s.stopping.Load() {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// ReloadCertificate reads the files of server.tls_cert and tls_key again, and tells whether clients get another
// certificate from now on. An error changes nothing.
func (s *Server) ReloadCertificate() (changed bool, err error) {
	if s.certificate == nil {
		return false, nil
	}
	return s.certificate.Load()
}

// Shutdown stops accepting, ends tunnels, lets answers under way finish within the grace time or until ctx ends,
// aborts the rest, and returns when nothing is left. Its error says that something had to be aborted.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.stopping.Swap(true) {
		return errors.New("shut down: already under way")
	}
	close(s.parts.hurry)
	s.watcher.endAll(endShutdown, func(w *watch) bool { return w.conn == nil }) // tunnels
	s.deafen()
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

// listening notes a listener for deafen.
func (s *Server) listening(ln net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listeners = append(s.listeners, ln)
	if s.stopping.Load() {
		_ = ln.Close()
	}
}

// deafen closes all listeners, those included that fasthttp is about to hear of: its own Shutdown does not know them, and
// Serve would never return.
func (s *Server) deafen() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ln := range s.listeners {
		_ = ln.Close()
	}
}

// settle waits until what was ended has noticed. Its connections fail at once, so that only a commit can take time,
// and that is bounded by memory. The limit is for the hijack that fasthttp skips because its connection broke just then.
func (s *Server) settle() {
	const pace, limit = 2 * time.Millisecond, 5 * time.Second
	tick := time.NewTicker(pace) //nolint:forbidigo // paces a wait, measures nothing
	defer tick.Stop()
	for range limit / pace {
		if s.watcher.len() == 0 {
			return
		}
		<-tick.C
		// Those that began meanwhile.
		s.watcher.endAll(endShutdown, func(*watch) bool { return true })
	}
}

// handle is the edge: nothing that goes wrong behind it gets past it.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	s.stats.requests.Add(1)
	x, _ := s.exchanges.Get().(*exchange)
	x.open(ctx)
	defer func() {
		if v := recover(); v != nil {
			s.recovered(v)
			x.fail(&Error{Status: fasthttp.StatusInternalServerError, Code: codeInternal, Message: "internal error"})
		}
		flushEach(ctx, s.now().Add(s.o.WriteTimeout))
		if !x.streaming {
			x.close()
		}
	}()
	if err := x.run(); err != nil && !errors.Is(err, errAnswered) {
		x.fail(err)
	}
}

// recovered counts and logs a panic. A panic's value may hold content, so only those of the runtime are quoted.
func (s *Server) recovered(v any) {
	s.stats.panics.Add(1)
	s.telemetry.Panic()
	text := fmt.Sprintf("%T", v)
	var re runtime.Error
	if err, ok := v.(error); ok && errors.As(err, &re) {
		text = re.Error()
	}
	s.log.Error("recovered from a panic", "panic", text, "stack", string(debug.Stack()))
}

// onExpect refuses a body that is announced as too large before it is sent.
func (s *Server) onExpect(ctx *fasthttp.RequestCtx) int {
	if int64(ctx.Request.Header.ContentLength()) > int64(s.o.MaxBody) {
		s.stats.refused.Add(1)
		errBodyTooLarge(s.o.MaxBody).write(&ctx.Response)
		return fasthttp.StatusRequestEntityTooLarge
	}
	return fasthttp.StatusContinue
}

// hijack runs f on the client's connection once the handler has returned. Until f returns, a shutdown ends it by
// calling stop, which must make f return.
func (s *Server) hijack(ctx *fasthttp.RequestCtx, stop func(), f func(net.Conn)) {
	w := &watch{ended: func(end) { stop() }}
	s.watcher.assign(w)
	s.watcher.add(w, nil)
	if s.stopping.Load() {
		stop() // it may have come too late to be ended by Shutdown
	}
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(c net.Conn) {
		defer s.watcher.remove(w)
		defer func() {
			if v := recover(); v != nil {
				s.recovered(v)
			}
		}()
		f(c)
	})
}
