package session

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"remora/cache"
	"remora/memory/lru"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// Conversation is the history from which the view of a call is chosen.
type Conversation struct {
	// Lead are the leading system and developer items, Items the rest, oldest first.
	Lead, Items []wire.Item
	// Offset is how many units of the conversation stand before Items without being among them.
	Offset int
	// Stored: the stored history stands before the client's items.
	Stored bool
	// Opaque: upstream holds calls that are not visible here. Any cut or repair could make an orphan or remove a pair, so
	// the request is sent as it came.
	Opaque bool
	// Continues: upstream itself puts earlier items before these. Carried is how many of Items, from the first, belong to
	// the answer that the client goes on from and are not known to upstream.
	Continues bool
	Carried   int
	// Side: the request belongs to a side line.
	Side bool
	// Hidden marks the Items that the client does not see; nil if it sees all of them.
	Hidden []bool
	// Moved are the indices of Items that the client sent at another place, where upstream would have refused them.
	Moved []int

	lead    wire.Hash
	hasLead bool
}

// Conversation returns the history that a view is chosen from, including hidden items. units limits how much of the
// stored history can come into the view.
func (e *Entry) Conversation(ctx context.Context, units uint64) (Conversation, error) {
	c := Conversation{
		Lead: e.in.leading, Items: e.in.items, Offset: e.place.offset, Stored: e.place.before, Side: e.place.standing == Side,
		Opaque: e.in.stateful || e.in.unresolved(), Continues: e.in.stateful, lead: e.in.lead, hasLead: e.in.hasLead,
	}
	if c.Continues && len(e.state.carried) > 0 {
		c.Carried = len(e.state.carried)
		c.Items = append(slices.Clip(e.state.carried), c.Items...)
	}
	amendments := e.state.amendments
	if len(e.hidden) > 0 {
		amendments = amendments.replace(e.amended, e.amendments(nil, e.target()))
	}
	trimmed := e.place.relation == relTrim && len(amendments) > 0 && !c.Opaque
	if trimmed {
		units = e.in.ends[e.place.fresh-1].Units + 1
	}
	stored := &storedLine{}
	if c.Stored || trimmed {
		var err error
		if stored, err = e.line(ctx, units); err != nil {
			return c, err
		}
	}
	if c.Stored {
		stored = e.mend(e.withReady(stored))
		c.Items, c.Offset = slices.Concat(stored.items, c.Items), stored.skipped
		if err := e.storedLead(ctx, &c); err != nil {
			return c, err
		}
	}
	if len(amendments) > 0 && !c.Opaque {
		e.applyTo(&c, amendments, stored.chain)
	}
	if !c.Opaque {
		e.order(&c)
	}
	return c, nil
}

// applyTo puts hidden items into a conversation. stored are the chain hashes of the stored line.
func (e *Entry) applyTo(c *Conversation, a Amendments, stored []wire.Hash) {
	chain := e.chain(stored)
	if c.Stored {
		chain = append(slices.Clip(stored), chain...)
	}
	items, from := a.apply(c.Items, chain, e.contentOf, e.adapt)
	if from == nil {
		return
	}
	c.Items, c.Hidden = items, make([]bool, len(items))
	for i, f := range from {
		c.Hidden[i] = f < 0
	}
}

// order puts a conversation, and all lists parallel to its items, into the order that upstream demands.
func (e *Entry) order(c *Conversation) {
	order, moved := view.Order(e.call.Request.Dialect, c.Items, e.Resolver())
	if order == nil {
		return
	}

	own := make(map[*byte]bool, len(e.in.items)) // by where an item's bytes are
	for i := range e.in.items {
		own[&e.in.items[i].Raw[0]] = true
	}
	for _, at := range moved {
		if own[&c.Items[order[at]].Raw[0]] {
			c.Moved = append(c.Moved, at)
		}
	}

	items, hidden := make([]wire.Item, len(order)), make([]bool, len(order))
	for at, i := range order {
		items[at] = c.Items[i]
		if c.Hidden != nil {
			hidden[at] = c.Hidden[i]
		}
	}
	if c.Items = items; c.Hidden != nil {
		c.Hidden = hidden
	}
}

