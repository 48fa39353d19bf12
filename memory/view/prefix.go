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

// Prefix keeps the beginning of a session's views the same from request to request, so that the provider's prompt cache
// holds it; see docs/semantics.md#pinned-prefix.
//
// A prefix version is a sequence of requests whose views begin with the same bytes: the blocks of anchored layers are
// pinned when it begins, and sent until it ends. When a layer recalls something else meanwhile, an update replaces its
// pinned block. The update is appended to the view and stays at that place in the conversation, so that it is cached
// with the items around it. The next update of the layer is appended again, and the one before is dropped: the model
// reads at most one update per layer. A new version begins when the cache is lost anyway, or when updates cost more
// than it is worth; then updates are folded into the pinned blocks.
//
// Live layers also stand behind the history: they are asked once per run, and their blocks are shown until the run
// is over. They stand directly behind the user message, before the tool loop: at the end of the view they would be paid
// in full with every request.
//
// A Prefix is a value of the session. With any stored value, an older one or one of another replica, the model reads
// the current blocks; a lost one costs one prompt at full price. The zero Prefix is empty. A Prefix is never changed:
// Step and Answered return the next one.
type Prefix struct {
	lines []line // the last used first
}

// Limits of a state. Sizes are bytes of text.
const (
	maxStoredPrefix  = 4 << 20   // encoded: a control character takes six
	maxText          = 160 << 10 // of all lines: those that were not used for longest are given up
	maxPinned        = 64 << 10  // of a prefix version: a layer beyond is sent as it is
	maxUpdated       = 32 << 10  // of the updates of a prefix version: it ends when there are more
	maxFrozen        = 32 << 10  // of the live blocks of a run: a layer beyond is asked again
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
	Stale        bool     `json:"stale,omitempty"` // the last judged run was a miss
	Judge        bool     `json:"judge,omitempty"` // the answer to come is the first of its run
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

// DecodePrefix reads what Encode wrote. What is no state, or more than 4 MiB, is the zero Prefix, and what of a state makes no
// sense is left out.
func DecodePrefix(b []byte) Prefix {
	var st storedPrefix
	if len(b) == 0 || len(b) > maxStoredPrefix || json.Unmarshal(b, &st) != nil {
		return Prefix{}
	}
	seen := make(map[string]bool)
	st.Lines = slices.DeleteFunc(st.Lines, func(l line) bool {
		again := seen[l.Key] || sumOr(l.Key) == ""
		seen[l.Key] = true
		return again
	})
	for i := range st.Lines {
		st.Lines[i].repair()
	}
	return Prefix{bounded(st.Lines)}
}

// Encode writes the state as JSON. Equal states have equal bytes: what has not changed need not be written.
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

// Equal reports whether both encode to the same bytes.
func (s Prefix) Equal(other Prefix) bool { return slices.EqualFunc(s.lines, other.lines, line.equal) }

func (l line) equal(o line) bool {
	return l.Key == o.Key && l.SystemPrompt == o.SystemPrompt && l.Run == o.Run && l.Age == o.Age && l.Misses == o.Misses &&
		l.Stale == o.Stale && l.Judge == o.Judge && slices.EqualFunc(l.Pins, o.Pins, Block.equal) && slices.Equal(l.Loose, o.Loose) &&
		slices.EqualFunc(l.Updates, o.Updates, update.equal) && slices.EqualFunc(l.Live, o.Live, Block.equal) && slices.Equal(l.Churn, o.Churn)
}

func (u update) equal(o update) bool {
	return u.Block.equal(o.Block) && u.Kind == o.Kind && u.Of == o.Of
}

// bounded keeps the lines that a state has room for.
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

// repair makes a line that was read one that Step could have made.
func (l *line) repair() {
	l.SystemPrompt, l.Run = sumOr(l.SystemPrompt), sumOr(l.Run)
	l.Age, l.Misses = min(max(l.Age, 0), maxCount), min(max(l.Misses, 0), maxMisses)
	l.Pins = sane(l.Pins, maxPinned)
	for i := range l.Pins {
		p := &l.Pins[i]
		p.Live, p.Run, p.Inside, p.At, p.Role = false, false, false, 0, wire.RoleNone
	}
	l.Live = sane(l.Live, maxFrozen)
	for i := range l.Live {
		b := &l.Live[i]
		b.Live, b.Inside, b.Role = true, b.At > 0, wire.RoleNone
	}
	pinned := make(map[string]bool)
	for _, p := range l.Pins {
		pinned[p.Layer] = true
	}
	l.Loose = slices.DeleteFunc(l.Loose, func(id string) bool {
		bad := !validID(id) || pinned[id]
		pinned[id] = true
		return bad
	})
	l.Loose = l.Loose[:min(len(l.Loose), maxPrefixEntries)]
	size, updated := 0, make(map[string]bool)
	l.Updates = slices.DeleteFunc(l.Updates, func(u update) bool {
		size += u.size()
		again := updated[u.Layer]
		updated[u.Layer] = true
		return again || u.bad() || !u.Kind.valid() || len(u.Of) > maxOf || (u.Kind == retract) != (len(u.Texts) == 0) || size > maxUpdated
	})
	l.Updates = l.Updates[:min(len(l.Updates), maxPrefixEntries)]
	for i := range l.Updates {
		u := &l.Updates[i]
		u.Live, u.Run, u.Inside, u.Role = true, false, u.At > 0, wire.RoleNone
	}
	seen := make(map[string]bool)
	l.Churn = slices.DeleteFunc(l.Churn, func(c churn) bool {
		again := seen[c.ID] || !validID(c.ID)
		seen[c.ID] = true
		return again
	})
	l.Churn = l.Churn[:min(len(l.Churn), maxPrefixEntries)]
	for i := range l.Churn {
		c := &l.Churn[i]
		c.Seen = min(max(c.Seen, 0), maxCount)
		c.Changed, c.Sum = min(max(c.Changed, 0), c.Seen), sumOr(c.Sum)
	}
}

// sane leaves out blocks that no layer could have made, duplicates, and blocks beyond the limits.
func sane(list []Block, size int) []Block {
	seen := make(map[string]bool)
	list = slices.DeleteFunc(list, func(s Block) bool {
		size -= s.size()
		bad := s.bad() || seen[s.Layer] || size < 0
		seen[s.Layer] = true
		return bad
	})
	return list[:min(len(list), maxPrefixEntries)]
}

func (b Block) bad() bool {
	return !validID(b.Layer) || len(b.Texts) > maxTexts || b.Tokens < 0 || b.Tokens > maxCount || b.At < 0 || b.At > maxCount || slices.Contains(b.Texts, "")
}

func validID(id string) bool { return id != "" && len(id) <= maxID }

// sumLen is how long a digest is.
const sumLen = 16

// sum tells texts apart.
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

// sumOr returns the digest, or none where it is no digest.
func sumOr(s string) string {
	if len(s) != sumLen || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}
