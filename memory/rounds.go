package memory

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// Bounds of a request's model calls.
const (
	// maxRounds is the maximum number of model answers for one answer to the client. For the last one layers offer no tools.
	maxRounds = 8
	// maxGuides is how often a response is regenerated because of a layer's guidance.
	maxGuides = 3
)

// Standard texts for the model, if a layer has no guidance.
const (
	deniedCall     = "This call was denied."
	guidedResponse = "Please adjust your response."
)

// Steering controls how much of an answer is held back until layers have judged it.
type Steering struct {
	// Hides reports whether calls of a tool are kept from the client: layers answer them.
	Hides func(tool string) bool
	// HoldCalls keeps all calls back until Review has judged them, HoldAll the whole answer.
	HoldCalls, HoldAll bool
}

// Judges reports whether layers judge the answer, or calls in it, before it may pass.
func (s *Steering) Judges() bool { return s.HoldCalls || s.HoldAll }

// Next is the continuation of a turn after an answer of the model.
type Next struct {
	// Hidden are the ids of the calls in it that the client must not see.
	Hidden map[string]bool
	// GoesOn: the model is called again, with the new result of Turn.Sent. Otherwise the turn ends.
	GoesOn bool
	// Discard: the client must not get any held part of this answer.
	Discard bool
	// Denied: a layer denies the answer. Reason is the layer's reason, which may be empty.
	Denied bool
	Reason string
}

// rounds are the model's answers of one turn: layers judge each, and answer the calls of their tools.
type rounds struct {
	run     *pipeline.Run
	input   []wire.Item // the request's new items, in memory of their own if there are layers
	visible int         // items of the request, without the system prompt
	role    wire.Role   // of blocks and advice

	n      int            // answers so far
	guides int            // of these, how many were made again
	denied bool           // the last one was forbidden
	output []wire.Item    // all that the model answered, hidden items too
	last   []wire.Item    // of that, the last answer
	lastID string         // of that answer
	shown  int            // items that the client has of the answers so far
	extra  []wire.Item    // what the view has gained by the answers so far
	known  map[string]int // by the id of an answer, how much of extra upstream knows by it
	unsent []wire.Item    // results of hidden calls of the last answer, which the model has not seen yet
}

// take adds an answer that was not reviewed.
func (rs *rounds) take(prefix *prefixValue, a *Answer) {
	if rs.n == 0 && len(a.Reply.Choices) > 0 {
		rs.output, rs.last = a.Reply.Choices[0], a.Reply.Choices[0]
		prefix.observe(&a.Reply)
	}
}

// review judges a complete answer of the model, runs the layers' tools that it calls, and decides how the turn continues.
func (rs *rounds) review(ctx context.Context, t *Turn, r wire.Reply) Next {
	if len(r.Choices) == 0 { // the model has nothing to add, or has failed
		rs.last, rs.lastID = nil, r.ID
		return Next{}
	}
	rs.n++
	rs.last, rs.lastID = r.Choices[0], r.ID
	t.layers.states.values.prefix.observe(&r)
	rs.output = append(rs.output, rs.last...)
	round := rs.judge(ctx, rs.last, resendable(t.call.Request, rs.last), r.OtherNames)

	next := Next{Hidden: round.hidden}
	goesOn := len(round.hidden) > 0 && round.visible == 0 && rs.n < maxRounds
	verdict := layer.Verdict{}
	if !goesOn || rs.run.HoldsResponse() { // what it says is released before the next one comes
		verdict = rs.reviewResponse(ctx, rs.response())
	}
	if rs.run.HoldsResponse() {
		for _, choice := range r.Choices[1:] { // a client can ask for several, and reads them all
			if other := rs.reviewResponse(ctx, rs.responseOf(choice)); other.Action > verdict.Action {
				verdict = other
			}
		}
	}
	switch {
	case verdict.Action == layer.Deny:
		rs.denied = true
		next.Denied, next.Reason = true, verdict.Guidance
	case verdict.Action == layer.Guide && rs.guides < maxGuides && rs.n < maxRounds && rs.run.HoldsResponse():
		rs.guides++
		round.guide(t.call.Request.Dialect, rs.role, verdict.Guidance)
		next.Discard = true
		rs.output = slices.Clip(rs.output[:len(rs.output)-len(rs.last)]) // it is dropped; layers may still look at it
		next.GoesOn = true
		rs.extend(t, round)
	case goesOn:
		next.GoesOn = true
		rs.extend(t, round)
	}

	rs.unsent = nil
	if !next.GoesOn {
		rs.unsent = round.results
	}
	rs.hide(t, round, next.Discard)
	return next
}

