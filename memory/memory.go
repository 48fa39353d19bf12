// Package memory decides what to send upstream instead of what the client sent, and what to keep of it.
//
// A request is merged into its session's transcript (package transcript). The view that goes upstream is the request's
// own items, or the stored history before them, under a window and without orphans (package view). When the answer has
// come, input and answer are committed together (commit.go); while the store is down they wait in a spool (spool.go).
//
// The package knows no HTTP, and of wire formats only wire.Item.
package memory

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"remora/cache"
	"remora/memory/anchor"
	"remora/memory/pipeline"
	"remora/memory/transcript"
	"remora/memory/view"
	"remora/wire"
)

// ErrUnavailable is returned by Begin when the store cannot be read and memory.on_store_error is "closed".
var ErrUnavailable = errors.New("memory store is unavailable")

// What to do with a call when the store cannot be read.
const (
	OnStoreErrorOpen   = "open"
	OnStoreErrorClosed = "closed"
)

// Options configure a Memory. The zero value of a duration means its default.
type Options struct {
	// CommitWait is how long the end of an answer may wait for its commit (store.commit_wait).
	CommitWait time.Duration
	// ReadWait is how long a request may wait for its session to be read (store.read_wait).
	ReadWait time.Duration
	// OpenDelay is how long upstream may take before the input is made durable on its own (store.open_delay).
	OpenDelay time.Duration
	// SessionTTL is how long a session is kept after its last turn; 0 is for ever.
	SessionTTL time.Duration
	// RetryDelay is how long the store is left alone after it failed, and how often the spool is tried meanwhile.
	RetryDelay time.Duration
	// OnStoreError is "open" (forward without memory) or "closed" (refuse).
	OnStoreError string
	// Shape is what views are made by.
	Shape
	// Lost is told of turns that neither the store nor the spool took. It may be nil.
	Lost func(turns int)
	// Log receives one line per failure, never content. Now and After are the clock.
	Log *slog.Logger
	Now func() time.Time
}

// Shape says what views are made of. It can be replaced while turns are under way: each keeps the one that it began with.
type Shape struct {
	// Window is the history window, nil for none.
	Window *view.Window
	// Layers contribute to views; nil for none.
	Layers *pipeline.Pipeline
	// Summarize puts a summary in the place of history that a view has no room for (policy overflow: summarize). It needs
	// Layers. OverflowModel makes it; without one it has excerpts.
	Summarize     bool
	OverflowModel pipeline.ModelSource
	// ToolResult is how many tokens of a tool result are sent at most, 0 for all (see view.ShortenResult).
	ToolResult int
	// PromptCache keeps the beginning of views the same for the provider's prompt cache; nil lets layers' blocks change it
	// with every request.
	PromptCache *anchor.Config
	// Context is the context length of a model in tokens, 0 where it is not known; nil knows none. Price counts an item's
	// tokens for a model, AtMost a number that it never exceeds, found more cheaply; windows by tokens need both.
	Context func(model string) int
	Price   func(model string, it wire.Item) int
	AtMost  func(it wire.Item) int
}

func (o *Options) defaults() {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.CommitWait, 250 * time.Millisecond},
		{&o.ReadWait, 250 * time.Millisecond},
		{&o.OpenDelay, 20 * time.Millisecond},
		{&o.RetryDelay, 500 * time.Millisecond},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.OnStoreError == "" {
		o.OnStoreError = OnStoreErrorOpen
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock of a library that takes one
	}
}

// Memory serves all sessions of a process. It is safe for concurrent use.
type Memory struct {
	o     Options
	shape atomic.Pointer[Shape]
	store cache.Store
	spool *spooler
	locks [256]chan struct{} // one turn of a session at a time commits; striped by session

	seed   maphash.Seed
	log    *transcript.Log
	epochs *epochs

	mu     sync.Mutex
	down   time.Time          // until when the store is left alone
	slow   int                // calls in a row that it did not answer in time
	unread time.Time          // until when the log tells no more that a session cannot be read
	asking bool               // whether it is being asked if it is there at all
	away   bool               // whether the log says that it failed, and not yet that it is back
	life   context.Context    //nolint:containedctx // of the work in the background
	close  context.CancelFunc // ends it
	work   sync.WaitGroup

	openings openings

	settling chan struct{} // one for each turn whose layers are slow to store
	settles  sync.WaitGroup
}

