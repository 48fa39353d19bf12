package session

import (
	"cmp"
	"context"
	"slices"

	"remora/wire"
)

// Standing is how a request relates to the conversation of its session.
type Standing uint8

const (
	// Undecided means that the place of the request was not looked for yet.
	Undecided Standing = iota
	// InConversation is a request of the conversation: its answer becomes the head.
	InConversation
	// Alone is a request with a history that the transcript does not know: nothing is put before it, layers serve it as usual,
	// and the conversation does not move until a later request continues this one.
	Alone
	// Side is a request about the conversation, such as one for a title: alone, and without layers.
	Side
)

// rule is the name of the rule that placed a request. Turn records have it, to explain the placement; docs/sessions.md
// describes each.
type rule string

const (
	ruleFirst      rule = "first"             // the session has no answer yet
	ruleDeclared   rule = "declared"          // the client declares the kind of request
	ruleUpstream   rule = "upstream"          // upstream itself stores the history
	ruleElsewhere  rule = "other_provider"    // another provider stores the history
	ruleEmpty      rule = "nothing_asked"     // instructions without an item
	ruleKnown      rule = "known_history"     // it has items of the transcript
	ruleHelper     rule = "helper_prompt"     // it asks for a title, tags, a summary, ...
	ruleRun        rule = "run"               // it continues a run that began with the stored history before it
	ruleOwnHistory rule = "own_history"       // it has answers since the beginning of such a run
	ruleCompacted  rule = "compacted"         // it has a compaction of the transcript, and nothing else of a model
	ruleForeign    rule = "foreign_answer"    // it has answers that were not given here
	ruleResults    rule = "results"           // it has results without their calls
	ruleRepeated   rule = "results_repeated"  // the same results as before: a retry
	ruleRetried    rule = "retried"           // the client marks it as a retry, or its answer broke off
	ruleExtended   rule = "extended"          // it is the last message, with the answer inserted
	ruleOnlyNew    rule = "only_new"          // its client sends only what is new
	ruleWorks      rule = "works_on_a_call"   // it asks in the words of a call that the conversation waits for
	ruleWaits      rule = "head_waits"        // the conversation waits for results, and this has none
	ruleQuotes     rule = "quotes_an_answer"  // a user message quotes an answer
	ruleSigns      rule = "helper_signs"      // its client resends its history, and this looks like a helper's request
	ruleNewHistory rule = "history_replaced"  // its client resends its history, and this is another one
	ruleTitleFirst rule = "after_a_helper"    // the session began with a helper's request, and this is the conversation
	ruleUnknown    rule = "taken_as_only_new" // the client is unknown
	ruleBehind     rule = "behind_another"    // it began with the session, and another request was answered first
)

// plan is where a request's items go in the transcript: its match, and what was decided about it.
type plan struct {
	match
	rule     rule     // why they go there; empty where no rule applies
	standing Standing // of the request to the conversation
	helper   string   // what the helper's request is that it was taken for, empty for another
	shown    evidence // what it shows of its client's habit
	claims   bool     // the place that it begins after belongs to its line from now on
	before   bool     // the stored history goes before the request's items
}

// placement finds the place of one request: it decides by rules, from the matches that the merger finds.
type placement struct {
	merge  merger
	st     *state
	head   *head
	in     *incoming
	call   *Call
	mode   History // the call's, or another where the place is found again: see Place.Mode
	offers *offers
	// written: the request's own items are in the transcript, since its answer has taken long.
	written bool

	asked  offer
	hasAsk bool
	begins *match // the beginning that the request has in common with the transcript, where that proves nothing; else nil
}

// find finds the place of the request. What would go after the stored history may have been said before.
func (q *placement) find(ctx context.Context) (plan, error) {
	p, err := q.byRules(ctx)
	if err != nil || p.relation != relDelta || q.in.elsewhere {
		return p, err
	}
	if m, err := q.merge.extension(ctx); err != nil || m.found() {
		extended := withHistory(m, ruleExtended)
		extended.shown = p.shown
		return extended, err
	}
	retry := q.in.answersAgain(q.head) || q.call.Retry
	if !retry && (q.written || !q.in.mayAskAgain(q.head)) {
		return p, nil // a question that is written stays beside the same one of another turn
	}
	m, err := q.merge.repetition(ctx, !retry)
	if err != nil || !m.found() {
		return p, err
	}
	if p = withHistory(m, ruleRepeated); !q.in.answers() {
		p.rule = ruleRetried
	}
	return p, nil
}

