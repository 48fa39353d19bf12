package transcript

import (
	"context"
	"slices"
	"strings"
	"sync"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// draft is what one commit of a turn writes: a batch for its session and, for a Responses answer, one that finds the
// session by the response's id.
type draft struct {
	e    *Entry
	head *head // the head as it will be
	*sheet
	deletes []string
	stored  []string   // names of the input's values
	input   position   // the end of the input
	open    bool       // the answer is still to come
	added   []uint64   // sequence numbers of its items
	output  [][]uint64 // sequence numbers of the answer's items, per choice
	reply   string     // id of a response to find the session by

	retracted bool                  // the input is written anew, in another place
	hidden    map[int][]uint64      // sequence numbers of what it writes of e.hidden, by index
	blocks    []turnrecord.BlockRef // of the turn
	amends    bool                  // it writes the session's amendments:
	all       Amendments            // as they will be,
	amended   Amendments            // and those among them that are the turn's

	names      strings.Builder
	addedRoom  [roomFor]uint64
	outputRoom [1][]uint64
	seqRoom    [4]uint64
}

// draft builds the commit of a turn's input and, unless it is still to come, of its answer.
func (e *Entry) draft(a *Answer) *draft {
	d := &draft{e: e, head: e.state.head.clone(len(e.in.items) - e.from + answerItems(a)), sheet: newSheet(), open: a == nil}
	d.added, d.output = d.addedRoom[:0], d.outputRoom[:0]
	d.makeRoom(e.in.items[e.plan.fresh:])
	if d.head.NextSeq == 0 {
		d.head.NextSeq = 1
	}
	e.gather(a)
	d.retract()
	d.input = d.storeInput()
	end := d.input
	var answer []wire.Item
	if a != nil {
		end = d.storeAnswer(a)
		if len(a.Reply.Choices) > 0 {
			answer = a.Reply.Choices[0]
		}
	}
	d.moveHead(end, answer)
	d.putLead()
	d.amend()
	d.putBlocks()
	record, from := e.record(d, a), len(d.data)
	d.data = record.AppendTo(slices.Grow(d.data, record.Size()))
	d.puts = append(d.puts, cache.Put{Name: turnPrefix + e.id, Data: d.value(from)})
	from = len(d.data)
	d.data = d.head.appendTo(slices.Grow(d.data, d.head.size()))
	d.puts = append(d.puts, cache.Put{Name: headName, Data: d.value(from)})
	return d
}

// answerItems is how many items of the head line an answer has.
func answerItems(a *Answer) int {
	if a == nil || len(a.Reply.Choices) == 0 {
		return 0
	}
	return len(a.Reply.Choices[0])
}

func (d *draft) batches() []cache.Batch {
	ttl := d.e.log.ttl
	session := cache.Batch{
		Group: d.e.call.Scope.Group(), Expect: d.e.state.version,
		Puts: d.puts, Deletes: d.deletes, TTL: ttl, Listed: d.e.state.version == 0,
	}
	if d.reply == "" {
		return []cache.Batch{session}
	}
	return []cache.Batch{session, {
		Group: responseGroup(d.e.call.Scope.Tenant, d.reply), Expect: cache.AnyVersion, TTL: ttl,
		Puts: []cache.Put{{Name: sessionName, Data: []byte(d.e.call.Scope.Session)}},
	}}
}

// write is the commit of a draft, with what b writes unless the answer is still to come.
func (d *draft) write(ctx context.Context, b Beside) (cache.Outcome, []cache.Outcome) {
	batches := d.batches()
	own := len(batches)
	if b != nil && !d.open {
		values, others := b.Writes()
		for _, v := range values {
			if len(v.Data) == 0 {
				batches[0].Deletes = append(batches[0].Deletes, v.Name)
			} else {
				batches[0].Puts = append(batches[0].Puts, v)
			}
		}
		batches = append(batches, others...)
	}
	out := d.e.log.store.Commit(ctx, batches)
	return out[0], out[own:]
}

// retract takes back an input that was written behind a head which another turn has moved since. Only a client that
// sends nothing but what is new is moved along with the head; any other input keeps its place.
func (d *draft) retract() {
	e := d.e
	j := e.journaled
	if len(j.names) == 0 || e.plan.relation != relDelta || e.plan.parent.Seq == j.end.Seq {
		return
	}
	d.head.dropTail(j.end.Seq)
	d.retracted = true
	d.deletes = j.names // a batch deletes before it writes: names that are written anew stay
}

// storeInput writes the request's new items and returns the position behind them.
func (d *draft) storeInput() position {
	e, at := d.e, d.e.plan.parent
	if e.plan.aside > 0 {
		at = d.storeAside(at)
	}
	before := len(d.puts)
	at = d.storeHidden(at, e.plan.fresh, e.plan.fresh > 0 && e.seqs[e.plan.fresh-1] != 0)
	var skipped []int // off-chain items that wait for the item they lead to
	for i := e.plan.fresh; i < len(e.in.items); i++ {
		if !e.in.marks[i].onChain {
			skipped = append(skipped, i)
			continue
		}
		if known, ok := d.knownAfter(at, e.in.marks[i]); ok {
			at, skipped = d.storeHidden(known, i+1, false), nil
			continue
		}
		for _, j := range skipped {
			at = d.storeHidden(d.storeInputItem(at, j, 0), j+1, false)
		}
		at, skipped = d.storeHidden(d.storeInputItem(at, i, 0), i+1, true), nil
	}
	for _, j := range skipped {
		at = d.storeHidden(d.storeInputItem(at, j, 0), j+1, false)
	}
	if !d.open {
		return at // nobody will have to take it back
	}
	d.stored = make([]string, 0, len(d.puts)-before)
	for _, p := range d.puts[before:] {
		if !strings.HasPrefix(p.Name, mediaPrefix) { // others may say the same
			d.stored = append(d.stored, p.Name)
		}
	}
	return at
}

func (d *draft) storeInputItem(at position, i int, flags byte) position {
	at = d.store(at, d.e.in.items[i], d.e.in.marks[i], flags)
	d.e.seqs[i] = at.Seq
	d.added = append(d.added, at.Seq)
	return at
}

// storeAnswer writes the answer, one branch per choice, and returns the position behind the first choice.
func (d *draft) storeAnswer(a *Answer) position {
	end := d.input
	var flags byte
	if a.status() != turnrecord.Complete {
		flags = flagPartial
	}
	marks := d.e.answerMarks(a)
	for c, items := range a.Reply.Choices {
		at := d.input
		seqs := d.seqRoom[:0]
		if c > 0 || len(items) > len(d.seqRoom) {
			seqs = make([]uint64, 0, len(items))
		}
		for i, it := range items {
			next, ok := d.knownAfter(at, marks[c][i])
			if !ok {
				next = d.store(at, it, marks[c][i], flags)
			}
			at, seqs = next, append(seqs, next.Seq)
			if c == 0 {
				at = d.storeHidden(at, len(d.e.in.items)+i+1, !ok && marks[c][i].onChain)
			}
			d.putID(it)
		}
		d.output = append(d.output, seqs)
		if c == 0 {
			end = at
		} else {
			d.head.addTail(tail{Pos: at, Lead: d.e.in.lead, Side: d.e.plan.side})
		}
	}
	if d.e.call.Request.Dialect == wire.Responses && a.Reply.ID != "" {
		d.putReply(a.Reply.ID, end)
	}
	return end
}

// putReply lets a later request go on from a response by its id.
func (d *draft) putReply(id string, end position) {
	d.reply = id
	d.puts = append(d.puts, cache.Put{Name: idName(replyPrefix, id), Data: place{Pos: end, Side: d.e.plan.side}.encode()})
	if told, ok := d.e.tellings(); ok {
		d.puts = append(d.puts, cache.Put{Name: idName(toldPrefix, id), Data: told.encode()})
	}
	if len(d.e.carry) > 0 {
		d.puts = append(d.puts, cache.Put{Name: idName(carryPrefix, id), Data: encodeCarried(d.e.carry)})
	}
}

// knownAfter is where an item stands behind at if the transcript has it there already.
func (d *draft) knownAfter(at position, m mark) (position, bool) {
	if len(d.e.known) == 0 {
		return position{}, false
	}
	known, ok := d.e.known[at.after(m).Chain]
	return known.Pos, ok && m.onChain
}

// store writes one item behind at and returns the position behind it.
func (d *draft) store(at position, it wire.Item, m mark, flags byte) position {
	if flags&flagAside != 0 {
		m.onChain, m.units = false, 0
	}
	if !m.onChain {
		flags |= flagOffChain
	}
	if d.e.plan.side {
		flags |= flagSide
	}
	next := at.after(m)
	next.Seq = d.head.NextSeq
	d.head.NextSeq++
	item := storedItem{
		Parent: at.Seq, Pos: next, Content: m.content, Flags: flags, Dialect: it.Dialect, Turn: d.e.id, Raw: it.Raw,
	}
	d.puts = item.cut(d.puts)
	var name [len(itemPrefix) + 8]byte
	from := len(d.data)
	d.data = item.appendTo(slices.Grow(d.data, item.size()+placeBytes))
	d.puts = append(d.puts, cache.Put{Name: d.name("", appendItemName(name[:0], next.Seq)), Data: d.value(from)})
	if m.onChain {
		at := d.putPlace(next)
		if landmark(it) {
			d.puts = append(d.puts, cache.Put{Name: d.name(textPrefix, m.content[:]), Data: at})
		}
	}
	return next
}

// putPlace enters a place into the index of chains, and returns the value.
func (d *draft) putPlace(at position) []byte {
	from := len(d.data)
	d.data = place{Pos: at, Side: d.e.plan.side}.appendTo(d.data)
	v := d.value(from)
	d.puts = append(d.puts, cache.Put{Name: d.name(chainPrefix, at.Chain[:]), Data: v})
	return v
}

// putID lets a later item_reference stand for an item of the answer.
func (d *draft) putID(it wire.Item) {
	if name, data, ok := referenceOf(it); ok {
		d.puts = append(d.puts, cache.Put{Name: name, Data: data})
	}
}

// referenceOf is what is kept of an item under its id, if it has one that can be referred to.
func referenceOf(it wire.Item) (name string, data []byte, ok bool) {
	if it.Dialect != wire.Responses || it.ID == "" || it.Kind == wire.Reference {
		return "", nil, false
	}
	ref := reference{Content: it.ContentHash(), Kind: it.Kind, Role: it.Role, Pair: it.Answers}
	if len(it.Calls) > 0 {
		ref.Pair = it.Calls[0]
	}
	return idName(idPrefix, it.ID), ref.encode(), true
}

// moveHead makes end the head, or, for a side line and for an input without an answer, one of the other ends.
func (d *draft) moveHead(end position, answer []wire.Item) {
	h, e := d.head, d.e
	extended := h.dropTail(e.plan.parent.Seq)
	if e.plan.side || len(answer) == 0 || (e.late && h.LastTurn > e.id && !e.atHead) {
		d.leaveTail(end, extended.Turns, len(answer))
		return
	}
	if !e.atHead {
		if h.Pos.Seq != 0 && h.Pos.Seq != end.Seq && !e.in.passes(h.Pos.Chain) {
			h.addTail(tail{Pos: h.Pos, Lead: h.Lead, Side: extended.Side, Turns: h.Turns})
		}
		h.Open, h.Turns = nil, extended.Turns
		for i := 0; i < e.from; i++ {
			h.noteCalls(e.in.items[i])
		}
		if e.place.before { // a repetition: the line before it is not in the request
			h.Turns = max(e.state.head.Turns, 1) - 1
			for i := 0; e.stored != nil && i < len(e.stored.items); i++ {
				h.noteCalls(e.stored.items[i])
			}
		}
	}
	h.Ring = h.Ring[:e.ringKept]
	h.Forked = end.Seq < e.state.head.NextSeq // an answer that was there already
	h.Pos, h.LastTurn, h.Answered, h.Turns = end, e.id, true, h.Turns+1
	h.Delta = h.Delta || e.plan.relation == relDelta
	if e.place.before {
		h.begun(e.begins())
	}
	h.Run = e.round()
	if e.in.hasLead {
		h.Lead = e.in.lead
	}
	for i := e.from; i < len(e.in.items); i++ {
		h.remember(e.in.items[i], e.in.marks[i], e.seqs[i])
	}
	for i, it := range answer {
		h.remember(it, e.answered[0][i], d.output[0][i])
	}
}

// leaveTail notes an end of the transcript that is not the head.
func (d *draft) leaveTail(end position, turns uint64, answered int) {
	h, e := d.head, d.e
	if end.Seq == h.Pos.Seq || end.Seq == 0 {
		return
	}
	if answered > 0 {
		turns++
	}
	h.addTail(tail{Pos: end, Lead: e.in.lead, Side: e.plan.side, Turns: turns})
	h.Forked = h.Forked || e.atHead && !d.open
}

// sheet is the memory of what a commit writes. Stores copy it.
type sheet struct {
	puts []cache.Put
	data []byte // of the puts, one behind the other; where it had to grow, earlier ones are in memory of their own
}

var sheets sync.Pool // of *sheet

// maxSheet is the size in bytes of the largest sheet that is kept for the next commit.
const maxSheet = 64 << 10

func newSheet() *sheet {
	if s, ok := sheets.Get().(*sheet); ok {
		return s
	}
	return &sheet{puts: make([]cache.Put, 0, 16), data: make([]byte, 0, 4096)}
}

// release gives the sheet back when the draft is written.
func (d *draft) release() {
	s := d.sheet
	d.sheet = nil
	if cap(s.data) > maxSheet || cap(s.puts) > maxSheet/64 {
		return
	}
	clear(s.puts)
	s.puts, s.data = s.puts[:0], s.data[:0]
	sheets.Put(s)
}

// makeRoom prepares the draft for an input of so many new items, and for an answer of one.
func (d *draft) makeRoom(items []wire.Item) {
	const puts = 3 // of an item: itself, its place, and where its text was said last
	n := 0
	for i := range items {
		n += min(len(items[i].Raw), compressAbove) + itemBytes + placeBytes
	}
	d.data, d.puts = slices.Grow(d.data, n), slices.Grow(d.puts, puts*len(items))
	d.names.Grow(namesSize * max(1, len(items)))
}

// namesSize is what the names of a turn with one new item and one answer take, in bytes.
const namesSize = 96

// name makes the name of a value. Names of a draft share memory.
func (d *draft) name(prefix string, rest []byte) string {
	from := d.names.Len()
	d.names.WriteString(prefix)
	d.names.Write(rest)
	return d.names.String()[from:]
}

// value is what was appended to data from a place on.
func (d *draft) value(from int) []byte { return d.data[from:len(d.data):len(d.data)] }