// New opens a memory over a store. Turns that the store cannot take go to the spool, which may be nil: then they are
// lost, and each loss is logged.
func New(store cache.Store, spool Spool, o Options) *Memory {
	o.defaults()
	m := &Memory{o: o, store: store, seed: maphash.MakeSeed(), log: transcript.New(store, o.SessionTTL), epochs: newEpochs()}
	m.log.Strict = o.OnStoreError == OnStoreErrorClosed // what cannot be kept is refused
	m.Reshape(o.Shape)
	for i := range m.locks {
		m.locks[i] = make(chan struct{}, 1)
	}
	m.openings.tick, m.openings.work = o.OpenDelay/openTicks, &m.work
	m.life, m.close = context.WithCancel(context.Background())
	m.settling = make(chan struct{}, maxSettling)
	m.spool = newSpooler(m.life, m, spool)
	return m
}

// Reshape replaces what views are made by, for turns that begin from now on.
func (m *Memory) Reshape(s Shape) { m.shape.Store(&s) }

// Close waits for work in the background, that of layers for ten seconds at most. Turns under way must have been
// committed before. It closes neither the store nor the spool.
func (m *Memory) Close() {
	impatient := time.AfterFunc(closeGrace, m.close) //nolint:forbidigo // wakes; no clock is read
	m.settles.Wait()
	impatient.Stop()
	m.close()
	m.openings.stop()
	m.spool.stop()
	m.work.Wait()
}

// Begin works out the view of a call. It fails with ErrUnavailable, or with a *[pipeline.InitError] of a layer that is
// configured so; any other trouble leaves a turn whose view is what the client sent, under the window, and a degraded
// Summary.
func (m *Memory) Begin(ctx context.Context, c Call) (*Turn, error) {
	now := m.o.Now()
	t := &Turn{
		ID: newTurnID(now), m: m, shape: m.shape.Load(), base: context.WithoutCancel(ctx), started: now, credential: c.Credential,
		call: transcript.Call{Scope: c.Scope, Request: c.Request, History: c.History, Side: c.Side},
	}
	if c.Unkept {
		t.unkept, t.entry, t.View = true, m.log.Detached(t.ID, t.started, t.call), c.Request.Items()
		return t, t.guard(ctx)
	}
	err := t.begin(ctx)
	if err == nil {
		return t, nil
	}
	if _, ok := errors.AsType[*pipeline.InitError](err); ok {
		return nil, err
	}
	m.failed(err)
	if m.o.OnStoreError == OnStoreErrorClosed {
		return nil, &unavailableError{err, m.o.RetryDelay}
	}
	return t, t.degrade(ctx)
}

// Guards tells whether layers have to judge the answers of all requests, unkept ones too.
func (m *Memory) Guards() bool { return m.shape.Load().Layers.Guards() }

// lock waits until no other turn of the session commits in this process.
// It holds one of m.locks, which is given back by a receive.
func (m *Memory) lock(ctx context.Context, s Scope) (held <-chan struct{}, err error) {
	at := maphash.String(m.seed, s.Tenant) + maphash.String(m.seed, s.Session)
	l := m.locks[at%uint64(len(m.locks))]
	select {
	case l <- struct{}{}:
		return l, nil
	default:
	}
	select {
	case l <- struct{}{}:
		return l, nil
	case <-ctx.Done():
		return nil, errBusy
	}
}

var errBusy = errors.New("too many turns of this session commit at once")

var errLeftAlone = errors.New("store failed a moment ago")

// available tells whether the store should be tried.
func (m *Memory) available() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.down.IsZero() && m.o.Now().Before(m.down) {
		return errLeftAlone
	}
	return nil
}

// slowCalls is after how many calls in a row that were not answered in time the store is asked whether it is there at
// all. A disk that takes its time for one fsync, or a call that was large, is no reason to go on without memory.
const slowCalls = 3

// failed notes a failure of the store, so that the calls that follow do not each wait for it.
func (m *Memory) failed(err error) {
	if errors.Is(err, errLeftAlone) || errors.Is(err, errBusy) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if errors.Is(err, cache.ErrUnreadable) || errors.Is(err, transcript.ErrCorrupt) {
		m.tellUnreadable(err)
		return
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		m.leaveAlone(err)
		return
	}
	if m.slow++; m.slow >= slowCalls && !m.asking {
		m.asking = true
		m.work.Go(m.ask)
	}
}

// unreadableEvery is how often the log tells that sessions cannot be read.
const unreadableEvery = 10 * time.Second

// tellUnreadable logs that a session is there and cannot be read. The caller holds the lock.
func (m *Memory) tellUnreadable(err error) {
	if now := m.o.Now(); !now.Before(m.unread) {
		m.unread = now.Add(unreadableEvery)
		m.o.Log.Warn("a session cannot be read; its calls go on without memory", "error", err.Error())
	}
}

