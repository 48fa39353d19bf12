package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"sync"

	"remora/memory/layer"
)

// globalKey is the key shared by all sessions of a tenant.
const globalKey = "__global__"

// Cell names one state of one layer within a tenant.
type Cell struct {
	Layer string
	// Scope is the layer's, but Thread for scope Resource without a resource: a session and a resource of the same name never
	// share a state.
	Scope layer.Scope
	// Key is the session, the resource, or "__global__", as the client wrote it.
	Key string
}

// Change is a state to be written; a nil State is to be deleted.
type Change struct {
	Cell  Cell
	State layer.State
}

// maxAttempts limits the calls of a hook whose state is changed concurrently.
const maxAttempts = 16

type executionKey struct{ tenant, execution, layer string }

// held is a state in use. That of an execution is shared by all its requests.
type held struct {
	mu      sync.Mutex
	state   layer.State
	version uint64
}

func (h *held) load() (layer.State, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state, h.version
}

// swap replaces the state if it is still the one that was loaded at version.
func (h *held) swap(version uint64, next layer.State) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.version != version {
		return false
	}
	h.state, h.version = next, version+1
	return true
}

// replay calls a hook again, on another state.
type replay struct {
	hook string
	run  func(ctx context.Context, s layer.State) (layer.State, error)
}

// step is the function of a hook: state in, something and state out.
type step[T any] func(ctx context.Context, s layer.State) (T, layer.State, error)

// update calls a hook and keeps the returned state. If a concurrent call within the request or the execution changed the state
// meanwhile, the hook is called again.
func update[T any](ctx context.Context, m *runningLayer, hook string, fn step[T]) (T, error) {
	type result struct {
		out  T
		next layer.State
	}
	if m.turn.Ask != nil {
		again, given := fn, new(answers)
		fn = func(ctx context.Context, s layer.State) (T, layer.State, error) { return again(given.of(ctx), s) }
	}
	for range maxAttempts {
		s, version := m.held.load()
		res, err := call(ctx, m, hook, func(ctx context.Context) (result, error) {
			out, next, err := fn(ctx, s)
			if err == nil {
				err = checkState(s, next)
			}
			return result{out, next}, err
		})
		if err != nil || same(s, res.next) {
			return res.out, err
		}
		if m.keep(version, res.next, replay{hook, func(ctx context.Context, s layer.State) (layer.State, error) {
			_, next, err := fn(ctx, s)
			return next, err
		}}) {
			return res.out, nil
		}
	}
	var none T
	m.note(ctx, Event{Hook: hook, Class: ClassBusy}, nil)
	return none, refuse(ClassBusy)
}

// same reports whether a hook did not change the state. An empty state equals no state.
func same(a, b layer.State) bool { return bytes.Equal(a, b) }

func checkState(old, next layer.State) error {
	if !same(old, next) && (len(next) > maxState || len(next) > 0 && !json.Valid(next)) {
		return refused("want a state of at most %d bytes of JSON", maxState)
	}
	return nil
}

// states reads and merges the layers' states of a request.
type states struct{ *layerSet }

// Changes lists the states that hooks have changed since Begin or the last Written. A change by init alone does not count: init
// repeats it.
func (r *states) Changes() []Change {
	r.mu.Lock()
	defer r.mu.Unlock()
	var changes []Change
	for _, m := range r.layers {
		m.listed = len(m.journal)
		if s, _ := m.held.load(); m.listed > 0 && !same(s, m.stored) {
			changes = append(changes, Change{m.cell, s})
			m.next = s
		} else {
			m.next = m.stored
		}
	}
	return changes
}

// States returns the current states, without those of scope Execution.
func (r *states) States() map[Cell]layer.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	states := make(map[Cell]layer.State, len(r.layers))
	for _, m := range r.layers {
		if m.cell.Scope != layer.Execution {
			states[m.cell], _ = m.held.load()
		}
	}
	return states
}

// Written records that the states of the last Changes are written, but for the lost ones: Changes lists them again.
func (r *states) Written(lost ...Cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.layers {
		if !slices.Contains(lost, m.cell) {
			m.stored, m.journal = m.next, m.journal[m.listed:]
		}
		m.next, m.listed = m.stored, 0
	}
}

// Rebase is called if another process has changed states before they could be written. For each cell of fresh, the hooks with
// unwritten changes are called again in order, beginning with init, on the present stored state; their other results are
// ignored. A hook that fails now loses its change. If the stored state is the one that the hooks began with, none is called. In
// both cases Changes lists these cells again. Do not call other methods of the run concurrently.
func (r *states) Rebase(ctx context.Context, fresh map[Cell]layer.State) {
	for _, m := range r.layers {
		s, ok := fresh[m.cell]
		if !ok || m.off || m.cell.Scope == layer.Execution {
			continue
		}
		m.listed, m.next = 0, m.stored // whatever Changes has listed of it is not written
		if same(s, m.stored) {
			continue
		}
		journal := m.journal
		m.journal = nil
		m.stored, m.next, m.held = s, s, &held{state: s}
		if m.initState(ctx) != nil {
			continue
		}
		for _, how := range journal {
			m.each(ctx, how.hook, how.run)
		}
	}
}
