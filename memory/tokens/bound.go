package tokens

import (
	"bytes"
	"math"

	"remora/wire"
)

// AtMost returns an upper bound of what a Counter charges for an item, found without counting: a token is at least a byte,
// and media cost a flat sum. It is math.MaxInt32 where the bound would need a parse.
func AtMost(it wire.Item) int {
	n := len(it.Raw) + int(it.Target) + slack + callTokens*calls(it)
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

// calls counts the calls that an item makes.
func calls(it wire.Item) (n int) {
	for range it.Calls() {
		n++
	}
	return n
}

// slack covers what a Counter adds for an item beside its texts and calls, and what rounding up adds to that.
const slack = 32

// spelledOut reports whether JSON has escapes for ASCII characters that need none, which may hide a word in it.
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
