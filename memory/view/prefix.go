package view

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"remora/wire"
)

// Prefix keeps the beginning of a session's views unchanged from request to request, for the provider's prompt cache; see
// docs/semantics.md#pinned-prefix.
//
// A prefix version is a sequence of requests whose views begin with the same bytes: the blocks of anchored layers are pinned
// when it begins, and sent until it ends. When a layer recalls something else meanwhile, an update replaces its pinned block.
// The update is appended to the view and stays at that place in the conversation, so that it is cached with the items around
// it. The next update of the layer is appended again, and the one before is dropped: the model reads at most one update per
// layer. A new version begins when the cache is lost anyway, or when updates cost too much; then updates are merged into the
// pinned blocks.
//
// Blocks of live layers stand after the history. Their recall runs once per run, and their blocks are shown until its end.
// They directly follow the user message, before the tool loop: at the end of the view they would be billed in full with every
// request.
//
// A Prefix is a session value. With any stored value, even an outdated one, the model gets the current blocks; a lost value
// costs one prompt at full price. The zero Prefix is empty. A Prefix is never changed: Step and Answered return the next one.
type Prefix struct {
	lines []line // the last used first
}

// Limits of a state. Sizes are bytes of text.
const (
	maxStoredPrefix  = 4 << 20   // encoded: a control character takes six
	maxText          = 160 << 10 // of all lines: the least recently used are dropped
	maxPinned        = 64 << 10  // of a prefix version: further layers are not pinned
	maxUpdated       = 32 << 10  // of the updates of a prefix version: it ends beyond
	maxFrozen        = 32 << 10  // of the live blocks of a run: further layers run recall again
	maxLines         = 4         // a session seldom has more than two models
	maxPrefixEntries = 64        // of each list
	maxTexts         = 256       // messages of a layer
	maxID            = 64        // bytes of a layer's name
	maxMisses        = 3         // in a row, until cache figures are ignored
	maxCount         = math.MaxInt32
)

// line is one lineage: the requests that share a provider's cache.
type line struct {
	Key          string   `json:"key"`
	SystemPrompt string   `json:"system_prompt,omitempty"`
	Run          string   `json:"run,omitempty"`
	Age          int      `json:"age,omitempty"` // runs that began in this version
	Misses       int      `json:"misses,omitempty"`
	Stale        bool     `json:"stale,omitempty"` // the last run was a miss, as far as is known
	AwaitsUsage  bool     `json:"judge,omitempty"` // the answer to come is the first of its run
	Pins         []Block  `json:"pins,omitempty"`
	Loose        []string `json:"loose,omitempty"` // anchored, too large to pin
	Updates      []update `json:"updates,omitempty"`
	Live         []Block  `json:"live,omitempty"` // of the run; those that said nothing, too
	Churn        []churn  `json:"churn,omitempty"`
}

// update replaces a pinned block.
type update struct {
	Block            // Tokens is what the rendered update costs
	Kind  updateKind `json:"kind"`
	Of    string     `json:"of,omitempty"` // what the model knows the earlier block by
}

// churn is how often a layer changes from run to run.
type churn struct {
	ID      string  `json:"id"`
	Seen    float64 `json:"seen,omitempty"`
	Changed float64 `json:"changed,omitempty"`
	Sum     string  `json:"sum,omitempty"`  // of what it said last
	Live    bool    `json:"live,omitempty"` // where PlaceAuto has it
}

type storedPrefix struct {
	Lines []line `json:"lines,omitempty"`
}

// DecodePrefix decodes the result of Encode. Anything else, or more than 4 MiB, is the zero Prefix.
func DecodePrefix(b []byte) Prefix {
	var st storedPrefix
	if len(b) == 0 || len(b) > maxStoredPrefix || json.Unmarshal(b, &st) != nil {
		return Prefix{}
	}
	if !unique(st.Lines, func(l line) string { return l.Key }) || slices.ContainsFunc(st.Lines, func(l line) bool { return !l.valid() }) {
		return Prefix{}
	}
	return Prefix{bounded(st.Lines)}
}

