package memory

import (
	"context"
	"maps"
	"sync"

	"remora/memory/layer"
	"remora/memory/session"
	"remora/wire"
)

// evictions are the items of a conversation that a turn's view lacks and that layers were not told of in earlier turns.
type evictions struct {
	items []wire.Item
	told  layer.Told // what layers are told of with this turn, too
}

// find looks for what of the conversation is not sent. What layers were told of must be kept.
func (v *evictions) find(ctx context.Context, l *layered, c *session.Conversation, sent []wire.Item, e *session.Entry) {
	missing := layer.Missing(c.Items, sent)
	if len(missing) == 0 {
		return
	}
	keys, err := e.History.ItemKeys(ctx, c)
	if err != nil {
		l.m.o.Log.Warn("layers do not learn what a view leaves out", "turn", l.ID, "error", err.Error())
		return
	}
	fresh, next := l.states.keeps().told.now.Add(keys, missing)
	v.told = next
	for _, i := range fresh {
		v.items = append(v.items, c.Items[i])
	}
	v.items = l.detach(v.items) // slow layers are told after the request's body is used for another one
}

// tell tells the layers of what fell out of the view. They hear of it once, after a turn that was answered.
func (v *evictions) tell(ctx context.Context, r *layerRun) {
	if told := r.states.keeps().told; told != nil && len(v.items) > 0 {
		told.replace(v.told)
		r.run.Evict(ctx, v.items)
	}
}

// toldWith is the record of the evictions that layers have seen, by spooled turn. It is not in the spooled records, since
// it holds only if this process lives to write the states of those layers after them (see layered.afterOutage).
type toldWith struct {
	mu     sync.Mutex
	byTurn map[string][]byte
}

// put notes what layers were told of with a turn, nil for nothing any more.
func (t *toldWith) put(turn string, told []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if told == nil {
		delete(t.byTurn, turn)
	} else {
		t.byTurn[turn] = told
	}
}

// values are all session values to write with a spooled turn.
func (t *toldWith) values(rec *spooled) map[string][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	told := t.byTurn[rec.Turn]
	if told == nil || rec.Answer == nil {
		return rec.Kept
	}
	all := map[string][]byte{toldName: told}
	maps.Copy(all, rec.Kept)
	return all
}
