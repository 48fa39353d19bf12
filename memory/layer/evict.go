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

// Told records which items of a conversation EvictionObservers have seen: all items up to one, except some. The zero
// Told has none. Items are named by hashes that stay the same from turn to turn, like the hashes of the transcript's
// chain.
type Told struct {
	through wire.Hash
	except  []wire.Hash // those before through that were in the view then
}

// maxExcept bounds Told; the oldest exceptions are forgotten first, and never told of.
const maxExcept = 2048

// Add records that the items at these ascending indices are not in the view. fresh lists those that no observer has
// seen. keys names the items of the conversation, oldest first, zero for none. If the conversation does not have the
// last seen item, as after an edit, all of it counts as unseen.
func (t Told) Add(keys []wire.Hash, missing []int) (fresh []int, next Told) {
	told := 0 // how many of the keys are covered
	if t.through != (wire.Hash{}) {
		told = slices.Index(keys, t.through) + 1
	}
	except := make(map[wire.Hash]bool, len(t.except))
	if told > 0 {
		for _, k := range t.except {
			except[k] = true
		}
	}
	last := -1
	for _, i := range missing {
		if keys[i] == (wire.Hash{}) {
			continue // the next turn could not tell that it was told of
		}
		if i >= told || except[keys[i]] {
			fresh = append(fresh, i)
		}
		last = i
	}
	if len(fresh) == 0 {
		return nil, t
	}
	last = max(last, told-1)
	next.through = keys[last]
	gone := make(map[int]bool, len(missing))
	for _, i := range missing {
		gone[i] = true
	}
	for i, k := range keys[:last] {
		if !gone[i] && (i >= told || except[k]) && k != (wire.Hash{}) {
			next.except = append(next.except, k)
		}
	}
	next.except = next.except[max(0, len(next.except)-maxExcept):]
	return fresh, next
}

type storedTold struct {
	Through string `json:"through"`
	Except  string `json:"except,omitempty"`
}

// Encode writes what DecodeTold reads; nil for nothing.
func (t Told) Encode() []byte {
	if t.through == (wire.Hash{}) {
		return nil
	}
	var except []byte
	for _, k := range t.except {
		except = append(except, k[:]...)
	}
	b, err := json.Marshal(storedTold{hex.EncodeToString(t.through[:]), hex.EncodeToString(except)})
	if err != nil {
		panic(fmt.Sprintf("BUG: encode what was told: %v", err)) // two strings
	}
	return b
}

// DecodeTold reads what Encode wrote, and is nothing where that was something else or is too long.
func DecodeTold(b []byte) Told {
	const hashHex = 2 * len(wire.Hash{})
	var st storedTold
	if len(b) > (maxExcept+4)*hashHex || json.Unmarshal(b, &st) != nil || len(st.Through) != hashHex {
		return Told{}
	}
	through, err := hex.DecodeString(st.Through)
	except, odd := hex.DecodeString(st.Except)
	if err != nil || odd != nil || len(except)%len(wire.Hash{}) != 0 {
		return Told{}
	}
	t := Told{through: wire.Hash(through)}
	for k := range slices.Chunk(except, len(wire.Hash{})) {
		t.except = append(t.except, wire.Hash(k))
	}
	return t
}
