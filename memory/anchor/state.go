package anchor

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
)

// State is what a session keeps. The zero State knows nothing. A State is never changed: Step and Answered return
// the next one.
type State struct {
	lines []line // the last used first
}

// Limits of a state. Sizes are bytes of text.
const (
	maxStored  = 4 << 20   // encoded: a control character takes six
	maxText    = 160 << 10 // of all lines: those that were not used for longest are given up
	maxPinned  = 64 << 10  // of an epoch: a layer beyond is sent as it is
	maxUpdated = 32 << 10  // of the updates of an epoch: it ends when there are more
	maxFrozen  = 32 << 10  // of the live blocks of a round: a layer beyond is asked again
	maxLines   = 4         // the source keeps 256 in a process; a session seldom has more than two models
	maxEntries = 64        // of each list
	maxTexts   = 256       // messages of a layer
	maxID      = 64        // bytes of a layer's name
	maxMisses  = 3         // in a row, until cache figures are ignored
	maxCount   = math.MaxInt32
)

// line is one lineage: the requests that share a provider's cache.
type line struct {
	Key     string   `json:"key"`
	Lead    string   `json:"lead,omitempty"`
	Round   string   `json:"round,omitempty"`
	Age     int      `json:"age,omitempty"` // rounds that began in this epoch
	Misses  int      `json:"misses,omitempty"`
	Stale   bool     `json:"stale,omitempty"` // the last judged round was a miss
	Judge   bool     `json:"judge,omitempty"` // the answer to come is the first of its round
	Pins    []said   `json:"pins,omitempty"`
	Loose   []string `json:"loose,omitempty"` // anchored, too large to pin
	Updates []update `json:"updates,omitempty"`
	Live    []said   `json:"live,omitempty"` // of the round; those that said nothing, too
	Churn   []churn  `json:"churn,omitempty"`
}

// said is what a layer said.
type said struct {
	ID     string   `json:"id"`
	Slot   int      `json:"slot,omitempty"`
	Texts  []string `json:"texts,omitempty"`
	Tokens int      `json:"tokens,omitempty"`
	Late   bool     `json:"late,omitempty"` // not at the round's beginning
}

// update is what a layer says instead.
type update struct {
	said        // Tokens is what the rendered update costs
	Kind kind   `json:"kind"`
	Of   string `json:"of,omitempty"` // what the model knows the earlier block by
}

// churn is how often a layer changes from round to round.
type churn struct {
	ID      string  `json:"id"`
	Seen    float64 `json:"seen,omitempty"`
	Changed float64 `json:"changed,omitempty"`
	Sum     string  `json:"sum,omitempty"`  // of what it said last
	Live    bool    `json:"live,omitempty"` // where Auto has it
}

type stored struct {
	Lines []line `json:"lines,omitempty"`
}