// byRules decides by the first rule that applies. If the order makes no difference, rules that need only the head come before
// those that read the index.
func (q *placement) byRules(ctx context.Context) (plan, error) {
	for _, decide := range [...]func(*placement, context.Context) (plan, error){
		byHead((*placement).first),
		byHead((*placement).upstream),
		byHead((*placement).elsewhere),
		(*placement).server,
		byHead((*placement).empty),
		(*placement).continues,
		(*placement).helper,
		byHead((*placement).results),
		(*placement).guard,
		(*placement).handedOff,
		(*placement).step,
		(*placement).works,
		byHead((*placement).onlyNew),
		byHead((*placement).run),
		(*placement).known,
		(*placement).ownHistory,
		byHead((*placement).declared),
		byHead((*placement).unanswered),
		byHead((*placement).compacted),
		byHead((*placement).foreign),
		byHead((*placement).withoutTools),
		byHead((*placement).waits),
		(*placement).quotes,
		byHead((*placement).replaced),
		(*placement).titleFirst,
		byHead((*placement).unknown),
	} {
		p, err := decide(q, ctx)
		if err != nil {
			return plan{}, err
		}
		if p.rule == "" {
			continue
		}
		if q.call.Side != "" {
			p = p.asSide()
		}
		return p, nil
	}
	panic("BUG: no rule places a request") // the last one places all
}

// byHead is a rule that needs only the head and the request.
func byHead(decide func(*placement) plan) func(*placement, context.Context) (plan, error) {
	return func(q *placement, _ context.Context) (plan, error) { return decide(q), nil }
}

// onHead places a request that continues the head, as this process wrote it last, with only user messages and results. It needs no
// reading. The plan is empty for other requests.
func (q *placement) onHead() plan {
	m := q.merge.ends()
	if q.in.stateful || m.relation != relContinue || m.parent != q.head.Pos {
		return plan{} // upstream knows the place of a stateful request; the others do not continue the head
	}
	if slices.ContainsFunc(q.in.items[m.fresh:], func(it wire.Item) bool { return !landmark(it) }) {
		return plan{} // an answer from elsewhere
	}
	p := plan{match: m, rule: ruleKnown, standing: InConversation}
	if q.in.resends() {
		p.shown = resends
	}
	return p
}

// mayPrecede reports whether the stored history can be put before the request without being asked for.
func (q *placement) mayPrecede() bool {
	return q.mode == HistoryAuto && q.call.Side == "" && q.head.Answered
}

// offer returns the request's offer, computed once.
func (q *placement) offer() offer {
	if !q.hasAsk {
		q.asked, q.hasAsk = q.offers.of(q.call.Request), true
	}
	return q.asked
}

// habit returns the known habit of the request's client. A client that was taken for one of new items while nothing was known, such as
// a classifier before each turn, is no longer if the conversation's client resends, and the request looks like a helper's.
func (q *placement) habit() evidence {
	if q.call.Resends {
		return resends
	}
	habits, d := q.head.Habits, q.call.Request.Dialect
	known := habits.of(d, q.offer().Client)
	if known == onlyNew && habits.of(d, q.head.Offer.Client) == resends && q.helperSigns() >= minHelperSigns {
		return resends
	}
	return known
}

// first begins the session.
func (q *placement) first() plan {
	if q.head.NextSeq != 0 {
		return plan{}
	}
	if kind := helperPrompt(q.call.Request, q.in); kind != "" && q.call.Side == "" && !q.in.stateful && q.mode != HistoryServer {
		return plan{match: match{relation: relRoot}, rule: ruleHelper, standing: Side, helper: kind}
	}
	return plan{match: match{relation: relRoot}, rule: ruleFirst, standing: InConversation}
}

// upstream goes after the response that the request names: upstream knows the earlier items.
func (q *placement) upstream() plan {
	if !q.in.stateful {
		return plan{}
	}
	p := plan{match: match{relation: relUpstream, parent: q.head.Pos, line: q.head.Line}, rule: ruleUpstream, standing: InConversation}
	if at := q.st.reply; at != nil {
		p.parent, p.line = at.Pos, at.Line
		if at.Line != q.head.Line && at.Side {
			p.standing = Side
		}
	}
	return p
}

