package pipeline

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/layer"
	"remora/memory/view"
)

// layerSet is the layers of one request, in slot order, with the data for their hooks.
type layerSet struct {
	p      *Pipeline
	tenant string
	turn   layer.Turn
	layers []*runningLayer

	completed atomic.Pointer[layer.Result] // how the work of the session ended, by a tool

	mu sync.Mutex // guards what layers and the parts of a run collect
}

// Empty reports whether there is no layer to call. Then the run only fits the view to its budget.
func (r *layerSet) Empty() bool { return len(r.layers) == 0 }

// any reports whether an enabled layer satisfies the condition.
func (r *layerSet) any(is func(*runningLayer) bool) bool {
	return slices.ContainsFunc(r.layers, func(m *runningLayer) bool { return !m.off && is(m) })
}

func (r *layerSet) executionKey(u *unit) executionKey {
	return executionKey{r.tenant, r.turn.Execution, u.ID}
}

// add makes the run of a layer.
func (r *layerSet) add(u *unit, states map[Cell]layer.State, cred Credential) *runningLayer {
	turn := r.turn
	m := &runningLayer{unit: u, of: r, turn: &turn, cell: u.cell(&turn), held: new(held), report: Report{ID: u.ID, Name: u.Name}}
	turn.Note, turn.Layer = m.addNote, u.ID
	if u.Model != nil {
		turn.Ask = remembering{u.Model(cred)}
	}
	switch {
	case u.Scope != layer.Execution:
		m.stored = states[m.cell]
		m.next, m.held.state = m.stored, m.stored
	case turn.Execution != "":
		m.held = r.p.executions.FindOrPut(r.executionKey(u), m.held, keptExecutions)
	}
	return m
}

// runningLayer is a layer within a run.
type runningLayer struct {
	*unit
	of   *layerSet
	turn *layer.Turn
	cell Cell
	held *held
	off  bool // its init failed: all its hooks are skipped

	// guarded by layerSet.mu
	stored  layer.State // in the store
	next    layer.State // as last listed by Changes
	journal []replay    // of what is not written
	listed  int         // how much of the journal Changes has seen
	report  Report
	block   view.Block // of the last recall
	asked   bool       // by it
	failed  bool       // and returned an error, the last time in the request
	silent  bool       // it was not, since the layer was quiet
	unshown bool       // the view had no room for the block

	rerender bool // recall even where an earlier block would do
}

// quiet reports whether the layer's recall can be skipped (layer.Quieter). If Quiet panics, recall runs: its panics are
// handled.
func (m *runningLayer) quiet(turn *layer.Turn) (quiet bool) {
	if m.quieter == nil {
		return false
	}
	defer func() {
		if recover() != nil {
			quiet = false
		}
	}()
	s, _ := m.held.load()
	quiet = m.quieter.Quiet(turn, s)
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	m.silent = quiet
	return quiet
}

// initState runs init on the state that the run begins with. A layer whose init fails is off for the run.
func (m *runningLayer) initState(ctx context.Context) error {
	if m.init == nil {
		return nil
	}
	stored, version := m.held.load()
	next, err := call(ctx, m, layer.HookInit, func(ctx context.Context) (layer.State, error) {
		next, err := m.init.Init(ctx, m.turn, stored)
		if err == nil {
			err = checkState(stored, next)
		}
		return next, err
	})
	if err != nil {
		m.off = true
		return err
	}
	if !same(stored, next) {
		m.held.swap(version, next) // a concurrent request of the execution may have been first: its state is equivalent
	}
	return nil
}

// note adds a call to the layer's report, logs its failure, and tells the observer. stack is that of a panic.
func (m *runningLayer) note(ctx context.Context, e Event, stack []byte) {
	if e.Layer = m.ID; e.Class != ClassNone {
		m.complain(ctx, e, stack)
	}
	m.of.mu.Lock()
	m.report.Time += e.Duration
	if e.Class != ClassNone && m.report.Failed == "" {
		m.report.Failed, m.report.Class = e.Hook, e.Class
	}
	m.of.mu.Unlock()
	if m.of.p.o.Observe != nil {
		m.of.p.o.Observe(ctx, e)
	}
}

// complaintEvery is how often a hook's failures of one class are logged: a layer whose service is down fails with every request.
const complaintEvery = 10 * time.Second

