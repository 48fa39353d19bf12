package scripted

import "net/http"

// serveStoredChat serves the paths below chat/completions.
func serveStoredChat(k *sink, id string) error {
	chats := k.s.chats.Load()
	completion, ok := chats.Find(id)
	if !ok {
		return k.fail(&apiError{status: http.StatusNotFound, message: "Chat completion with id '" + id + "' not found."})
	}
	if k.r.Method == http.MethodDelete {
		chats.Drop(id)
		return k.json(http.StatusOK, obj("id", id, "object", "chat.completion.deleted", "deleted", true))
	}
	return k.json(http.StatusOK, completion) // an update only changes the metadata
}
