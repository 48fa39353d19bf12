package scripted

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// belonging makes an id or a signature that only this organization's servers know.
func (s *Server) belonging(prefix string, id identity, n int) string {
	return prefix + s.mark() + strings.TrimPrefix(id.item("x", n), "x_")[:24]
}

// FileID is the id of a file that was uploaded with this organization's account.
func (s *Server) FileID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "file-" + s.mark() + hex.EncodeToString(sum[:8])
}

// mark begins what belongs to the organization, behind its prefix.
func (s *Server) mark() string {
	sum := sha256.Sum256([]byte("organization " + s.o.Organization))
	return hex.EncodeToString(sum[:4])
}

// belongings finds the members that hold what belongs to an account.
var belongings = regexp.MustCompile( //nolint:gochecknoglobals // compiled once
	`"(file_id|container_id|signature|thought_signature|id)"\s*:\s*"((?:file-|cntr_|sig_|audio_)[^"]*)"`)

// foreign returns the first thing in a body that belongs to another organization, with the member that holds it. A server
// without an organization takes everything for its own.
func (s *Server) foreign(body raw) (member, value string) {
	if s.o.Organization == "" {
		return "", ""
	}
	for _, found := range belongings.FindAllSubmatch(body, -1) {
		_, rest, _ := strings.Cut(strings.Replace(string(found[2]), "file-", "file_", 1), "_")
		if !strings.HasPrefix(rest, s.mark()) {
			return string(found[1]), string(found[2])
		}
	}
	return "", ""
}

// checkBelongings wants no file or container of another account.
func (s *Server) checkBelongings(history []item) *apiError {
	for i := range history {
		switch member, value := s.foreign(history[i].raw); member {
		case "":
		case "container_id":
			return &apiError{status: http.StatusNotFound, history: true, param: "input", message: "Container with id '" + value + "' not found."}
		default:
			return &apiError{status: http.StatusNotFound, history: true, param: "input", message: "File with id '" + value + "' not found."}
		}
	}
	return nil
}

// checkChatBelongings wants no sound, no file and no signature of another account.
func (s *Server) checkChatBelongings(messages raw) *apiError {
	switch member, value := s.foreign(messages); member {
	case "":
		return nil
	case "id":
		return &apiError{status: http.StatusNotFound, history: true, param: "messages", message: "Audio with id '" + value + "' not found."}
	case "signature", "thought_signature":
		return badHistory("Invalid `signature` in `thinking` block", "messages", "")
	default:
		return &apiError{status: http.StatusNotFound, history: true, param: "messages", message: "File with id '" + value + "' not found."}
	}
}

// hosted makes an item that the vendor made and ran itself.
func (o *responsesAnswer) hosted(t string) raw {
	id := o.nextID(itemPrefix(t))
	n := len(o.output)
	head := []any{"id", id, "type", t}
	switch t {
	case "compaction":
		return obj(append(head, "encrypted_content", o.k.s.seal(id))...)
	case "web_search_call":
		head = append(head, "status", "completed", "action", obj("type", "search", "query", "weather"))
	case "file_search_call":
		head = append(head, "status", "completed", "queries", raw(`["rules"]`), "results", arr(obj(
			"file_id", o.k.s.belonging("file-", o.id, n), "filename", "rules.md", "score", raw("0.9"), "text", "Be kind.")))
	case "code_interpreter_call":
		head = append(head, "status", "completed", "code", "1+1", "container_id", o.k.s.belonging("cntr_", o.id, n),
			"outputs", arr(obj("type", "logs", "logs", "2")))
	case "image_generation_call":
		head = append(head, "status", "completed", "result", "aW1hZ2U=")
	case "mcp_list_tools":
		head = append(head, "server_label", "docs", "tools", raw("[]"))
	case "mcp_call":
		head = append(head, "server_label", "docs", "name", "find", "arguments", "{}", "output", "found")
	}
	return obj(head...)
}

// sound is the audio member of a Chat message, nil for none.
func (o *chatAnswer) sound(choice int, a Answer) any {
	if !a.Sound {
		return nil
	}
	return obj("id", o.s.belonging("audio_", o.id, choice), "expires_at", 4_000_000_000, "data", "c291bmQ=", "transcript", a.Text)
}

// signedDetails are the reasoning of a Chat message as gateways give it, with the vendor's signature.
func (o *chatAnswer) signedDetails(choice int, text string) raw {
	return arr(obj("type", "reasoning.text", "text", text, "signature", o.s.belonging("sig_", o.id, choice), "format", "anthropic-claude-v1", "index", 0))
}
