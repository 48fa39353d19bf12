package scripted

import (
	"net/http"
	"slices"
	"sync"

	"remora/memory/lru"
)

// Bounds of stored answers and conversations.
const (
	maxResponses     = 10_000
	maxConversations = 1_000
	maxItems         = 1_000_000
	maxHistory       = 20_000 // items in one conversation or chain of responses
)

// memory is the store of the API: responses, their items, conversations, and completions.
type memory struct {
	responses     lru.Cache[string, *storedResponse]
	items         lru.Cache[string, storedItem]
	conversations lru.Cache[string, *storedConversation]
	chats         lru.Cache[string, raw]

	mu sync.Mutex // of the members of conversations
}

// storedResponse holds its own items and a link to the previous response.
type storedResponse struct {
	object        raw
	parent        *storedResponse
	input, output []item
}

// storedItem is an item that can be referenced.
type storedItem struct {
	item  item
	owner string // the response or conversation with which it is deleted
	// partner is the id of the item that a reasoning item was produced with, and vice versa.
	partner string
}

type storedConversation struct {
	items []item
	busy  bool
}

// context returns the stored items before a request's input. It locks a conversation until done is called; later calls of done
// do nothing.
func (m *memory) context(req *responsesRequest) (items []item, done func(), e *apiError) {
	done = func() {}
	if id := req.conversationID(); id != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		c, _ := m.conversations.Find(id)
		switch {
		case c == nil:
			return nil, done, noConversation(id)
		case c.busy:
			return nil, done, badRequest("Another process is currently operating on this conversation. "+
				"Please retry in a few seconds.", "conversation", "conversation_locked")
		case len(c.items) > maxHistory:
			return nil, done, tooLong()
		}
		c.busy = true
		return remembered(c.items), sync.OnceFunc(func() {
			m.mu.Lock()
			defer m.mu.Unlock()
			c.busy = false
		}), nil
	}
	if id := req.previous(); req.PreviousResponseID != nil {
		r, _ := m.responses.Find(id)
		if r == nil {
			return nil, done, badHistory("Previous response with id '"+id+"' not found.",
				"previous_response_id", "previous_response_not_found")
		}
		if items = r.chain(); len(items) > maxHistory {
			return nil, done, tooLong()
		}
		return remembered(items), done, nil
	}
	return nil, done, nil
}

func tooLong() *apiError {
	return badRequest("Your input exceeds the context window of this model. Please adjust your input and try again.",
		"input", "context_length_exceeded")
}

func (r *storedResponse) chain() []item {
	var parts [][]item
	for ; r != nil; r = r.parent {
		parts = append(parts, r.output, r.input)
	}
	slices.Reverse(parts)
	return slices.Concat(parts...)
}

// remembered returns a copy of items for a later request.
func remembered(items []item) []item {
	out := slices.Clone(items)
	for i := range out {
		out[i].input = -1
	}
	return out
}

// resolve replaces each item_reference by the stored item, and refuses items that are incomplete without a store.
func (m *memory) resolve(req *responsesRequest, items []item) ([]item, *apiError) {
	for i, it := range items {
		byID := it.Type == "item_reference" || it.Type == "" && it.ID != ""
		// Without encrypted content a reasoning item is only an id.
		bare := it.Type == "reasoning" && it.ID != "" && it.EncryptedContent == nil && it.input >= 0
		// An image is only found by its id, whatever its other members.
		bare = bare || it.Type == "image_generation_call" && it.input >= 0
		if !byID && !bare {
			continue
		}
		known, ok := m.items.Find(it.ID)
		if !req.stores() {
			return nil, noItem(it.ID, " Items are not persisted when `store` is set to false. Try again with `store` "+
				"set to true, or remove this item from your input.")
		}
		if !ok {
			return nil, noItem(it.ID, "")
		}
		if byID {
			items[i] = known.item
			items[i].input = it.input
		}
	}
	return items, nil
}

func noItem(id, hint string) *apiError {
	return &apiError{
		status: http.StatusNotFound, history: true, param: "input", message: "Item with id '" + id + "' not found." + hint,
	}
}

// partner returns the id of the item that an item was produced with, "" if none is known.
func (m *memory) partner(id string) string {
	it, _ := m.items.Find(id)
	return it.partner
}

// keep stores a response, unless the request forbids it, and always extends its conversation.
func (m *memory) keep(req *responsesRequest, id string, object raw, input, output []item) {
	if c, ok := m.conversations.Find(req.conversationID()); ok {
		m.mu.Lock()
		c.items = append(append(c.items, input...), output...)
		m.mu.Unlock()
		m.index(req.conversationID(), input, output)
	}
	if !req.stores() {
		return
	}
	parent, _ := m.responses.Find(req.previous())
	m.responses.Put(id, &storedResponse{object: object, parent: parent, input: input, output: output}, maxResponses)
	m.index(id, input, output)
}

// index stores items by id, and links each reasoning item to the item after it.
func (m *memory) index(owner string, input, output []item) {
	for _, it := range input {
		if it.ID != "" && it.Type != "item_reference" {
			m.items.FindOrPut(it.ID, storedItem{item: it, owner: owner}, maxItems)
		}
	}
	for i, it := range output {
		known := storedItem{item: it, owner: owner}
		if it.Type == "reasoning" && i+1 < len(output) {
			known.partner = output[i+1].ID
		}
		if i > 0 && output[i-1].Type == "reasoning" {
			known.partner = output[i-1].ID
		}
		m.items.Put(it.ID, known, maxItems)
	}
}

// unindex removes the items of owner. A later request may have sent others again.
func (m *memory) unindex(owner string, items []item) {
	for _, it := range items {
		if known, _ := m.items.Find(it.ID); known.owner == owner {
			m.items.Drop(it.ID)
		}
	}
}
