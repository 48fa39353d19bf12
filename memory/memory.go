// Package memory gives sessions memory: it decides which items a request sends upstream, and stores the turn.
//
// [Memory] serves all sessions of a process. [Memory.Begin] reads the session, finds the place of the request in it (package
// session), asks the layers (package pipeline) and chooses the view, the items to send (package view). It returns a [Turn]. If
// layers judge answers or have tools of their own, [Turn.Review] decides how the turn continues. [Turn.Commit] stores input,
// answer and the states of layers in one write. While the store is down, they wait in a spool on local disk (spooler.go).
// [Transcripts] list, export and import sessions, [Deletions] remove them; [Memory.Complete] ends an agent's work.
//
// Failures of the store or of a layer are handled here: the request is forwarded without memory or without that layer, unless
// [Options] or the layer's configuration demand an error.
//
// The package does no HTTP and calls no upstream; the proxy does. It handles messages of every dialect as [wire.Item].
package memory

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/past"
	"remora/memory/pipeline"
	"remora/memory/replicas"
	"remora/memory/session"
	"remora/memory/turnqueue"
	"remora/memory/view"
)

// Memory serves all sessions of a process. It is safe for concurrent use.
type Memory struct {
	*Transcripts
	*Deletions

	o     Options
	shape atomic.Pointer[Shape]
	store cache.Store
	log   *session.Log

	spool      *spooler
	parked     *parkedTurns
	locks      *sessionLocks
	outages    *outages
	tombstones tombstones
	missing    missingSessions
	delayed    delayedWrites
	prefixes   *layer.Decoded[view.Prefix]
	past       *past.Past
	heartbeat  *replicas.Heartbeat
	peers      *replicas.Peers

	background
}

// background is work that no request waits for.
type background struct {
	life     context.Context    //nolint:containedctx // of this work
	close    context.CancelFunc // ends it
	work     sync.WaitGroup
	settling *settling // of layers that are slow to learn
}

// New opens a memory over a store. If the store fails, turns go to the spool. Without a spool they are lost, and each loss is
// logged.
func New(store cache.Store, spool Spool, o Options) *Memory {
	o.defaults()
	m := &Memory{
		o: o, store: store, log: session.New(store, o.SessionTTL), locks: newSessionLocks(), tombstones: tombstones{store},
		prefixes: layer.NewDecoded(view.DecodePrefix),
	}
	m.log.Strict = o.OnStoreError == OnStoreErrorClosed // requests that cannot be stored are refused
	m.Reshape(o.Shape)
	m.life, m.close = context.WithCancel(context.Background())
	m.settling = newSettling(m.life, o.Log, o.Now)
	m.delayed.tick, m.delayed.work = o.OpenDelay/delayTicks, &m.work

	m.past = past.New(m.life, past.Options{
		Sessions: m.log, Store: store, TTL: o.SessionTTL, Bytes: o.IndexBytes, Log: o.Log, Now: o.Now,
	})
	m.parked = newParkedTurns(m)
	m.Transcripts = &Transcripts{store: store, log: m.log, parked: m.parked, now: o.Now}
	m.Deletions = &Deletions{m: m}
	var queue *turnqueue.Queue
	if spool != nil {
		queue = turnqueue.New(spool, o.Log, o.Now)
	}
	m.heartbeat, m.peers = replicas.New(replicas.Options{Store: store, Shared: o.Shared, Place: o.Place, Waiting: queue, Log: o.Log, Now: o.Now})
	m.log.Owner = m.heartbeat.Self()
	m.outages = newOutages(m, queue)
	m.spool = newSpooler(m, queue)
	m.spool.begin(m.life)

	if o.Shared {
		m.heartbeat.Begin(m.life)
		m.work.Go(func() { m.heartbeat.Run(m.life) })
		m.work.Go(func() { m.peers.Run(m.life) })
		m.work.Go(m.parked.run)
	}
	if o.SessionTTL > 0 {
		m.work.Go(m.sweeps)
	}
	return m
}

// Reshape replaces the Shape for new turns.
func (m *Memory) Reshape(s Shape) { m.shape.Store(&s) }

// closeGrace is how long Close waits for settling turns, and for the store to take spooled ones.
const closeGrace = 8 * time.Second

