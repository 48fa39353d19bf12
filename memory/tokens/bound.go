package tokens

import (
	"bytes"
	"math"

	"remora/wire"
)

// AtMost is a number of tokens that no way to count charges more than for an item, found without counting: a token is
// at least a byte, and media cost a flat sum. Where that is not easily told it is math.MaxInt32.
func AtMost(it wire.Item) int {
	n := len(it.Raw) + slack + callTokens*len(it.Calls)
	media := bytes.Count(it.Raw, []byte(";base64,")) // each may be a data URL, in a place that is no media part
	rest := it.Raw
	for {
		i := bytes.Index(rest, []byte(`"type"`))
		if i < 0 {
			break
		}
		if rest = bytes.TrimLeft(rest[i+len(`"type"`):], " \t\r\n:"); len(rest) == 0 {
			break
		}
		switch rest[0] {
		case '"':
			rest = rest[1:]
			end := max(0, bytes.IndexByte(rest, '"'))
			if isMedia(rest[:end]) || bytes.IndexByte(rest[:end], '\\') >= 0 {
				media++
			}
		case '{', '[':
			return math.MaxInt32 // any number of types
		}
	}
	if spelledOut(it.Raw) {
		return math.MaxInt32
	}
	return n + mediaTokens*media
}

// slack is what any way to count adds for an item beside its texts and calls: marks, roles that a converted item gets,
// and what rounding up adds to each of these.
const slack = 32

// spelledOut tells that JSON has escapes for ASCII characters that need none, which may hide a word in it.
func spelledOut(raw []byte) bool {
	for {
		i := bytes.Index(raw, []byte(`\u00`))
		if i < 0 || i+4 >= len(raw) {
			return false
		}
		if c := raw[i+4]; c >= '2' && c <= '7' {
			return true
		}
		raw = raw[i+4:]
	}
}