// complain logs a failure by layer, hook and class, if one is due. An error may quote content, and is logged only if it is declared
// safe (layer.Safe).
func (m *runningLayer) complain(ctx context.Context, e Event, stack []byte) {
	const longest = 4 << 10 // bytes of a stack
	level := slog.LevelWarn
	if e.Class == ClassCancelled {
		level = slog.LevelDebug
	}
	unlogged, due := m.of.p.complaints.Due(e.Layer+" "+e.Hook+" "+string(e.Class), m.of.p.o.Now(), complaintEvery)
	if !due {
		return
	}
	attrs := []slog.Attr{slog.String("layer", e.Layer), slog.String("hook", e.Hook), slog.String("class", string(e.Class))}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", e.Reason))
	}
	if stack != nil {
		attrs = append(attrs, slog.String("stack", string(stack[:min(len(stack), longest)])))
	}
	attrs = append(attrs, slog.Int("unlogged", unlogged))
	m.of.p.o.Log.LogAttrs(ctx, level, "layer hook failed", attrs...)
}

// addNote records a named value of the turn, if a record can contain it.
func (m *runningLayer) addNote(name string, value any) {
	switch v := value.(type) {
	case string:
		if len(v) > longestNote {
			return
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return // not representable in JSON
		}
	case int, bool:
	default:
		return
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if _, again := m.report.Notes[name]; len(name) > longestNote || !again && len(m.report.Notes) >= maxNotes {
		return
	}
	if m.report.Notes == nil {
		m.report.Notes = make(map[string]any)
	}
	m.report.Notes[name] = value
}

// keep sets the state to next, and records the step for replay.
func (m *runningLayer) keep(version uint64, next layer.State, how replay) bool {
	if len(next) == 0 {
		next = nil
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	if !m.held.swap(version, next) {
		return false
	}
	if m.cell.Scope == layer.Execution {
		m.of.p.executions.Resize(m.of.executionKey(m.unit), entrySize+len(next), m.of.p.keptBytes)
	} else {
		m.journal = append(m.journal, how)
	}
	return true
}

// checked returns a recalled block, if it keeps the limits.
func (m *runningLayer) checked(rec layer.Recalled, limit int) (view.Block, error) {
	const (
		refusedAt    = 4  // times the budget
		bytesOfToken = 32 // at most, in text that people write
	)
	b := view.Block{Layer: m.ID, Slot: m.Slot}
	if m.Placement.Live() {
		b.Place = view.End()
	}
	size := 0
	for _, text := range rec.Messages {
		if size += len(text); text != "" {
			b.Texts = append(b.Texts, text)
		}
	}
	overBudget := func() error { return refused("want %d tokens, have more than %d times as many", limit, refusedAt) }
	switch {
	case size > layer.MaxRecall || len(b.Texts) > maxMessages:
		return view.Block{}, refused("want at most %d messages of %d bytes together", maxMessages, layer.MaxRecall)
	case size/bytesOfToken/refusedAt > limit:
		return view.Block{}, overBudget()
	}
	for _, text := range b.Texts {
		b.Tokens += m.turn.Count(text)
	}
	switch {
	case (b.Tokens-1)/refusedAt >= limit: // more than refusedAt times, without overflow
		return view.Block{}, overBudget()
	case b.Tokens > limit:
		return view.Block{}, refuse(ClassBudget)
	}
	return b, nil
}

// lenient runs a hook that returns only a state. The state is kept even with an error.
func (m *runningLayer) lenient(ctx context.Context, hook string, fn func(context.Context, layer.State) (layer.State, error)) {
	var mu sync.Mutex // a call that was given up may still be running when this has returned
	var fault error
	m.each(ctx, hook, func(ctx context.Context, s layer.State) (layer.State, error) {
		next, err := fn(ctx, s)
		if err == nil || next == nil {
			return next, err
		}
		mu.Lock()
		defer mu.Unlock()
		fault = err
		return next, nil
	})
	mu.Lock()
	defer mu.Unlock()
	if fault != nil {
		m.note(ctx, Event{Hook: hook, Begun: m.of.p.o.Now(), Class: ClassError, Reason: layer.SafeText(fault)}, nil)
	}
}

// each runs a hook that returns only a state. call has logged, traced and reported failures.
func (m *runningLayer) each(ctx context.Context, hook string, fn func(context.Context, layer.State) (layer.State, error)) {
	_, _ = update(ctx, m, hook, func(ctx context.Context, s layer.State) (struct{}, layer.State, error) {
		next, err := fn(ctx, s)
		return struct{}{}, next, err
	})
}