// elsewhere puts the history up to the response that the request names before it: the provider that it goes to does not have that.
func (q *placement) elsewhere() plan {
	if !q.in.elsewhere {
		return plan{}
	}
	at := q.st.reply
	p := withHistory(match{relation: relDelta, parent: at.Pos, line: at.Line, offset: unitsBetween(position{}, at.Pos)}, ruleElsewhere)
	if p.systemPrompt = q.head.SystemPrompt; at.Line != q.head.Line {
		for i := range q.head.Tails {
			if t := &q.head.Tails[i]; t.Line == at.Line {
				p.systemPrompt = t.SystemPrompt
			}
		}
		if at.Side {
			p.standing = Side
		}
	}
	return p
}

// server puts the transcript before the request's new items, as the client demands.
func (q *placement) server(ctx context.Context) (plan, error) {
	if q.mode != HistoryServer {
		return plan{}, nil
	}
	first, end, err := q.merge.repeats(ctx)
	if err != nil {
		return plan{}, err
	}
	q.in.drop(first, end)
	return q.afterHead(ruleDeclared), nil
}

// empty asks nothing: a client warms up a connection or a prompt cache.
func (q *placement) empty() plan {
	if len(q.in.items) > 0 {
		return plan{}
	}
	return plan{match: match{relation: relRoot}, rule: ruleEmpty, standing: Side}
}

// continues takes a request for the continuation of an end that the head knows.
func (q *placement) continues(ctx context.Context) (plan, error) {
	p := q.merge.ends()
	if !p.found() || p.systemPrompt != q.in.systemPrompt && !q.in.anyMadeByModel(q.in.items) && q.helperKind() != "" {
		return plan{}, nil // for the latter, a helper asks about the user's first message in that message's own words
	}
	if p.side && q.mode == HistoryAuto && !q.in.anySaidByModel(q.in.items[:p.fresh]) {
		return plan{}, nil // a title request that failed has the user's first message, and a warm-up what stands before it
	}
	fresh := q.in.items[p.fresh:]
	headMoved := p.line == q.head.Line && p.parent.Seq != q.head.Pos.Seq
	if q.in.anySaidByModel(fresh) || headMoved && len(fresh) > 0 {
		// More of the request may be stored after an end that the head still knows: answers that the client has, or a question
		// that it asks again.
		longer, err := q.merge.longestKnown(ctx, p.fresh, len(q.in.ends))
		if err != nil {
			return plan{}, err
		}
		if longer.found() {
			p = longer
		}
	}
	return q.onLine(p), nil
}

// helperKind returns the kind of a helper's request, else "". A second question under the same instructions, without another
// conversation in the session, is not a helper's: it comes from a program that only makes titles.
func (q *placement) helperKind() string {
	if q.call.Side != "" || q.head.Answered && q.in.systemPrompt == q.head.SystemPrompt && q.in.hasSystemPrompt {
		return ""
	}
	kind := helperPrompt(q.call.Request, q.in)
	if kind == "" || q.head.Answered {
		return kind
	}
	last := q.in.ends[len(q.in.ends)-1].Chain
	other := func(t tail) bool {
		return t.Side && t.Turns > 0 && t.SystemPrompt == q.in.systemPrompt && t.Pos.Chain != last
	}
	if q.in.hasSystemPrompt && slices.ContainsFunc(q.head.Tails, other) {
		return ""
	}
	return kind
}

// helper asks for something about the conversation.
func (q *placement) helper(ctx context.Context) (plan, error) {
	kind := q.helperKind()
	if kind == "" {
		return plan{}, nil
	}
	p, err := q.beside(ctx, ruleHelper)
	p.helper = kind
	return p, err
}

// guard runs beside the questions and answers of an agent. It asks the agent's first question, or about its latest answer, or has words
// of its own and stands alone at first; what is under the same instructions later is a guard's, too.
func (q *placement) guard(ctx context.Context) (plan, error) {
	if !q.mayPrecede() || !q.judges() {
		return plan{}, nil
	}
	stoodApart := func(t tail) bool { return t.SystemPrompt == q.in.systemPrompt }
	if q.guards() && (q.asksAgain(len(q.in.items)-1) || slices.ContainsFunc(q.head.Tails, stoodApart)) {
		return q.beside(ctx, ruleSigns)
	}
	if !q.offer().demandsData() {
		return plan{}, nil // another agent may write a text from the answer
	}
	about, err := q.merge.asksAboutAnswer(ctx)
	if err != nil || !about {
		return plan{}, err
	}
	return q.beside(ctx, ruleSigns)
}

