package bolt

import (
	"crypto/sha256"

	"remora/cache"
)

// appendPart appends s to a bbolt key in a self-delimiting form: a length byte and the bytes, or 255 and the SHA-256 if s is
// longer than 254 bytes (bbolt limits keys to 32 KiB). Different sequences of parts give different keys.
func appendPart(dst []byte, s string) []byte {
	if len(s) < 255 {
		dst = append(dst, byte(len(s))) //nolint:gosec // G115: checked above
		return append(dst, s...)
	}
	sum := sha256.Sum256([]byte(s))
	dst = append(dst, 255)
	return append(dst, sum[:]...)
}

// groupPrefix returns the common prefix of all bbolt keys of a group.
func groupPrefix(g cache.Group) []byte {
	b := make([]byte, 0, 96+min(len(g.Owner), 254)+min(len(g.Name), 254))
	return appendPart(appendPart(b, g.Owner), g.Name)
}