// line reads the stored history before the request's place, once.
func (e *Entry) line(ctx context.Context, units uint64) (*storedLine, error) {
	if e.stored == nil || e.stored.want != units {
		stored, err := e.log.line(ctx, e.call.Scope, e.begins(), units)
		if err != nil {
			return nil, err
		}
		e.stored = stored
	}
	return e.stored, nil
}

// contentOf is the content hash that an item of a conversation has in the transcript.
func (e *Entry) contentOf(it wire.Item) wire.Hash {
	if content, ok := e.mended[&it.Raw[0]]; ok {
		return content
	}
	return e.in.mark(it).content
}

// Before reads what of the stored history stands within its first units, oldest item first: the newest of it, at most so
// many items and bytes. It is nothing where the client sends its history itself.
func (e *Entry) Before(ctx context.Context, units uint64, items, size int) ([]wire.Item, error) {
	if !e.place.before || units == 0 {
		return nil, nil
	}
	var l lineEnd
	for at, err := range e.log.back(ctx, e.call.Scope, e.begins().Seq) {
		if err != nil {
			return nil, err
		}
		if at.Pos.Units > units {
			continue
		}
		if size -= len(at.Raw); size < 0 || len(l.items) == items {
			break
		}
		if err := l.take(at); err != nil {
			return nil, err
		}
	}
	slices.Reverse(l.items)
	return l.items, nil
}

// Execution names the agent run that the turn belongs to: all turns of a tool loop share the user message it began with.
func (e *Entry) Execution() string {
	if e.call.Scope.Execution != "" {
		return e.call.Scope.Execution
	}
	if run := e.round(); run != 0 && e.execution == "" {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], run)
		e.execution = hexText(b[:])
	}
	return e.execution
}

// round is findRun, asked once: layers have state by the name.
func (e *Entry) round() uint64 {
	if e.run == 0 {
		e.run = e.findRun()
	}
	return e.run
}

// findRun names the round of the request by the session and the place of its user message there, 0 for no round that is
// known. Where the message is not in the request, or was trimmed off what stands before it, the head knows.
func (e *Entry) findRun() uint64 {
	p := &e.place
	for i := len(e.in.items) - 1; i >= 0; i-- {
		if it := &e.in.items[i]; it.Kind != wire.Message || it.Role != wire.User {
			continue
		}
		at := e.in.ends[i]
		if i >= p.fresh {
			at = p.parent
			for _, m := range e.in.marks[p.fresh : i+1] {
				at = at.after(m)
			}
		} else if p.relation == relTrim && e.atHead {
			break
		}
		return e.call.Scope.run(at.Chain)
	}
	if e.atHead || p.before {
		return e.state.head.Run
	}
	return 0
}

// run names the round that a user message began: by the session and the chain behind the message.
func (s Scope) run(chain wire.Hash) uint64 {
	var room [128]byte
	sum := sha256.Sum256(append(append(room[:0], s.Session...), chain[:]...))
	return binary.BigEndian.Uint64(sum[:8])
}

// Behind returns how many units of the conversation stand before the request's new items, as far as the transcript knows.
func (e *Entry) Behind() uint64 { return e.place.parent.Units }