// Decode reads what Encode wrote. What is no state, or more than 4 MiB, is the zero State, and what of a state makes no
// sense is left out.
func Decode(b []byte) State {
	var st stored
	if len(b) == 0 || len(b) > maxStored || json.Unmarshal(b, &st) != nil {
		return State{}
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
	return State{bounded(st.Lines)}
}

// Encode writes the state as JSON. Equal states have equal bytes: what has not changed need not be written.
func (s State) Encode() []byte {
	if len(s.lines) == 0 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(stored{s.lines}); err != nil {
		panic(fmt.Sprintf("BUG: encode epochs: %v", err)) // strings and finite numbers
	}
	return bytes.TrimSpace(b.Bytes())
}

// Equal tells that both encode alike.
func (s State) Equal(other State) bool { return slices.EqualFunc(s.lines, other.lines, line.equal) }

func (l line) equal(o line) bool {
	return l.Key == o.Key && l.Lead == o.Lead && l.Round == o.Round && l.Age == o.Age && l.Misses == o.Misses &&
		l.Stale == o.Stale && l.Judge == o.Judge && slices.EqualFunc(l.Pins, o.Pins, said.equal) && slices.Equal(l.Loose, o.Loose) &&
		slices.EqualFunc(l.Updates, o.Updates, update.equal) && slices.EqualFunc(l.Live, o.Live, said.equal) && slices.Equal(l.Churn, o.Churn)
}

func (s said) equal(o said) bool {
	return s.ID == o.ID && s.Slot == o.Slot && slices.Equal(s.Texts, o.Texts) && s.Tokens == o.Tokens && s.Late == o.Late
}

func (u update) equal(o update) bool { return u.said.equal(o.said) && u.Kind == o.Kind && u.Of == o.Of }

// bounded keeps the lines that a state has room for.
func bounded(lines []line) []line {
	left := maxText
	for i := range lines {
		l := &lines[i]
		size := 0
		for _, list := range [][]said{l.Pins, l.Live} {
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

func (s said) size() int {
	n := 0
	for _, text := range s.Texts {
		n += len(text)
	}
	return n
}

// repair makes a line that was read one that Step could have made.
func (l *line) repair() {
	l.Lead, l.Round = sumOr(l.Lead), sumOr(l.Round)
	l.Age, l.Misses = min(max(l.Age, 0), maxCount), min(max(l.Misses, 0), maxMisses)
	l.Pins = repaired(l.Pins, maxPinned)
	l.Live = repaired(l.Live, maxFrozen)
	pinned := make(map[string]bool)
	for _, p := range l.Pins {
		pinned[p.ID] = true
	}
	l.Loose = slices.DeleteFunc(l.Loose, func(id string) bool {
		bad := !validID(id) || pinned[id]
		pinned[id] = true
		return bad
	})
	l.Loose = l.Loose[:min(len(l.Loose), maxEntries)]
	size := 0
	l.Updates = slices.DeleteFunc(l.Updates, func(u update) bool {
		size += u.size()
		return u.bad() || !u.Kind.valid() || len(u.Of) > maxOf || (u.Kind == retract) != (len(u.Texts) == 0) || size > maxUpdated
	})
	l.Updates = l.Updates[:min(len(l.Updates), maxEntries)]
	seen := make(map[string]bool)
	l.Churn = slices.DeleteFunc(l.Churn, func(c churn) bool {
		again := seen[c.ID] || !validID(c.ID)
		seen[c.ID] = true
		return again
	})
	l.Churn = l.Churn[:min(len(l.Churn), maxEntries)]
	for i := range l.Churn {
		c := &l.Churn[i]
		c.Seen = min(max(c.Seen, 0), maxCount)
		c.Changed, c.Sum = min(max(c.Changed, 0), c.Seen), sumOr(c.Sum)
	}
}

// repaired leaves out what nobody could have said, what was said twice, and what is too much.
func repaired(list []said, size int) []said {
	seen := make(map[string]bool)
	list = slices.DeleteFunc(list, func(s said) bool {
		size -= s.size()
		bad := s.bad() || seen[s.ID] || size < 0
		seen[s.ID] = true
		return bad
	})
	return list[:min(len(list), maxEntries)]
}

func (s said) bad() bool {
	return !validID(s.ID) || len(s.Texts) > maxTexts || s.Tokens < 0 || s.Tokens > maxCount || slices.Contains(s.Texts, "")
}

func validID(id string) bool { return id != "" && len(id) <= maxID }

// sumLen is how long a digest is.
const sumLen = 16

// sum tells texts apart.
func sum(texts ...string) string {
	h := sha256.New()
	for _, text := range texts {
		_, _ = fmt.Fprintf(h, "%d:", len(text))
		_, _ = h.Write([]byte(text))
	}
	return hex.EncodeToString(h.Sum(nil)[:sumLen/2])
}

// sumOr is the digest, or none where it is no digest.
func sumOr(s string) string {
	if len(s) != sumLen || strings.Trim(s, "0123456789abcdef") != "" {
		return ""
	}
	return s
}
