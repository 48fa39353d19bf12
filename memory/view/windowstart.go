package view

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"remora/wire"
)

// WindowStart is where a view's window begins. It is kept with the session, so that the next view can begin at the same place.
// The zero WindowStart is none.
type WindowStart struct {
	// Key names the item that the window begins with; the zero Hash where its name is not known.
	Key wire.Hash
	// Units is the number of units before the cut. It selects one of the parallel calls of a message, and says how much
	// of a stored history a window needs.
	Units uint64
}

// maxStored bounds an encoded WindowStart, in bytes.
const maxStored = 256

// stored is a WindowStart as JSON.
type stored struct {
	Key   string `json:"key,omitempty"`
	Units uint64 `json:"entries,omitempty"`
}

// DecodeWindowStart reads what Encode wrote. What is no cut is the zero WindowStart: a window can be cut anew.
func DecodeWindowStart(b []byte) WindowStart {
	var st stored
	if len(b) == 0 || len(b) > maxStored || json.Unmarshal(b, &st) != nil {
		return WindowStart{}
	}
	c := WindowStart{Units: st.Units}
	if raw, err := hex.DecodeString(st.Key); err == nil && len(raw) == len(c.Key) {
		c.Key = wire.Hash(raw)
	}
	return c
}

// Encode writes the cut as JSON.
func (c WindowStart) Encode() []byte {
	st := stored{Units: c.Units}
	if c.Key != (wire.Hash{}) {
		st.Key = hex.EncodeToString(c.Key[:])
	}
	b, err := json.Marshal(st)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a cut: %v", err)) // a string and a number
	}
	return b
}
