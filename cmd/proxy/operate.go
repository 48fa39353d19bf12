package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"remora/admin"
	"remora/cache"
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
}

// openOffice serves the address for operators, if there is one.
func openOffice(ctx context.Context, c Config, kept *storage, t *telemetry.Telemetry, log *slog.Logger) (*office, error) {
	o := &office{kept: kept, spool: c.Store.Spool, served: make(chan struct{})}
	if c.Server.AdminListen == "" {
		close(o.served)
		return o, nil
	}
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", c.Server.AdminListen)
	if err != nil {
		return nil, fmt.Errorf("open server.admin_listen %s: %w", c.Server.AdminListen, err)
	}
	var routes []admin.Route
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
	return o, nil
}

// readyWait is how long the store may take to say that it is there.
const readyWait = 500 * time.Millisecond

// ready says why this process should get no requests: it stops, or what it is told would be lost.
func (o *office) ready() error {
	if o.stopping.Load() {
		return errors.New("stopping")
	}
	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	if o.kept.Ping(ctx) == nil {
		return nil
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
