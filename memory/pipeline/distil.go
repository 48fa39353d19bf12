package pipeline

import (
	"context"
	"maps"
	"sync"
	"time"

	"remora/memory/layer"
)

// distillers says which states turns of this process distil, and whose model rests after a failure.
type distillers struct {
	mu    sync.Mutex
	until map[distilling]time.Time // zero while the model is asked
	sweep int                      // how many there are when those that have rested are removed
}

// distilling names a state that a turn distils.
type distilling struct {
	tenant string
	cell   Cell
}

// begin reports whether a turn may distil a state, and keeps other turns from it until end.
func (d *distillers) begin(key distilling, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if until, known := d.until[key]; known && (until.IsZero() || now.Before(until)) {
		return false
	}
	if d.until == nil {
		d.until = make(map[distilling]time.Time)
	}
	d.until[key] = time.Time{}
	return true
}

// rest keeps turns from a state whose model has failed, until it has rested.
func (d *distillers) rest(key distilling, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.until) >= d.sweep { // not each time: in an outage of a model there are many
		maps.DeleteFunc(d.until, func(_ distilling, until time.Time) bool { return !until.IsZero() && now.After(until) })
		d.sweep = max(64, 2*len(d.until))
	}
	d.until[key] = now.Add(layer.ModelRests)
}

// end lets other turns distil a state, unless its model rests.
func (d *distillers) end(key distilling) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until[key].IsZero() {
		delete(d.until, key)
	}
}

// distil lets the models of layers condense their states, concurrently. A state that another turn distils is left out: its texts wait
// for a later turn. The caller must call done once it has written the states.
func (r *lifecycle) distil(ctx context.Context) (done func()) {
	var mine []distilling
	r.together(func(m *runningLayer) bool {
		key := distilling{r.tenant, m.cell}
		if m.distil == nil || !r.p.distillers.begin(key, m.turn.Now) {
			return false
		}
		mine = append(mine, key)
		return true
	}, func(m *runningLayer) {
		if err := m.distilState(ctx); err != nil {
			r.p.distillers.rest(distilling{r.tenant, m.cell}, m.turn.Now)
		}
	})
	return func() {
		for _, key := range mine {
			r.p.distillers.end(key)
		}
	}
}

// distilState asks the layer's model about its state. If the state changes meanwhile, the model is not asked again: only the change
// is made again.
func (m *runningLayer) distilState(ctx context.Context) error {
	s, _ := m.held.load()
	change, err := call(ctx, m, layer.HookStore, func(ctx context.Context) (func(context.Context, layer.State) (layer.State, error), error) {
		return m.distil.Distil(ctx, m.turn, s)
	})
	if change != nil {
		m.lenient(ctx, layer.HookStore, change)
	}
	return err
}
