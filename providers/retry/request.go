package retry

import (
	"bytes"
	"errors"
	"slices"

	"remora/wire"
)

// ErrNoObject is returned for a body that is not a JSON object, in which no model can be named.
var ErrNoObject = errors.New("body is not a JSON object")

// WithModel returns body with another model: every top-level member "model" gets the new value, or one is put first if there is
// none. All other bytes stay. The result does not share memory with body.
func WithModel(body []byte, model string) ([]byte, error) {
	at := bytes.IndexByte(body, '{')
	if at < 0 || !wire.Valid(body) || len(bytes.TrimLeft(body[:at], " \t\r\n")) > 0 {
		return nil, ErrNoObject
	}
	object, value := body[at:], wire.AppendString(nil, model)
	if wire.Member(object, "model") != nil {
		return wire.ReplaceMember(body, "model", value), nil
	}
	first := append([]byte(`{"model":`), value...)
	if wire.HasChildren(object) {
		first = append(first, ',')
	}
	return slices.Concat(body[:at], first, object[1:]), nil
}

// Portable reports whether another provider than the one it was meant for can serve a request: it asks for a completion, a
// response or embeddings, and refers to nothing that a provider keeps, such as an earlier response, a file, a container,
// the sound of an answer, an image that it made, or reasoning that only its author has, can decrypt or has signed. The body
// is the decoded one. When in doubt the answer is no.
func Portable(method, target, body []byte) bool {
	path, _, _ := bytes.Cut(target, []byte("?"))
	if string(method) != "POST" {
		return false
	}
	path = bytes.TrimRight(path, "/")
	for _, name := range [...]string{"/chat/completions", "/responses", "/completions", "/embeddings"} {
		if bytes.HasSuffix(path, []byte(name)) {
			return !refers(body, name == "/responses")
		}
	}
	return false
}

// refers reports whether a request refers to something that a provider stores.
func refers(body []byte, responses bool) bool {
	for p := range wire.Children(body) {
		switch string(p.Name) {
		case "previous_response_id", "conversation":
			if !bytes.Equal(p.Value, []byte("null")) {
				return true
			}
		case "prompt": // a stored template; for completions it is the text itself
			if responses && !bytes.Equal(p.Value, []byte("null")) {
				return true
			}
		case "messages", "input":
			if names(p.Value, "item_reference", "file_id", "container_id", "encrypted_content", "audio", "signature", "thought_signature") {
				return true
			}
			if responses && names(p.Value, "reasoning", "image_generation_call") {
				return true
			}
		case "tools":
			if names(p.Value, "vector_store_ids", "file_ids") || bytes.Contains(p.Value, []byte(`"cntr_`)) {
				return true
			}
		}
	}
	return false
}

// names looks for strings in JSON without reading it. Inside of other strings the quotes are escaped, so that what people
// write about them is not taken for them. A member that is null does not count.
func names(raw []byte, list ...string) bool {
	for _, name := range list {
		quoted := []byte(`"` + name + `"`)
		for rest := raw; ; {
			i := bytes.Index(rest, quoted)
			if i < 0 {
				break
			}
			if rest = rest[i+len(quoted):]; !isNull(rest) {
				return true
			}
		}
	}
	return false
}

// isNull reports whether a member's value, which follows its name, is null.
func isNull(rest []byte) bool {
	rest, colon := bytes.CutPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":"))
	return colon && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte("null"))
}