// isLast reports whether the next answer must be the last one: no layer offers tools for it.
func (rs *rounds) isLast() bool { return rs.n >= maxRounds-1 }

// resendable returns each item of an answer as upstream accepts it again, nil for one that it does not accept: it refuses what it
// would have to look up and has not stored, such as reasoning without its encrypted content, and the ids of that answer's other
// items, which need the reasoning.
func resendable(r *wire.Request, items []wire.Item) []*wire.Item {
	stored := session.Stores(r)
	bound := !stored && slices.ContainsFunc(items, func(it wire.Item) bool { return it.Kind == wire.Reasoning && session.IsLookedUp(it) })
	out := make([]*wire.Item, len(items))
	for i, it := range items {
		if !stored && session.IsLookedUp(it) {
			continue
		}
		reach := wire.Near
		if bound {
			reach = wire.Unnamed
		}
		if again, ok := it.Portable(reach); ok {
			out[i] = &again
		}
	}
	return out
}

// round is one answer of the model during its review.
type round struct {
	items   []wire.Item // as upstream accepts them again
	hidden  map[string]bool
	visible int // calls that the client gets
	results []wire.Item
	places  []hiddenPlace
	shown   int         // items that the client gets
	note    []wire.Item // advice
}

// hiddenPlace holds the hidden items at one place of an answer.
type hiddenPlace struct {
	after   int         // the number of items before it that the client gets
	kept    []wire.Item // the hidden calls, and the reasoning that led to them
	seen    []wire.Hash // of kept, what the client sees too
	results []wire.Item
}

// hiddenPlace is the one at the present place. Reasoning after it is of what comes next.
func (r *round) hiddenPlace(after int) *hiddenPlace {
	if n := len(r.places); n > 0 && r.places[n-1].after == after {
		return &r.places[n-1]
	}
	r.places = append(r.places, hiddenPlace{after: after})
	return &r.places[len(r.places)-1]
}

// judge asks the reviewers about every call, and runs the calls of layers' tools. A call that some clients read under
// another name (wire.Reply, toolbox.Meant) is judged under each. again has the items as upstream accepts them again, nil for others.
func (rs *rounds) judge(ctx context.Context, items []wire.Item, again []*wire.Item, otherNames map[int][]string) *round {
	r := &round{hidden: make(map[string]bool)}
	var reasoning []wire.Item
	said := 0 // of what is shown, up to the last item that is no reasoning
	number := 0
	for n, it := range items {
		if again[n] != nil {
			r.items = append(r.items, *again[n])
		}
		if it.Kind == wire.Reasoning {
			if again[n] != nil {
				reasoning = append(reasoning, it)
			}
			r.shown++
			continue
		}
		var own []int
		calls, at := 0, len(r.results)
		for i, c := range it.Judged() {
			calls++
			call := rs.toolCall(it, i, c)
			result, hide := rs.call(ctx, c, call, otherNames[number]...)
			number++
			if !hide {
				r.visible++
				continue
			}
			own = append(own, i)
			r.hidden[c.ID] = true
			r.results = append(r.results, wire.NewToolResult(c, it.Dialect, result))
		}
		if len(own) > 0 {
			a := r.hiddenPlace(said)
			for _, think := range reasoning {
				a.kept, a.seen = append(a.kept, think), append(a.seen, think.ContentHash())
			}
			if again[n] != nil {
				if hidden, ok := again[n].OnlyCalls(func(i int) bool { return slices.Contains(own, i) }); ok {
					a.kept = append(a.kept, hidden)
				}
			}
			a.results = append(a.results, r.results[at:]...)
		}
		if len(own) < calls || calls == 0 {
			r.shown++
			said = r.shown
		}
		reasoning = nil
	}
	return r
}

