package scripted

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// identity is the source of all ids of an answer: a hash of the model's input, in hexadecimal.
type identity string

// identities generates the identities of a server's answers.
type identities struct {
	organization organization
	mu           sync.Mutex
	seen         map[[16]byte]int // number of requests by hash, so that repetitions get different ids
}

// maxSeen bounds the table of requests. Beyond it counting starts again, so ids may repeat.
const maxSeen = 1 << 17

// of returns the identity for a request. A repeated request gets another one, which is the same on every server with the same
// repetitions.
func (ids *identities) of(kind, model string, history []byte) identity {
	h := sha256.New()
	for _, part := range [...][]byte{[]byte(kind + string(ids.organization)), []byte(model), history} {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(part)))
		h.Write(size[:])
		h.Write(part)
	}
	var key [16]byte
	sum := h.Sum(nil)
	copy(key[:], sum)

	ids.mu.Lock()
	if len(ids.seen) >= maxSeen {
		clear(ids.seen)
	}
	n := ids.seen[key]
	ids.seen[key] = n + 1
	ids.mu.Unlock()
	again := sha256.Sum256(binary.BigEndian.AppendUint64(sum, uint64(n))) //nolint:gosec // a count
	return identity(hex.EncodeToString(again[:]))
}

func (ids *identities) reset() {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	clear(ids.seen)
}

func (id identity) chat() string { return "chatcmpl-" + string(id[:29]) }

func (id identity) response() string { return "resp_" + string(id[:48]) }

// item returns the id of the n-th item of an answer.
func (id identity) item(prefix string, n int) string {
	return fmt.Sprintf("%s_%s%04x", prefix, id[:44], n)
}

// call returns a tool call's id, which contains its round.
func (id identity) call(round, choice, n int) string {
	return fmt.Sprintf("call_%s%05x%02x%02x", id[:15], round, choice, n)
}

// roundOf returns the round in a call id, false for ids of other servers.
func roundOf(callID string) (int, bool) {
	digits, ok := strings.CutPrefix(callID, "call_")
	if !ok || len(digits) != 24 {
		return 0, false
	}
	for _, c := range []byte(digits) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return 0, false
		}
	}
	round, err := strconv.ParseUint(digits[15:20], 16, 32)
	return int(round), err == nil
}

// created returns a Unix time in seconds that depends only on the request.
func (id identity) created() int {
	n, _ := strconv.ParseUint(string(id[:5]), 16, 32)
	return 1_750_000_000 + int(n)
}

// obfuscation returns padding of varying length, as in the API's deltas, against guesses from packet sizes.
func (id identity) obfuscation(n int) string {
	return string(id[:4+n*7%13])
}