// Keys names the items of a conversation so that later conversations have the same names: by the chain hash behind the
// item, or, for reasoning and hidden items, which are not on the chain, by the hash of the item before and their
// content. So equal items after different histories have different names. The zero Hash is an item whose place is
// unknown.
func (e *Entry) Keys(ctx context.Context, c *Conversation) ([]wire.Hash, error) {
	stored := e.stored
	if e.place.relation == relTrim {
		var err error
		if stored, err = e.line(ctx, e.in.ends[e.place.fresh-1].Units+1); err != nil {
			return nil, err
		}
	}
	if stored == nil {
		stored = &storedLine{}
	}
	behind := make(map[*byte]wire.Hash, len(c.Items)) // by where an item's bytes are
	for i, h := range e.chain(stored.chain) {
		behind[&e.in.items[i].Raw[0]] = h
	}
	for i, it := range stored.items {
		behind[&it.Raw[0]] = stored.chain[i]
	}
	keys := make([]wire.Hash, len(c.Items))
	var last, at wire.Hash // the newest place on the chain, and the key before
	for i, it := range c.Items {
		h, ok := behind[&it.Raw[0]]
		switch {
		case h == nowhere:
			last, at = wire.Hash{}, wire.Hash{}
			continue
		case !ok || h == last:
			at = wire.Chain(at, e.in.mark(it).content)
		default:
			last, at = h, h
		}
		keys[i] = at
	}
	return keys, nil
}

// Ending is the end of a session's line.
type Ending struct {
	Items []wire.Item
	Keys  []wire.Hash // of the items, as Entry.Keys gives them
	Value []byte      // what the session keeps under the name that was asked for
}

// End reads the end of a session's line as its client knows it: at least so many units, where it has them. name is of a
// value that is read with it.
func (log *Log) End(ctx context.Context, s Scope, units uint64, name string) (Ending, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName, name}}})
	if err != nil {
		return Ending{}, fmt.Errorf("read session: %w", err)
	}
	if results[0].Values[0] == nil {
		return Ending{}, ErrNoSession
	}
	h, err := decodeHead(results[0].Values[0])
	if err != nil {
		return Ending{}, err
	}
	line, err := log.line(ctx, s, h.Pos, units)
	if err != nil {
		return Ending{}, err
	}

	keys := make([]wire.Hash, len(line.items))
	var last, at wire.Hash // the newest place on the chain, and the key before
	for i, it := range line.items {
		if behind := line.chain[i]; behind == last {
			at = wire.Chain(at, it.ContentHash())
		} else {
			last, at = behind, behind
		}
		keys[i] = at
	}
	return Ending{line.items, keys, results[0].Values[1]}, nil
}

// storedLead takes the leading items from the stored history where the client sends none.
func (e *Entry) storedLead(ctx context.Context, c *Conversation) (err error) {
	if len(c.Lead) == 0 && e.place.lead != (wire.Hash{}) {
		c.lead, c.hasLead = e.place.lead, true
		c.Lead, err = e.log.lead(ctx, e.call.Scope, c.lead)
	}
	return err
}

// lead reads one version of the leading system items.
func (log *Log) lead(ctx context.Context, s Scope, hash wire.Hash) ([]wire.Item, error) {
	r, err := log.leadRecord(ctx, s, hash)
	if err != nil {
		return nil, err
	}
	return r.parse()
}

// leadRecord reads a version of the leading items with the instructions.
func (log *Log) leadRecord(ctx context.Context, s Scope, hash wire.Hash) (r leadRecord, err error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{leadPrefix + string(hash[:])}}})
	if err != nil {
		return r, fmt.Errorf("read leading items: %w", err)
	}
	if v := results[0].Values[0]; v == nil {
		return r, nil
	} else if err := json.Unmarshal(v, &r); err != nil {
		return r, fmt.Errorf("read leading items: %w", ErrCorrupt)
	}
	return r, nil
}

// parse is the record's items.
func (r *leadRecord) parse() ([]wire.Item, error) {
	items := make([]wire.Item, 0, len(r.Items))
	for _, raw := range r.Items {
		it, err := wire.ParseItem(r.Dialect.Dialect(), raw)
		if err != nil {
			return nil, fmt.Errorf("read leading items: %w", err)
		}
		items = append(items, it)
	}
	return items, nil
}