// call is the result of a call that the client does not see, if it is one.
func (rs *rounds) call(ctx context.Context, c wire.Call, call layer.ToolCall, otherNames ...string) (result string, hide bool) {
	verdict := rs.run.ReviewCall(ctx, call)
	others := rs.run.Meant(call.Name)
	for _, other := range otherNames {
		other = strings.TrimSpace(other)
		others = append(append(others, other), rs.run.Meant(other)...)
	}
	for _, other := range others {
		if verdict.Action == layer.Allow {
			verdict = rs.run.ReviewCall(ctx, rs.run.Named(call, other))
		}
	}
	switch {
	case verdict.Action != layer.Allow && verdict.Guidance != "":
		return verdict.Guidance, true
	case verdict.Action == layer.Deny:
		return deniedCall, true
	case verdict.Action == layer.Guide:
		return guidedResponse, true
	case c.Family != wire.FamilyApproval && rs.run.Owns(c.Name):
		return rs.run.RunTool(ctx, call), true
	}
	return "", false
}

// reviewResponse judges an answer as the model wrote it, and then with the client's tools that its calls mean.
func (rs *rounds) reviewResponse(ctx context.Context, r *layer.Response) layer.Verdict {
	verdict := rs.run.ReviewResponse(ctx, r)
	meant, changed := *r, false
	meant.Calls = slices.Clone(r.Calls)
	for i, c := range r.Calls {
		if names := rs.run.Meant(c.Name); len(names) > 0 {
			meant.Calls[i].Name, changed = names[0], true
		}
	}
	if changed && verdict.Action == layer.Allow {
		return rs.run.ReviewResponse(ctx, &meant)
	}
	return verdict
}

// guide adds guidance. The model's answer stays in its view, without calls that will not be answered.
func (r *round) guide(d wire.Dialect, role wire.Role, text string) {
	text = cmp.Or(text, guidedResponse)
	var said, reasoning []wire.Item
	for _, it := range r.items {
		if it.Kind == wire.Reasoning {
			reasoning = append(reasoning, it)
			continue
		}
		rest, ok := it.Keep(func(i int) bool { return !it.Parts[i].Judged() || r.hidden[it.Parts[i].Call.ID] })
		if ok && (rest.HasJudged() || rest.HasContent()) {
			said = append(append(said, reasoning...), rest)
		}
		reasoning = nil
	}
	r.items = said
	r.note = []wire.Item{wire.NewMessage(d, role, text)}
}

// extend sets the view for the next answer: the items sent, the model's answer, and the results and guidance for it. The
// guidance at the end is only for this request.
func (rs *rounds) extend(t *Turn, r *round) {
	for _, it := range r.items {
		// The upstream that has just answered still has the audio of its answer.
		if it, ok := it.AsInput(func(wire.Audio) bool { return true }); ok {
			// All calls in it are hidden. The layer has told the model what was wrong with their arguments.
			rs.extra = append(rs.extra, it.WithObjectArguments())
		}
	}

	if rs.known == nil {
		rs.known = make(map[string]int)
	}
	rs.known[rs.lastID] = len(rs.extra)
	rs.extra = slices.Concat(rs.extra, r.results, r.note)
	view.ShortenResults(rs.extra, t.shape.ToolResult)
	m := t.messages
	switch {
	case t.call.Request.InConversation(): // upstream has kept all else
		m.Before, m.System, m.Items, m.Blocks, m.After = nil, nil, nil, nil, slices.Concat(r.results, r.note)
	case rs.isLast():
		m = rs.lastView(t)
	default:
		m.After = rs.extra
	}
	t.continuation = &m
}

// lastView returns the view for the last answer of a turn, without layers' tools. If the client offers none either, the view
// has no hidden calls of this or earlier turns: the model starts again.
func (rs *rounds) lastView(t *Turn) view.Messages {
	m := t.messages
	if m.After = rs.extra; t.call.Request.OffersTools() {
		return m
	}

	if t.chosen.hides() {
		m.Without(t.chosen.hiddenItems())
	}
	m.After = nil
	end := 0 // after the last item that is not the model's: many upstreams want another's word last
	var reasoning []wire.Item
	for _, it := range rs.extra {
		switch {
		case it.Kind == wire.Reasoning:
			reasoning = append(reasoning, it)
			continue
		case it.HasJudged() || it.Answers() != wire.Call{}:
		default:
			m.After = append(append(m.After, reasoning...), it)
			if it.Role != wire.Assistant {
				end = len(m.After)
			}
		}
		reasoning = nil
	}
	m.After = m.After[:end]
	return m
}

