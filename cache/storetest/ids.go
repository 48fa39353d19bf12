package storetest

import (
	"strings"

	"pgregory.net/rapid"
)

// IDs generates identifiers that are difficult for key schemes.
func IDs() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("ab:{}\x00~=.")), 0, 6, -1),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 70), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 300), func(n int) string { return strings.Repeat("x", n) }),
	)
}
