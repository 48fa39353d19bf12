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
}

// newRun returns a run that no layer has joined yet.
func newRun(p *Pipeline, tenant string, t layer.Turn) *Run {
	set := none
	if len(p.layers) > 0 {
		set = &layerSet{p: p, tenant: tenant, turn: t}
	}
	r := &Run{
		layerSet: set, Sizer: Sizer{&p.o, p.o.Policy, t.Model}, toolbox: toolbox{layerSet: set}, review: review{set}, lifecycle: lifecycle{set}, states: states{set},
	}
	r.preparation = preparation{layerSet: set, sizer: &r.Sizer}
	return r
}

// Limit lowers the size of the view to at most this many tokens, which the model has shown to be what it takes. Call it before the
// hooks: layers' shares follow from it. A run without layers and limits stays as it is, since other requests may share it.
func (r *Run) Limit(tokens int) {
	if r.Empty() && !r.Limited() {
		return
	}
	r.policy.Budget, r.policy.Reserve = min(r.free(), max(0, float64(tokens))), 0
}

// none is the layers of all runs without any: nothing of a turn is kept in it.
var none = &layerSet{p: new(Pipeline)}

// idle is a run without layers and limits. It is never changed.
var idle = newRun(&Pipeline{o: Options{}.withDefaults()}, "", layer.Turn{})

// Idle returns a run without layers and limits, to stand where none has begun.
func Idle() *Run { return idle }

// Turn describes the turn to its layers. It is empty where there are none.
func (r *Run) Turn() *layer.Turn { return &r.turn }

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
	r.mu.Lock()
	defer r.mu.Unlock()
	var reports []Report
	for _, m := range r.layers {
		report := m.report
		report.Notes = maps.Clone(report.Notes)
		reports = append(reports, report)
	}
	return reports
}
