package scripted

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"strings"
)

// organization is the account of a server. Some data of its answers can only be read by servers of the same account; servers of
// others refuse it. The empty one refuses only encrypted content of others.
type organization string

// own returns an id or a signature that only the organization's servers accept.
func (o organization) own(prefix string, id identity, n int) string {
	return prefix + o.mark() + strings.TrimPrefix(id.item("x", n), "x_")[:24]
}

// fileID returns the id of a file uploaded to this organization.
func (o organization) fileID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "file-" + o.mark() + hex.EncodeToString(sum[:8])
}

// mark returns the organization's mark, which follows the prefix of an id.
func (o organization) mark() string {
	sum := sha256.Sum256([]byte("organization " + string(o)))
	return hex.EncodeToString(sum[:4])
}

// belongings matches the members with data of an account.
var belongings = regexp.MustCompile( //nolint:gochecknoglobals // compiled once
	`"(file_id|container_id|signature|thought_signature|id)"\s*:\s*"((?:file-|cntr_|sig_|audio_)[^"]*)"`)

// foreign returns the first member of a body with another organization's data, and its value.
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

// check refuses files, containers, sounds and signatures of another account in a part of a request.
func (o organization) check(param string, part raw) *apiError {
	member, value := o.foreign(part)
	what := "File"
	switch member {
	case "":
		return nil
	case "signature", "thought_signature":
		return badHistory("Invalid `signature` in `thinking` block", param, "")
	case "container_id":
		what = "Container"
	case "id":
		what = "Audio"
	}
	return &apiError{status: http.StatusNotFound, history: true, param: param, message: what + " with id '" + value + "' not found."}
}

// sealPrefix is the prefix of every encrypted_content. The payload and its checksum follow.
const (
	sealPrefix   = "gAAAAA"
	checksumSize = 8
)

// seal returns the encrypted_content of an item.
func (o organization) seal(id string) string { return sealPrefix + id + o.checksum(id) }

// sealed reports whether content is from this organization's seal and unchanged.
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

// checkItems refuses data of another account, and encrypted_content that was changed.
func (o organization) checkItems(history []item) *apiError {
	for i := range history {
		it := &history[i]
		if e := o.check("input", it.raw); e != nil {
			return e
		}
		if it.Type != "reasoning" && it.Type != "compaction" || it.EncryptedContent == nil || o.sealed(*it.EncryptedContent) {
			continue
		}
		c := *it.EncryptedContent
		return badHistory("The encrypted content "+c[:min(4, len(c))]+"..."+c[len(c)-min(4, len(c)):]+" could not be "+
			"verified. Reason: Encrypted content could not be decrypted or parsed.", "", "invalid_encrypted_content")
	}
	return nil
}
