package pipeline

import (
	"context"
	"slices"
	"sync"

	"remora/memory/layer"
	"remora/wire"
)

// Store updates the states after a whole answer, of those layers that are quick about it, all at once. None is called
// for an answer that upstream refused or that was cut: the caller does not call Store then.
func (r *Run) Store(ctx context.Context, resp *layer.Response) {
	r.storeAll(ctx, resp, func(m *member) bool { return !m.slow })
}

// Settle is Store for the layers that ask a model or somebody else. It is called after the client was served.
func (r *Run) Settle(ctx context.Context, resp *layer.Response) {
	r.storeAll(ctx, resp, func(m *member) bool { return m.slow })
}

// Settles tells whether Settle has anything to do.
func (r *Run) Settles() bool {
	return r.any(func(m *member) bool { return m.store != nil && m.slow })
}

// Evict tells the layers that are quick about it what of the conversation was not in the view and was not told before.
// It is called where Store is, after it.
func (r *Run) Evict(ctx context.Context, items []wire.Item) {
	r.evictAll(ctx, items, func(m *member) bool { return !m.slow })
}

// SettleEvicted is Evict for the layers that ask a model or somebody else, called after Settle.
func (r *Run) SettleEvicted(ctx context.Context, items []wire.Item) {
	r.evictAll(ctx, items, func(m *member) bool { return m.slow })
}

// Evicts tells whether any layer wants to know what was left out, and whether some of these are slow.
func (r *Run) Evicts() (wanted, slow bool) {
	return r.any(func(m *member) bool { return m.evicted != nil }),
		r.any(func(m *member) bool { return m.evicted != nil && m.slow })
}

func (r *Run) evictAll(ctx context.Context, items []wire.Item, which func(*member) bool) {
	if r.none() || len(items) == 0 {
		return
	}
	var wg sync.WaitGroup
	for _, m := range r.members {
		if m.off || m.evicted == nil || !which(m) {
			continue
		}
		together(&wg, m, func() { r.evict(ctx, m, items) })
	}
	wg.Wait()
}

// together calls hooks of several layers at once. Those of prompt layers, which the others need not wait for, run here.
func together(wg *sync.WaitGroup, m *member, call func()) {
	if m.prompt {
		call()
		return
	}
	wg.Go(call)
}

// evict tells one layer. What it learnt in spite of an error is kept.
func (r *Run) evict(ctx context.Context, m *member, items []wire.Item) {
	var mu sync.Mutex // a call that was given up may still be running when this has returned
	var fault error
	r.each(ctx, m, layer.HookEvicted, func(ctx context.Context, s layer.State) (layer.State, error) {
		next, err := m.evicted.Evicted(ctx, m.turn, s, slices.Clone(items))
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
		e := Event{Layer: m.ID, Hook: layer.HookEvicted, Begun: r.p.o.Now(), Class: ClassError}
		r.p.complain(ctx, e, nil)
		r.note(ctx, m, e)
	}
}

func (r *Run) storeAll(ctx context.Context, resp *layer.Response, which func(*member) bool) {
	if r.none() {
		return
	}
	var wg sync.WaitGroup
	for _, m := range r.members {
		if m.off || m.store == nil || !which(m) {
			continue
		}
		together(&wg, m, func() {
			r.each(ctx, m, layer.HookStore, func(ctx context.Context, s layer.State) (layer.State, error) {
				return m.store.Store(ctx, m.turn, s, resp)
			})
		})
	}
	wg.Wait()
}

// each runs a hook that returns nothing but a state. Failures have been logged, traced and reported by call.
func (r *Run) each(ctx context.Context, m *member, hook string, fn func(context.Context, layer.State) (layer.State, error)) {
	_, _ = update(ctx, r, m, hook, func(ctx context.Context, s layer.State) (struct{}, layer.State, error) {
		next, err := fn(ctx, s)
		return struct{}{}, next, err
	})
}

// Complete ends the execution, in slot order, after Store and Settle. States of scope Execution are gone with it; of names
// the execution, or else it is the run's.
func (r *Run) Complete(ctx context.Context, of layer.Outcome) {
	if r.none() {
		return
	}
	o := of
	if o.Execution == "" {
		o.Execution = r.turn.Execution
	}
	if o.Thread == "" {
		o.Thread = r.turn.Thread
	}
	for _, m := range r.members {
		if !m.off && m.complete != nil {
			r.each(ctx, m, layer.HookComplete, func(ctx context.Context, s layer.State) (layer.State, error) {
				return m.complete.Complete(ctx, m.turn, s, o)
			})
		}
	}
	for _, m := range r.members {
		if m.cell.Scope == layer.Execution {
			r.p.executions.remove(executionKey{r.tenant, o.Execution, m.ID})
		}
	}
}

// Spawn gives a new session what its parent's layers leave it: it is called on the child's run, right after Begin, with
// a turn that names the parent and the states under Cells of that. What a layer leaves passes its init. A layer that
// leaves nothing, that shares its state with the parent, or that has a state already, stays as it is.
func (r *Run) Spawn(ctx context.Context, parent layer.Turn, states map[Cell]layer.State) {
	if r.none() {
		return
	}
	for _, m := range r.members {
		cell := m.unit.cell(&parent)
		if m.off || m.spawn == nil || cell == m.cell || m.stored != nil {
			continue
		}
		from := r.stateOf(m, cell, parent.Execution, states)
		r.each(ctx, m, layer.HookSpawn, func(ctx context.Context, s layer.State) (layer.State, error) {
			left, err := m.spawn.Spawn(ctx, m.turn, from)
			if err != nil || len(left) == 0 {
				return s, err
			}
			if m.init == nil {
				return left, nil
			}
			return m.init.Init(ctx, m.turn, left)
		})
	}
}

// stateOf is the state of another session or execution.
func (r *Run) stateOf(m *member, cell Cell, execution string, states map[Cell]layer.State) layer.State {
	if cell.Scope != layer.Execution {
		return states[cell]
	}
	h, ok := r.p.executions.get(executionKey{r.tenant, execution, m.ID})
	if !ok {
		return nil
	}
	s, _ := h.load()
	return s
}

// Return merges what a child session kept into its parent's states: it is called on a run of the parent, with a turn
// that names the child and the states under Cells of that. A layer is skipped whose child has no state, or that shares
// it with the parent.
func (r *Run) Return(ctx context.Context, child layer.Turn, states map[Cell]layer.State, o layer.Outcome) {
	if r.none() {
		return
	}
	for _, m := range r.members {
		cell := m.unit.cell(&child)
		if m.off || m.giveBack == nil || cell == m.cell {
			continue
		}
		from := r.stateOf(m, cell, child.Execution, states)
		if from == nil {
			continue
		}
		r.each(ctx, m, layer.HookReturn, func(ctx context.Context, s layer.State) (layer.State, error) {
			return m.giveBack.Return(ctx, m.turn, s, from, o)
		})
	}
}

// Dispose is called when the session is deleted, last layer first. Deleting the states is the caller's.
func (r *Run) Dispose(ctx context.Context) {
	if r.none() {
		return
	}
	for _, m := range slices.Backward(r.members) {
		if !m.off && m.dispose != nil {
			s, _ := m.held.load()
			_, _ = call(ctx, r, m, layer.HookDispose, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, m.dispose.Dispose(ctx, m.turn, s)
			})
		}
	}
	for _, m := range r.members {
		if m.cell.Scope == layer.Execution {
			r.p.executions.remove(r.executionKey(m.unit))
		}
	}
}
