package session

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// draft is the content of one commit of a turn: a batch for its session and, for a Responses answer, one that finds the
// session by the response's id.
type draft struct {
	e *Entry
	itemWriter
	open    bool        // the answer is pending
	answer  []wire.Item // its first choice
	unread  bool        // it has no items, but its question stays
	later   bool        // upstream makes it in the background
	asked   offer       // what the request offers
	target  Origin      // of the request's items
	made    Origin      // of the answer and its hidden items
	version uint64      // the expected version of the session

	deletes []string
	input   position // the end of the input
	stored  []string // names of the input's values, while the answer is pending
	added   []uint64 // sequence numbers of its items
	output  [][]uint64
	reply   string // id of an answer to find the session by
	hidden  hiddenWrite
	blocks  []turnrecord.BlockRef // of the turn

	addedRoom  [roomFor]uint64
	outputRoom [1][]uint64
	seqRoom    [4]uint64
}

// newDraft makes the commit of a turn's input and, unless it is pending, its answer.
func newDraft(e *Entry, a *Answer) *draft {
	d := &draft{
		e: e, open: a == nil, answer: a.firstChoice(), version: e.state.version,
		asked: e.log.offers.of(e.call.Request), target: e.call.target(), made: e.call.maker(a),
	}
	d.itemWriter = itemWriter{
		writeBuffer: newWriteBuffer(), head: e.state.head.clone(len(e.in.items) - e.ring.from + len(d.answer)),
		turn: e.id, line: e.unwritten.line, side: e.plan.standing == Side, known: e.known,
	}
	d.added, d.output = d.addedRoom[:0], d.outputRoom[:0]
	d.hidden.of = &e.Notes.hidden
	d.grow(e.in.items[e.unwritten.fresh:])
	d.head.NextSeq = cmp.Or(d.head.NextSeq, 1)
	if d.line == 0 {
		d.head.Lines++
		d.line = d.head.Lines
	}
	if d.head.Line == 0 && e.plan.standing == InConversation {
		d.head.Line = d.line
	}

	if a != nil {
		d.unread, d.later = len(d.answer) == 0 && a.staysUnread(), a.Later
		e.Notes.hidden.limit(len(e.in.items) + len(d.answer))
	}
	d.retract()
	d.input = d.storeInput()
	end := d.input
	if a != nil {
		end = d.storeAnswer(a)
	}
	d.moveHead(end)
	d.putSystemPrompt()
	d.amend()
	d.blocks = putBlocks(d.writeBuffer, d.head, e.Notes.Blocks)
	if e.Order.update(d.head, d.open) {
		d.deletes = append(slices.Clip(d.deletes), journalPrefix+e.id)
	}

	record := d.record(a)
	from := d.reserve(record.Size())
	d.data = record.AppendTo(d.data)
	d.put(turnPrefix+e.id, d.value(from))
	from = d.reserve(d.head.size())
	d.data = d.head.appendTo(d.data)
	d.put(headName, d.value(from))
	d.last = len(e.call.Request.Body) >= largeRequest
	for i := range d.puts {
		d.puts[i].Lasting = d.last
	}
	return d
}

func (d *draft) batches() []cache.Batch {
	ttl := d.e.log.ttl
	session := cache.Batch{
		Group: d.e.stored.group, Expect: d.version,
		Puts: d.puts, Deletes: d.deletes, TTL: ttl, Listed: d.version == 0,
	}
	if d.reply == "" {
		return []cache.Batch{session}
	}
	known := []cache.Put{{Name: sessionName, Data: []byte(d.e.call.Scope.Session)}}
	if d.e.Notes.LastID != "" {
		known = append(known, cache.Put{Name: lastName, Data: []byte(d.e.Notes.LastID)})
	}
	if d.later {
		known = append(known, cache.Put{Name: lateName, Data: []byte(d.e.id)})
	}
	return []cache.Batch{session, {
		Group: ResponseGroup(d.e.call.Scope.Tenant, d.reply), Expect: cache.AnyVersion, TTL: ttl, Puts: known,
	}}
}

// write commits a draft, with p unless the answer is pending.
func (d *draft) write(ctx context.Context, p Puts) (cache.Outcome, []cache.Outcome) {
	if out := d.writeAhead(ctx); out.Err != nil {
		return out, nil
	}
	batches := d.batches()
	entries := d.e.log.Index.batches(d.e.call.Scope, d.version == 0, d.e.started)
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
		d.e.log.Index.written(d.e.call.Scope, d.e.started)
	}
	return out[0], out[own:]
}

