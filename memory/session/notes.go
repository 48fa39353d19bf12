package session

import (
	"fmt"

	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// Notes are what a turn records besides its items. They are written with it.
type Notes struct {
	// Blocks are what layers put into the view, in the order of the view.
	Blocks []view.Block
	// Layers say how the layers fared, in slot order.
	Layers []turnrecord.LayerNote
	// LastID is upstream's id of the end of an answer that was made of several: the client has the id of another. Else
	// it is empty.
	LastID string

	carried []wire.Item // see Carry
	hidden  hiddenItems
}

// Amend adds hidden items, which the model sees and the client does not. Call it before the Commit that writes them; items
// added before the conversation is read are part of it. If an item does not parse, Amend returns an error and adds nothing.
func (n *Notes) Amend(list ...Hidden) error { return n.hidden.add(list) }

// Carry stores the items of a merged response that upstream does not know by the client's id: a request that continues this id
// gets them first. More than 1024 are not stored.
func (n *Notes) Carry(items []wire.Item) {
	if len(items) <= maxAmendItems {
		n.carried = items
	}
}

// SavedNotes are the notes of a turn that could not be committed in time.
type SavedNotes struct {
	Hidden []Hidden               `json:"hidden,omitempty"`
	Blocks []view.Block           `json:"blocks,omitempty"`
	Layers []turnrecord.LayerNote `json:"layers,omitempty"`
	Carry  [][]byte               `json:"carry,omitempty"`
	Last   string                 `json:"last,omitempty"` // Notes.LastID
}

// Save returns the notes to resume the entry with; nil if there are none.
func (n *Notes) Save() *SavedNotes {
	if len(n.hidden.list) == 0 && len(n.Blocks) == 0 && len(n.Layers) == 0 && len(n.carried) == 0 && n.LastID == "" {
		return nil
	}
	s := &SavedNotes{Blocks: n.Blocks, Layers: n.Layers, Last: n.LastID}
	for _, it := range n.carried {
		s.Carry = append(s.Carry, it.Raw)
	}
	for _, h := range n.hidden.list {
		s.Hidden = append(s.Hidden, h.Hidden)
	}
	return s
}

// restore restores saved notes, nil for none. d is the dialect of the request.
func (n *Notes) restore(s *SavedNotes, d wire.Dialect) error {
	if s == nil {
		return nil
	}
	n.Blocks, n.Layers, n.LastID = s.Blocks, s.Layers, s.Last
	for i, raw := range s.Carry {
		it, err := wire.ParseItem(d, raw)
		if err != nil {
			return fmt.Errorf("item %d of what the response carries: %w", i, err)
		}
		n.carried = append(n.carried, it)
	}
	return n.Amend(s.Hidden...)
}
