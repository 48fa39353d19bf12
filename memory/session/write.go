package session

import (
	"context"
	"slices"
	"strings"
	"sync"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// draft is the content of one commit of a turn: a batch for its session and, for a Responses answer, one that finds the
// session by the response's id.
type draft struct {
	e    *Entry
	head *head // the head as it will be
	*writeBuffer
	version uint64 // that the session is expected to be at
	line    uint64 // that the turn is stored on
	deletes []string
	stored  []string   // names of the input's values
	input   position   // the end of the input
	open    bool       // the answer is still to come
	unread  bool       // the answer came, and holds no items
	later   bool       // upstream makes it in the background
	added   []uint64   // sequence numbers of its items
	output  [][]uint64 // sequence numbers of the answer's items, per choice
	reply   string     // id of an answer to find the session by
	made    Origin     // of the answer, and of what is hidden in it

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
	d := &draft{e: e, head: e.state.head.clone(len(e.in.items) - e.from + answerItems(a)), writeBuffer: newWriteBuffer(), version: e.state.version, open: a == nil}
	d.added, d.output = d.addedRoom[:0], d.outputRoom[:0]
	d.makeRoom(e.in.items[e.plan.fresh:])
	if d.head.NextSeq == 0 {
		d.head.NextSeq = 1
	}
	if d.line = e.plan.line; d.line == 0 {
		d.head.Lines++
		d.line = d.head.Lines
	}
	if d.head.Line == 0 && e.plan.standing == InConversation {
		d.head.Line = d.line
	}
	d.made = e.maker(a)
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
	// An answer that the client got and that could not be read is an answer too: the question stays in the conversation.
	// It also stays where the answer comes later.
	d.unread = a != nil && len(answer) == 0 && (a.Later || a.Reply.Truncated && a.HTTPStatus < 300)
	d.later = a != nil && a.Later
	d.moveHead(end, answer)
	d.putLead()
	d.amend()
	d.putBlocks()
	d.pend()
	record := e.record(d, a)
	from := d.reserve(record.Size())
	d.data = record.AppendTo(d.data)
	d.puts = append(d.puts, cache.Put{Name: turnPrefix + e.id, Data: d.value(from)})
	from = d.reserve(d.head.size())
	d.data = d.head.appendTo(d.data)
	d.puts = append(d.puts, cache.Put{Name: headName, Data: d.value(from)})
	d.last = len(e.call.Request.Body) >= largeRequest
	for i := range d.puts {
		d.puts[i].Lasting = d.last
	}
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
		Group: d.e.call.Scope.Group(), Expect: d.version,
		Puts: d.puts, Deletes: d.deletes, TTL: ttl, Listed: d.version == 0,
	}
	if d.reply == "" {
		return []cache.Batch{session}
	}
	known := []cache.Put{{Name: sessionName, Data: []byte(d.e.call.Scope.Session)}}
	if d.e.last != "" {
		known = append(known, cache.Put{Name: lastName, Data: []byte(d.e.last)})
	}
	if d.later {
		known = append(known, cache.Put{Name: lateName, Data: []byte(d.e.id)})
	}
	return []cache.Batch{session, {
		Group: ResponseGroup(d.e.call.Scope.Tenant, d.reply), Expect: cache.AnyVersion, TTL: ttl, Puts: known,
	}}
}

// write is the commit of a draft, with p unless the answer is still to come.
func (d *draft) write(ctx context.Context, p Puts) (cache.Outcome, []cache.Outcome) {
	if out := d.writeAhead(ctx); out.Err != nil {
		return out, nil
	}
	batches := d.batches()
	entries := d.e.log.indexEntries(d.e.call.Scope, d.e.started)
	batches = append(batches, entries...)
	own := len(batches)
	if !d.open {
		for _, v := range p.Values {
			if len(v.Data) == 0 {
				batches[0].Deletes = append(batches[0].Deletes, v.Name)
			} else {
				batches[0].Puts = append(batches[0].Puts, v)
			}
		}
		batches = append(batches, p.Others...)
	}
	out := d.e.log.store.Commit(ctx, batches)
	if len(entries) > 0 && out[own-2].Err == nil && out[own-1].Err == nil {
		d.e.log.entered(d.e.call.Scope, d.e.started)
	}
	return out[0], out[own:]
}

// maxBatchItems is how many items one batch writes at most. A request of more must not keep the store from all others.
const maxBatchItems = 4096

// writeAhead writes what of a very long turn does not fit into its last batch, and leaves the rest. Until that is written
// too, the session has items that its head does not lead to: the head of these batches only reserves their numbers.
func (d *draft) writeAhead(ctx context.Context) (out cache.Outcome) {
	for {
		n := d.firstItems()
		if n == len(d.puts) {
			return cache.Outcome{}
		}
		reserved := d.e.state.head.clone(0)
		reserved.NextSeq = d.head.NextSeq
		puts := append(slices.Clone(d.puts[:n]), cache.Put{Name: headName, Data: reserved.appendTo(nil)})
		out = d.e.log.store.Commit(ctx, []cache.Batch{{
			Group: d.e.call.Scope.Group(), Expect: d.version, Puts: puts, Deletes: d.deletes, TTL: d.e.log.ttl, Listed: d.version == 0,
		}})[0]
		if out.Err != nil {
			return out
		}
		d.puts, d.deletes, d.version = d.puts[n:], nil, out.Version
	}
}