// maxBatchItems is the maximum number of items in one batch, so that a large request does not block the store.
const maxBatchItems = 4096

// writeAhead writes the items of a very long turn that do not fit into its last batch. Until the last batch is written, the
// head does not lead to these items: the heads of these batches only reserve their numbers.
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
			Group: d.e.stored.group, Expect: d.version, Puts: puts, Deletes: d.deletes, TTL: d.e.log.ttl, Listed: d.version == 0,
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

// retract deletes an input that was written in another place than the request has now: behind a head that another turn has moved
// since, or before the client resent it with its answer.
func (d *draft) retract() {
	if !d.e.moved {
		return
	}
	j := d.e.journaled
	d.head.Tails.drop(j.end.Seq)
	d.hidden.anew = true
	d.deletes = j.names // a batch deletes before it writes, so rewritten names stay
}

// storeInput writes the request's new items and returns the position behind them.
func (d *draft) storeInput() position {
	e, at := d.e, d.e.unwritten.parent
	if e.unwritten.summary > 0 {
		at = d.storeSummary(at)
	}
	if e.plan.claims && e.plan.standing == InConversation {
		d.putPosition(at)
	}
	before := len(d.puts)
	at = d.storeHidden(at, e.unwritten.fresh, e.unwritten.fresh > 0 && e.ring.seqs[e.unwritten.fresh-1] != 0)
	var skipped []int // off-chain items that wait for the item they lead to
	for i := e.unwritten.fresh; i < len(e.in.items); i++ {
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
		return at // it will not be retracted
	}
	d.stored = make([]string, 0, len(d.puts)-before)
	for _, p := range d.puts[before:] {
		if !strings.HasPrefix(p.Name, mediaPrefix) && !strings.HasPrefix(p.Name, textPrefix) { // other items may share it
			d.stored = append(d.stored, p.Name)
		}
	}
	return at
}

func (d *draft) storeInputItem(at position, i int, flags itemFlags) position {
	at = d.store(at, d.e.in.items[i], d.e.in.marks[i], flags, d.target)
	d.e.ring.seqs[i] = at.Seq
	d.added = append(d.added, at.Seq)
	return at
}

// storeSummary writes the client's own summary before the history that it trimmed, and returns the position behind it. Items of
// an earlier summary are not written again: agents that blank the results of old calls extend it every time.
func (d *draft) storeSummary(at position) position {
	var sum wire.Hash
	known := 0
	for i, m := range d.e.in.marks[:d.e.unwritten.summary] {
		if sum = wire.Chain(sum, m.content); sum == d.head.Summary {
			known = i + 1
		}
	}
	d.head.Summary = sum
	for i := known; i < d.e.unwritten.summary; i++ {
		at = d.storeInputItem(at, i, flagSummary|flagOffChain)
	}
	return at
}

// storeHidden writes the items hidden after a number of visible ones, unless the log has them, and returns the position behind
// them. If the visible item belongs to this turn, the chain continues from that position, so that later items follow the hidden
// ones.
func (d *draft) storeHidden(at position, behind int, own bool) position {
	var last position // behind the hidden items that are always shown
	for i := range d.hidden.of.list {
		if !d.hidden.waits(i, behind) {
			continue
		}
		h := &d.hidden.of.list[i]
		if d.hidden.seqs == nil {
			d.hidden.seqs = make(map[int][]uint64)
		}
		for _, it := range h.parsed {
			at = d.store(at, it, mark{content: d.e.in.hashes.meaning(it).Content}, flagHidden, d.hiddenMade())
			d.hidden.seqs[i] = append(d.hidden.seqs[i], at.Seq)
		}
		if !h.Led {
			last = at
		}
	}
	if own && last.Seq != 0 {
		d.putPosition(last)
	}
	return at
}

// hiddenMade returns the origin of hidden items: their answers were complete, even if the last one was not.
func (d *draft) hiddenMade() Origin {
	made := d.made
	made.Kept = d.target.Kept
	return made
}

