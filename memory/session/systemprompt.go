package session

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"remora/wire"
	"remora/wire/dialects"
)

// systemPromptRecord is one version of the items before the conversation.
type systemPromptRecord struct {
	Instructions []byte   `json:"instructions,omitempty"` // as they came: base64, since JSON would be re-spelled
	Dialect      uint8    `json:"dialect"`                // its code
	Items        [][]byte `json:"items,omitempty"`
}

// newSystemPromptRecord returns the items before the conversation in a request.
func newSystemPromptRecord(in *incoming, req *wire.Request) systemPromptRecord {
	r := systemPromptRecord{Instructions: req.Instructions(), Dialect: req.Dialect.Code()}
	for _, it := range in.system {
		r.Items = append(r.Items, it.Raw)
	}
	return r
}

func (r *systemPromptRecord) encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode system prompt: %v", err)) // bytes and numbers
	}
	return b
}

// parse is the record's items.
func (r *systemPromptRecord) parse() ([]wire.Item, error) {
	items := make([]wire.Item, 0, len(r.Items))
	for _, raw := range r.Items {
		it, err := wire.ParseItem(dialects.ByCode(r.Dialect), raw)
		if err != nil {
			return nil, fmt.Errorf("read system prompt: %w", err)
		}
		items = append(items, it)
	}
	return items, nil
}

func systemPromptName(h wire.Hash) string { return systemPromptPrefix + string(h[:]) }

// systemPromptHash names the system prompt with the instructions.
func systemPromptHash(items []wire.Item, instructions []byte, known *hashCache) (wire.Hash, bool) {
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