// leadHash names leading items with the instructions.
func leadHash(items []wire.Item, instructions []byte, known *hashCache) (wire.Hash, bool) {
	if len(items) == 0 && len(instructions) == 0 {
		return wire.Hash{}, false
	}
	var room [16 * len(wire.Hash{})]byte // as a rule it is one item
	b := room[:0]
	for i := range items {
		c := known.content(items[i])
		b = append(b, c[:]...)
	}
	sum := sha256.Sum256(append(b, instructions...))
	return wire.Hash(sum[:16]), true
}

// leadRecord is one version of what stands before the conversation.
type leadRecord struct {
	Instructions []byte        `json:"instructions,omitempty"` // as they came: base64, since JSON would be re-spelled
	Dialect      dialects.Code `json:"dialect"`
	Items        [][]byte      `json:"items,omitempty"`
}

// putLead keeps the version of the leading items that this turn used, unless it is the head's, which is kept.
func (d *draft) putLead() {
	e := d.e
	if !e.in.hasLead || e.in.lead == e.state.head.Lead {
		return
	}
	r := leadRecord{Instructions: e.call.Request.Instructions(), Dialect: dialects.CodeOf(e.call.Request.Dialect)}
	for _, it := range e.in.leading {
		r.Items = append(r.Items, it.Raw)
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode leading items: %v", err)) // bytes and numbers
	}
	d.puts = append(d.puts, cache.Put{Name: leadPrefix + string(e.in.lead[:]), Data: b})
}

// Resolver returns a function that looks up references for windows and the pairing of calls. It is nil if the request
// has no known reference.
func (e *Entry) Resolver() func(wire.Item) (wire.Item, bool) {
	if len(e.in.refs) == 0 {
		return nil
	}
	return e.in.resolve
}

// storedLine is the end of a line of the transcript, oldest item first, as its clients know it.
type storedLine struct {
	want    uint64 // units that were asked for
	items   []wire.Item
	chain   []wire.Hash // behind each item
	made    []Origin    // of each item
	turns   []string    // of each item
	skipped int         // units of the line that stand before items
}

// line reads the end of the line that ends at end, without side items and hidden items (see Amendments): all of the
// round in flight, at least want units before it, if there are as many, and the message that the first of them belong
// to if that is not too far away.
func (log *Log) line(ctx context.Context, s Scope, end position, want uint64) (*storedLine, error) {
	var l lineEnd
	for at, err := range log.back(ctx, s, end.Seq) {
		if err == nil {
			err = l.take(at)
		}
		if err != nil {
			return nil, err
		}
		if l.round && l.before >= want && (l.message || l.before >= 2*want) {
			break
		}
	}
	slices.Reverse(l.items)
	slices.Reverse(l.chain)
	slices.Reverse(l.made)
	slices.Reverse(l.turns)
	return &storedLine{want: want, items: l.items, chain: l.chain, made: l.made, turns: l.turns, skipped: unitsBetween(position{Units: l.units}, end)}, nil
}

// lineEnd collects the items of a line from its end backwards.
type lineEnd struct {
	items []wire.Item
	chain []wire.Hash
	made  []Origin
	turns []string
	units uint64
	round bool // a user message is among the items: that which began the round, or the one before it
	// before is how many units stand before that message: a window is chosen by what there was when the round began.
	before uint64
	// message: the oldest item is a user message. A view that begins in a tool loop is given the message before it.
	message bool
}

func (l *lineEnd) take(at *storedItem) error {
	if at.Flags&(flagSummary|flagHidden) != 0 {
		return nil
	}
	it, err := wire.ParseItem(at.Dialect, at.Raw)
	if err != nil {
		return fmt.Errorf("item %d: %w", at.Pos.Seq, err)
	}
	l.items, l.chain = append(l.items, it), append(l.chain, at.Pos.Chain)
	l.made, l.turns = append(l.made, at.Made), append(l.turns, at.Turn)
	l.units += view.Units(it)
	if l.round {
		l.before += view.Units(it)
	}
	l.message = it.Kind == wire.Message && it.Role == wire.User
	l.round = l.round || l.message
	return nil
}
