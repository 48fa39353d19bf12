package memory

import (
	"context"
	"maps"
	"sync"

	"remora/wire"
)

// evictions are the items of a conversation that a turn's view lacks and that layers have not seen as evicted in earlier turns.
type evictions struct {
	items []wire.Item
	seen  seenEvictions // including them
}

// find finds the items of the conversation that are not sent. The session value of seen evictions must exist.
func (v *evictions) find(ctx context.Context, a *assembly, sent []wire.Item) {
	l, all := a.l, a.all
	missing := missingItems(all, sent)
	if len(missing) == 0 {
		return
	}
	keys, err := a.itemKeys(ctx, all)
	if err != nil {
		l.m.o.Log.Warn("layers do not learn what a view leaves out", "turn", l.ID, "error", err.Error())
		return
	}
	fresh, next := l.states.values.seen.now.Add(keys, missing)
	v.seen = next
	for _, i := range fresh {
		v.items = append(v.items, all[i])
	}
	v.items = l.detach(a.withTargets(ctx, v.items)) // slow layers get them after the request's body is reused
}

// hand passes the evicted items to the layers, once, after an answered turn.
func (v *evictions) hand(ctx context.Context, r *layerRun) {
	if seen := r.states.values.seen; seen != nil && len(v.items) > 0 {
		seen.replace(v.seen)
		r.run.Evict(ctx, v.items)
	}
}

// spooledSeen are the evictions that layers have seen, by spooled turn. They are not in the spooled records, since they are
// valid only if this process survives to write the layers' states (see turnLayers.afterOutage).
type spooledSeen struct {
	mu     sync.Mutex
	byTurn map[string][]byte
}

// put records the evictions that layers have seen with a turn, nil for none.
func (t *spooledSeen) put(turn string, seen []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen == nil {
		delete(t.byTurn, turn)
	} else {
		t.byTurn[turn] = seen
	}
}

// values are all session values to write with a spooled turn.
func (t *spooledSeen) values(rec *spooled) map[string][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.byTurn[rec.Turn]
	if seen == nil || rec.Answer == nil {
		return rec.Values
	}
	all := map[string][]byte{seenName: seen}
	maps.Copy(all, rec.Values)
	return all
}
