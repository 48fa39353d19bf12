package scripted

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// organization is the account that a server belongs to: it makes what only its own servers can read or find, and refuses what
// another account's servers made. The empty one takes everything for its own.
type organization string

// own makes an id or a signature that only the organization's servers know.
func (o organization) own(prefix string, id identity, n int) string {
	return prefix + o.mark() + strings.TrimPrefix(id.item("x", n), "x_")[:24]
}

// fileID is the id of a file that was uploaded with this organization's account.
func (o organization) fileID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "file-" + o.mark() + hex.EncodeToString(sum[:8])
}

// mark begins what belongs to the organization, behind its prefix.
func (o organization) mark() string {
	sum := sha256.Sum256([]byte("organization " + string(o)))
	return hex.EncodeToString(sum[:4])
}

// belongings finds the members that hold what belongs to an account.
var belongings = regexp.MustCompile( //nolint:gochecknoglobals // compiled once
	`"(file_id|container_id|signature|thought_signature|id)"\s*:\s*"((?:file-|cntr_|sig_|audio_)[^"]*)"`)

// foreign returns the first thing in a body that belongs to another organization, with the member that holds it.
func (o organization) foreign(body raw) (member, value string) {
	if o == "" {
		return "", ""
	}
	for _, found := range belongings.FindAllSubmatch(body, -1) {
		_, rest, _ := strings.Cut(strings.Replace(string(found[2]), "file-", "file_", 1), "_")
		if !strings.HasPrefix(rest, o.mark()) {
			return string(found[1]), string(found[2])
		}
	}
	return "", ""
}

// checkResponses wants no file or container of another account.
func (o organization) checkResponses(history []item) *apiError {
	for i := range history {
		switch member, value := o.foreign(history[i].raw); member {
		case "":
		case "container_id":
			return &apiError{status: http.StatusNotFound, history: true, param: "input", message: "Container with id '" + value + "' not found."}
		default:
			return &apiError{status: http.StatusNotFound, history: true, param: "input", message: "File with id '" + value + "' not found."}
		}
	}
	return nil
}

// checkChat wants no sound, no file and no signature of another account.
func (o organization) checkChat(messages raw) *apiError {
	switch member, value := o.foreign(messages); member {
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

// sealPrefix begins every encrypted_content, the payload and its checksum follow.
const (
	sealPrefix   = "gAAAAA"
	checksumSize = 8
)

// seal makes the encrypted_content of an item.
func (o organization) seal(id string) string { return sealPrefix + id + o.checksum(id) }

// sealed reports whether content came from this organization's seal and was not changed since.
func (o organization) sealed(content string) bool {
	payload, ok := strings.CutPrefix(content, sealPrefix)
	if !ok || len(payload) < checksumSize {
		return false
	}
	id := payload[:len(payload)-checksumSize]
	return payload[len(id):] == o.checksum(id)
}

func (o organization) checksum(id string) string {
	sum := sha256.Sum256([]byte(strings.TrimSpace("seal "+string(o)) + " " + id))
	return hex.EncodeToString(sum[:])[:checksumSize]
}

// checkSeals wants every encrypted_content back as it was given out.
func (o organization) checkSeals(history []item) *apiError {
	for i := range history {
		it := &history[i]
		if it.Type != "reasoning" && it.Type != "compaction" || it.EncryptedContent == nil || o.sealed(*it.EncryptedContent) {
			continue
		}
		c := *it.EncryptedContent
		return badHistory("The encrypted content "+c[:min(4, len(c))]+"..."+c[len(c)-min(4, len(c)):]+" could not be "+
			"verified. Reason: Encrypted content could not be decrypted or parsed.", "", "invalid_encrypted_content")
	}
	return nil
}
