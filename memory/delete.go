package memory

import (
	"context"
	"errors"
	"fmt"

	"remora/memory/layer"
)

// Delete removes all that is stored of a session, after its layers have been told. What layers keep for its resource
// and its tenant stays. A session that expires (SessionTTL) is removed by the store, which tells nobody: layers are not
// told of that.
func (m *Memory) Delete(ctx context.Context, s Scope) error {
	t, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	t.layers.run.Dispose(ctx)
	if err := m.store.Delete(ctx, s.Group()); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

// ErrStatesNotWritten is returned by Complete where layers were told, but what they made of it could not be stored.
var ErrStatesNotWritten = errors.New("states of layers could not be written")

// Complete ends what a session works on, for an agent or an operator who knows that it is over: layers are told of the
// end of its latest execution and, where the session was spawned by another, those of its parent take over what it has
// learnt. It does the same as an answer without tool calls, and may be called again. It fails with ErrNoSession.
func (m *Memory) Complete(ctx context.Context, s Scope, success bool) error { //nolint:revive // an outcome, no switch
	t, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	l := t.layers
	end := layer.Outcome{Success: success, Execution: l.turn.Execution, Thread: l.turn.Thread}
	l.run.Complete(ctx, end)
	if !t.flush(ctx, l.states) {
		return ErrStatesNotWritten
	}
	if t.call.Scope.Parent != "" {
		t.giveBack(ctx, end)
	}
	return nil
}

// visit begins the layers of a session without a request. What the caller does not know of its resource, execution and
// parent is that of its latest turn.
func (m *Memory) visit(ctx context.Context, s Scope) (*Turn, error) {
	s, err := m.log.Latest(ctx, s)
	if err != nil {
		return nil, err
	}
	t := &Turn{ID: newTurnID(m.o.Now()), m: m, shape: m.shape.Load(), base: ctx, started: m.o.Now()}
	t.call.Scope = s
	lt := t.layerTurn()
	st := t.newStates(s, &lt, "")
	if st != nil {
		if err := st.refresh(ctx); err != nil {
			return nil, err
		}
	}
	run, err := t.shape.Layers.Begin(ctx, s.Tenant, lt, st.known(), t.credential)
	if err != nil {
		return nil, err
	}
	if st != nil {
		st.run = run
	}
	t.layers = &layered{states: st, run: run, turn: lt}
	return t, nil
}
