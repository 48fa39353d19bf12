package session

import (
	"hash/fnv"
	"slices"

	"remora/wire"
)

// openCalls are the openKeys of calls that wait for a result.
type openCalls []string

// note adds the calls of an item, and removes those that it answers.
func (c *openCalls) note(it wire.Item) {
	for i := range it.Parts {
		switch p := &it.Parts[i]; p.Kind {
		case wire.ToolCall:
			if key := openKey(p.Call); key != "" && len(key) <= maxCallID && len(*c) < maxOpenCalls {
				*c = append(*c, key)
			}
		case wire.ToolResult:
			if i := slices.Index(*c, openKey(p.Call)); i >= 0 {
				*c = slices.Delete(*c, i, i+1)
			}
		default:
		}
	}
}

func (c openCalls) has(answer wire.Call) bool { return slices.Contains(c, openKey(answer)) }

// hashes returns the hashes of the latest calls, for ends other than the head.
func (c openCalls) hashes() (hashes []uint64) {
	for _, key := range c[max(0, len(c)-maxTailCalls):] {
		hashes = append(hashes, textHash(key))
	}
	return hashes
}

// maxCallID is the length in bytes from which a call id is not stored as open.
const maxCallID = 256

// openKey returns the head's key of a call that waits for its result: its id, or, if the kind has none, what pairs it instead.
// It is empty for a call that cannot be paired.
func openKey(c wire.Call) string {
	if c.Family == wire.FamilyLegacy {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

func textHash(s string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s))
	return h.Sum64()
}