// hide records the hidden items of this answer for later views, at their place. If an answer is one message, the client
// gets one message made of all answers: the hidden items led to it, and stand before it.
func (rs *rounds) hide(t *Turn, r *round, discarded bool) {
	d := t.call.Request.Dialect
	var list []session.Hidden
	for _, a := range r.places {
		h := session.Hidden{After: rs.visible, Dialect: d.Code(), Seen: a.seen, Led: true}
		if !d.Rules().OneItem {
			h.After += rs.shown
			if !discarded {
				h.After += a.after
			}
		}
		for _, it := range slices.Concat(a.kept, a.results) {
			h.Items = append(h.Items, it.Raw)
		}
		list = append(list, h)
	}
	if !discarded {
		rs.shown += r.shown
	}
	if len(list) == 0 {
		return
	}
	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	if err := t.writer.entry.Notes.Amend(list...); err != nil {
		t.m.o.Log.Error("hidden calls of a turn are not kept", "turn", t.ID, "error", err.Error())
	}
}

// carry stores the items that upstream lacks for a response whose id the client has: the client may continue from that
// id, but upstream has under it only the first of the response's answers, and no result of a hidden call.
func (rs *rounds) carry(e *session.Entry, r *wire.Request, id string) {
	if id != "" && rs.lastID != "" && id != rs.lastID && r.KeptByID() {
		e.Notes.LastID = rs.lastID
	}
	from, ok := rs.known[id]
	_, extended := rs.known[rs.lastID] // what followed was broken off
	switch {
	case r.Dialect.Rules().Previous == "":
	case ok && extended:
		e.Notes.Carry(rs.extra[from:])
	case ok:
		e.Notes.Carry(slices.Concat(rs.extra[from:], rs.lastSendable(), rs.unsent))
	case id == rs.lastID && len(rs.unsent) > 0:
		e.Notes.Carry(rs.unsent)
	}
}

// lastSendable is the last answer as upstream takes it back: a hidden call has a JSON object as its arguments.
func (rs *rounds) lastSendable() []wire.Item {
	items := slices.Clone(rs.last)
	for i, it := range items {
		for _, result := range rs.unsent {
			for _, call := range it.Calls() {
				if wire.Matches(call, result.Answers()) {
					items[i] = it.WithObjectArguments()
				}
			}
		}
	}
	return items
}

// response describes the model's answers of this turn for reviewers and storers.
func (rs *rounds) response() *layer.Response {
	r := rs.responseOf(rs.output)
	for _, it := range rs.last {
		r.Done = r.Done && !it.HasCalls()
	}
	return r
}

// responseOf describes items of the model. Of an answer in sound, the text is its transcript.
func (rs *rounds) responseOf(items []wire.Item) *layer.Response {
	r := &layer.Response{Input: rs.input, Items: items, Done: true}
	for _, it := range items {
		for i, c := range it.Judged() {
			r.Calls = append(r.Calls, rs.toolCall(it, i, c))
		}
		if it.Kind == wire.Message {
			readable, _ := it.AsInput(func(wire.Audio) bool { return false })
			r.Text += readable.Text()
		}
	}
	return r
}

// toolCall returns call number i of an item as layers see it. Tools of the API that clients run, such as the shell, have no
// name in their calls, so that rules know them by their kind.
func (rs *rounds) toolCall(it wire.Item, i int, c wire.Call) layer.ToolCall {
	name := strings.TrimSpace(c.Name) // clients are known to trim it
	if name == "" && c.Family != wire.FamilyFunction {
		name = c.Family
	}
	return rs.run.Named(layer.ToolCall{ID: c.ID, Arguments: it.Input(i), Custom: it.TakesText(i)}, name)
}