// asksAgain reports whether the request up to an item is what the conversation asked last.
func (q *placement) asksAgain(item int) bool {
	return q.call.Scope.runID(q.in.ends[item].Chain) == q.head.Run
}

// guards reports whether the request is like a guard's: it differs from the conversation's in instructions, tools and format.
// Agents that hand off to each other differ in less.
func (q *placement) guards() bool { return q.offer().Tools < q.head.Offer.Tools && q.judges() }

// judges reports whether the request is like that of a guard of an agent without tools.
func (q *placement) judges() bool {
	return q.offer().otherFormat(q.head.Offer) && q.in.systemPrompt != q.head.SystemPrompt && !q.in.hasHistory()
}

// beside returns the plan of a side request. One that was asked before is on the same line.
func (q *placement) beside(ctx context.Context, r rule) (plan, error) {
	m, err := q.merge.longestKnown(ctx, 0, len(q.in.ends))
	if err != nil {
		return plan{}, err
	}
	if m.relation = cmp.Or(m.relation, relRoot); !m.side {
		m.line = 0 // else the same was asked before
	}
	return plan{match: m, rule: r, standing: Side}, nil
}

// results places results whose calls are not in the request, from a client that sends only new items. They belong to the line
// that waits for them.
func (q *placement) results() plan {
	if !q.mayPrecede() || q.in.anyMadeByModel(q.in.items) {
		return plan{}
	}
	open, at := false, -1
	for i := range q.in.items {
		if it := &q.in.items[i]; it.Kind == wire.ToolResult {
			open = open || q.head.Open.has(it.Answers())
			at = max(at, q.head.Tails.waitsFor(it.Answers()))
		}
	}
	if !open && at < 0 && !q.in.answers() {
		return plan{}
	}
	p := q.afterHead(ruleResults)
	if !open && at >= 0 {
		p.moveAfter(&q.head.Tails[at])
	}
	p.shown = onlyNew
	return p
}

// handedOff places the question of the current run, from an agent without a memory to which another one has handed it off without the
// calls and results so far. It begins the run again, with the stored history before it. A guard has no tools, and an agent that is a tool
// asks in the words of a call.
func (q *placement) handedOff(ctx context.Context) (plan, error) {
	h := q.head
	if len(h.Open) == 0 || q.in.systemPrompt == h.SystemPrompt || q.offer().Tools == 0 || !q.mayPrecede() {
		return plan{}, nil
	}
	if q.in.hasHistory() || q.habit() != onlyNew {
		return plan{}, nil
	}
	if _, asks, err := q.merge.openCall(ctx); err != nil || asks {
		return plan{}, err
	}
	return q.sameRun(ctx)
}

// sameRun returns the plan of a request from a client that sends only what is new, with the question of the current run again: the run is
// begun again, with the stored history before it. The plan is empty for other requests.
func (q *placement) sameRun(ctx context.Context) (plan, error) {
	m, err := q.merge.beginsAgain(ctx, q.asksAgain)
	if err != nil || !m.found() {
		return plan{}, err
	}
	p := withHistory(m, ruleRun)
	p.shown, p.systemPrompt = onlyNew, q.head.SystemPrompt
	return p, nil
}

// step places a step of an agent that sends the question of the current run again, with what came of the answer: behind it in the
// model's own message, or as feedback without it. A beginning of the answer that the client demands has no more of it than upstream said.
func (q *placement) step(ctx context.Context) (plan, error) {
	last := len(q.in.items) - 1
	if last < 1 || !q.mayPrecede() || q.in.hasHistory() {
		return plan{}, nil
	}
	answers := q.in.saidByModel(q.in.items[last])
	if !answers && !q.in.isFeedback(last) {
		return plan{}, nil
	}
	p, err := q.sameRun(ctx)
	if err != nil || !p.found() || !answers {
		return p, err
	}
	if more, err := q.merge.beginsWithAnswer(ctx, q.in.items[last].Text()); err != nil || !more {
		q.in.begin(position{})
		return plan{}, err
	}
	return p, nil
}

