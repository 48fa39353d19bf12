package pipeline

import (
	"fmt"
	"maps"
	"time"

	"remora/memory/layer"
)

// Run is one request's run of the layers. Its methods, except Rebase, may be called from several goroutines.
type Run struct {
	*layerSet
	preparation // what is sent: Append, Recall, Project
	Sizer       // what of it fits: Fit
	toolbox     // tools that layers offer: Definitions, RunTool
	review      // what the model wants and answers: ReviewCall, ReviewResponse
	lifecycle   // after the answer: Store, Evict, Complete, Spawn, Dispose
	states      // of the layers: Changes, Written, Rebase

	own layerSet // that all of them have
}

// newRun returns a run that no layer has joined yet.
func newRun(p *Pipeline, tenant string, t layer.Turn) *Run {
	r := &Run{own: layerSet{p: p, tenant: tenant, turn: t}, Sizer: Sizer{&p.o, p.o.Policy, p.free, t.Model}}
	r.layerSet = &r.own
	r.preparation, r.toolbox, r.review = preparation{layerSet: r.layerSet, sizer: &r.Sizer}, toolbox{r.layerSet}, review{r.layerSet}
	r.lifecycle, r.states = lifecycle{r.layerSet}, states{r.layerSet}
	return r
}

// Limit lowers the size of the view to at most this many tokens, which the model has shown to be what it takes. Call it before the
// hooks: layers' shares follow from it. A run without layers and limits stays as it is, since other requests share it.
func (r *Run) Limit(tokens int) {
	if r.Empty() && !r.Limited() {
		return
	}
	r.free = min(r.free, max(0, float64(tokens)))
	r.policy.Budget, r.policy.Reserve = r.free, 0
}

// idle is a run without layers and limits. It is never changed.
var idle = func() *Run {
	o, free := Options{}.withDefaults()
	return newRun(&Pipeline{o: o, free: free}, "", layer.Turn{})
}()

// Idle returns a run without layers and limits, to stand where none has begun.
func Idle() *Run { return idle }

// Report is a layer's part in a run.
type Report struct {
	ID   string
	Name string // what people call it
	Time time.Duration
	// Failed is the first hook that failed, and Class how; empty for none.
	Failed string
	Class  Class
	// NoRoom: the layer's share was too small for any of its text.
	NoRoom bool
	// Notes are the layer's notes of the turn, nil for none.
	Notes map[string]any
}

// InitError fails a request: the init of a layer failed.
type InitError struct {
	Layer string
	Class Class
	cause error
}

// Error names the layer and the class of the failure, without the layer's own error text.
func (e *InitError) Error() string { return fmt.Sprintf("layer %s: init: %s", e.Layer, e.Class) }

// Unwrap returns the layer's own error, which may quote content.
func (e *InitError) Unwrap() error { return e.cause }

// Completed returns how the work of the session has ended in this turn, empty if it has not.
func (r *Run) Completed() layer.Result {
	if result := r.completed.Load(); result != nil {
		return *result
	}
	return ""
}

// Report returns the reports of all layers, in slot order.
func (r *Run) Report() []Report {
	if r.Empty() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	reports := make([]Report, len(r.layers))
	for i, m := range r.layers {
		reports[i] = m.report
		reports[i].Notes = maps.Clone(m.report.Notes)
	}
	return reports
}
