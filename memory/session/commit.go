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

// turnCommit is the content of one commit of a turn: a batch for its session and, for a Responses answer, one that finds the
// session by the response's id.
type turnCommit struct {
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
	parked  bool     // a record of the turn waited
	input   position // the end of the input
	stored  []string // names of the input's values, while the answer is pending
	added   []uint64 // sequence numbers of its items
	output  [][]uint64
	reply   string // id of an answer to find the session by
	hidden  hiddenWrite
	blocks  []turnrecord.BlockRef // of the turn
}

// newTurnCommit makes the commit of a turn's input and, unless it is pending, its answer.
func newTurnCommit(e *Entry, a *Answer) turnCommit {
	c := turnCommit{
		e: e, open: a == nil, answer: a.firstChoice(), version: e.state.version,
		asked: e.log.offers.of(e.call.Request), target: e.call.target(), made: e.call.maker(a),
	}
	c.itemWriter = itemWriter{
		// An item is itself, its place, and where its text was said last; then come the system prompt, the record and the head.
		puts: make([]cache.Put, 0, 3*(len(e.in.items)-e.unwritten.fresh)+2*len(c.answer)+3),
		head: e.state.head.clone(len(e.in.items) - e.ring.from + len(c.answer)),
		turn: e.id, line: e.unwritten.line, side: e.plan.standing == Side, known: e.known,
	}
	c.hidden.of = &e.Notes.hidden
	c.head.NextSeq = cmp.Or(c.head.NextSeq, 1)
	if c.line == 0 {
		c.head.Lines++
		c.line = c.head.Lines
	}
	if c.head.Line == 0 && e.plan.standing == InConversation {
		c.head.Line = c.line
	}

	if a != nil {
		c.unread, c.later = len(c.answer) == 0 && a.staysUnread(), a.Later
		e.Notes.hidden.limit(len(e.in.items) + len(c.answer))
	}
	c.retract()
	c.input = c.storeInput()
	end := c.input
	if a != nil {
		end = c.storeAnswer(a)
		c.putShown()
	}
	c.moveHead(end)
	c.putSystemPrompt()
	c.amend()
	c.blocks = putBlocks(&c.itemWriter, c.head, e.Notes.Blocks)
	c.parked = e.Order.update(c.head, c.open)

	record := c.record(a)
	c.put(turnPrefix+e.id, record.AppendTo(make([]byte, 0, record.Size())))
	c.put(headName, c.head.encode())
	return c
}

func (c *turnCommit) batches() []cache.Batch {
	ttl := c.e.log.ttl
	session := cache.Batch{
		Group: c.e.History.stored.group, Expect: c.version,
		Puts: c.take(len(c.puts)), Deletes: slices.Clip(c.deletes), TTL: ttl, Listed: c.e.state.head.isEmpty(),
	}
	if c.parked {
		session.Deletes = append(session.Deletes, journalPrefix+c.e.id)
	}
	if c.reply == "" {
		return []cache.Batch{session}
	}
	known := []cache.Put{{Name: sessionName, Data: []byte(c.e.call.Scope.Session)}}
	if c.e.Notes.LastID != "" {
		known = append(known, cache.Put{Name: lastName, Data: []byte(c.e.Notes.LastID)})
	}
	if c.made.Provider != "" {
		known = append(known, cache.Put{Name: atName, Data: []byte(c.made.Provider)})
	}
	if c.later {
		known = append(known, cache.Put{Name: lateName, Data: []byte(c.e.id)})
	}
	return []cache.Batch{session, {
		Group: ResponseGroup(c.e.call.Scope.Tenant, c.reply), Expect: cache.AnyVersion, TTL: ttl, Puts: known,
	}}
}

// write writes the commit, with p unless the answer is pending. Its error is that of the session.
func (c *turnCommit) write(ctx context.Context, p Puts) (done Done, err error) {
	if out := c.writeAhead(ctx); out.Err != nil {
		return Done{}, out.Err
	}
	batches := c.batches()
	entries := c.e.log.Index.batches(c.e.call.Scope, c.e.state.head.isEmpty(), c.e.started)
	batches = append(batches, entries...)
	own := len(batches)
	if !c.open {
		for _, v := range p.Values {
			if len(v.Data) == 0 {
				batches[0].Deletes = append(batches[0].Deletes, v.Name)
			} else {
				batches[0].Puts = append(batches[0].Puts, v)
			}
		}
		batches = append(batches, p.Others...)
	}
	out := c.e.log.store.Commit(ctx, batches)
	if len(entries) > 0 && out[own-2].Err == nil && out[own-1].Err == nil {
		c.e.log.Index.written(c.e.call.Scope, c.e.started)
	}
	done = Done{Version: out[0].Version, Others: out[own:]}
	for i, out := range out[1:own] {
		if out.Err != nil {
			done.Missed, done.Err = append(done.Missed, batches[1+i]), cmp.Or(done.Err, out.Err)
		}
	}
	return done, out[0].Err
}