// Close waits for background work, at most eight seconds for layers and for the store to take spooled turns, and two for the spool's
// disk. Commit all turns before. It closes neither the store nor the spool.
func (m *Memory) Close() {
	grace, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	stop := context.AfterFunc(grace, m.close)
	m.settling.work.Wait()
	m.spool.empty(grace)
	stop()
	m.close()
	m.spool.stop()
	m.work.Wait()
	m.past.Wait()
	if m.o.Shared {
		ctx, cancel := context.WithTimeout(context.Background(), m.o.CommitWait)
		defer cancel()
		m.parked.writeSessions(ctx, &m.parked.sessions)
		m.heartbeat.Stop(ctx)
	}
}

// Begin makes the view of a call. It fails with ErrUnavailable, or with a *[pipeline.InitError] of a layer that is
// configured so; after any other error the view is the client's items, under the window, and the Summary is degraded.
func (m *Memory) Begin(ctx context.Context, c Call) (*Turn, error) {
	t := &Turn{turnInfo: beginTurnInfo(m, c)}
	t.base = context.WithoutCancel(ctx)
	t.writer.turnInfo = &t.turnInfo
	if c.Unkept {
		t.writer.entry, t.View = m.log.Detached(t.ID, t.started, t.call.inSession()), c.Request.Items()
		t.messages = view.Messages{Dialect: c.Request.Dialect, Items: t.View}
		var err error
		t.layers, err = t.guard(ctx, t.writer.entry)
		return t, err
	}

	err := t.begin(ctx)
	if err == nil {
		t.Previous, t.LeavesPrevious = t.writer.entry.Previous(), t.writer.entry.LeavesPrevious()
		return t, nil
	}
	if _, ok := errors.AsType[*pipeline.InitError](err); ok {
		return nil, err
	}
	m.outages.failed(err)
	if m.o.OnStoreError == OnStoreErrorClosed {
		return nil, &unavailableError{err, m.o.RetryDelay}
	}
	return t, t.degrade(ctx)
}

// Guards reports whether layers judge the answers of all requests, also of requests without memory.
func (m *Memory) Guards() bool { return m.shape.Load().Layers.Guards() }

// Response finds an answer by the id that its client has. It is zero for an unknown id.
func (m *Memory) Response(ctx context.Context, tenant, id string) (Response, error) {
	if err := m.outages.available(session.ResponseGroup(tenant, id)); err != nil {
		return Response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.ReadWait)
	defer cancel()
	r, err := m.log.Response(ctx, tenant, id)
	if err != nil {
		m.outages.failed(err)
	}
	return r, err
}

// Late returns the turn of an answer that a client fetches by its id, nil if no turn waits for it. known is the result
// of Response for the answer.
func (m *Memory) Late(tenant, id string, known Response) *Late {
	if known.Later == "" {
		return nil
	}
	return &Late{m, Scope{Tenant: tenant, Session: known.Session}, known.Later, id}
}

// ErrStatesNotWritten is returned by Complete where layers were called but their new states could not be stored.
var ErrStatesNotWritten = errors.New("states of layers could not be written")

// Complete ends the work of a session, for an agent or an operator: layers are notified of the end of its latest run, and the
// layers of a parent session merge its states. A layer's tool that ends the work does the same. It may be called again. It
// fails with ErrNoSession.
func (m *Memory) Complete(ctx context.Context, s Scope, success bool) error {
	r, err := visitSession(ctx, m, s)
	if err != nil {
		return err
	}
	end := layer.Outcome{Result: layer.Failure, Execution: r.call.Scope.Execution, Thread: r.call.Scope.Session}
	if success {
		end.Result = layer.Success
	}
	if !r.end(ctx, end, true) {
		return ErrStatesNotWritten
	}
	return nil
}

// SpoolTrouble returns why the spool's directory cannot be used, "" if it can. Without it, turns are kept in memory while the
// store is down, and are lost if the process ends.
func (m *Memory) SpoolTrouble() string {
	if err := m.spool.queue.Fault(); err != nil {
		return err.Error()
	}
	m.spool.mu.Lock()
	defer m.spool.mu.Unlock()
	return m.spool.broken
}

// Spooled returns how many turns wait for the store, on disk or in memory, and their size.
func (m *Memory) Spooled() (turns int, bytes int64) { return m.spool.queue.Len() }

// ErrUnavailable is returned by Begin when the store cannot be read and memory.on_store_error is "closed".
var ErrUnavailable = errors.New("memory store is unavailable")

// unavailableError is ErrUnavailable with its reason and the time of the next attempt.
type unavailableError struct {
	cause error
	after time.Duration
}

func (e *unavailableError) Error() string             { return ErrUnavailable.Error() + ": " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error           { return []error{ErrUnavailable, e.cause} }
func (e *unavailableError) RetryAfter() time.Duration { return e.after }
