package session

import (
	"bytes"
	"fmt"
	"slices"

	"remora/memory/recordcodec"
	"remora/wire"
)

// amendName is the name of the session value with its Amendments.
const amendName = "a"

// Bounds of a session's amendments: the newest are kept. Dropped ones stay in the transcript, but later views do not show them.
const (
	maxAmendments  = 256
	maxAmendBytes  = 256 << 10
	maxAmendItems  = 1024 // of one amendment
	amendmentBytes = 64   // approximate overhead of an amendment
)

// Amendment holds hidden items: the model sees them at one place of the conversation, the client does not.
type Amendment struct {
	// At is the chain hash of the visible item before it; zero is before the first.
	At wire.Hash
	// Next is the chain hash of the visible item that it led to. The hidden items are shown only if that item follows,
	// so that a regenerated answer does not get the steps of the first one. If Next is zero, they are always shown; so are the
	// steps of a turn whose last call failed.
	Next wire.Hash
	// Replaces: the visible item that ends at At is not shown to the model.
	Replaces bool
	// Items are the hidden items, in order, spelled in Dialect.
	Items   [][]byte
	Dialect wire.Dialect
	// Seen are the content hashes of those among Items that the client has seen too: reasoning that was streamed to it.
	Seen []wire.Hash
	// Made is the upstream that made the items or got them first.
	Made Origin
}

// Amendments are all amendments of a session, oldest first. They are never changed in place.
type Amendments []Amendment

func (a *Amendment) size() int {
	n := amendmentBytes + len(a.Seen)*len(wire.Hash{}) + len(a.Made.Provider) + len(a.Made.Model)
	for _, raw := range a.Items {
		n += len(raw)
	}
	return n
}

func (a *Amendment) equal(b *Amendment) bool {
	return a.At == b.At && a.Next == b.Next && a.Replaces == b.Replaces && a.Dialect == b.Dialect &&
		slices.EqualFunc(a.Items, b.Items, bytes.Equal) && slices.Equal(a.Seen, b.Seen)
}

// completes reports whether a is b with a known Next.
func (a *Amendment) completes(b *Amendment) bool {
	open := *a
	open.Next = wire.Hash{}
	return a.Next != open.Next && open.equal(b)
}

// replace removes the turn's earlier amendments (old) and adds its present ones. It also removes amendments at the same place
// that led to the same answer, earlier replacements of the same item, and what the turn wrote before its answer: a turn that
// waited in the spool does not know old.
func (a Amendments) replace(old, now Amendments) Amendments {
	out := make(Amendments, 0, len(a)+len(now))
	for i := range a {
		gone := slices.ContainsFunc(old, func(o Amendment) bool { return o.equal(&a[i]) })
		for j := range now {
			same := now[j].At == a[i].At && now[j].Next == a[i].Next
			gone = gone || now[j].equal(&a[i]) || same && (now[j].Next != wire.Hash{} || now[j].Replaces && a[i].Replaces) ||
				now[j].completes(&a[i])
		}
		if !gone {
			out = append(out, a[i])
		}
	}
	for i := range now {
		if now[i].size() <= maxAmendBytes { // a larger one would evict all others and still not fit
			out = append(out, now[i])
		}
	}
	return out.newest()
}

// newest drops the oldest amendments beyond the bounds.
func (a Amendments) newest() Amendments {
	first, left := len(a), maxAmendBytes
	for i := range slices.Backward(a) {
		if left -= a[i].size(); left < 0 || len(a)-i > maxAmendments {
			break
		}
		first = i
	}
	return a[first:]
}

// decodeAmendments reads a stored value. The items share its bytes.
func decodeAmendments(b []byte) (Amendments, error) {
	return decode[Amendments](b, "amendments")
}

func (a *Amendments) fields(c *recordcodec.Codec) {
	for i := range recordcodec.Len(c, a, maxAmendments) {
		one := &(*a)[i]
		c.Hash(&one.At)
		c.Hash(&one.Next)
		c.Bool(&one.Replaces)
		dialectCode(c, &one.Dialect)
		for n := range recordcodec.Len(c, &one.Items, maxAmendItems) {
			c.Bytes(&one.Items[n])
		}
		for n := range recordcodec.Len(c, &one.Seen, maxAmendItems) {
			c.Hash(&one.Seen[n])
		}
		c.Text(&one.Made.Provider)
		c.Text(&one.Made.Model)
		c.Bool(&one.Made.Kept)
	}
}

// encodeCarried encodes the items of a response that upstream has not seen.
func encodeCarried(d wire.Dialect, items []wire.Item) []byte {
	a := Amendment{Dialect: d}
	for _, it := range items {
		a.Items = append(a.Items, it.Raw)
	}
	return encode(&Amendments{a})
}

func decodeCarried(b []byte) ([]wire.Item, error) {
	all, err := decodeAmendments(b)
	if err != nil {
		return nil, err
	}
	var items []wire.Item
	for _, a := range all {
		for _, raw := range a.Items {
			it, err := wire.ParseItem(a.Dialect, raw)
			if err != nil {
				return nil, fmt.Errorf("read what a response carries: %w", err)
			}
			items = append(items, it)
		}
	}
	return items, nil
}