// writeAhead writes the items of a very long turn that do not fit into its last batch. Until the last batch is written, the
// head does not lead to these items: the heads of these batches only reserve their numbers.
func (c *turnCommit) writeAhead(ctx context.Context) (out cache.Outcome) {
	for {
		n := c.nextBatch()
		if n == len(c.puts) {
			return cache.Outcome{}
		}
		reserved := c.e.state.head.clone(0)
		reserved.NextSeq = c.head.NextSeq
		if c.e.moved {
			reserved.Tails.drop(c.e.journaled.end.Seq) // see retract
		}
		items := c.take(n)
		puts := append(items, cache.Put{Name: headName, Data: reserved.encode()}) // a copy, as items has no room
		out = c.e.log.store.Commit(ctx, []cache.Batch{{
			Group: c.e.History.stored.group, Expect: c.version, Puts: puts, Deletes: c.deletes, TTL: c.e.log.ttl, Listed: c.e.state.head.isEmpty(),
		}})[0]
		if out.Err != nil {
			return out
		}
		clear(items) // frees their data
		c.deletes, c.version = nil, out.Version
	}
}

// retract deletes an input that was written in another place than the request has now: after a head that another turn has moved
// since, or before the client resent it with its answer.
func (c *turnCommit) retract() {
	if !c.e.moved {
		return
	}
	j := c.e.journaled
	c.head.Tails.drop(j.end.Seq)
	c.hidden.anew = true
	c.deletes = j.names // a batch deletes before it writes, so rewritten names stay
}

// storeInput writes the request's new items and returns the position after them.
func (c *turnCommit) storeInput() position {
	e, at := c.e, c.e.unwritten.parent
	if e.unwritten.summary > 0 {
		at = c.storeSummary(at)
	}
	if e.plan.claims && e.plan.standing == InConversation {
		c.putPosition(at)
	}
	before := len(c.puts)
	at = c.storeHidden(at, e.unwritten.fresh, e.unwritten.fresh > 0 && e.ring.seqs[e.unwritten.fresh-1] != 0)
	var skipped []int // off-chain items that wait for the item they lead to
	storeSkipped := func() {
		for _, i := range skipped {
			at = c.storeHidden(c.storeInputItem(at, i, 0), i+1, false)
		}
		skipped = nil
	}
	for i := e.unwritten.fresh; i < len(e.in.items); i++ {
		known, ok := c.knownAfter(at, e.in.marks[i])
		switch {
		case !e.in.marks[i].onChain:
			skipped = append(skipped, i)
		case ok:
			at, skipped = c.storeHidden(known, i+1, false), nil
		default:
			storeSkipped()
			at = c.storeHidden(c.storeInputItem(at, i, 0), i+1, true)
		}
	}
	storeSkipped()
	if !c.open {
		return at // it will not be retracted
	}
	c.stored = make([]string, 0, len(c.puts)-before)
	for _, p := range c.puts[before:] {
		if !strings.HasPrefix(p.Name, mediaPrefix) && !strings.HasPrefix(p.Name, textPrefix) { // other items may share it
			c.stored = append(c.stored, p.Name)
		}
	}
	return at
}

func (c *turnCommit) storeInputItem(at position, i int, flags itemFlags) position {
	at = c.store(at, c.e.in.items[i], c.e.in.marks[i], flags, c.target)
	c.e.ring.seqs[i] = at.Seq
	c.added = append(c.added, at.Seq)
	return at
}

// storeSummary writes the client's own summary before the history that it trimmed, and returns the position after it. Items of
// an earlier summary are not written again: agents that blank the results of old calls extend it every time.
func (c *turnCommit) storeSummary(at position) position {
	var sum wire.Hash
	known := 0
	for i, m := range c.e.in.marks[:c.e.unwritten.summary] {
		if sum = wire.Chain(sum, m.Content); sum == c.head.Summary {
			known = i + 1
		}
	}
	c.head.Summary = sum
	for i := known; i < c.e.unwritten.summary; i++ {
		at = c.storeInputItem(at, i, flagSummary)
	}
	return at
}

