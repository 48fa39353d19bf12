package pipeline

import (
	"context"
	"fmt"
	"maps"
	"math"
	"sync"
	"time"

	"remora/memory/layer"
	"remora/wire"
)

// Run is one request's way through the layers. Its methods may be called from several goroutines, but for Rebase. All
// of them do nothing on a nil Run.
type Run struct {
	p       *Pipeline
	tenant  string
	turn    layer.Turn
	members []*member

	mu       sync.Mutex // guards what members and the run collect
	renders  int        // calls of Recall that an append asked for
	overhead int        // tokens of a view beside its history, once Recall is done
}

// member is a layer within a run.
type member struct {
	*unit
	turn *layer.Turn
	cell Cell
	held *held
	off  bool // its init failed: all its hooks are skipped

	// guarded by Run.mu
	stored  layer.State // in the store
	next    layer.State // as last listed by Changes
	journal []replay    // of what is not written
	listed  int         // how much of the journal Changes has seen
	report  Report
	said    Block // in the last recall
	asked   bool  // by it
	dirty   bool  // recall even where an earlier one would do
}

// Report is what a layer did in a run.
type Report struct {
	ID     string
	Slot   int
	Tokens int // of what it recalled last
	Items  int // messages of that
	Time   time.Duration
	// Failed is the first hook that failed, and Class how; empty for none.
	Failed string
	Class  Class
	// Notes are the figures that the layer told of the turn, nil for none.
	Notes map[string]any
}

// InitError fails a request: a layer could not be made ready.
type InitError struct {
	Layer string
	Class Class
	cause error
}

// Error names the layer and the class of what went wrong, never what was said about it.
func (e *InitError) Error() string { return fmt.Sprintf("layer %s: init: %s", e.Layer, e.Class) }

// Unwrap returns what the layer said, which may quote content.
func (e *InitError) Unwrap() error { return e.cause }

// Begin starts a request: states are what is stored under Cells, and the init hooks run in slot order. cred is what
// layers' models may use. The error is an *InitError, of a layer that does not disable itself.
func (p *Pipeline) Begin(ctx context.Context, tenant string, t layer.Turn, states map[Cell]layer.State, cred Credential) (*Run, error) {
	if p == nil {
		return nil, nil
	}
	if p.idle != nil {
		return p.idle, nil
	}
	r := &Run{p: p, tenant: tenant, turn: t}
	if len(p.layers) == 0 {
		return r, nil // it cuts views to their size, and hands nobody a turn
	}
	if r.turn.Count == nil {
		model := t.Model
		r.turn.Count = func(text string) int { return p.o.Count(model, text) }
	}
	if r.turn.CountItem == nil {
		model := t.Model
		r.turn.CountItem = func(it wire.Item) int { return p.o.CountItem(model, it) }
	}
	r.turn.Ask = nil
	r.members = make([]*member, len(p.layers))
	for i, u := range p.layers {
		r.members[i] = r.join(u, states, cred)
	}
	for _, m := range r.members {
		if err := r.initState(ctx, m, m.stored); err != nil && m.OnInitError == Throw {
			return nil, &InitError{m.ID, classOf(err), err}
		}
	}
	return r, nil
}

func (r *Run) join(u *unit, states map[Cell]layer.State, cred Credential) *member {
	own := r.turn
	m := &member{unit: u, turn: &own, cell: u.cell(&r.turn), report: Report{ID: u.ID, Slot: u.Slot}}
	own.Note = func(name string, value any) { r.jot(m, name, value) }
	if u.Model != nil {
		own.Ask = u.Model.Bind(cred)
	}
	if u.Scope != layer.Execution {
		m.stored = states[m.cell]
		m.next = m.stored
		m.held = &held{state: m.stored}
		return m
	}
	m.held = new(held)
	if r.turn.Execution != "" {
		m.held = r.p.executions.getOrPut(r.executionKey(u), m.held)
	}
	return m
}

func (r *Run) executionKey(u *unit) executionKey {
	return executionKey{r.tenant, r.turn.Execution, u.ID}
}

// initState runs init on a stored state. A layer whose init fails is switched off for the run.
func (r *Run) initState(ctx context.Context, m *member, stored layer.State) error {
	if m.init == nil {
		return nil
	}
	if m.cell.Scope == layer.Execution {
		stored, _ = m.held.load()
	}
	_, version := m.held.load()
	next, err := call(ctx, r, m, layer.HookInit, func(ctx context.Context) (layer.State, error) {
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
		m.held.swap(version, next) // a parallel request of the execution may have been first: its state is as good
	}
	return nil
}

// Empty tells that there is no layer to call: then a view is cut to its size, and that is all.
func (r *Run) Empty() bool { return r.none() }

// none tells that there is nobody to call.
func (r *Run) none() bool { return r == nil || len(r.members) == 0 }

// note adds a call to the layer's report, and tells the observer.
func (r *Run) note(ctx context.Context, m *member, e Event) {
	r.mu.Lock()
	m.report.Time += e.Duration
	if e.Class != ClassNone && m.report.Failed == "" {
		m.report.Failed, m.report.Class = e.Hook, e.Class
	}
	r.mu.Unlock()
	if r.p.o.Observe != nil {
		r.p.o.Observe(ctx, e)
	}
}

// jot takes down a figure of the turn, if it is one that a record can show.
func (r *Run) jot(m *member, name string, value any) {
	switch v := value.(type) {
	case string:
		if len(v) > longestNote {
			return
		}
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return // no JSON could say it
		}
	case int, bool:
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, again := m.report.Notes[name]; len(name) > longestNote || !again && len(m.report.Notes) >= maxNotes {
		return
	}
	if m.report.Notes == nil {
		m.report.Notes = make(map[string]any)
	}
	m.report.Notes[name] = value
}

// Report tells what each layer did, in slot order.
func (r *Run) Report() []Report {
	if r.none() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reports := make([]Report, len(r.members))
	for i, m := range r.members {
		reports[i] = m.report
		reports[i].Notes = maps.Clone(m.report.Notes)
	}
	return reports
}