// storeAnswer writes the answer, one branch per choice, and returns the position behind the first choice.
func (d *draft) storeAnswer(a *Answer) position {
	end := d.input
	var flags itemFlags
	if a.status() != turnrecord.Complete {
		flags = flagPartial
	}
	marks, demanded := d.e.answer.of(a, d.e.in), d.asked.demandsCall()
	for c, items := range a.Reply.Choices {
		at := d.input
		seqs := d.seqRoom[:0]
		if c > 0 || len(items) > len(d.seqRoom) {
			seqs = make([]uint64, 0, len(items))
		}
		for i, it := range items {
			next, ok := d.knownAfter(at, marks[c][i])
			if !ok {
				flags := flags
				if demanded && it.HasCalls() {
					flags |= flagData
				}
				next = d.store(at, it, marks[c][i], flags, d.made)
			}
			at, seqs = next, append(seqs, next.Seq)
			if c == 0 {
				at = d.storeHidden(at, len(d.e.in.items)+i+1, !ok && marks[c][i].onChain)
			}
			d.putReference(it)
		}
		d.output = append(d.output, seqs)
		if c == 0 {
			end = at
		} else {
			d.head.Tails.add(tail{Pos: at, SystemPrompt: d.e.in.systemPrompt, Line: d.line, Side: d.side})
		}
	}
	switch {
	case a.Reply.ID == "":
	case d.e.call.Request.Dialect.Rules().Previous != "":
		d.putReply(a.Reply.ID, end)
	case d.e.Notes.LastID != "":
		d.reply = a.Reply.ID
	}
	return end
}

// putReply indexes a response by its id, so that a later request can continue it.
func (d *draft) putReply(id string, end position) {
	d.reply = id
	d.put(idName(replyPrefix, id), linePosition{Pos: end, Line: d.line, Side: d.side}.encode())
	var shown shownBlocks
	if d.e.in.stateful || d.e.in.unresolved() {
		shown = d.e.state.shown
	}
	if shown = shown.with(d.e.Notes.Blocks); len(shown) > 0 || len(d.e.state.head.Blocks) > 0 {
		d.put(idName(shownPrefix, id), shown.encode())
	}
	if carried := d.e.Notes.carried; len(carried) > 0 {
		d.put(idName(carryPrefix, id), encodeCarried(d.e.call.Request.Dialect, carried))
	}
}

// moveHead makes end the head or, for a turn that is not the conversation's and for an input without an answer, one of the
// other ends.
func (d *draft) moveHead(end position) {
	h, e := d.head, d.e
	extended := h.Tails.drop(e.unwritten.parent.Seq)
	if len(d.answer) > 0 || d.unread {
		h.Habits = h.Habits.learn(e.call.Request.Dialect, d.asked.Client, e.plan.shown)
	}
	if e.resent {
		return // it stands inside the line of the client's later request
	}
	if e.plan.standing != InConversation || len(d.answer) == 0 && !d.unread || (e.Order.resumed && h.LastTurn > e.id && !e.atHead) {
		d.leaveTail(end, &extended)
		return
	}

	if !e.atHead {
		if h.Pos.Seq != 0 && h.Pos.Seq != end.Seq && !e.in.passes(h.Pos.Chain) {
			h.Tails.add(tail{Pos: h.Pos, SystemPrompt: h.SystemPrompt, Line: h.Line, Turns: h.Turns, Open: h.Open.hashes()})
		}
		if h.Open = nil; h.Line != d.line {
			h.Turns = extended.Turns
		}
		for i := 0; i < e.ring.from; i++ {
			h.Open.note(e.in.items[i])
		}
		if e.plan.before { // a repetition: the line before it is not in the request
			for i := 0; e.History.before != nil && i < len(e.History.before.items); i++ {
				h.Open.note(e.History.before.items[i])
			}
		}
	}

	if e.atHead && h.Offer.demandsCall() && !slices.ContainsFunc(e.NewItems(), func(it wire.Item) bool { return it.Kind == wire.ToolResult }) {
		h.Open = nil // the calls were data: no results come
	}
	h.Ring = h.Ring[:e.ring.keep]
	h.Forked = end.Seq < e.state.head.NextSeq // the answer was already stored
	h.Pos, h.LastTurn, h.Answered, h.Turns = end, e.id, true, h.Turns+1
	h.Brings = h.Brings && h.Line == d.line || e.in.bringsHistory()
	h.Line, h.Waits, h.Offer = d.line, 0, d.asked
	if e.plan.before {
		h.begun(e.begins())
	}
	h.Run = e.run()
	if e.in.hasSystemPrompt {
		h.SystemPrompt = e.in.systemPrompt
	}
	for i := e.ring.from; i < len(e.in.items); i++ {
		h.remember(e.in.items[i], e.in.marks[i], e.ring.seqs[i])
	}
	for i, it := range d.answer {
		h.remember(it, e.answer.choices[0][i], d.output[0][i])
	}
}

