package view

import (
	"encoding/json"
	"fmt"

	"remora/wire"
)

// WindowStart is the beginning of a view's window. It is stored with the session, so that the next view can begin there. The
// zero WindowStart is none.
type WindowStart struct {
	// Key is the key of the window's first item; the zero Hash if unknown.
	Key wire.Hash `json:"key,omitzero"`
	// Units is the number of units before the cut. It selects one of the parallel calls of a message, and determines how much
	// of a stored history must be read.
	Units uint64 `json:"entries,omitempty"`
}

// maxStored bounds an encoded WindowStart, in bytes.
const maxStored = 256

// DecodeWindowStart decodes the result of Encode. Anything else is the zero WindowStart: a new cut is made.
func DecodeWindowStart(b []byte) (c WindowStart) {
	if len(b) == 0 || len(b) > maxStored || json.Unmarshal(b, &c) != nil {
		return WindowStart{}
	}
	return c
}

// Encode writes the cut as JSON.
func (c WindowStart) Encode() []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a cut: %v", err)) // a string and a number
	}
	return b
}
