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

const (
	// maxSettling is how many turns may be settling at once, in this process. Those beyond are left out: their layers
	// learn nothing from the answer, and are not told of the end of an execution or of a child.
	maxSettling = 256
	// settleLimit limits the time of one turn's layers after the answer, in addition to the limits of their hooks.
	settleLimit = 2 * time.Minute
	// flushWait bounds writing the states that a turn's layers have made.
	flushWait = 5 * time.Second
	// closeGrace is how long Close waits for turns that settle.
	closeGrace = 10 * time.Second
	// failedStatus is the first status that is no answer of the model.
	failedStatus = 300
)

// conclude lets layers learn from the answer before it is committed. It returns the work left for afterwards, nil if
// there is none.
func (t *Turn) conclude(ctx context.Context, a *Answer) func(context.Context) {
	l := t.layers
	if l == nil {
		return nil
	}
	l.take(a)
	if l.guard || l.run.Empty() { // no layer learns, and no execution ends
		t.describe(a)
		return nil
	}
	resp := l.response()
	answered := l.success(a)
	settles := answered && l.settles()
	if answered {
		l.run.Store(ctx, resp)
		l.tellEvicted(ctx)
	}

	// A call that failed or was cut ends nothing: clients send it again, or go on from there. One that a layer forbade is over.
	end := layer.Outcome{Result: layer.Answered, Execution: l.turn.Execution, Thread: l.turn.Thread}
	done := resp.Done && answered || l.denied
	if l.denied {
		end.Result = layer.Denied
	}
	if said := l.run.Completed(); said != "" && answered {
		end.Result, done = said, true
	}
	unseen := end.Result.Ends() && l.run.Concludes()
	settles = settles || unseen
	if done && !settles {
		l.run.Complete(ctx, end)
	}
	t.describe(a)
	gives := end.Result.Ends() && t.call.Scope.Parent != ""
	if !settles && !gives {
		return nil
	}
	return func(ctx context.Context) {
		if settles {
			l.settle(ctx, resp)
			handed := func(context.Context) {}
			if unseen {
				end.Unseen, handed = t.unseen(ctx)
			}
			if done {
				l.run.Complete(ctx, end)
			}
			if t.flush(ctx, l.states) {
				handed(ctx)
			}
		}
		if gives {
			t.giveBack(ctx, end)
		}
	}
}

// take looks at an answer that was not reviewed.
func (l *layered) take(a *Answer) {
	if l.rounds == 0 && len(a.Reply.Choices) > 0 {
		l.output, l.last = a.Reply.Choices[0], a.Reply.Choices[0]
		l.observeCache(&a.Reply)
	}
}

// settles reports whether settle has anything to do.
func (l *layered) settles() bool {
	_, evicts := l.run.Evicts()
	return l.run.Settles() || evicts && len(l.evicted) > 0
}

// settle lets the layers learn that are slow about it.
func (l *layered) settle(ctx context.Context, resp *layer.Response) {
	l.run.Settle(ctx, resp)
	l.run.SettleEvicted(ctx, l.evicted)
}

// maxUnseen bounds what layers are told of at the end of the work, in units: the newest.
const maxUnseen = 2000

// unseen returns the items of the stored session that layers have not seen as evicted. Call handed once the layers'
// states are written, to record that they have.
func (t *Turn) unseen(ctx context.Context) (items []wire.Item, handed func(context.Context)) {
	handed = func(context.Context) {}
	ctx, cancel := context.WithTimeout(ctx, t.m.o.ReadWait)
	defer cancel()
	end, err := t.m.log.End(ctx, t.call.Scope, maxUnseen, toldName)
	if err != nil {
		if !errors.Is(err, ErrNoSession) {
			t.m.failed(err)
		}
		t.m.o.Log.Warn("layers do not learn what a session that ended has said", "turn", t.ID, "error", err.Error())
		return nil, handed
	}
	all := make([]int, len(end.Items))
	for i := range all {
		all[i] = i
	}
	fresh, next := layer.DecodeTold(end.Value).Add(end.Keys, all)
	if len(fresh) == 0 {
		return nil, handed
	}
	return pipeline.Pick(end.Items, fresh), func(ctx context.Context) {
		if err := t.tellAll(ctx, next); err != nil {
			t.m.o.Log.Warn("layers may be told again of what a session that ended has said", "turn", t.ID, "error", err.Error())
		}
	}
}

// tellAll writes what layers were told of, unless the session was deleted meanwhile.
func (t *Turn) tellAll(ctx context.Context, told layer.Told) error {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	g := t.call.Scope.Group()
	for {
		read, err := t.m.store.Read(ctx, []cache.Query{{Group: g, Names: []string{toldName}}})
		if err != nil {
			return err
		}
		if read[0].Version == 0 {
			return nil
		}
		out := t.m.store.Commit(ctx, []cache.Batch{{
			Group: g, Expect: read[0].Version, TTL: t.m.o.SessionTTL, Puts: []cache.Put{{Name: toldName, Data: told.Encode()}},
		}})
		if err := out[0].Err; !errors.Is(err, cache.ErrConflict) {
			return err
		}
	}
}

// describe tells the turn's record what the layers did. The input may be on its way into the store at this moment.
func (t *Turn) describe(a *Answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.layers.carry(t.entry, t.call.Request, a.Reply.ID)
	t.layers.note(t.entry)
}

// success reports whether the model gave a whole answer that no layer denied.
func (l *layered) success(a *Answer) bool {
	r := &a.Reply
	return !l.denied && a.Aborted == NotAborted && a.HTTPStatus < failedStatus && r.Error == nil && !r.Truncated && len(r.Choices) > 0
}

// flush writes what layers have made of states since the turn was committed, and reports whether all of it is written.
func (t *Turn) flush(ctx context.Context, st *states) bool {
	if st == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	err := st.flush(ctx)
	if err == nil {
		return true
	}
	t.m.failed(err)
	t.m.o.Log.Warn("states of layers are not written yet", "turn", t.ID, "error", err.Error())
	return false
}

// giveBack lets the parent session's layers take over what a child's have learned.
func (t *Turn) giveBack(ctx context.Context, end layer.Outcome) {
	child, states := t.layers.turn, t.layers.states
	parent := child
	parent.Thread, parent.Parent = t.call.Scope.Parent, ""
	scope := t.call.Scope
	scope.Session = parent.Thread
	st := t.newStates(scope, &parent, "")
	if st == nil {
		return
	}
	run, err := func() (*pipeline.Run, error) {
		if err := st.refresh(ctx); err != nil {
			return nil, err
		}
		return t.shape.Layers.Begin(ctx, scope.Tenant, parent, st.found, t.credential)
	}()
	if err != nil {
		t.m.o.Log.Warn("a child session's layers give nothing back", "turn", t.ID, "error", err.Error())
		return
	}
	st.begin(run)
	run.Return(ctx, child, states.run.States(), end)
	t.flush(ctx, st)
}

// background runs work of the turn that no client waits for.
func (t *Turn) background(f func(context.Context)) {
	m := t.m
	select {
	case m.settling <- struct{}{}:
	default:
		m.o.Log.Warn("too many turns are settling; layers do not learn from one", "limit", maxSettling)
		return
	}
	m.settles.Go(func() {
		defer func() { <-m.settling }()
		ctx, cancel := context.WithTimeout(t.base, settleLimit)
		defer cancel()
		defer context.AfterFunc(m.life, cancel)()
		f(ctx)
	})
}