// storeHidden writes the items hidden after a number of visible ones, unless the log has them, and returns the position after
// them. If the visible item belongs to this turn, the chain continues from that position, so that later items follow the hidden
// ones.
func (c *turnCommit) storeHidden(at position, after int, own bool) position {
	var last position // after the hidden items that are always shown
	for i := range c.hidden.of.list {
		if !c.hidden.mustWrite(i, after) {
			continue
		}
		h := &c.hidden.of.list[i]
		if c.hidden.seqs == nil {
			c.hidden.seqs = make(map[int][]uint64)
		}
		for _, it := range h.parsed {
			at = c.store(at, it, mark{Meaning: c.e.in.hashes.meaning(it)}, flagHidden, c.hiddenMade())
			c.hidden.seqs[i] = append(c.hidden.seqs[i], at.Seq)
		}
		if !h.Led {
			last = at
		}
	}
	if own && last.Seq != 0 {
		c.putPosition(last)
	}
	return at
}

// hiddenMade returns the origin of hidden items: their answers were complete, even if the last one was not.
func (c *turnCommit) hiddenMade() Origin {
	made := c.made
	made.Kept = c.target.Kept
	return made
}

// storeAnswer writes the answer, one branch per choice, and returns the position after the first choice.
func (c *turnCommit) storeAnswer(a *Answer) position {
	end := c.input
	var flags itemFlags
	if a.status() != turnrecord.Complete {
		flags = flagPartial
	}
	marks, demanded := c.e.answer.of(a, c.e.in), c.asked.demandsCall()
	for choice, items := range a.Reply.Choices {
		at := c.input
		seqs := make([]uint64, 0, len(items))
		for i, it := range items {
			next, ok := c.knownAfter(at, marks[choice][i])
			if !ok {
				flags := flags
				if demanded && it.HasCalls() {
					flags |= flagData
				}
				next = c.store(at, it, marks[choice][i], flags, c.made)
			}
			if name, data, ok := referenceOf(it, next.Seq, c.made.Provider); ok {
				c.put(name, data)
			}
			at, seqs = next, append(seqs, next.Seq)
			if choice == 0 {
				at = c.storeHidden(at, len(c.e.in.items)+i+1, !ok && marks[choice][i].onChain)
			}
		}
		c.output = append(c.output, seqs)
		if choice == 0 {
			end = at
		} else {
			c.head.Tails.add(tail{Pos: at, SystemPrompt: c.e.in.systemPrompt, Line: c.line, Side: c.side})
		}
	}
	switch {
	case a.Reply.ID == "":
	case c.e.call.Request.Dialect.Rules().Previous != "":
		c.reply = a.Reply.ID
		c.put(idName(replyPrefix, c.reply), encode(&replyPosition{linePosition{Pos: end, Line: c.line, Side: c.side}, c.made.Provider}))
	case c.e.Notes.LastID != "", c.e.call.Request.KeptByID():
		c.reply = a.Reply.ID
	}
	return end
}

// putShown stores, by the id of the response, the layers' latest blocks as of it and the items that upstream has not seen, so
// that a later request can continue it.
func (c *turnCommit) putShown() {
	id := c.reply
	if id == "" || c.e.call.Request.Dialect.Rules().Previous == "" {
		return
	}
	var shown shownBlocks
	if c.e.in.stateful || c.e.in.unresolved() {
		shown = c.e.state.shown
	}
	if shown = shown.with(c.e.Notes.Blocks); len(shown) > 0 || len(c.e.state.head.Blocks) > 0 {
		c.put(idName(shownPrefix, id), encode(shown))
	}
	if carried := c.e.Notes.carried; len(carried) > 0 {
		c.put(idName(carryPrefix, id), encodeCarried(c.e.call.Request.Dialect, carried))
	}
}

