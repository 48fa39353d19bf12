package memory

import (
	"context"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/turnrecord"
	"remora/wire"
)

// turnInfo is the data of a turn that does not change once it has begun.
type turnInfo struct {
	// ID is unique and sorts by began.
	ID string

	m       *Memory
	shape   *Shape          // as it was when the turn began
	base    context.Context //nolint:containedctx // the request's context, without its cancellation
	started time.Time
	began   time.Time // started by the store's clock, as far as that is known: clocks of replicas differ
	call    Call
	group   cache.Group // of the session, in the store
	// tombstones are the versions of the session's tombstones if it did not exist when it was read; nil for later turns, and if unknown.
	tombstones []uint64
}

// wasDeleted reports whether the session, or its resource, was deleted since the turn began: then nothing of the turn is written,
// since nothing would find it again.
func (t *turnInfo) wasDeleted(ctx context.Context) (bool, error) {
	return t.m.tombstones.deleted(ctx, t.call.Scope, t.tombstones, t.began)
}

// beginTurnInfo returns what is known of a turn that begins now, but for its base.
func beginTurnInfo(m *Memory, c Call) turnInfo {
	now := m.o.Now()
	began := m.heartbeat.StoreTime(now)
	return newTurnInfo(m, turnrecord.NewID(began), now, began, c)
}

// newTurnInfo returns what is known of a turn but for its base.
func newTurnInfo(m *Memory, id string, started, began time.Time, c Call) turnInfo {
	return turnInfo{m: m, ID: id, shape: m.shape.Load(), started: started, began: began, call: c, group: c.Scope.Group()}
}

// visit returns the turnInfo of work on a session that no request asks for.
func visit(ctx context.Context, m *Memory, s Scope) *turnInfo {
	t := beginTurnInfo(m, Call{Scope: s})
	t.base = ctx
	return &t
}

// layerTurn describes the call for layers, without its past.
func (t *turnInfo) layerTurn() layer.Turn {
	s, r := t.call.Scope, t.call.Request
	lt := layer.Turn{ID: t.ID, Thread: s.Session, Resource: s.Resource, Execution: s.Execution, Parent: s.Parent, Now: t.started}
	if r == nil {
		return lt // no request: the session is being deleted
	}
	lt.Dialect, lt.Model = r.Dialect, r.Model()
	if t.shape.Layers.Empty() {
		return lt
	}
	lt.Tools = r.Tools()
	for _, it := range slices.Backward(r.Items()) {
		if it.Role == wire.User {
			lt.Query = it.Said()
			break
		}
	}
	return lt
}

// guard returns layers that only judge the answer of a turn, nil for none. Its error is a *pipeline.InitError.
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
		layerRun: layerRun{turnInfo: t, run: run, states: noStates()},
		rounds: rounds{
			run: run, input: t.detach(e.Input()), visible: e.Visible(), role: instructionRole(lt.Dialect, t.call.Request.Items()),
		},
	}, nil
}

// detach copies items that outlive the request: hooks may use them after its body is reused. If the body is not reused, items
// are copied if they are less than half of it, so that they do not keep it in memory.
func (t *turnInfo) detach(items []wire.Item) []wire.Item {
	if t.call.Lasting && bytesOf(items) > len(t.call.Request.Body)/2 {
		return slices.Clone(items)
	}
	return pipeline.Detach(items)
}

// overflowModel is the model that summarises, nil for none.
func (t *turnInfo) overflowModel() layer.Model {
	if t.shape.OverflowModel == nil {
		return nil
	}
	return t.shape.OverflowModel(t.call.Credential)
}