// leaveTail adds an end of the transcript that is not the head. extended is the end that the turn continues, zero if unknown.
func (d *draft) leaveTail(end position, extended *tail) {
	h, e := d.head, d.e
	if end.Seq == h.Pos.Seq || end.Seq == 0 {
		return
	}
	t := tail{Pos: end, SystemPrompt: e.in.systemPrompt, Line: d.line, Side: d.side, Turns: extended.Turns}
	if len(d.answer) > 0 {
		t.Turns++
		if e.plan.standing == Alone {
			h.Waits++
		}
	}
	if e.plan.standing != InConversation {
		var open openCalls // calls without results in a request with its own history
		for _, list := range [...][]wire.Item{e.in.items, d.answer} {
			for i := range list {
				open.note(list[i])
			}
		}
		t.Open = open.hashes()
	}
	h.Tails.add(t)
	h.Forked = h.Forked || e.atHead && !d.open
}

// putSystemPrompt keeps the version of the system prompt that this turn used, unless it is the head's, which is kept.
func (d *draft) putSystemPrompt() {
	in := d.e.in
	if !in.hasSystemPrompt || in.systemPrompt == d.e.state.head.SystemPrompt {
		return
	}
	r := newSystemPromptRecord(in, d.e.call.Request)
	d.put(systemPromptName(in.systemPrompt), r.encode())
}

// amend writes the session's amendments if the turn changes them.
func (d *draft) amend() {
	var answer []mark
	if !d.open && len(d.e.answer.choices) > 0 {
		answer = d.e.answer.choices[0]
	}
	if d.hidden.amend(d.e.state.amendments, &d.e.Place, answer, d.hiddenMade()); d.hidden.amends {
		d.put(amendName, d.hidden.all.encode())
	}
}

// record returns the record of the turn in its present state.
func (d *draft) record(a *Answer) turnrecord.Record {
	e := d.e
	r := turnrecord.Record{
		ID: e.id, Time: e.started.UTC(), Status: turnrecord.Incomplete, Open: a == nil, Relation: string(e.plan.relation), Model: e.call.Request.Model(),
		Dialect: e.call.Request.Dialect.String(), Side: e.call.Side, Degraded: e.degraded || e.Order.partial,
		Parent: e.parent, Tip: d.input.Seq, Output: d.output, Execution: e.Execution(), Resource: e.call.Scope.Resource, ParentID: e.call.Scope.Parent,
		View: e.View.view, Hidden: d.hidden.allSeqs(), Blocks: d.blocks, Layers: e.Notes.Layers,
	}
	r.Rule = string(e.plan.rule)
	switch {
	case e.plan.standing == Alone:
		r.Alone = true
	case e.plan.standing != Side || r.Side != "":
	case e.plan.helper != "":
		r.Side = e.plan.helper
	default:
		r.Side = "unrelated"
	}
	d.chainEmpty(&r)
	r.SystemPrompt = e.in.systemPromptHex
	if r.Input = d.added; len(r.Input) == 0 && !e.moved {
		r.Input = e.journaled.seqs
	}
	if a == nil {
		return r
	}
	r.Cut, r.ResponseID = a.Aborted.String(), a.Reply.ID
	a.describe(&r)
	return r
}

// chainEmpty puts a turn without stored items at the front of the linked list of such turns, unless it is in the list. If it is
// the last of the list, that is not known, but nothing is lost: there is no turn after it.
func (d *draft) chainEmpty(r *turnrecord.Record) {
	e := d.e
	r.Before = e.before
	stored := d.head.NextSeq > max(e.state.head.NextSeq, 1) || len(e.journaled.names) > 0 && !d.hidden.anew
	if !stored && e.before == "" && d.head.LastEmpty != e.id {
		r.Before, d.head.LastEmpty = d.head.LastEmpty, e.id
	}
}
