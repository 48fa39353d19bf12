package memory

import (
	"context"
	"errors"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire"
)

// layerRun is a run of the layers with their states: for a turn, or for work on a session without a request.
type layerRun struct {
	*turnInfo
	run    *pipeline.Run
	states *states
}

// beginLayers begins the layers of a session without a request, with the stored states.
func beginLayers(ctx context.Context, t *turnInfo, s Scope, lt *layer.Turn) (*layerRun, error) {
	st := newStates(t, s, lt, "")
	if err := st.refresh(ctx); err != nil {
		return nil, err
	}
	run, err := t.shape.Layers.Begin(ctx, t.call.Scope.Tenant, *lt, st.read, t.call.Credential)
	if err != nil {
		return nil, err
	}
	st.begin(run)
	return &layerRun{turnInfo: t, run: run, states: st}, nil
}

// visitSession begins the layers of a session without a request. A missing resource, execution or parent is taken from the
// session's latest turn.
func visitSession(ctx context.Context, m *Memory, s Scope) (*layerRun, error) {
	s, err := m.log.Latest(ctx, s)
	if err != nil {
		return nil, err
	}
	return visitScope(ctx, m, s)
}

// visitScope begins the layers of a session without a request, which reads nothing of its transcript.
func visitScope(ctx context.Context, m *Memory, s Scope) (*layerRun, error) {
	t := visit(ctx, m, s)
	lt := t.layerTurn()
	return beginLayers(ctx, t, s, &lt)
}

// flushWait is the time limit for writing the states of a turn's layers.
const flushWait = 5 * time.Second

// flush writes the states that layers have changed since the commit, and reports whether all are written.
func (r *layerRun) flush(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	return r.isFlushed(r.states.flush(ctx))
}

// flushLate is flush for a session that may have been deleted since the run began. Then it writes nothing.
func (r *layerRun) flushLate(ctx context.Context) (written, deleted bool) {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	deleted, err := r.wasDeleted(ctx)
	if err == nil && !deleted {
		err = r.states.flush(ctx)
	}
	return r.isFlushed(err), deleted
}

// isFlushed logs why states are not written.
func (r *layerRun) isFlushed(err error) bool {
	if err == nil {
		return true
	}
	r.m.outages.failed(err)
	r.m.o.Log.Warn("states of layers are not written yet", "turn", r.ID, "error", err.Error())
	return false
}

// end writes the states of a run. If its outcome is the end of the work, layers get before it what they have not seen of the
// session, and the states are merged into those of the parent session. complete notifies the layers of the outcome. It reports
// whether all states are written.
func (r *layerRun) end(ctx context.Context, end layer.Outcome, complete bool) bool {
	var handed func(context.Context)
	if end.Result.Ends() && r.run.Concludes() {
		end.Unseen, handed = r.unseen(ctx)
	}
	if complete {
		r.run.Complete(ctx, end)
	}
	if written, deleted := r.flushLate(ctx); deleted || !written {
		return deleted
	}
	if handed != nil {
		handed(ctx)
	}
	if end.Result.Ends() && r.call.Scope.Parent != "" {
		r.giveBack(ctx, end)
	}
	return true
}

// maxUnseen is the maximum number of units that layers get at the end of the work: the newest.
const maxUnseen = 2000

// unseen returns the items of the stored session that layers have not seen as evicted. Call handed, if it is not nil, after the
// layers' states are written.
func (r *layerRun) unseen(ctx context.Context) (items []wire.Item, handed func(context.Context)) {
	ctx, cancel := context.WithTimeout(ctx, r.m.o.ReadWait)
	defer cancel()
	end, err := r.m.log.End(ctx, r.call.Scope, maxUnseen, seenName)
	if err != nil {
		if !errors.Is(err, ErrNoSession) {
			r.m.outages.failed(err)
		}
		r.m.o.Log.Warn("layers do not learn what a session that ended has said", "turn", r.ID, "error", err.Error())
		return nil, nil
	}
	all := make([]int, len(end.Items))
	for i := range all {
		all[i] = i
	}
	fresh, next := decodeSeenEvictions(end.Value).Add(end.Keys, all)
	if len(fresh) == 0 {
		return nil, nil
	}
	return pipeline.Pick(end.Items, fresh), func(ctx context.Context) {
		if err := r.markSeen(ctx, next); err != nil {
			r.m.o.Log.Warn("layers may be told again of what a session that ended has said", "turn", r.ID, "error", err.Error())
		}
	}
}

// markSeen writes the evictions that layers have seen, unless the session was deleted meanwhile.
func (r *layerRun) markSeen(ctx context.Context, seen seenEvictions) error {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	for {
		read, err := r.m.store.Read(ctx, []cache.Query{{Group: r.group, Names: []string{seenName}}})
		if err != nil {
			return err
		}
		if read[0].Version == 0 {
			return nil
		}
		out := r.m.store.Commit(ctx, []cache.Batch{{
			Group: r.group, Expect: read[0].Version, TTL: r.m.o.SessionTTL, Puts: []cache.Put{{Name: seenName, Data: seen.Encode()}},
		}})
		if err := out[0].Err; !errors.Is(err, cache.ErrConflict) {
			return err
		}
	}
}

// giveBack merges a child's layer states into those of the parent session.
func (r *layerRun) giveBack(ctx context.Context, end layer.Outcome) {
	child := r.run.Turn()
	parent := *child
	parent.Thread, parent.Parent = r.call.Scope.Parent, ""
	scope := r.call.Scope
	scope.Session = parent.Thread
	above, err := beginLayers(ctx, r.turnInfo, scope, &parent)
	if err != nil {
		r.m.o.Log.Warn("a child session's layers give nothing back", "turn", r.ID, "error", err.Error())
		return
	}
	above.run.Return(ctx, *child, r.states.run.States(), end)
	above.flush(ctx)
}
