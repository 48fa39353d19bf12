package redis

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"remora/cache"
)

const (
	groupKeyPrefix = "r1:"
	indexKeyPrefix = "i1:"

	// Longer identifiers are replaced by their SHA-256, which bounds the length of keys.
	maxPlainID   = 64
	maxEncodedID = 48
)

// groupKey returns the key of a group. The parts that depend on the caller are in a hash tag, and contain no colon or brace. That of
// the owner's half, if there is one, stands before it.
func groupKey(g cache.Group) string {
	var b strings.Builder
	b.Grow(len(groupKeyPrefix) + len("{fn}") + 3 + writtenID(g.Owner) + writtenID(g.Name))
	b.WriteString(groupKeyPrefix)
	b.WriteString(halfTag(g.Owner)) // the first tag of a key counts
	b.WriteByte('{')
	writeID(&b, g.Owner)
	b.WriteByte(':')
	writeID(&b, g.Name)
	b.WriteByte('}')
	return b.String()
}

// halfTag returns the hash tag of an owner of [cache.LowHalf] or [cache.HighHalf], "" for others: slots 3300 and 11492 of 16384.
func halfTag(owner string) string {
	switch cache.HalfOf(owner) {
	case cache.LowHalf:
		return "{b}"
	case cache.HighHalf:
		return "{fn}"
	default:
		return ""
	}
}

// indexKey returns the key of the sorted set with the names of an owner's listed groups.
func indexKey(owner string) string {
	var b strings.Builder
	b.WriteString(indexKeyPrefix)
	b.WriteString(halfTag(owner))
	b.WriteByte('{')
	writeID(&b, owner)
	// With the colon the tag is never empty: for an empty tag Redis would hash the whole key.
	b.WriteString(":}")
	return b.String()
}

// writeID writes id in one of three forms: unchanged (readable in redis-cli), as '=' and its base64url, or as '~' and the
// base64url of its SHA-256. They are unambiguous, because '=' and '~' are not plain bytes.
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

// writtenID returns an upper bound of the bytes that writeID writes.
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
