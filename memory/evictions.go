package memory

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

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

// missingItems returns the indices in all, ascending, of the items that are not in view, comparing both as multisets of
// their bytes. Of equal items, the view has the newest.
func missingItems(all, view []wire.Item) []int {
	shown := make(map[string]int, len(view))
	for _, it := range view {
		shown[string(it.Raw)]++
	}
	var missing []int
	for i, it := range slices.Backward(all) {
		if n := shown[string(it.Raw)]; n > 0 {
			shown[string(it.Raw)] = n - 1
		} else {
			missing = append(missing, i)
		}
	}
	slices.Reverse(missing)
	return missing
}

// seenEvictions records the items of a conversation that every layer.EvictionObserver has seen: all items up to one, except some.
// The zero value has none. Keys of items are hashes that are stable from turn to turn, like the hashes of the transcript's chain.
type seenEvictions struct {
	Through wire.Hash   `json:"through"`
	Except  []wire.Hash `json:"except,omitempty"` // those before Through that were in the view then
}

// maxExcept bounds seenEvictions; the oldest exceptions are dropped first, and observers never get them.
const maxExcept = 2048

// Add records that the items at these ascending indices are not in the view. fresh lists those that no observer has
// seen. keys names the items of the conversation, oldest first, zero for none. If the conversation does not have the
// last seen item, as after an edit, all of it counts as unseen.
func (s seenEvictions) Add(keys []wire.Hash, missing []int) (fresh []int, next seenEvictions) {
	seen := 0 // how many of the keys are covered
	if s.Through != (wire.Hash{}) {
		seen = slices.Index(keys, s.Through) + 1
	}
	except := make(map[wire.Hash]bool, len(s.Except))
	if seen > 0 {
		for _, k := range s.Except {
			except[k] = true
		}
	}
	last := -1
	for _, i := range missing {
		if keys[i] == (wire.Hash{}) {
			continue // the next turn could not know that it was seen
		}
		if i >= seen || except[keys[i]] {
			fresh = append(fresh, i)
		}
		last = i
	}
	if len(fresh) == 0 {
		return nil, s
	}
	last = max(last, seen-1)
	next.Through = keys[last]
	gone := make(map[int]bool, len(missing))
	for _, i := range missing {
		gone[i] = true
	}
	for i, k := range keys[:last] {
		if !gone[i] && (i >= seen || except[k]) && k != (wire.Hash{}) {
			next.Except = append(next.Except, k)
		}
	}
	next.Except = next.Except[max(0, len(next.Except)-maxExcept):]
	return fresh, next
}

// Encode encodes s for decodeSeenEvictions; nil if it is empty.
func (s seenEvictions) Encode() []byte {
	if s.Through == (wire.Hash{}) {
		return nil
	}
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode seen evictions: %v", err)) // strings
	}
	return b
}

// decodeSeenEvictions decodes the result of Encode. Anything else, or a too long input, is the zero value.
func decodeSeenEvictions(b []byte) (s seenEvictions) {
	const hashBytes = 2*len(wire.Hash{}) + len(`"",`)
	if len(b) > (maxExcept+4)*hashBytes || json.Unmarshal(b, &s) != nil {
		return seenEvictions{}
	}
	return s
}
