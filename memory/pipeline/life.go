package pipeline

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"remora/memory/layer"
	"remora/wire"
)

// lifecycle is the hooks for an answer, and for the beginning and end of a session's work.
type lifecycle struct{ *layerSet }

// Store updates the states of fast layers after a complete answer, concurrently. Do not call it for an answer that upstream
// refused or that was cut.
func (r *lifecycle) Store(ctx context.Context, resp *layer.Response) {
	r.storeAll(ctx, resp, false)
}

// Settle is Store, and then Evict, for the layers that call a model or another service. It is called after the client is served. The
// caller must call done once it has written the states: until then, no other turn of this process distils them.
func (r *lifecycle) Settle(ctx context.Context, resp *layer.Response, evicted []wire.Item) (done func()) {
	r.storeAll(ctx, resp, true)
	done = r.distil(ctx)
	r.evictAll(ctx, evicted, true)
	return done
}

// Settles reports whether Settle has anything to do.
func (r *lifecycle) Settles(evicted []wire.Item) bool {
	return r.any(func(m *runningLayer) bool {
		return m.slow && (m.store != nil || m.evicted != nil && len(evicted) > 0) || m.distil != nil
	})
}

// Evict passes newly evicted items of the conversation to the fast layers. It is called after Store.
func (r *lifecycle) Evict(ctx context.Context, items []wire.Item) {
	r.evictAll(ctx, items, false)
}

// Concludes reports whether a layer wants the unseen items at the end of the work.
func (r *lifecycle) Concludes() bool {
	return r.any(func(m *runningLayer) bool { return m.evicted != nil && m.complete != nil })
}

// CompletesLater reports whether a layer must be notified of an end after the client is served: it calls a model or another
// service then.
func (r *lifecycle) CompletesLater() bool {
	return r.any(func(m *runningLayer) bool { return m.complete != nil && m.slow })
}

func (r *lifecycle) evictAll(ctx context.Context, items []wire.Item, slow bool) {
	if len(items) == 0 {
		return
	}
	r.together(func(m *runningLayer) bool { return m.evicted != nil && m.slow == slow }, func(m *runningLayer) {
		m.lenient(ctx, layer.HookEvicted, func(ctx context.Context, s layer.State) (layer.State, error) {
			return m.evicted.Evicted(ctx, m.turn, s, slices.Clone(items))
		})
	})
}

func (r *lifecycle) storeAll(ctx context.Context, resp *layer.Response, slow bool) {
	r.together(func(m *runningLayer) bool { return m.store != nil && m.slow == slow }, func(m *runningLayer) {
		turn := *m.turn // hooks that have outlived their time may still read that one
		turn.Unshown = m.unshown
		m.lenient(ctx, layer.HookStore, func(ctx context.Context, s layer.State) (layer.State, error) {
			return m.store.Store(ctx, &turn, s, resp)
		})
	})
}

// together calls hooks of several layers concurrently. Those of inline layers run in this goroutine.
func (r *lifecycle) together(which func(*runningLayer) bool, call func(*runningLayer)) {
	var wg sync.WaitGroup
	for _, m := range r.layers {
		switch {
		case m.off || !which(m):
		case m.inline:
			call(m)
		default:
			wg.Go(func() { call(m) })
		}
	}
	wg.Wait()
}

// Complete ends the execution, in slot order, after Store and Settle. States of scope Execution are gone with it; of names
// the execution, or else it is the run's.
func (r *lifecycle) Complete(ctx context.Context, of layer.Outcome) {
	of.Execution = cmp.Or(of.Execution, r.turn.Execution)
	of.Thread = cmp.Or(of.Thread, r.turn.Thread)
	for _, m := range r.layers {
		if !m.off && m.complete != nil {
			m.lenient(ctx, layer.HookComplete, func(ctx context.Context, s layer.State) (layer.State, error) {
				return m.complete.Complete(ctx, m.turn, s, of)
			})
		}
	}
	for _, m := range r.layers {
		if m.cell.Scope == layer.Execution {
			r.p.executions.Drop(executionKey{r.tenant, of.Execution, m.ID})
		}
	}
}

// Spawn gives a new session initial states from its parent's layers: it is called on the child's run, right after Begin, with a
// turn that names the parent and the states under Cells of that. The initial state passes the layer's init. A layer without
// one, with a state shared with the parent, or with a state already, does not change.
func (r *lifecycle) Spawn(ctx context.Context, parent layer.Turn, states map[Cell]layer.State) {
	for _, m := range r.layers {
		cell := m.unit.cell(&parent)
		if m.off || m.spawn == nil || cell == m.cell || m.stored != nil {
			continue
		}
		from := r.stateOf(m, cell, parent.Execution, states)
		m.each(ctx, layer.HookSpawn, func(ctx context.Context, s layer.State) (layer.State, error) {
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

// stateOf returns the state of another session or execution.
func (r *lifecycle) stateOf(m *runningLayer, cell Cell, execution string, states map[Cell]layer.State) layer.State {
	if cell.Scope != layer.Execution {
		return states[cell]
	}
	h, ok := r.p.executions.Find(executionKey{r.tenant, execution, m.ID})
	if !ok {
		return nil
	}
	s, _ := h.load()
	return s
}

// Return merges a child session's states into its parent's. It is called on a run of the parent, with a turn that names
// the child and the child's states by its Cells. It skips layers whose child has no state, or shares it with the
// parent.
func (r *lifecycle) Return(ctx context.Context, child layer.Turn, states map[Cell]layer.State, o layer.Outcome) {
	for _, m := range r.layers {
		cell := m.unit.cell(&child)
		if m.off || m.giveBack == nil || cell == m.cell {
			continue
		}
		from := r.stateOf(m, cell, child.Execution, states)
		if from == nil {
			continue
		}
		m.each(ctx, layer.HookReturn, func(ctx context.Context, s layer.State) (layer.State, error) {
			return m.giveBack.Return(ctx, m.turn, s, from, o)
		})
	}
}

// Forgets reports whether a layer keeps data of several sessions and can forget one of them.
func (r *lifecycle) Forgets() bool {
	return slices.ContainsFunc(r.layers, func(m *runningLayer) bool { return m.forget != nil && m.cell.Scope >= layer.Resource })
}

// Forget removes from shared states the data that came only from deleted sessions.
func (r *lifecycle) Forget(ctx context.Context, gone func(digest string) bool) {
	for _, m := range r.layers {
		if m.off || m.forget == nil || m.cell.Scope < layer.Resource {
			continue
		}
		m.each(ctx, layer.HookForget, func(ctx context.Context, s layer.State) (layer.State, error) {
			if len(s) == 0 {
				return s, nil
			}
			return m.forget.Forget(ctx, m.turn, s, gone)
		})
	}
}

// Dispose is called when the session is deleted, last layer first. The caller deletes the states.
func (r *lifecycle) Dispose(ctx context.Context) {
	for _, m := range slices.Backward(r.layers) {
		if !m.off && m.dispose != nil {
			s, _ := m.held.load()
			_, _ = call(ctx, m, layer.HookDispose, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, m.dispose.Dispose(ctx, m.turn, s)
			})
		}
	}
	for _, m := range r.layers {
		if m.cell.Scope == layer.Execution {
			r.p.executions.Drop(r.executionKey(m.unit))
		}
	}
}
