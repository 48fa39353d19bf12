package scripted

import (
	"net/http"
	"slices"
	"sync"

	"remora/memory/lru"
)

// Bounds of stored responses and conversations.
const (
	maxResponses     = 10_000
	maxConversations = 1_000
	maxItems         = 1_000_000
	maxHistory       = 20_000 // items in one conversation or chain of responses
)

// memory is the store of the Responses API: responses, their items, conversations.
type memory struct {
	mu            sync.Mutex
	responses     *lru.Cache[string, *storedResponse]
	items         *lru.Cache[string, storedItem]
	conversations *lru.Cache[string, *storedConversation]
}

// storedResponse holds its own items and a link to the previous response.
type storedResponse struct {
	object        raw
	parent        *storedResponse
	input, output []item
	length        int // items in the whole chain
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

func newMemory() *memory {
	m := &memory{}
	m.reset()
	return m
}

func (m *memory) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.responses = new(lru.Cache[string, *storedResponse])
	m.items = new(lru.Cache[string, storedItem])
	m.conversations = new(lru.Cache[string, *storedConversation])
}

func (m *memory) response(id string) *storedResponse {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, _ := m.responses.Find(id)
	return r
}

// context returns the stored items before a request's input. It locks a conversation until done is called; later calls of done
// do nothing.
func (m *memory) context(req *responsesRequest) (items []item, done func(), e *apiError) {
	m.mu.Lock()
	defer m.mu.Unlock()
	done = func() {}
	if id := req.conversationID(); id != "" {
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
		if r.length > maxHistory {
			return nil, done, tooLong()
		}
		return remembered(r.chain()), done, nil
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
	m.mu.Lock()
	defer m.mu.Unlock()
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
	m.mu.Lock()
	defer m.mu.Unlock()
	it, _ := m.items.Find(id)
	return it.partner
}

// keep stores a response, unless the request forbids it, and always extends its conversation.
func (m *memory) keep(req *responsesRequest, id string, object raw, input, output []item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.conversations.Find(req.conversationID()); ok {
		c.items = append(append(c.items, input...), output...)
		m.index(req.conversationID(), input, output)
	}
	if !req.stores() {
		return
	}
	r := &storedResponse{object: object, input: input, output: output, length: len(input) + len(output)}
	if parent, ok := m.responses.Find(req.previous()); ok {
		r.parent = parent
		r.length += parent.length
	}
	m.responses.Put(id, r, maxResponses)
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

func (m *memory) forget(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.responses.Find(id); ok {
		m.responses.Drop(id)
		m.unindex(id, r.output)
		m.unindex(id, r.input)
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

// converse creates a conversation or extends it.
func (m *memory) converse(id string, items []item) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.conversations.FindOrPut(id, &storedConversation{}, maxConversations)
	if len(c.items) <= maxHistory {
		c.items = append(c.items, items...)
		m.index(id, items, nil)
	}
}

func (m *memory) conversationItems(id string) ([]item, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, ok := m.conversations.Find(id)
	if !ok {
		return nil, false
	}
	return slices.Clone(c.items), true
}

func (m *memory) forgetConversation(id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, ok := m.conversations.Find(id); ok {
		m.conversations.Drop(id)
		m.unindex(id, c.items)
	}
}
