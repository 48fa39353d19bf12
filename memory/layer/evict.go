package layer

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"remora/wire"
)

// Missing returns the indices in all, ascending, of the items that are not in view, comparing both as multisets of
// their bytes. Of equal items, the view has the newest.
func Missing(all, view []wire.Item) []int {
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

// SeenEvictions records the items of a conversation that every EvictionObserver has seen: all items up to one, except some. The
// zero SeenEvictions has none. Keys of items are hashes that are stable from turn to turn, like the hashes of the transcript's
// chain.
type SeenEvictions struct {
	through wire.Hash
	except  []wire.Hash // those before through that were in the view then
}

// maxExcept bounds SeenEvictions; the oldest exceptions are dropped first, and observers never get them.
const maxExcept = 2048

// Add records that the items at these ascending indices are not in the view. fresh lists those that no observer has
// seen. keys names the items of the conversation, oldest first, zero for none. If the conversation does not have the
// last seen item, as after an edit, all of it counts as unseen.
func (s SeenEvictions) Add(keys []wire.Hash, missing []int) (fresh []int, next SeenEvictions) {
	seen := 0 // how many of the keys are covered
	if s.through != (wire.Hash{}) {
		seen = slices.Index(keys, s.through) + 1
	}
	except := make(map[wire.Hash]bool, len(s.except))
	if seen > 0 {
		for _, k := range s.except {
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
	next.through = keys[last]
	gone := make(map[int]bool, len(missing))
	for _, i := range missing {
		gone[i] = true
	}
	for i, k := range keys[:last] {
		if !gone[i] && (i >= seen || except[k]) && k != (wire.Hash{}) {
			next.except = append(next.except, k)
		}
	}
	next.except = next.except[max(0, len(next.except)-maxExcept):]
	return fresh, next
}

type storedEvictions struct {
	Through string `json:"through"`
	Except  string `json:"except,omitempty"`
}

// Encode encodes s for DecodeSeenEvictions; nil if it is empty.
func (s SeenEvictions) Encode() []byte {
	if s.through == (wire.Hash{}) {
		return nil
	}
	var except []byte
	for _, k := range s.except {
		except = append(except, k[:]...)
	}
	b, err := json.Marshal(storedEvictions{hex.EncodeToString(s.through[:]), hex.EncodeToString(except)})
	if err != nil {
		panic(fmt.Sprintf("BUG: encode seen evictions: %v", err)) // two strings
	}
	return b
}

// DecodeSeenEvictions decodes the result of Encode. Anything else, or a too long input, is the zero value.
func DecodeSeenEvictions(b []byte) SeenEvictions {
	const hashHex = 2 * len(wire.Hash{})
	var st storedEvictions
	if len(b) > (maxExcept+4)*hashHex || json.Unmarshal(b, &st) != nil || len(st.Through) != hashHex {
		return SeenEvictions{}
	}
	through, err := hex.DecodeString(st.Through)
	except, odd := hex.DecodeString(st.Except)
	if err != nil || odd != nil || len(except)%len(wire.Hash{}) != 0 {
		return SeenEvictions{}
	}
	s := SeenEvictions{through: wire.Hash(through)}
	for k := range slices.Chunk(except, len(wire.Hash{})) {
		s.except = append(s.except, wire.Hash(k))
	}
	return s
}
