package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"remora/memory/past"
	"remora/memory/session"
	"remora/wire"
)

// load reads the session, and the states of layers with it, and begins the layers. The store has the time of ctx, layers have
// that of hooks. Its error is of the store, or a *pipeline.InitError.
func (t *Turn) load(ctx, hooks context.Context) error {
	if t.shape.Layers == nil {
		_, err := t.find(ctx, session.Want{})
		return err
	}

	lt := t.layerTurn()
	st := newStates(&t.turnInfo, t.call.Scope, &lt, t.call.Scope.Parent)
	extra, err := t.find(ctx, st.want())
	if err != nil {
		return err
	}
	e := t.writer.entry
	if t.writer.states = st; st != nil {
		st.load(extra)
	}

	switch e.Standing() {
	case session.Side:
		t.layers, err = t.guard(hooks, e)
		return err
	case session.Alone:
		st.forget()
	default:
	}

	lt.Execution = e.Execution()
	var before *past.Turn
	if t.shape.Layers.Recalls() {
		before = past.NewTurn(t.m.past, t.call.Scope, t.shape.Embeddings, t.call.Credential)
		lt.Past = before
	}
	run, err := t.shape.Layers.Begin(hooks, t.call.Scope.Tenant, lt, st.known(), t.call.Credential)
	if err != nil {
		return err
	}
	t.layers = &turnLayers{
		layerRun: layerRun{turnInfo: &t.turnInfo, turn: lt, run: run, states: st},
		rounds:   rounds{run: run, input: e.Input(), visible: e.Visible()},
		past:     before,
	}
	if !run.Empty() {
		t.layers.rounds.input = t.detach(t.layers.rounds.input)
	}
	if st != nil {
		st.begin(run)
		if e.First() && len(st.parent) > 0 {
			above := lt
			above.Thread = t.call.Scope.Parent
			run.Spawn(hooks, above, st.found)
		}
	}
	return nil
}

// guard returns layers that judge the answer of a turn in which they have no other part, nil for none. Its error is a
// *pipeline.InitError.
func (t *turnInfo) guard(ctx context.Context, e *session.Entry) (*turnLayers, error) {
	if !t.shape.Layers.Guards() {
		return nil, nil
	}
	lt := t.layerTurn()
	run, err := t.shape.Layers.Guard(ctx, t.call.Scope.Tenant, lt, t.call.Credential)
	if err != nil {
		return nil, err
	}
	return &turnLayers{
		guard:    true,
		layerRun: layerRun{turnInfo: t, turn: lt, run: run},
		rounds: rounds{
			run: run, input: t.detach(e.Input()), visible: e.Visible(), role: instructionRole(lt.Dialect, t.call.Request.Items()),
		},
	}, nil
}

// Pauses between looks at a session of which another process has a turn under way.
const (
	firstLook = 5 * time.Millisecond
	lastLook  = 50 * time.Millisecond
)

// find enters the turn into its session. If its view relies on stored history, it waits until earlier turns that are
// open in other processes have ended, as long as ctx allows; after that it notes that the view misses some.
func (t *Turn) find(ctx context.Context, want session.Want) (extra session.Extra, err error) {
	w := &t.writer
	w.entry, extra, err = t.m.log.Enter(ctx, t.ID, t.started, t.call.inSession(), want)
	if err != nil || !w.entry.Order.UsesHistory() {
		return extra, err
	}

	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if !t.m.peers.mayHaveMore(ctx, w.entry) {
			whole, err := t.showReady(ctx, w.entry)
			if whole || err != nil {
				return extra, err
			}
		}
		if !sleep(ctx, pause) {
			break
		}
		again, more, err := t.m.log.Enter(ctx, t.ID, t.started, t.call.inSession(), want)
		if err != nil {
			break
		}
		w.entry, extra = again, more
	}

	w.partial = true
	w.entry.Order.MarkPartial()
	late, cancel := context.WithTimeout(t.base, t.m.o.ReadWait) // the request's own time has gone into waiting
	defer cancel()
	_, err = t.showReady(late, w.entry) //nolint:contextcheck // see late
	return extra, err
}

// sleep waits for d, unless ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d) //nolint:forbidigo // wakes; no clock is read
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// showReady shows turns that are ready in the view. It reports false where one of them is in the log meanwhile, so that the
// session has to be read again.
func (t *turnInfo) showReady(ctx context.Context, e *session.Entry) (whole bool, err error) {
	ready := slices.DeleteFunc(e.Order.Earlier(), func(p session.Pending) bool { return !p.Ready })
	if len(ready) == 0 {
		return true, nil
	}
	records, err := t.m.log.Records(ctx, t.call.Scope, ready)
	if err != nil {
		return false, err
	}
	list := make([]session.Ready, 0, len(records))
	for i, b := range records {
		if b == nil {
			return false, nil
		}
		said, err := itemsOf(b)
		if err != nil {
			return false, fmt.Errorf("turn %s: %w", ready[i].Turn, err)
		}
		said.Turn = ready[i].Turn
		list = append(list, said)
	}
	e.History.ShowReady(list)
	t.m.parked.add(t.call.Scope)
	return true, nil
}

// itemsOf are the new items of a record's request, and the first choice of its answer.
func itemsOf(b []byte) (r session.Ready, err error) {
	rec, err := decodeSpooled(b)
	if err != nil {
		return r, err
	}
	for _, raw := range rec.NewItems {
		it, err := wire.ParseItem(rec.Dialect.Dialect(), raw)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, it)
	}
	if rec.Answer == nil {
		return r, nil
	}
	a, err := rec.Answer.answer(rec.Dialect.Dialect())
	if err != nil || len(a.Reply.Choices) == 0 {
		return r, err
	}
	r.Made, r.Items = session.Origin{Provider: a.Provider, Model: a.Model}, append(r.Items, a.Reply.Choices[0]...)
	return r, nil
}
