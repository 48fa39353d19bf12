package session

import (
	"context"
	"fmt"
	"slices"

	"remora/memory/view"
	"remora/wire"
)

// Conversation is the history from which the view of a call is chosen.
type Conversation struct {
	// System are the system and developer items at the beginning, Items the rest, oldest first.
	System, Items []wire.Item
	// Offset is the number of units of the conversation before Items.
	Offset int
	// Stored: the stored history precedes the client's items.
	Stored bool
	// Opaque: upstream has calls that are not visible here. Any cut or repair could create an orphan or remove a pair, so the
	// request is sent unchanged.
	Opaque bool
	// Continues: upstream itself puts earlier items before these. Carried is how many of Items, from the first, belong to the
	// continued answer and are unknown to upstream.
	Continues bool
	Carried   int
	// Side: the request belongs to a side line.
	Side bool
	// Hidden marks the Items that the client does not see.
	Hidden []bool
	// Moved are the indices of Items that were moved from a position that upstream would have refused.
	Moved []int

	systemPrompt    wire.Hash
	hasSystemPrompt bool
}

// HistoryReader reads the history that the view of a request is chosen from.
type HistoryReader struct {
	stored transcript
	place  *Place
	hidden *hiddenItems // of the turn
	adapter
	preceding *storedLine     // the stored line before the request, nil until it is read; Conversation adapts it and adds parked turns
	units     uint64          // that were asked for when it was read
	targets   map[*byte]*byte // of items in the places of references: by the address of their bytes, that of the reference's
	parked    []Parked
}

// Parked is an answered turn that is not in the log yet.
type Parked struct {
	Turn  string
	Made  Origin
	Items []wire.Item // that are new in its request, and those of its answer
	After uint64      // the item before them if they replace what stands after it, 0 for the last: see Entry.Replaces
}

// ShowParked appends parked turns to the stored history, until they are in the log. If the log is empty, they are the whole
// history.
func (r *HistoryReader) ShowParked(parked []Parked) {
	if r.place.in.inRun() || r.place.in.elsewhere {
		return
	}
	if !r.place.plan.before && r.place.usesHistory() {
		r.place.plan.before = true
	}
	if r.place.plan.before {
		r.parked = parked
	}
}

// Conversation returns the history that a view is chosen from, including hidden items. units limits the part of the stored
// history.
func (r *HistoryReader) Conversation(ctx context.Context, units uint64) (Conversation, error) {
	p, in := &r.place.plan, r.place.in
	c := Conversation{
		System: in.system, Items: in.items, Offset: p.offset, Stored: p.before, Side: p.standing == Side,
		Opaque: in.stateful || in.unresolved() || !p.before && in.answersTemplate(), Continues: in.stateful, systemPrompt: in.systemPrompt, hasSystemPrompt: in.hasSystemPrompt,
	}
	if carried := r.place.state.carried; c.Continues && len(carried) > 0 {
		c.Carried = len(carried)
		c.Items = append(slices.Clip(carried), c.Items...)
	}

	amendments := r.hidden.view(r.place.state.amendments, r.place)
	trimmed := p.relation == relTrim && len(amendments) > 0 && !c.Opaque
	if trimmed {
		units = in.ends[p.fresh-1].Units + 1
	}
	var as []*storedItem // how the store has the items before the request's
	if c.Stored || trimmed {
		stored, err := r.line(ctx, units)
		if err != nil {
			return c, err
		}
		if c.Stored {
			stored = r.adaptLine(r.withParked(stored)).fromCompaction(in.items)
			r.preceding = stored
			c.Items, c.Offset = slices.Concat(stored.items, c.Items), stored.skipped
			if err := r.storedSystemPrompt(ctx, &c); err != nil {
				return c, err
			}
		}
		as = stored.as
	}

	c.Hidden = make([]bool, len(c.Items))
	if len(amendments) > 0 && !c.Opaque {
		r.applyTo(&c, amendments, as)
	}
	if err := r.insertTargets(ctx, &c); err != nil {
		return c, err
	}
	if !c.Opaque {
		r.order(&c)
	}
	return c, nil
}