// firstItems is how many of the puts belong to the first items, as many as fit into a batch.
func (d *draft) firstItems() int {
	items := 0
	for i, p := range d.puts {
		if !strings.HasPrefix(p.Name, itemPrefix) {
			continue
		}
		if items++; items > maxBatchItems {
			return i
		}
	}
	return len(d.puts)
}

// retract takes back an input that was written behind a head which another turn has moved since. Only the input of a
// client that sends new items alone moves with the head; any other keeps its place.
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
	if e.plan.summary > 0 {
		at = d.storeAside(at)
	}
	if e.plan.claims && e.plan.standing == InConversation {
		d.putPlace(at)
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
		return at // it will not have to be taken back
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
	at = d.store(at, d.e.in.items[i], d.e.in.marks[i], flags, d.e.target())
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
				next = d.store(at, it, marks[c][i], flags, d.made)
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
			d.head.addTail(tail{Pos: at, Lead: d.e.in.lead, Line: d.line, Side: d.side()})
		}
	}
	switch {
	case a.Reply.ID == "":
	case d.e.call.Request.Dialect.Rules().Previous != "":
		d.putReply(a.Reply.ID, end)
	case d.e.last != "":
		d.reply = a.Reply.ID
	}
	return end
}

// putReply lets a later request go on from a response by its id.
func (d *draft) putReply(id string, end position) {
	d.reply = id
	d.puts = append(d.puts, cache.Put{Name: idName(replyPrefix, id), Data: place{Pos: end, Line: d.line, Side: d.side()}.encode()})
	if shown, ok := d.e.shownBlocks(); ok {
		d.puts = append(d.puts, cache.Put{Name: idName(shownPrefix, id), Data: shown.encode()})
	}
	if len(d.e.carry) > 0 {
		d.puts = append(d.puts, cache.Put{Name: idName(carryPrefix, id), Data: encodeCarried(d.e.call.Request.Dialect, d.e.carry)})
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
func (d *draft) store(at position, it wire.Item, m mark, flags byte, made Origin) position {
	if flags&flagSummary != 0 {
		m.onChain, m.units = false, 0
	}
	if !m.onChain {
		flags |= flagOffChain
	}
	if d.side() {
		flags |= flagSide
	}
	next := at.after(m)
	next.Seq = d.head.NextSeq
	d.head.NextSeq++
	item := storedItem{
		Parent: at.Seq, Pos: next, Content: m.content, Line: d.line, Flags: flags, Dialect: it.Dialect, Turn: d.e.id, Raw: it.Raw, Made: made,
	}
	d.puts = item.cut(d.puts)
	var name [len(itemPrefix) + 8]byte
	from := d.reserve(item.size() + placeBytes)
	d.data = item.appendTo(d.data)
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
	from := d.reserve(placeBytes)
	d.data = place{Pos: at, Line: d.line, Side: d.side()}.appendTo(d.data)
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

// referenceOf returns the reference to store for an item, if it has an id that can be referred to.
func referenceOf(it wire.Item) (name string, data []byte, ok bool) {
	if !it.Dialect.Rules().References || it.ID == "" || it.Kind == wire.Reference {
		return "", nil, false
	}
	ref := reference{Content: it.ContentHash(), Kind: it.Kind, Role: it.Role, Pair: it.Answers}
	if len(it.Calls) > 0 {
		ref.Pair = it.Calls[0]
	}
	return idName(idPrefix, it.ID), ref.encode(), true
}

// side reports whether the turn is a side request's.
func (d *draft) side() bool { return d.e.plan.standing == Side }

// moveHead makes end the head or, for a turn that is not the conversation's and for an input without an answer, one of the
// other ends.
func (d *draft) moveHead(end position, answer []wire.Item) {
	h, e := d.head, d.e
	extended := h.dropTail(e.plan.parent.Seq)
	asked := e.log.offers.of(e.call.Request)
	if len(answer) > 0 || d.unread {
		h.learn(e.call.Request.Dialect, asked.Client, e.plan.shown)
	}
	if e.plan.standing != InConversation || len(answer) == 0 && !d.unread || (e.late && h.LastTurn > e.id && !e.atHead) {
		d.leaveTail(end, &extended, answer)
		return
	}

	if !e.atHead {
		if h.Pos.Seq != 0 && h.Pos.Seq != end.Seq && !e.in.passes(h.Pos.Chain) {
			h.addTail(tail{Pos: h.Pos, Lead: h.Lead, Line: h.Line, Turns: h.Turns, Open: callHashes(h.Open)})
		}
		if h.Open = nil; h.Line != d.line {
			h.Turns = extended.Turns
		}
		for i := 0; i < e.from; i++ {
			h.noteCalls(e.in.items[i])
		}
		if e.place.before { // a repetition: the line before it is not in the request
			for i := 0; e.stored != nil && i < len(e.stored.items); i++ {
				h.noteCalls(e.stored.items[i])
			}
		}
	}

	h.Ring = h.Ring[:e.ringKept]
	h.Forked = end.Seq < e.state.head.NextSeq // an answer that was there already
	h.Pos, h.LastTurn, h.Answered, h.Turns = end, e.id, true, h.Turns+1
	h.Brings = h.Brings && h.Line == d.line || e.in.brings(len(e.in.items))
	h.Line, h.Waits, h.Offer = d.line, 0, asked
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

// leaveTail notes an end of the transcript that is not the head. extended is the end that the turn goes on from, zero for
// none that is known.
func (d *draft) leaveTail(end position, extended *tail, answer []wire.Item) {
	h, e := d.head, d.e
	if end.Seq == h.Pos.Seq || end.Seq == 0 {
		return
	}
	t := tail{Pos: end, Lead: e.in.lead, Line: d.line, Side: d.side(), Turns: extended.Turns}
	if len(answer) > 0 {
		t.Turns++
		if e.plan.standing == Alone {
			h.Waits++
		}
	}
	if e.plan.standing != InConversation {
		t.Open = e.openCalls(answer)
	}
	h.addTail(t)
	h.Forked = h.Forked || e.atHead && !d.open
}

// openCalls are the calls that a request which brings its own history leaves without results, with its answer.
func (e *Entry) openCalls(answer []wire.Item) []uint64 {
	var h head
	for _, list := range [...][]wire.Item{e.in.items, answer} {
		for i := range list {
			h.noteCalls(list[i])
		}
	}
	return callHashes(h.Open)
}

// callHashes are the latest of some calls, as ends other than the head remember them.
func callHashes(open []string) (hashes []uint64) {
	for _, key := range open[max(0, len(open)-maxTailCalls):] {
		hashes = append(hashes, textHash(key))
	}
	return hashes
}

// writeBuffer is the memory of what a commit writes. Stores copy it, but for what a large request writes: its writeBuffer is not used
// again.
type writeBuffer struct {
	puts []cache.Put
	data []byte // the block that the latest puts are in, one behind the other
	last bool   // no other commit uses it
}

var writeBuffers sync.Pool // of *writeBuffer

// maxWriteBuffer is the size in bytes of the largest writeBuffer that is kept for the next commit.
const maxWriteBuffer = 64 << 10

func newWriteBuffer() *writeBuffer {
	if s, ok := writeBuffers.Get().(*writeBuffer); ok {
		return s
	}
	return &writeBuffer{puts: make([]cache.Put, 0, 16), data: make([]byte, 0, 4096)}
}

// release gives the writeBuffer back when the draft is written.
func (d *draft) release() {
	s := d.writeBuffer
	d.writeBuffer = nil
	if s.last || cap(s.data) > maxWriteBuffer || cap(s.puts) > maxWriteBuffer/64 {
		return
	}
	clear(s.puts)
	s.puts, s.data = s.puts[:0], s.data[:0]
	writeBuffers.Put(s)
}

// maxBlock is the size in bytes of a writeBuffer's blocks, but for one with a value that is larger.
const maxBlock = 256 << 10

// reserve makes room for n more bytes, which begin where it says. What was written before stays where it is: copies of it,
// in blocks of growing size, would be held until all is written.
func (s *writeBuffer) reserve(n int) (from int) {
	if cap(s.data)-len(s.data) < n {
		s.data = make([]byte, 0, max(n, min(2*cap(s.data), maxBlock)))
	}
	return len(s.data)
}

// makeRoom prepares the draft for an input of so many new items, and for an answer of one.
func (d *draft) makeRoom(items []wire.Item) {
	const puts = 3 // of an item: itself, its place, and where its text was said last
	n := 0
	for i := range items {
		n += min(len(items[i].Raw), compressAbove) + itemBytes + placeBytes
	}
	d.reserve(n)
	d.puts = slices.Grow(d.puts, puts*len(items))
	d.names.Grow(namesSize * max(1, len(items)))
}

// namesSize is the size of the names of a turn with one new item and one answer, in bytes.
const namesSize = 96

// name makes the name of a value. Names of a draft share memory.
func (d *draft) name(prefix string, rest []byte) string {
	from := d.names.Len()
	d.names.WriteString(prefix)
	d.names.Write(rest)
	return d.names.String()[from:]
}

// value returns the part of data from an offset on.
func (d *draft) value(from int) []byte { return d.data[from:len(d.data):len(d.data)] }
