package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"remora/admin"
	"remora/cache"
	"remora/memory"
	"remora/telemetry"
)

// admin is what the configuration says about the address for operators.
func (c *Config) admin(ready func() error, log *slog.Logger) admin.Options {
	return admin.Options{Listen: c.Server.AdminListen, Token: c.Server.AdminToken.Reveal(), Ready: ready, Log: log}
}

// office is what operators see of a running proxy.
type office struct {
	server   *admin.Server // nil without an address
	served   chan struct{}
	stopping atomic.Bool
	kept     *storage
	spool    spoolOptions
	closed   bool                          // memory.on_store_error
	memory   atomic.Pointer[memory.Memory] // nil until it is there
	tenant   func(credential []byte) string
	log      *slog.Logger
}

// doors are the addresses of a proxy. They are opened before anything else, so that one that is taken leaves nothing
// behind; who knocks early waits.
type doors struct {
	clients, operators net.Listener // operators is nil without server.admin_listen
}

func openDoors(ctx context.Context, c Config) (d doors, err error) {
	for _, a := range []struct {
		key, addr string
		door      *net.Listener
	}{{"server.listen", c.Server.Listen, &d.clients}, {"server.admin_listen", c.Server.AdminListen, &d.operators}} {
		if a.addr == "" {
			continue
		}
		if *a.door, err = (&net.ListenConfig{}).Listen(ctx, "tcp", a.addr); err != nil {
			d.close()
			return doors{}, fmt.Errorf("open %s %s: %w", a.key, a.addr, err)
		}
	}
	return d, nil
}

// close closes what a server has not closed already.
func (d doors) close() {
	for _, ln := range []net.Listener{d.clients, d.operators} {
		if ln != nil {
			_ = ln.Close()
		}
	}
}

// openOffice serves the address for operators, unless ln is nil.
func openOffice(ln net.Listener, c Config, kept *storage, t *telemetry.Telemetry, log *slog.Logger) *office {
	o := &office{
		kept: kept, spool: c.Store.Spool, closed: c.Memory.OnStoreError == memory.OnStoreErrorClosed,
		served: make(chan struct{}), tenant: c.Session.Tenant, log: log,
	}
	if ln == nil {
		close(o.served)
		return o
	}
	routes := []admin.Route{admin.Profile(), {
		Pattern: "POST /admin/v1/sessions/{id}/complete", Handler: http.HandlerFunc(o.complete), MaxBody: maxOrder,
	}}
	if c.Telemetry.Metrics.Prometheus {
		routes = append(routes, admin.Route{Pattern: "GET /metrics", Handler: t.Handler()})
	}
	o.server = admin.New(c.admin(o.ready, log), routes...)
	go func() {
		defer close(o.served)
		if err := o.server.Serve(ln); err != nil {
			log.Error("the operators' address is closed", "error", err.Error())
		}
	}()
	return o
}

const (
	// maxOrder is the largest body of a request that ends a session, in bytes.
	maxOrder = 64 << 10
	// completeWait is how long layers may take to be told of an end.
	completeWait = 2 * time.Minute
)

// order is the body of a request that ends a session. Key or Tenant say whose session it is, as the flags of `proxy
// transcript` do: by the credential that its clients use, or by the tenant as it is stored; without either it is one of
// clients without a credential. A key is never part of the path, which logs tell.
type order struct {
	Key     string `json:"key"`
	Tenant  string `json:"tenant"`
	Success *bool  `json:"success"` // of what the session worked on; true if it is not said
}

// complete ends what a session works on: 204 when its layers and those of its parent have been told, 404 where it does
// not exist, 503 where the store does not answer.
func (o *office) complete(w http.ResponseWriter, r *http.Request) {
	var asked order
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&asked); err != nil && !errors.Is(err, io.EOF) || asked.Key != "" && asked.Tenant != "" {
		http.Error(w, `want {"key": "...", "success": true}, or tenant in place of key`, http.StatusBadRequest)
		return
	}
	m := o.memory.Load()
	if m == nil || o.stopping.Load() {
		http.Error(w, "starting or stopping", http.StatusServiceUnavailable)
		return
	}
	s := memory.Scope{Tenant: asked.Tenant, Session: r.PathValue("id")}
	if s.Tenant == "" {
		s.Tenant = o.tenant([]byte(asked.Key))
	}
	ctx, cancel := context.WithTimeout(r.Context(), completeWait)
	defer cancel()
	err := m.Complete(ctx, s, asked.Success == nil || *asked.Success)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, memory.ErrNoSession):
		http.Error(w, "no such session under this credential", http.StatusNotFound)
	default:
		http.Error(w, "the session could not be ended; the log says more", http.StatusServiceUnavailable)
		o.log.Warn("a session could not be ended", "error", err.Error())
	}
}

// readyWait is how long the store may take to say that it is there.
const readyWait = 500 * time.Millisecond

// ready says why this process should get no requests: it stops, it would refuse them, or what it is told would be lost.
func (o *office) ready() error {
	if o.stopping.Load() {
		return errors.New("stopping")
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	err := o.kept.Ping(ctx)
	switch {
	case err == nil:
		return nil
	case o.closed && errors.Is(err, cache.ErrDenied):
		return errors.New("the store refuses the account of store.url, and memory.on_store_error is closed")
	case o.closed:
		return errors.New("the store does not answer, and memory.on_store_error is closed")
	}
	if o.kept.queue == nil {
		return errors.New("the store does not answer, and there is no spool")
	}
	if _, bytes := o.kept.queue.Len(); bytes > o.spool.MaxBytes/10*9 {
		return errors.New("the store does not answer, and the spool is nearly full")
	}
	return nil
}

// close ends the address. Only the store and telemetry outlive it, so that operators see how the rest stops.
func (o *office) close() {
	if o.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = o.server.Shutdown(ctx) // what is left is cut
	<-o.served
}

// observed is a store whose operations are measured.
type observed struct {
	cache.Store
	telemetry *telemetry.Telemetry
	now       func() time.Time
}

// Read reads, and says how long it took.
func (o observed) Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error) {
	begun := o.now()
	results, err := o.Store.Read(ctx, queries)
	o.telemetry.Store(ctx, "read", begun, o.now().Sub(begun), err)
	return results, err
}

// Commit writes, and says how long it took. A conflict is no error of the store.
func (o observed) Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome {
	begun := o.now()
	outcomes := o.Store.Commit(ctx, batches)
	var err error
	for _, out := range outcomes {
		if out.Err != nil && !errors.Is(out.Err, cache.ErrConflict) {
			err = out.Err
		}
	}
	o.telemetry.Store(ctx, "commit", begun, o.now().Sub(begun), err)
	return outcomes
}

// flushWait is how long a stopping proxy waits for its last spans and metrics to be taken.
const flushWait = 5 * time.Second

// measure begins to measure. What is off costs nothing; without any of it there is no telemetry.
func (l *live) measure(ctx context.Context) error {
	o := l.c.Telemetry
	o.Version, o.Now = version(), time.Now
	o.Metrics.Prometheus = o.Metrics.Prometheus && l.c.Server.AdminListen != ""
	t, shutdown, err := telemetry.Setup(ctx, o, l.log)
	if err != nil {
		return err
	}
	l.measured = t
	l.onClose(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushWait)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			l.log.Warn("the last spans or metrics were not taken", "error", err.Error())
		}
	})
	return nil
}