// works places the first request of another agent that is a tool of the conversation's. It has other tools, and asks in the words of a
// call that is open, or has other instructions while the latest answer waits for results: a hand-off would follow them. An agent that
// was the conversation's before may be so again, although a call got no result.
func (q *placement) works(ctx context.Context) (plan, error) {
	h, client := q.head, q.offer().Client
	if len(h.Open) == 0 || client == h.Offer.Client || !q.mayPrecede() || q.in.anyMadeByModel(q.in.items) {
		return plan{}, nil
	}
	waits, asks, err := q.merge.openCall(ctx)
	switch {
	case err != nil:
		return plan{}, err
	case asks:
		return q.apart(ruleWorks, Alone), nil
	case !waits, h.Offer.demandsCall(), q.in.systemPrompt == h.SystemPrompt, q.habit() != onlyNew, h.Habits.have(q.call.Request.Dialect, client):
		return plan{}, nil
	default:
		return q.apart(ruleWaits, Alone), nil
	}
}

// onlyNew places requests of a client that is known to send only new items.
func (q *placement) onlyNew() plan {
	if !q.mayPrecede() || q.in.hasHistory() || q.habit() != onlyNew {
		return plan{}
	}
	p := q.afterHead(ruleOnlyNew)
	p.shown = onlyNew
	return p
}

// run continues an agent's run whose first request had the stored history put before it: see merger.run.
func (q *placement) run() plan {
	if !q.mayPrecede() || q.in.resends() {
		return plan{}
	}
	m := q.merge.run()
	if !m.found() {
		return plan{}
	}
	p := withHistory(m, ruleRun)
	p.shown = onlyNew
	return p
}

// known places a request with items of the transcript: after its longest known beginning, after the end of a history that the
// client has trimmed, or after its latest known passage.
func (q *placement) known(ctx context.Context) (plan, error) {
	trimmed := q.merge.trimmed()
	if trimmed.certain {
		return q.onLine(trimmed), nil
	}

	// A fully known history was not trimmed, even if it repeats the end of the head line.
	from := max(0, trimmed.fresh-1)
	m, err := q.merge.longestKnown(ctx, from, len(q.in.ends))
	if err != nil {
		return plan{}, err
	}
	if m.found() {
		own := !m.side && (q.in.systemPrompt == q.head.SystemPrompt || q.asksAgain(m.fresh-1))
		if own || q.mode != HistoryAuto || q.in.anySaidByModel(q.in.items[:m.fresh]) {
			return q.onLine(m), nil
		}
		// A guard sends the same text in every turn, and title requests quote the user: under other instructions a repeated
		// message proves nothing. What a side request has said is new to the conversation.
		if !m.side {
			q.begins = &m
		}
	}

	if trimmed.found() {
		if m, err := q.deleted(ctx, trimmed); err != nil || m.found() {
			return q.onLine(m), err
		}
	}

	if q.mayPrecede() && !q.in.resends() {
		m, err := q.merge.earlierRun(ctx)
		if err != nil || m.found() {
			p := withHistory(m, ruleRun)
			p.shown, p.systemPrompt = onlyNew, q.head.SystemPrompt
			return p, err
		}
	}
	if trimmed.found() {
		return q.onLine(trimmed), nil
	}
	if !q.in.anyMadeByModel(q.in.items) {
		return plan{}, nil // only user messages: repeated or not, they are new
	}
	p, err := q.merge.overlap(ctx)
	if err != nil || !p.found() {
		return plan{}, err
	}
	return q.onLine(p), nil
}

// deleted recognises a chat whose user has deleted messages in its middle: what stands before the known end is the known beginning, with
// an answer. That is an edited history, which no longer has what was deleted. Agents, which have tools, trim their history in this
// way. The match is empty for other requests.
func (q *placement) deleted(ctx context.Context, trimmed match) (match, error) {
	first := trimmed.summary
	if first == 0 || q.offer().Tools > 0 || !q.in.anySaidByModel(q.in.items[:first]) {
		return match{}, nil
	}
	return q.merge.longestKnown(ctx, first-1, first)
}

// ownHistory places a request that begins like a run with the stored history before it, and has later answers: its client
// resends a history that began there.
func (q *placement) ownHistory(ctx context.Context) (plan, error) {
	if !q.mayPrecede() || !q.in.resends() {
		return plan{}, nil
	}
	m, err := q.merge.earlierRun(ctx)
	if err != nil || !m.found() {
		return plan{}, err
	}
	q.in.begin(position{})
	return plan{match: match{relation: relRoot}, rule: ruleOwnHistory, standing: Alone, shown: resends}, nil
}

