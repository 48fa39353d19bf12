package session

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"remora/wire"
	"remora/wire/dialects"
)

// leadRecord is one version of what stands before the conversation.
type leadRecord struct {
	Instructions []byte        `json:"instructions,omitempty"` // as they came: base64, since JSON would be re-spelled
	Dialect      dialects.Code `json:"dialect"`
	Items        [][]byte      `json:"items,omitempty"`
}

// newLeadRecord is what stands before the conversation in a request.
func newLeadRecord(in *incoming, req *wire.Request) leadRecord {
	r := leadRecord{Instructions: req.Instructions(), Dialect: dialects.CodeOf(req.Dialect)}
	for _, it := range in.leading {
		r.Items = append(r.Items, it.Raw)
	}
	return r
}

func (r *leadRecord) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode leading items: %v", err)) // bytes and numbers
	}
	return b
}

// parse is the record's items.
func (r *leadRecord) parse() ([]wire.Item, error) {
	items := make([]wire.Item, 0, len(r.Items))
	for _, raw := range r.Items {
		it, err := wire.ParseItem(r.Dialect.Dialect(), raw)
		if err != nil {
			return nil, fmt.Errorf("read leading items: %w", err)
		}
		items = append(items, it)
	}
	return items, nil
}

func leadName(h wire.Hash) string { return leadPrefix + string(h[:]) }

// leadHash names leading items with the instructions.
func leadHash(items []wire.Item, instructions []byte, known *hashCache) (wire.Hash, bool) {
	if len(items) == 0 && len(instructions) == 0 {
		return wire.Hash{}, false
	}
	var room [16 * len(wire.Hash{})]byte // as a rule it is one item
	b := room[:0]
	for i := range items {
		c := known.meaning(items[i]).Content
		b = append(b, c[:]...)
	}
	sum := sha256.Sum256(append(b, instructions...))
	return wire.Hash(sum[:16]), true
}
