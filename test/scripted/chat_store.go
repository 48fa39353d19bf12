package scripted

import (
	"net/http"
	"strings"
	"sync"
)

// chatStore holds the completions of requests with store.
type chatStore struct {
	mu    sync.Mutex
	known map[string]storedChat
}

type storedChat struct{ completion, messages raw }

func (c *chatStore) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = make(map[string]storedChat)
}

// keep stores a completion. Beyond a bound it deletes all others.
func (c *chatStore) keep(id string, completion, messages raw) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxResponses {
		clear(c.known)
	}
	c.known[id] = storedChat{completion, messages}
}

func (c *chatStore) find(id string) (storedChat, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found, ok := c.known[id]
	return found, ok
}

func (c *chatStore) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, id)
}

// serveStoredChat serves the paths below chat/completions.
func serveStoredChat(k *sink, path string) error {
	id, sub, _ := strings.Cut(path, "/")
	found, ok := k.s.chats.find(id)
	if !ok {
		return k.fail(&apiError{status: http.StatusNotFound, message: "Chat completion with id '" + id + "' not found."})
	}
	switch {
	case k.r.Method == http.MethodGet && sub == "messages":
		return k.json(http.StatusOK, obj("object", "list", "data", found.messages, "has_more", false))
	case k.r.Method == http.MethodDelete && sub == "":
		k.s.chats.forget(id)
		return k.json(http.StatusOK, obj("id", id, "object", "chat.completion.deleted", "deleted", true))
	case sub == "": // an update only changes the metadata
		return k.json(http.StatusOK, found.completion)
	}
	return k.fail(methodNotAllowed())
}