// declared follows the client's declaration for a request that shares nothing with the transcript.
func (q *placement) declared() plan {
	switch {
	case q.call.Side != "":
		return q.apart(ruleDeclared, Side)
	case q.mode != HistoryClient:
		return plan{}
	case q.head.Answered && q.likeHelper():
		return q.apart(ruleSigns, Side)
	default:
		return q.apart(ruleDeclared, InConversation)
	}
}

// minHelperSigns is the minimum number of signs of a helper's request. Conversations may have each of them.
const minHelperSigns = 2

// helperSigns counts the signs of a helper's request, compared with the conversation's latest one.
func (q *placement) helperSigns() (n int) {
	asked, latest := q.offer(), q.head.Offer
	for _, differs := range [...]bool{asked.Tools < latest.Tools, asked.otherFormat(latest), asked.Model != latest.Model, q.in.systemPrompt != q.head.SystemPrompt} {
		if differs {
			n++
		}
	}
	return n
}

// likeHelper reports whether a request without known history, from a client that resends its history, is like a helper's.
func (q *placement) likeHelper() bool {
	return q.head.Offer.Tools > 0 && q.helperSigns() >= minHelperSigns || q.bare()
}

// bare reports whether a request has nothing but messages, although the conversation has instructions: an order to a model, such as for
// a summary. Clients that have compacted their history keep their instructions.
func (q *placement) bare() bool {
	return !q.in.hasSystemPrompt && q.head.SystemPrompt != (wire.Hash{}) && q.offer().Tools == 0
}

// unanswered places a request in a session without an answer.
func (q *placement) unanswered() plan {
	if q.head.Answered {
		return plan{}
	}
	p := q.apart(ruleFirst, InConversation)
	p.line = q.head.Line
	return p
}

// compacted places a request with a compaction instead of the history, from a client that otherwise sends only what is new. The
// conversation continues after it.
func (q *placement) compacted() plan {
	if !q.mayPrecede() || q.habit() == resends || !q.in.compacts() {
		return plan{}
	}
	return q.afterHead(ruleCompacted)
}

// foreign places a request with answers from elsewhere: it has a history of its own.
func (q *placement) foreign() plan {
	if !q.in.hasHistory() {
		return plan{}
	}
	return q.apart(ruleForeign, Alone)
}

// withoutTools places a helper's request that quotes the conversation, or comes while that waits for results. Other such requests
// have tools: a compacted history those of its agent, and most agents that work on a call their own.
func (q *placement) withoutTools() plan {
	if q.offer().Tools > 0 || q.habit() != resends || !q.likeHelper() {
		return plan{}
	}
	return q.apart(ruleSigns, Side)
}

// waits places a request without the results that the conversation waits for.
func (q *placement) waits() plan {
	h := q.head
	if !h.awaitsResults() {
		return plan{}
	}
	if !h.SentHistory && (q.offer().Client == h.Offer.Client || h.Offer.Format == formatAnyCall) {
		// This client has never resent a history. A client that sends only new items may drop its call, or have wanted nothing
		// else, under instructions with a date, or those that it has sent once: then the call gets no result. Agents that compute a
		// call share their instructions.
		others := slices.ContainsFunc(h.Tails, func(t tail) bool { return t.SystemPrompt == q.in.systemPrompt })
		if !q.in.hasSystemPrompt || q.in.systemPrompt == h.SystemPrompt || h.TurnsApart > 0 && !others {
			return plan{}
		}
	}
	return q.apart(ruleWaits, Alone)
}

// quotes places a user message that quotes answers: a compacted history. A client that never sent anything of a model has none.
func (q *placement) quotes(ctx context.Context) (plan, error) {
	if !q.head.SentHistory {
		return plan{}, nil
	}
	found, err := q.merge.quotes(ctx)
	if err != nil || !found {
		return plan{}, err
	}
	return q.apart(ruleQuotes, Alone), nil
}

// replaced places a request without known history, from a client that resends its history: it has compacted it, or begun a new
// one, or the request is not the conversation's.
func (q *placement) replaced() plan {
	switch {
	case q.habit() != resends:
		return plan{}
	case q.likeHelper():
		return q.apart(ruleSigns, Side)
	default:
		return q.apart(ruleNewHistory, Alone)
	}
}