// line reads the stored history before the request's place, once: its end, and its last compaction, however far before that.
func (r *HistoryReader) line(ctx context.Context, units uint64) (*storedLine, error) {
	if r.preceding == nil || r.units != units {
		end := r.place.begins()
		stored, err := r.stored.line(ctx, end, units)
		if err == nil && end.Compaction != 0 && end.Compaction < stored.first() {
			err = stored.addCompaction(r.stored.item(ctx, end.Compaction))
		}
		if err != nil {
			return nil, err
		}
		r.preceding, r.units = stored, units
	}
	return r.preceding, nil
}

// withParked returns the stored history followed by the parked turns.
func (r *HistoryReader) withParked(l *storedLine) *storedLine {
	if len(r.parked) == 0 {
		return l
	}
	out := &storedLine{skipped: l.skipped, items: slices.Clone(l.items), as: slices.Clone(l.as)}
	at := r.place.begins()
	for _, turn := range r.parked {
		if i := slices.IndexFunc(out.as, func(as *storedItem) bool { return as.Pos.Seq == turn.After && turn.After != 0 }); i >= 0 {
			out.items, out.as, at = out.items[:i+1], out.as[:i+1], out.as[i].Pos
		}
		for _, it := range turn.Items {
			at = at.after(r.place.in.mark(it))
			out.add(it, &storedItem{Pos: at, Made: turn.Made, Turn: turn.Turn})
		}
	}
	return out
}

// storedSystemPrompt takes the system prompt from the stored history if the client sends none.
func (r *HistoryReader) storedSystemPrompt(ctx context.Context, c *Conversation) error {
	if prompt := r.place.plan.systemPrompt; len(c.System) == 0 && prompt != (wire.Hash{}) {
		c.systemPrompt, c.hasSystemPrompt = prompt, true
		stored, err := r.stored.systemPrompt(ctx, prompt)
		if err != nil {
			return err
		}
		c.System, err = stored.parse()
		return err
	}
	return nil
}

// applyTo puts hidden items into a conversation. stored are the items of the stored line.
func (r *HistoryReader) applyTo(c *Conversation, a Amendments, stored []*storedItem) {
	var chain []wire.Hash
	if c.Stored {
		for _, at := range stored {
			chain = append(chain, at.Pos.Chain)
		}
	}
	chain = append(chain, r.place.chain(stored)...)
	items, from := a.apply(c.Items, chain, r.meaning, r.adaptHidden)
	c.Items, c.Hidden = items, make([]bool, len(items))
	for i, f := range from { // none if nothing is hidden here
		c.Hidden[i] = f < 0
	}
}

// insertTargets puts stored items in the places of references that name items of another provider than the request's, which does not
// have them. What that provider could not use, such as reasoning, is left out, and so is an item that is there already: many copies
// may take more memory than there is.
func (r *HistoryReader) insertTargets(ctx context.Context, c *Conversation) error {
	isElsewhere := func(it wire.Item) bool {
		ref, ok := r.place.in.refs[it.ID]
		return it.Kind == wire.Reference && ok && r.place.call.elsewhere(ref.Provider)
	}
	if !slices.ContainsFunc(c.Items, isElsewhere) {
		return nil
	}
	var at []int
	var seqs []uint64
	targets, named := make(map[int]*wire.Item), make(map[uint64]bool)
	for i, it := range c.Items {
		if !isElsewhere(it) {
			continue
		}
		if seq := r.place.in.refs[it.ID].Seq; named[seq] {
			targets[i] = nil
		} else {
			named[seq] = true
			at, seqs = append(at, i), append(seqs, seq)
		}
	}
	stored, err := r.stored.items(ctx, seqs...)
	if err != nil {
		return err
	}

	for n, i := range at {
		if stored[n] == nil {
			continue // it was retracted
		}
		it, err := wire.ParseItem(stored[n].Dialect, stored[n].Raw)
		if err != nil {
			return fmt.Errorf("item %d: %w: %w", seqs[n], ErrCorrupt, err)
		}
		targets[i] = r.adapt(stored[n].Made, []wire.Item{it})[0]
	}
	items, hidden := make([]wire.Item, 0, len(c.Items)), make([]bool, 0, len(c.Items))
	for i, it := range c.Items {
		target, ok := targets[i]
		switch {
		case ok && target == nil:
			continue
		case ok:
			if r.targets == nil {
				r.targets = make(map[*byte]*byte)
			}
			r.targets[&target.Raw[0]] = &it.Raw[0]
			it = *target
		}
		items, hidden = append(items, it), append(hidden, c.Hidden[i])
	}
	c.Items, c.Hidden = items, hidden
	return nil
}