// ask finds out whether a store that was slow several times is there.
func (m *Memory) ask() {
	ctx, cancel := context.WithTimeout(context.Background(), m.o.RetryDelay)
	defer cancel()
	err := m.store.Ping(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asking, m.slow = false, 0
	if err != nil {
		m.leaveAlone(err)
	}
}

// leaveAlone lets calls go on without the store for a while. The caller holds the lock.
func (m *Memory) leaveAlone(err error) {
	now := m.o.Now()
	if !m.away && !now.Before(m.down) {
		level, calls := slog.LevelWarn, "go on without it"
		if m.o.OnStoreError == OnStoreErrorClosed {
			calls = "of sessions get 503 (memory.on_store_error: closed)"
		}
		if errors.Is(err, cache.ErrDenied) {
			level = slog.LevelError // no waiting cures it
		}
		m.o.Log.Log(m.life, level, "store failed", "error", err.Error(), "calls", calls, "retry_in", m.o.RetryDelay.String())
		m.away = true
	}
	m.down = now.Add(m.o.RetryDelay)
}

// begin loads the session, merges the request into it and assembles the view. The store has its time; layers have their
// own.
func (t *Turn) begin(ctx context.Context) error {
	read := within(ctx, t.m.o.ReadWait)
	defer read.end()
	if err := t.m.spool.settle(read, t.call.Scope); err != nil { //nolint:contextcheck // read is made of ctx
		return err
	}
	if err := t.m.available(); err != nil {
		return err
	}
	if err := t.enter(read, ctx); err != nil {
		return err
	}
	return t.assemble(read, ctx)
}

// degrade serves a turn from what the client sent alone.
func (t *Turn) degrade(ctx context.Context) error {
	t.entry, t.Tools = t.m.log.Detached(t.ID, t.started, t.call), nil
	if err := t.guard(ctx); err != nil {
		return err
	}
	if err := t.assemble(ctx, ctx); err != nil {
		panic(fmt.Sprintf("BUG: assemble without a store: %v", err))
	}
	t.Summary.Status = StatusDegraded
	return nil
}

// assemble builds the view and the summary of the turn.
func (t *Turn) assemble(read, hooks context.Context) error {
	l := t.layers
	if l != nil {
		if err := t.append(hooks); err != nil {
			return err
		}
	}
	w := t.shape.Window
	c, err := t.entry.Conversation(read, t.want())
	if err != nil {
		return err
	}
	leaveUnsealed(t.call.Request, &c)
	whole := c
	t.Summary = Summary{Side: c.Side}
	if l != nil {
		t.recall(hooks, &c)
	}
	if c.Opaque {
		t.View = slices.Concat(c.Lead, c.Items)
		view.ShortenResults(t.View, t.shape.ToolResult)
		t.Summary.Items, t.Summary.Sent = len(t.View), len(t.View)
		t.entry.Viewed(&c, nil, t.shape.ToolResult)
		t.show(&c)
		return nil
	}
	if c.Side {
		w = nil // a side request (a summary to be made, a title) needs all that the client chose to send
	}
	v := view.Assemble(view.Request{
		Lead: c.Lead, Items: c.Items, Hidden: c.Hidden, Offset: c.Offset, Resolve: t.entry.Resolver(), Window: w,
		Anchor: t.anchor(read, &c),
	})
	view.ShortenResults(v.Items, t.shape.ToolResult)
	if l != nil {
		t.plan(&c, &v)
		if cut := l.states.keeps().cut; cut != nil && !c.Side {
			cut.replace(v.Start)
		}
		t.fit(hooks, &c, &v)
		if l.states.keeps().told != nil {
			before := whole
			t.evict(read, &before, pipeline.Pick(c.Items, v.Kept))
		}
		v.Windowed += l.passedOver
	}
	if c.Stored {
		v.Windowed += c.Offset // what of the stored history stands too far back to be read
	}
	t.Summary.Saved = max(0, sizeOf(whole.Items)-sizeOf(v.Items[len(c.Lead):]))
	t.viewed(&c, &v)
	return nil
}

// viewed takes over a view that was chosen, and says how.
func (t *Turn) viewed(c *transcript.Conversation, v *view.View) {
	t.View = v.Items
	t.Summary.Sent, t.Summary.Windowed, t.Summary.Orphans = len(c.Lead)+v.Units, v.Windowed, v.Orphans
	t.Summary.Items = t.Summary.Sent + t.Summary.Windowed + t.Summary.Orphans
	t.entry.Viewed(c, v, t.shape.ToolResult)
	t.show(c)
}
