package cache

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
)

const (
	redisGroupPrefix = "r1:"
	redisIndexPrefix = "i1:"

	// Longer identifiers are replaced by their SHA-256, so that no caller decides how long a key gets.
	maxPlainID   = 64
	maxEncodedID = 48

	// pageMark starts every token of List, so that the token after the group with the empty name is not empty.
	pageMark = "."
)

// errBadPage tells that List was given a token that List has not made.
var errBadPage = errors.New("list groups: unknown page token")

// redisGroupKey returns the key of a group. All of it that depends on the caller stands inside the hash tag, and no
// part can hold a colon or a brace.
func redisGroupKey(g Group) string {
	var b strings.Builder
	b.Grow(len(redisGroupPrefix) + 3 + writtenID(g.Owner) + writtenID(g.Name))
	b.WriteString(redisGroupPrefix)
	b.WriteByte('{')
	writeID(&b, g.Owner)
	b.WriteByte(':')
	writeID(&b, g.Name)
	b.WriteByte('}')
	return b.String()
}

// redisIndexKey returns the key of the sorted set that holds the names of an owner's listed groups.
func redisIndexKey(owner string) string {
	var b strings.Builder
	b.WriteString(redisIndexPrefix)
	b.WriteByte('{')
	writeID(&b, owner)
	// The colon keeps the tag from being empty, in which case Redis would hash the whole key.
	b.WriteString(":}")
	return b.String()
}

// writeID writes id in one of three forms that cannot be mistaken for each other, because neither '=' nor '~' is a
// plain byte: as it is (readable in redis-cli), as '=' and its base64url, or as '~' and the base64url of its SHA-256.
func writeID(b *strings.Builder, id string) {
	if len(id) <= maxPlainID && isPlain(id) {
		b.WriteString(id)
		return
	}
	var room [maxEncodedID]byte
	plain := append(room[:0], id[:min(len(id), maxEncodedID)]...)
	mark := byte('=')
	if len(id) > maxEncodedID {
		sum := sha256.Sum256([]byte(id))
		mark, plain = '~', append(room[:0], sum[:]...)
	}
	var spelled [4 * maxEncodedID / 3]byte
	b.WriteByte(mark)
	b.Write(base64.RawURLEncoding.AppendEncode(spelled[:0], plain))
}

// writtenID is how many bytes writeID writes at most.
func writtenID(id string) int { return min(max(len(id), 1+4*len(id)/3+1), maxPlainID+1) }

func isPlain(id string) bool {
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}

// appendPart appends s to a bbolt key so that it ends by itself: a length byte and the bytes, or 255 and the SHA-256
// of what is longer than 254 bytes (bbolt keys end at 32 KiB). A sequence of parts is as injective as its parts.
func appendPart(dst []byte, s string) []byte {
	if len(s) < 255 {
		dst = append(dst, byte(len(s))) //nolint:gosec // G115: checked above
		return append(dst, s...)
	}
	sum := sha256.Sum256([]byte(s))
	dst = append(dst, 255)
	return append(dst, sum[:]...)
}

// groupPrefix is how all bbolt keys of a group begin.
func groupPrefix(g Group) []byte {
	b := make([]byte, 0, 96+min(len(g.Owner), 254)+min(len(g.Name), 254))
	return appendPart(appendPart(b, g.Owner), g.Name)
}

func pageToken(name string) string { return pageMark + name }

// pageStart returns the name after which a page begins, and whether it is a later page.
func pageStart(after string) (name string, later bool, err error) {
	if after == "" {
		return "", false, nil
	}
	name, ok := strings.CutPrefix(after, pageMark)
	if !ok {
		return "", false, errBadPage
	}
	return name, true, nil
}

// pageLimit bounds what one call of List may cost.
func pageLimit(limit int) int {
	const byDefault, most = 100, 1000
	if limit <= 0 {
		return byDefault
	}
	return min(limit, most)
}