// apply inserts the hidden items into a list of visible ones. chain[i] is the chain hash of the conversation up to items[i];
// items that are not part of the chain, such as reasoning, have the hash of the item before them. It returns the items for the
// model, and for each its index in items, -1 for a hidden one. If nothing is hidden here it returns items itself, and nil.
//
// Hidden items follow directly after the visible item that they are attached to. Copies in the list are dropped: of items that
// the client has seen, anywhere before its next item, and of all of them if the list repeats the whole sequence. Items keep
// their dialect: wire.Request.With converts them.
//
// content returns the hash of an item: it resolves references, and caches hashes. adapt converts an amendment's items to a form
// that upstream accepts; nil for none.
func (a Amendments) apply(
	items []wire.Item, chain []wire.Hash, meaning func(wire.Item) wire.Meaning, adapt func(made Origin, items []wire.Item) []*wire.Item,
) (view []wire.Item, from []int) {
	if len(a) == 0 || len(items) == 0 {
		return items, nil
	}
	p := applier{a: a, items: items, chain: chain, meaning: meaning, adapt: adapt, at: make(map[wire.Hash][]int, len(a))}
	for i := range a {
		p.at[a[i].At] = append(p.at[a[i].At], i)
	}
	p.run()
	if !p.changed {
		return items, nil
	}
	return p.out, p.from
}

// applier walks along the visible items, one item of the chain with what follows it off the chain at a time.
type applier struct {
	a     Amendments
	items []wire.Item
	chain []wire.Hash
	at    map[wire.Hash][]int // indexes of amendments by place

	meaning func(wire.Item) wire.Meaning
	adapt   func(made Origin, items []wire.Item) []*wire.Item

	out     []wire.Item
	from    []int
	changed bool
	// shifted: items of the chain were left out, so that later hashes must be computed again.
	shifted bool
	last    wire.Hash
}

func (p *applier) run() {
	p.out, p.from = make([]wire.Item, 0, len(p.items)+len(p.a)), make([]int, 0, len(p.items)+len(p.a))
	i := 0
	if p.fromStart() {
		i = p.group(-1, wire.Hash{})
	}
	for i < len(p.items) {
		i = p.group(i, p.hashAt(i))
	}
}

// fromStart reports whether something is hidden before the first item of the session, and the list begins with that item.
func (p *applier) fromStart() bool {
	return len(p.at[wire.Hash{}]) > 0 && p.chain[0] == p.meaning(p.items[0]).After(wire.Hash{})
}

// hashAt returns the chain hash up to item i.
func (p *applier) hashAt(i int) wire.Hash {
	if !p.shifted {
		return p.chain[i]
	}
	if p.items[i].Kind == wire.Reasoning {
		return p.last
	}
	return p.meaning(p.items[i]).After(p.last)
}

// group emits item first (-1 for none), the hidden items after it, and the items up to the next one of the chain. here is the
// chain hash of all of them. It returns the index of the next item.
func (p *applier) group(first int, here wire.Hash) int {
	p.last = here
	next := first + 1
	list := p.at[here]
	if len(list) == 0 && first >= 0 {
		p.emit(first)
		return next
	}
	if first >= 0 && (p.items[first].Kind == wire.Reasoning || here == wire.Hash{}) {
		first, next = -1, first // the item before this place is not in the list
	}
	end := next
	for end < len(p.items) && p.hashAt(end) == here {
		end++
	}
	var following wire.Hash
	if end < len(p.items) {
		following = p.hashAt(end)
	}
	c := p.choose(list, following)
	if len(c.hidden) == 0 && !c.replaced {
		p.emit(first)
		for ; next < end; next++ {
			p.emit(next)
		}
		return end
	}
	p.changed = true
	if !c.replaced {
		p.emit(first)
	}
	for _, it := range c.sent {
		p.out, p.from = append(p.out, it), append(p.from, -1)
	}
	for ; next < end; next++ {
		if !c.seen[p.meaning(p.items[next]).Content] {
			p.emit(next)
		}
	}
	return p.skipEcho(end, c.hidden)
}

func (p *applier) emit(i int) {
	if i >= 0 {
		p.out, p.from = append(p.out, p.items[i]), append(p.from, i)
	}
}

// chosen are the amendments of one place that are shown.
type chosen struct {
	hidden   []wire.Item
	sent     []wire.Item        // their adapted items
	seen     map[wire.Hash]bool // contents whose copies in the list are dropped
	replaced bool               // the visible item is not shown
}

// choose parses the amendments of a place that are shown if following is the next item.
func (p *applier) choose(list []int, following wire.Hash) chosen {
	c := chosen{seen: make(map[wire.Hash]bool)}
	for _, n := range list {
		a := &p.a[n]
		if a.Next != (wire.Hash{}) && a.Next != following {
			continue
		}
		for _, h := range a.Seen {
			c.seen[h] = true
		}
		c.replaced = c.replaced || a.Replaces
		first := len(c.hidden)
		for _, raw := range a.Items {
			it, err := wire.ParseItem(a.Dialect, raw)
			if err != nil {
				continue // unreadable items are not shown
			}
			c.hidden = append(c.hidden, it)
			c.seen[p.meaning(it).Content] = true
		}
		for _, it := range p.adapt(a.Made, c.hidden[first:]) {
			if it != nil {
				c.sent = append(c.sent, *it)
			}
		}
	}
	return c
}

// skipEcho skips the items from i on if they repeat all hidden items of this place, and returns the index of the next
// item.
func (p *applier) skipEcho(i int, hidden []wire.Item) int {
	if len(hidden) == 0 || len(p.items)-i < len(hidden) {
		return i
	}
	for n, it := range hidden {
		if p.meaning(p.items[i+n]).Content != p.meaning(it).Content {
			return i
		}
	}
	p.shifted = true
	return i + len(hidden)
}
