package view

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	"remora/wire"
)

// Cut is where a view's window begins. It is kept with the session, so that the next view can begin at the same place.
// The zero Cut is none.
type Cut struct {
	// Key names the item that the window begins with; the zero Hash where its name is not known.
	Key wire.Hash
	// Units is how much of the conversation stands before the cut. It tells which of the parallel calls of one message
	// the window begins with, and how much of a stored history a window needs.
	Units uint64
}

// maxStored bounds an encoded Cut, in bytes.
const maxStored = 256

// stored is a Cut as JSON.
type stored struct {
	Key   string `json:"key,omitempty"`
	Units uint64 `json:"units,omitempty"`
}

// DecodeCut reads what Encode wrote. What is no cut is the zero Cut: a window can be cut anew.
func DecodeCut(b []byte) Cut {
	var st stored
	if len(b) > maxStored || json.Unmarshal(b, &st) != nil {
		return Cut{}
	}
	c := Cut{Units: st.Units}
	if raw, err := hex.DecodeString(st.Key); err == nil && len(raw) == len(c.Key) {
		c.Key = wire.Hash(raw)
	}
	return c
}

// Encode writes the cut as JSON.
func (c Cut) Encode() []byte {
	st := stored{Units: c.Units}
	if c.Key != (wire.Hash{}) {
		st.Key = hex.EncodeToString(c.Key[:])
	}
	b, err := json.Marshal(st)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a cut: %v", err)) // a string and a number
	}
	return b
}

// chooser works out where a window begins.
type chooser struct {
	r     *Request
	w     *Window
	units []unit
	seen  []int // how many units before each one the client sees, and behind the last; nil if it sees all
	round int   // the last user message, -1 for none
	keys  []wire.Hash
	named bool // whether keys were asked for
	price prices
}

// choose says which units of a conversation are sent: those from start on, and, where pinned is not negative, the unit
// pinned before them.
//
// A window by items is cut in whole batches of the absolute position, so it needs no state to stay put while a
// conversation grows (SEMANTICS 1.3 with decisions D1, D15 and D16). One by tokens begins where the previous view
// did until its limit is passed, and is then cut down to what EvictShare leaves of the limit. A cut whose item is not
// in the conversation (an edit, a branch, a client's own compaction) is made anew.
func choose(r *Request, units []unit) (start, pinned int, at Cut) {
	c := &chooser{r: r, w: r.Window, units: units, round: lastUser(units), price: newPrices(r)}
	c.hide()
	least, found := c.previous()
	start = max(c.byItems(least, found), least)
	if limit := c.w.tokenLimit(r.Context); limit > 0 && r.Tokens != nil && r.AtMost != nil {
		start = c.byTokens(start, limit)
	}
	if start == 0 && found {
		return 0, -1, r.Cut
	}
	return start, c.pinOf(start), c.cutAt(start)
}

// hide marks what the client does not see.
func (c *chooser) hide() {
	hidden := c.r.Hidden
	if len(hidden) != len(c.r.Items) || !slices.Contains(hidden, true) {
		return
	}
	c.seen = make([]int, len(c.units)+1)
	for i := range c.units {
		u := &c.units[i]
		u.hidden = hidden[u.item]
		c.seen[i+1] = c.seen[i]
		if !u.hidden {
			c.seen[i+1]++
		}
	}
}

// before is how many units the client sees before unit i.
func (c *chooser) before(i int) int {
	if c.seen == nil {
		return i
	}
	return c.seen[i]
}

// visible is the inverse of before: the unit that the client sees after n others.
func (c *chooser) visible(n int) int {
	if c.seen == nil {
		return n
	}
	return sort.SearchInts(c.seen, n+1) - 1
}

// previous is where the previous cut is now. It is 0 where there is none, or none that can be found.
func (c *chooser) previous() (at int, found bool) {
	cut := c.r.Cut
	if !c.w.Stateful() || cut.Key == (wire.Hash{}) {
		return 0, false
	}
	offset := uint64(max(0, c.r.Offset))
	if cut.Units < offset {
		return 0, true // before all that is here
	}
	item := slices.Index(c.names(), cut.Key)
	if item < 0 {
		return 0, false
	}
	at = sort.Search(len(c.units), func(i int) bool { return c.units[i].item >= item })
	// Within the parallel calls of one message the count says which.
	if within := int64(cut.Units) - int64(offset) - int64(c.before(at)); within > 0 && //nolint:gosec // compared with what a body has
		within < int64(len(c.units)-at) && c.units[at+int(within)].item == item {
		at += int(within)
	}
	return at, true
}

// names are the keys of the items, nil where they are not known.
func (c *chooser) names() []wire.Hash {
	if !c.named && c.r.Keys != nil {
		if keys := c.r.Keys(); len(keys) == len(c.r.Items) {
			c.keys = keys
		}
	}
	c.named = true
	return c.keys
}

// cutAt is the Cut of a window that begins at start.
func (c *chooser) cutAt(start int) Cut {
	if start == 0 {
		return Cut{}
	}
	cut := Cut{Units: uint64(max(0, c.r.Offset) + c.before(start))} //nolint:gosec // not negative
	if c.w.Stateful() {
		if keys := c.names(); keys != nil && start < len(c.units) {
			cut.Key = keys[c.units[start].item]
		}
	}
	return cut
}

// byItems is where the limit by items has the window begin. least is where it began before, if found.
func (c *chooser) byItems(least int, found bool) int {
	limit := int(c.w.MaxItems)
	if limit == 0 {
		return least
	}
	n := c.before(len(c.units))
	want := c.w.cutAt(c.r.Offset+n) - c.r.Offset
	if c.w.Stateful() {
		kept, target := n-c.before(least), limit-c.w.EvictBatch+1
		switch {
		case c.r.Cold && kept > target:
			want = max(want, n-target)
		case found && kept <= limit:
			return least
		}
	}
	if want <= 0 {
		return 0
	}
	return c.settle(c.visible(want))
}

// settle is where a window that shall begin at start can begin.
func (c *chooser) settle(start int) int {
	if c.w.InFlight == InFlightWindow {
		if round := opening(c.units, start); round >= 0 {
			return snapToGroup(c.units, start, round+1)
		}
	} else if c.round >= 0 {
		start = min(start, c.round)
	}
	start = minimumExchange(c.units, start)
	n := c.before(len(c.units))
	if bound := c.w.MaxExpansion * int(c.w.MaxItems); bound > 0 && n-c.before(start) > bound {
		start = c.visible(n - bound)
		if c.round >= 0 && start > c.round {
			return snapToGroup(c.units, start, c.round+1)
		}
	}
	return withReasoning(c.units, start)
}

// pinOf is the user message that is sent before a window which begins at start inside of its round, -1 for none. It
// stays as long as the cut does, so that a new round leaves the beginning of the view what it was. With InFlightKeep only
// the current round has one.
func (c *chooser) pinOf(start int) int {
	if c.w.InFlight == InFlightWindow {
		return opening(c.units, start)
	}
	if start > c.round {
		return c.round
	}
	return -1
}

// opening is the user message of the round that a cut at start is inside of, -1 for none.
func opening(units []unit, start int) int {
	if start >= len(units) || isUser(units[start]) {
		return -1
	}
	for i := start - 1; i >= 0; i-- {
		if isUser(units[i]) {
			return i
		}
	}
	return -1
}

func isUser(u unit) bool { return u.kind == wire.Message && u.role == wire.User }