// titleFirst begins the conversation of a session whose only turn was a helper's. It becomes the head at once: a client
// that sends only new items does not name this line again.
func (q *placement) titleFirst(ctx context.Context) (plan, error) {
	helper := q.afterHelper()
	if !helper && q.head.Turns == 1 {
		var err error
		if helper, err = q.merge.isWrapped(ctx); err != nil {
			return plan{}, err
		}
	}
	if !helper {
		return plan{}, nil
	}
	return q.apart(ruleTitleFirst, InConversation), nil
}

// afterHelper reports whether the session's only turn was a helper's, and this request is not.
func (q *placement) afterHelper() bool {
	h := q.head
	return h.Turns == 1 && h.Offer.Tools == 0 && q.offer().Tools > 0 && q.in.systemPrompt != h.SystemPrompt
}

// unknown could be either. If the client resends its history, its next request shows it; missing history would never show.
func (q *placement) unknown() plan {
	p := q.afterHead(ruleUnknown)
	p.shown = onlyNew
	return p
}

// apart returns the plan of a request that begins a new line, maybe with a repeated message.
func (q *placement) apart(r rule, standing Standing) plan {
	p := plan{match: match{relation: relRoot}, rule: r, standing: standing}
	if q.begins != nil {
		p.match, p.claims = *q.begins, true
		p.line = 0
	}
	return p
}

// afterHead returns the plan of a request with the stored history before it.
func (q *placement) afterHead(r rule) plan {
	h := q.head
	return withHistory(match{relation: relDelta, parent: h.Pos, line: h.Line, systemPrompt: h.SystemPrompt, offset: unitsBetween(position{}, h.Pos)}, r)
}

// withHistory returns the plan of a request of the conversation with the stored history before it.
func withHistory(m match, r rule) plan {
	return plan{match: m, rule: r, standing: InConversation, before: true}
}

// onLine returns the plan of a request that shares history with a line, which may be a side request's.
func (q *placement) onLine(m match) plan {
	p := plan{match: m}
	if q.in.systemPrompt != q.head.SystemPrompt && q.mode == HistoryAuto && q.call.Side == "" {
		if kind := retitles(q.call.Request, q.in, p.fresh); kind != "" {
			p.rule, p.standing, p.helper, p.line = ruleHelper, Side, kind, 0
			return p
		}
	}
	if p.rule = ruleKnown; q.in.resends() {
		p.shown = resends
	}
	switch {
	case p.line == q.head.Line, q.promotes(m):
		p.standing = InConversation
	case p.side:
		p.standing = Side
	default:
		p.standing = Alone
	}
	return p
}

// patientTurns is the number of turns after which another line becomes the conversation although that waits for results.
const patientTurns = 3

// promotes reports whether a request makes its line the conversation: it continues an answer on that line. While the
// conversation waits for results, the line may be an agent that works on them. Then it takes a user message, or some turns of
// an agent with the same instructions or tools without other activity. A helper's line becomes the conversation only by a user
// message.
func (q *placement) promotes(m match) bool {
	fresh := q.in.items[m.fresh:]
	if q.mode == HistoryClient && !m.side {
		return true // whatever the client sends is the history
	}
	if len(fresh) == 0 || !q.in.anySaidByModel(q.in.items[:m.fresh]) {
		return false
	}
	if slices.ContainsFunc(fresh, func(it wire.Item) bool { return it.Role == wire.User }) {
		return true
	}
	if m.side {
		return false
	}
	h := q.head
	return !h.awaitsResults() || h.TurnsApart >= patientTurns && (q.in.systemPrompt == h.SystemPrompt || q.offer().Client == h.Offer.Client)
}

// followFirst returns the plan of a request if two clients began the session and the other one was answered first: this one
// follows it, if it sends only new items, and the other is no helper.
func (q *placement) followFirst(p plan) plan {
	switch {
	case q.call.History != HistoryAuto || !q.head.Answered || q.in.hasHistory() || q.habit() == resends:
		return p
	case q.afterHelper():
		return q.apart(ruleTitleFirst, InConversation)
	case q.guards():
		return q.apart(ruleSigns, Side)
	default:
		return q.afterHead(ruleBehind)
	}
}

// asSide returns the plan of a request that the client declares as a side request.
func (p plan) asSide() plan {
	if p.standing != Side {
		p.line = 0
	}
	p.standing, p.rule, p.shown = Side, ruleDeclared, noEvidence
	return p
}