// moveHead makes end the head or, for a turn that is not the conversation's and for an input without an answer, one of the
// other ends.
func (c *turnCommit) moveHead(end position) {
	h, e := c.head, c.e
	if e.plan.standing == Alone && len(c.answer) > 0 {
		h.countApart(c.line)
	}
	extended := h.Tails.drop(e.unwritten.parent.Seq)
	answered := len(c.answer) > 0 || c.unread
	if answered {
		h.Habits = h.Habits.learn(e.call.Request.Dialect, c.asked.Client, e.plan.shown)
	}
	if e.resent {
		return // it stands inside the line of the client's later request
	}
	overtaken := e.Order.Resumed && h.LastTurn > e.id && !e.atHead
	if e.plan.standing != InConversation || !answered || overtaken {
		c.leaveTail(end, &extended)
		return
	}

	if !e.atHead {
		if h.Pos.Seq != 0 && h.Pos.Seq != end.Seq && !e.in.passes(h.Pos.Chain) {
			h.Tails.add(tail{Pos: h.Pos, SystemPrompt: h.SystemPrompt, Line: h.Line, Turns: h.Turns, Open: h.Open.hashes()})
		}
		if h.Open = nil; h.Line != c.line {
			h.Turns = extended.Turns
		}
		for _, it := range e.in.items[:e.ring.from] {
			h.Open.note(it)
		}
		if e.plan.before && e.History.preceding != nil { // a repetition: the line before it is not in the request
			for _, it := range e.History.preceding.items {
				h.Open.note(it)
			}
		}
	}

	if e.atHead && h.Offer.demandsCall() && !slices.ContainsFunc(e.NewItems(), func(it wire.Item) bool { return it.Kind == wire.ToolResult }) {
		h.Open = nil // the calls were data: no results come
	}
	h.Ring = h.Ring[:e.ring.keep]
	h.Forked = end.Seq < e.state.head.NextSeq // the answer was already stored
	h.Pos, h.LastTurn, h.Answered, h.Turns = end, e.id, true, h.Turns+1
	h.SentHistory = h.SentHistory && h.Line == c.line || e.in.hasHistory()
	h.Line, h.TurnsApart, h.Offer = c.line, 0, c.asked
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
	for i, it := range c.answer {
		h.remember(it, e.answer[0][i], c.output[0][i])
	}
}

// leaveTail adds an end of the transcript that is not the head. extended is the end that the turn continues, zero if unknown.
func (c *turnCommit) leaveTail(end position, extended *tail) {
	h, e := c.head, c.e
	if end.Seq == h.Pos.Seq || end.Seq == 0 {
		return
	}
	t := tail{Pos: end, SystemPrompt: e.in.systemPrompt, Line: c.line, Side: c.side, Turns: extended.Turns}
	if len(c.answer) > 0 {
		t.Turns++
	}
	if e.plan.standing != InConversation {
		var open openCalls // calls without results in a request with its own history
		for _, it := range slices.Concat(e.in.items, c.answer) {
			open.note(it)
		}
		t.Open = open.hashes()
	}
	h.Tails.add(t)
	h.Forked = h.Forked || e.atHead && !c.open
}

// putSystemPrompt keeps the version of the system prompt that this turn used, unless it is the head's, which is kept.
func (c *turnCommit) putSystemPrompt() {
	in := c.e.in
	if !in.hasSystemPrompt || in.systemPrompt == c.e.state.head.SystemPrompt {
		return
	}
	r := newSystemPromptRecord(in, c.e.call.Request)
	c.put(systemPromptName(in.systemPrompt), r.encode())
}

// amend writes the session's amendments if the turn changes them.
func (c *turnCommit) amend() {
	var answer []mark
	if !c.open && len(c.e.answer) > 0 {
		answer = c.e.answer[0]
	}
	if c.hidden.amend(c.e.state.amendments, &c.e.Place, answer, c.hiddenMade()); c.hidden.amends {
		all := c.hidden.all // not the commit, which would leave the stack
		c.put(amendName, encode(&all))
	}
}

// record returns the record of the turn in its present state.
func (c *turnCommit) record(a *Answer) turnrecord.Record {
	e := c.e
	r := turnrecord.Record{
		ID: e.id, Time: e.started.UTC(), Status: turnrecord.Incomplete, Open: a == nil, Relation: string(e.plan.relation), Model: e.call.Request.Model(),
		Dialect: e.call.Request.Dialect.String(), Side: e.call.Side, Degraded: e.Order.Partial,
		Parent: e.parent, Tip: c.input.Seq, Output: c.output, Execution: e.Execution(), Resource: e.call.Scope.Resource, ParentID: e.call.Scope.Parent,
		View: e.View.Save(), Hidden: c.hidden.allSeqs(), Blocks: c.blocks, Layers: e.Notes.Layers,
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
	c.chainEmpty(&r)
	r.SystemPrompt = e.in.systemPromptHex
	if r.Input = c.added; len(r.Input) == 0 && e.journaled != nil && !e.moved {
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
func (c *turnCommit) chainEmpty(r *turnrecord.Record) {
	e := c.e
	r.Before = e.emptyBefore
	stored := c.head.NextSeq > max(e.state.head.NextSeq, 1) || e.journaled != nil && !c.hidden.anew
	if !stored && e.emptyBefore == "" && c.head.LastEmpty != e.id {
		r.Before, c.head.LastEmpty = c.head.LastEmpty, e.id
	}
}