// Encode encodes the state as JSON. Equal states have equal bytes, so unchanged states need not be written.
func (s Prefix) Encode() []byte {
	if len(s.lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(storedPrefix{s.lines}); err != nil {
		panic(fmt.Sprintf("BUG: encode prefix: %v", err)) // strings and finite numbers
	}
	return bytes.TrimSpace(b.Bytes())
}

// Empty reports whether nothing was pinned or frozen yet.
func (s Prefix) Empty() bool { return len(s.lines) == 0 }

// bounded drops the lines beyond the limits.
func bounded(lines []line) []line {
	left := maxText
	for i := range lines {
		l := &lines[i]
		size := 0
		for _, list := range [][]Block{l.Pins, l.Live} {
			for _, s := range list {
				size += s.size()
			}
		}
		for _, u := range l.Updates {
			size += u.size()
		}
		if left -= size; i > 0 && left < 0 || i == maxLines {
			return lines[:i]
		}
	}
	return lines
}

// valid reports whether Step could have made a line that was read.
func (l *line) valid() bool {
	sound := l.Key != "" && isSum(l.Key) && isSum(l.SystemPrompt) && isSum(l.Run) && between(l.Age, maxCount) && between(l.Misses, maxMisses)
	if !sound || max(len(l.Pins), len(l.Loose), len(l.Updates), len(l.Live), len(l.Churn)) > maxPrefixEntries {
		return false
	}

	before := slices.Clone(l.Loose)
	updates := make([]Block, len(l.Updates))
	for _, p := range l.Pins {
		before = append(before, p.Layer)
	}
	for i, u := range l.Updates {
		updates[i] = u.Block
		if !u.Kind.valid() || len(u.Of) > maxOf || (u.Kind == retract) != (len(u.Texts) == 0) {
			return false
		}
	}
	return unique(before, func(id string) string { return id }) && !slices.ContainsFunc(before, func(id string) bool { return !validID(id) }) &&
		sane(l.Pins, maxPinned, func(p Place) bool { return p == Place{} }) &&
		sane(updates, maxUpdated, func(p Place) bool { return p == sentAt(p.At) }) &&
		sane(l.Live, maxFrozen, func(p Place) bool { return p == AfterUser() || p == sentAt(p.At) }) &&
		unique(l.Churn, func(c churn) string { return c.ID }) &&
		!slices.ContainsFunc(l.Churn, func(c churn) bool {
			return !validID(c.ID) || c.Seen < 0 || c.Seen > maxCount || c.Changed < 0 || c.Changed > c.Seen || !isSum(c.Sum)
		})
}

// sane reports whether layers could have made these blocks: one per layer, within the limit in bytes, each at its place.
func sane(list []Block, size int, placed func(Place) bool) bool {
	for _, b := range list {
		size -= b.size()
		sound := validID(b.Layer) && len(b.Texts) <= maxTexts && !slices.Contains(b.Texts, "") && between(b.Tokens, maxCount)
		if !sound || !between(b.At, maxCount) || b.Role != wire.RoleNone || !placed(b.Place) {
			return false
		}
	}
	return size >= 0 && unique(list, func(b Block) string { return b.Layer })
}

func unique[T any](list []T, key func(T) string) bool {
	seen := make(map[string]bool, len(list))
	for _, v := range list {
		seen[key(v)] = true
	}
	return len(seen) == len(list)
}

func between(n, most int) bool { return n >= 0 && n <= most }

func validID(id string) bool { return id != "" && len(id) <= maxID }

// sumLen is the length of a digest.
const sumLen = 16

// sum returns a digest of texts.
func sum(texts ...string) string {
	var room [256]byte
	b := room[:0]
	for _, text := range texts {
		b = append(strconv.AppendInt(b, int64(len(text)), 10), ':')
		b = append(b, text...)
	}
	digest := sha256.Sum256(b)
	return hex.EncodeToString(digest[:sumLen/2])
}

// isSum reports whether a text is a digest, or none.
func isSum(s string) bool {
	return s == "" || len(s) == sumLen && strings.Trim(s, "0123456789abcdef") == ""
}