// order puts a conversation, and all lists parallel to its items, into the order that upstream demands.
func (r *HistoryReader) order(c *Conversation) {
	order, moved := view.Order(r.place.call.Request.Dialect, r.place.Resolved(c.Items))
	if order == nil {
		return
	}

	own := wire.NewItemSet(r.place.in.items)
	for _, at := range moved {
		if own.Has(c.Items[order[at]]) {
			c.Moved = append(c.Moved, at)
		}
	}

	items, hidden := make([]wire.Item, len(order)), make([]bool, len(order))
	for at, i := range order {
		items[at], hidden[at] = c.Items[i], c.Hidden[i]
	}
	c.Items, c.Hidden = items, hidden
}

// Before reads the part of the stored history within its first units, oldest item first: the newest items, within the limits of
// items and bytes. It is empty if the client sends its history itself.
func (r *HistoryReader) Before(ctx context.Context, units uint64, items, size int) ([]wire.Item, error) {
	if !r.place.plan.before || units == 0 {
		return nil, nil
	}
	var l lineEnd
	for at, err := range r.stored.back(ctx, r.place.begins().Seq) {
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

// ItemKeys returns stable keys of a conversation's items: the chain hash up to the item, or, for reasoning and hidden items,
// which are not on the chain, a hash of the previous key and their content. So equal items after different histories have
// different keys. The zero Hash is an item whose place is unknown.
func (r *HistoryReader) ItemKeys(ctx context.Context, items []wire.Item) ([]wire.Hash, error) {
	in, stored := r.place.in, r.preceding
	if p := &r.place.plan; p.relation == relTrim {
		var err error
		if stored, err = r.line(ctx, in.ends[p.fresh-1].Units+1); err != nil {
			return nil, err
		}
	}
	if stored == nil {
		stored = &storedLine{}
	}
	chainAt := make(map[*byte]wire.Hash, len(items)) // by the address of an item's bytes
	for i, h := range r.place.chain(stored.as) {
		chainAt[&in.items[i].Raw[0]] = h
	}
	for i, it := range stored.items {
		chainAt[&it.Raw[0]] = stored.as[i].Pos.Chain
	}
	for target, reference := range r.targets {
		if h, ok := chainAt[reference]; ok {
			chainAt[target] = h
		}
	}

	place := func(i int) (wire.Hash, bool) {
		h, ok := chainAt[&items[i].Raw[0]]
		return h, ok
	}
	return itemKeys(items, place, func(it wire.Item) wire.Hash { return in.mark(it).Content }), nil
}

// WithTargets returns items of a conversation with the stored items in the places of the request's references to them, as far as the
// transcript has these at their place. It is the same slice if there are none.
func (r *HistoryReader) WithTargets(ctx context.Context, items []wire.Item) ([]wire.Item, error) {
	isTold := func(it wire.Item) bool {
		ref, ok := r.place.in.refs[it.ID]
		return it.Kind == wire.Reference && ok && ref.Kind != wire.Reasoning
	}
	if !slices.ContainsFunc(items, isTold) {
		return items, nil
	}
	keys, err := r.ItemKeys(ctx, items)
	if err != nil {
		return nil, err
	}
	var at []int
	var ends []position
	for i, it := range items {
		if isTold(it) {
			at, ends = append(at, i), append(ends, position{Chain: keys[i]})
		}
	}
	places, err := r.stored.lookup(ctx, ends)
	if err != nil {
		return nil, err
	}

	var seqs []uint64
	told := at[:0]
	for i, p := range places {
		if p != nil {
			told, seqs = append(told, at[i]), append(seqs, p.Pos.Seq)
		}
	}
	if len(seqs) == 0 {
		return items, nil
	}
	stored, err := r.stored.items(ctx, seqs...)
	if err != nil {
		return nil, err
	}
	out := slices.Clone(items)
	for n, as := range stored {
		if as == nil {
			continue // it was retracted
		}
		if out[told[n]], err = wire.ParseItem(as.Dialect, as.Raw); err != nil {
			return nil, fmt.Errorf("item %d: %w: %w", seqs[n], ErrCorrupt, err)
		}
	}
	return out, nil
}
