package memory

import (
	"context"
	"fmt"
)

// Delete removes all that is stored of a session, after its layers have been told. What layers keep for its resource
// and its tenant stays.
func (m *Memory) Delete(ctx context.Context, s Scope) error {
	if err := m.log.Exists(ctx, s); err != nil {
		return err
	}
	t := &Turn{ID: newTurnID(m.o.Now()), m: m, shape: m.shape.Load(), base: ctx, started: m.o.Now()}
	t.call.Scope = s
	if err := t.dispose(ctx); err != nil {
		return err
	}
	if err := m.store.Delete(ctx, s.Group()); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

// dispose calls the layers' last hook.
func (t *Turn) dispose(ctx context.Context) error {
	lt := t.layerTurn()
	st := t.newStates(t.call.Scope, &lt, "")
	if st == nil {
		return nil
	}
	if err := st.refresh(ctx); err != nil {
		return err
	}
	run, err := t.shape.Layers.Begin(ctx, t.call.Scope.Tenant, lt, st.found, t.credential)
	if err != nil {
		return err
	}
	run.Dispose(ctx)
	return nil
}
