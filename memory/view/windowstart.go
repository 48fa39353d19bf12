package view

import (
	"encoding/hex"
	"encoding/json"
	"fmt"

	"remora/wire"
)

// WindowStart is the beginning of a view's window. It is stored with the session, so that the next view can begin there. The
// zero WindowStart is none.
type WindowStart struct {
	// Key is the key of the window's first item; the zero Hash if unknown.
	Key wire.Hash
	// Units is the number of units before the cut. It selects one of the parallel calls of a message, and determines how much
	// of a stored history must be read.
	Units uint64
}

// maxStored bounds an encoded WindowStart, in bytes.
const maxStored = 256

// stored is a WindowStart as JSON.
type stored struct {
	Key   string `json:"key,omitempty"`
	Units uint64 `json:"entries,omitempty"`
}

// DecodeWindowStart decodes the result of Encode. Anything else is the zero WindowStart: a new cut is made.
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
