package pipeline

import (
	"bytes"
	"context"
	"slices"

	"remora/memory/layer"
	"remora/wire"
)

// Append passes the new input items of a request through the append hooks, in slot order, each getting what the one
// before returned. It ends early when nothing is left. A hook that fails is left out. Items that no hook
// touched are the same values.
func (r *preparation) Append(ctx context.Context, items []wire.Item) []wire.Item {
	for _, m := range r.layers {
		if m.off || m.appender == nil {
			continue
		}
		if len(items) == 0 {
			break
		}
		given := items
		out, err := update(ctx, m, layer.HookAppendItems,
			func(ctx context.Context, s layer.State) (layer.Appended, layer.State, error) {
				a, err := m.appender.AppendItems(ctx, m.turn, s, slices.Clone(given))
				if err == nil {
					err = checkAppended(given, a.Items)
				}
				return a, unlessNil(a.State, s), err
			})
		if err != nil {
			continue
		}
		items = out.Items
		m.rerender = m.rerender || out.Rerender
	}
	return items
}

// unlessNil returns a hook's state, or the present one if that is nil.
func unlessNil(next, old layer.State) layer.State {
	if next == nil {
		return old
	}
	return next
}

// checkAppended refuses items of another dialect, and more than a layer may add.
func checkAppended(given, out []wire.Item) error {
	if len(out) > len(given)+maxMessages {
		return refused("want at most %d new items", maxMessages)
	}
	room := maxAdded
	for _, it := range given {
		room += len(it.Raw)
	}
	for _, it := range out {
		if room -= len(it.Raw); room < 0 || it.Dialect != given[0].Dialect || len(it.Raw) == 0 {
			return refused("want items of the request's dialect, and new ones of at most %d bytes together", maxAdded)
		}
	}
	return nil
}

// Projects reports whether layers from a slot on choose history.
func (r *preparation) Projects(from int) bool {
	return r.any(func(m *runningLayer) bool { return m.project != nil && m.Slot >= from })
}

// Project passes the history through the projection hooks, in slot order. It is called after Recall, so that they know the cost
// of the rest of the view: of the layers' blocks, and beside, which returns the tokens of everything else and is called only if a
// hook is. A hook that fails, or that returns anything but some of its items in order, is left out. history is not changed. Only
// layers from one slot on and below another are called.
func (r *preparation) Project(ctx context.Context, history []wire.Item, beside func() int, from, below int) []wire.Item {
	var copies []wire.Item // of history; made for the first hook
	for _, m := range r.layers {
		if m.off || m.project == nil || m.Slot < from || m.Slot >= below {
			continue
		}
		if copies == nil {
			copies = Detach(history)
		}
		s, _ := m.held.load()
		given := copies
		turn := *m.turn
		turn.Overhead = beside()
		for _, b := range r.blocks() {
			turn.Overhead += b.Cost()
		}
		kept, err := call(ctx, m, layer.HookProjectHistory, func(ctx context.Context) ([]int, error) {
			out, err := m.project.ProjectHistory(ctx, &turn, s, slices.Clone(given))
			if err != nil {
				return nil, err
			}
			return indices(out, given)
		})
		if err == nil && len(kept) < len(history) {
			history, copies = Pick(history, kept), Pick(copies, kept)
		}
	}
	return history
}

// indices returns the indices in all of some, the same items or equal ones. It fails if some is not a subsequence of all. Of equal
// items that are not the same, some has the newest.
func indices(some, all []wire.Item) ([]int, error) {
	for _, match := range []func(a, b []byte) bool{wire.SameBytes, bytes.Equal} {
		if kept, ok := subsequence(some, all, match); ok {
			return kept, nil
		}
	}
	return nil, refused("want some of the given items, in their order")
}

// subsequence matches the items of some with those of all, from the newest on.
func subsequence(some, all []wire.Item, match func(a, b []byte) bool) (indices []int, ok bool) {
	indices = make([]int, len(some))
	at := len(all) - 1
	for i, it := range slices.Backward(some) {
		for at >= 0 && !match(all[at].Raw, it.Raw) {
			at--
		}
		if at < 0 {
			return nil, false
		}
		indices[i] = at
		at--
	}
	return indices, true
}

// Pick returns the items of these indices.
func Pick(items []wire.Item, kept []int) []wire.Item {
	out := make([]wire.Item, len(kept))
	for i, at := range kept {
		out[i] = items[at]
	}
	return out
}

// Detach copies items. The buffer of a request's body is reused after the commit, but some hooks use its items later: slow
// ones, those that timed out, and those that run again after another replica changed their state.
func Detach(items []wire.Item) []wire.Item {
	n := 0
	for _, it := range items {
		n += len(it.Raw)
	}
	out, raw := slices.Clone(items), make([]byte, 0, n)
	for i := range out {
		from := len(raw)
		raw = append(raw, out[i].Raw...)
		out[i].Raw = raw[from:len(raw):len(raw)]
	}
	return out
}
