// Package admin is the HTTP server for operators, on a separate address: health, metrics, profiles and other [Route]s that the
// command registers.
//
// On loopback it works without a token; on other addresses requests need one, except for /healthz and /readyz.
package admin

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"
)

// Options configure a Server.
type Options struct {
	// Listen is the address (server.admin_listen), empty for no server.
	Listen string
	// Token is the bearer token of callers (server.admin_token). Without one the server only serves loopback addresses, and only
	// requests whose Host is this machine, against DNS rebinding by a page in a local browser.
	Token string
	// Ready returns nil if the process is ready, otherwise the reason. It must be fast, since /readyz needs no token. A nil Ready
	// means always ready.
	Ready func() error
	// Note returns a warning about a process that is ready, "" for none. It may be nil.
	Note func() string
	// Log gets one line for each panic of a handler.
	Log *slog.Logger
}

// Route is a handler and its pattern.
type Route struct {
	// Pattern is an http.ServeMux pattern: "GET /metrics".
	Pattern string
	Handler http.Handler
	// MaxBody is the largest request body in bytes; 0 is 1 MiB.
	MaxBody int64
}

// minToken is the length of the shortest token, in bytes. A shorter one could be guessed over the network.
const minToken = 16

// Validate returns the problems of the token, joined, each with its configuration key. A server begins with them as well: it refuses
// callers, or its token can be guessed.
func (o Options) Validate() error {
	if o.Listen == "" {
		return nil
	}
	var errs []error
	if o.Token == "" && !loopback(o.Listen) {
		errs = append(errs, errors.New("server.admin_token: want a token, since server.admin_listen is reachable from elsewhere: without one all but /healthz and /readyz gets 403"))
	}
	if o.Token != "" && len(o.Token) < minToken {
		errs = append(errs, fmt.Errorf("server.admin_token: want %d characters or more", minToken))
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		errs = append(errs, errors.New("server.admin_token: want the token alone, without the word Bearer, and only visible ASCII characters: no other can be sent"))
	}
	return errors.Join(errs...)
}

// loopback reports whether an address, with or without a port, is only reachable from this machine.
func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Server serves the routes.
type Server struct {
	o    Options
	hash [sha256.Size]byte // of the token, so that the comparison takes constant time for all lengths
	http *http.Server
}

// Bounds of requests.
const (
	headTime    = 5 * time.Second
	readTime    = time.Minute
	idleTime    = 2 * time.Minute
	maxHead     = 16 << 10
	defaultBody = 1 << 20
)

// New returns a server. It panics if two routes have the same pattern.
func New(o Options, routes ...Route) *Server {
	s := &Server{o: o, hash: sha256.Sum256([]byte(o.Token))}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	for _, r := range routes {
		limit := cmp.Or(r.MaxBody, defaultBody)
		mux.Handle(r.Pattern, s.guard(http.MaxBytesHandler(r.Handler, limit)))
	}
	s.http = &http.Server{
		Handler:           http.NewCrossOriginProtection().Handler(mux),
		ReadHeaderTimeout: headTime,
		ReadTimeout:       readTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHead,
		ErrorLog:          slog.NewLogLogger(quiet{}, slog.LevelDebug),
	}
	return s
}

// Serve serves a listener. It returns nil after Shutdown.
func (s *Server) Serve(ln net.Listener) error {
	if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve server.admin_listen %s: %w", ln.Addr(), err)
	}
	return nil
}

// Shutdown stops the server. Requests in flight are aborted when ctx ends.
func (s *Server) Shutdown(ctx context.Context) error {
	if err := s.http.Shutdown(ctx); err != nil {
		return errors.Join(fmt.Errorf("shut down the admin server: %w", err), s.http.Close())
	}
	return nil
}

// ready answers /readyz. Only callers with the token get the reason for not being ready.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	var err error
	if s.o.Ready != nil {
		err = s.o.Ready()
	}
	note := ""
	if s.o.Note != nil && s.allowed(r) {
		note = s.o.Note()
	}
	switch {
	case err == nil && note != "":
		say(w, http.StatusOK, "ok, but "+note)
	case err == nil:
		say(w, http.StatusOK, "ok")
	case s.allowed(r):
		say(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
	default:
		say(w, http.StatusServiceUnavailable, "not ready")
	}
}

// guard rejects callers without the token.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.allowed(r) {
			if s.o.Token == "" {
				say(w, http.StatusForbidden, "call this address by a name of this machine, or configure server.admin_token")
				return
			}
			w.Header().Set("WWW-Authenticate", `Bearer realm="remora admin"`)
			say(w, http.StatusUnauthorized, "want the token of server.admin_token")
			return
		}
		defer s.recovered(w, r)
		next.ServeHTTP(w, r)
	})
}

// recovered logs a panic without its value, which may contain content. It must be deferred directly.
func (s *Server) recovered(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
		panic(v)
	}
	if s.o.Log != nil {
		s.o.Log.Error("recovered from a panic", "route", r.Pattern, "panic", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
	}
	say(w, http.StatusInternalServerError, "internal error")
}

func (s *Server) allowed(r *http.Request) bool {
	if s.o.Token == "" {
		return loopback(s.o.Listen) && loopback(r.Host)
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	hash := sha256.Sum256([]byte(token))
	return strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(hash[:], s.hash[:]) == 1
}

func say(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

// quiet drops the log of http.Server, which reports disconnected clients and quotes their requests.
type quiet struct{}

func (quiet) Enabled(context.Context, slog.Level) bool  { return false }
func (quiet) Handle(context.Context, slog.Record) error { return nil }
func (q quiet) WithAttrs([]slog.Attr) slog.Handler      { return q }
func (q quiet) WithGroup(string) slog.Handler           { return q }
