package memory

import (
	"context"
	"slices"

	"remora/memory/layer"
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// Bounds of what one request may make the model do.
const (
	// maxRounds is how many answers of the model one answer to the client may take. On the last one layers offer no
	// tools any more.
	maxRounds = 8
	// maxGuides is how often a response is made again because a layer had advice.
	maxGuides = 3
)

// What the model is told where a layer says nothing itself.
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

// Next is how a turn goes on after an answer of the model.
type Next struct {
	// Hidden are the ids of the calls in it that the client must not see.
	Hidden map[string]bool
	// View is the next view to send upstream. Nil ends the turn.
	View []wire.Item
	// Discard: the client must not see anything of this answer that has been held back.
	Discard bool
	// Denied: a layer denies the answer. Reason is the layer's reason, which may be empty.
	Denied bool
	Reason string
}

// Steering returns how much of the answer is held back until Review, and whether it needs Review at all.
func (t *Turn) Steering() (Steering, bool) {
	l := t.layers
	if l == nil {
		return Steering{}, false
	}
	s := Steering{Hides: l.run.Owns, HoldCalls: l.run.ReviewsCalls(), HoldAll: l.run.HoldsResponse()}
	return s, len(t.Tools) > 0 || s.HoldCalls || s.HoldAll
}

// Review judges a whole answer of the model, runs the layers' tools that it calls, and decides how the turn goes on.
func (t *Turn) Review(ctx context.Context, r wire.Reply) Next {
	l := t.layers
	if l == nil || len(r.Choices) == 0 {
		return Next{}
	}
	l.rounds++
	l.last, l.lastID = r.Choices[0], r.ID
	l.observeCache(&r)
	l.output = append(l.output, l.last...)
	round := l.judge(ctx, resendable(t.call.Request, l.last), r.OtherNames)
	next := Next{Hidden: round.hidden}
	goesOn := len(round.hidden) > 0 && round.visible == 0 && l.rounds < maxRounds
	verdict := layer.Verdict{}
	if !goesOn || l.run.HoldsResponse() { // what it says is released before the next one comes
		verdict = l.run.ReviewResponse(ctx, l.response())
	}
	switch {
	case verdict.Action == layer.Deny:
		l.denied = true
		next.Denied, next.Reason = true, verdict.Guidance
	case verdict.Action == layer.Guide && l.guides < maxGuides && l.rounds < maxRounds && l.run.HoldsResponse():
		l.guides++
		round.guide(l.turn.Dialect, l.role, verdict.Guidance)
		next.Discard = true
		l.output = l.output[:len(l.output)-len(l.last)] // it counts as not said
		next.View = t.extend(round)
	case goesOn:
		next.View = t.extend(round)
	}
	l.left = nil
	if next.View == nil {
		l.left = round.results
	}
	t.hide(round, next.Discard)
	return next
}

// resendable are the items of an answer that upstream takes back. Reasoning that it neither stores nor has sealed for
// the client is refused.
func resendable(r *wire.Request, items []wire.Item) []wire.Item {
	if session.Stores(r) {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), session.IsLookedUp)
}

// LastRound reports whether the next answer has to be the last one: no layer offers tools for it.
func (t *Turn) LastRound() bool { return t.layers != nil && t.layers.rounds >= maxRounds-1 }

// round is one answer of the model as it is judged.
type round struct {
	items   []wire.Item // as they came
	hidden  map[string]bool
	visible int // calls that the client gets
	results []wire.Item
	places  []hiddenPlace
	shown   int         // items that the client gets
	note    []wire.Item // advice
}

// hiddenPlace holds the hidden items at one place of an answer.
type hiddenPlace struct {
	behind  int         // so many items that the client gets
	kept    []wire.Item // the hidden calls, and the reasoning that led to them
	seen    []wire.Hash // of kept, what the client sees too
	results []wire.Item
}

// hiddenPlace is the one at the present place. Reasoning after it is of what comes next.
func (r *round) hiddenPlace(behind int) *hiddenPlace {
	if n := len(r.places); n > 0 && r.places[n-1].behind == behind {
		return &r.places[n-1]
	}
	r.places = append(r.places, hiddenPlace{behind: behind})
	return &r.places[len(r.places)-1]
}

// judge asks the reviewers about every call, and runs the calls of layers' tools. A call that some clients read under
// another name (see wire.Reply) is judged under each.
func (l *layered) judge(ctx context.Context, items []wire.Item, otherNames map[int][]string) *round {
	r := &round{items: items, hidden: make(map[string]bool)}
	var reasoning []wire.Item
	said := 0 // of what is shown, up to the last item that is no reasoning
	number := 0
	for _, it := range items {
		if it.Kind == wire.Reasoning {
			reasoning = append(reasoning, it)
			r.shown++
			continue
		}
		var own []int
		at := len(r.results)
		for i, c := range it.Calls {
			call := layer.ToolCall{ID: c.ID, Name: l.run.ToolName(c.Name), Arguments: it.Input(i)}
			result, hide := l.answer(ctx, c.Name, call, otherNames[number]...)
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
			if calls, ok := it.OnlyCalls(func(i int) bool { return slices.Contains(own, i) }); ok {
				a.kept = append(a.kept, calls)
			}
			a.results = append(a.results, r.results[at:]...)
		}
		if len(own) < len(it.Calls) || len(it.Calls) == 0 {
			r.shown++
			said = r.shown
		}
		reasoning = nil
	}
	return r
}

// answer is the result of a call that the client does not see, if it is one.
func (l *layered) answer(ctx context.Context, name string, call layer.ToolCall, otherNames ...string) (result string, hide bool) {
	verdict := l.run.ReviewCall(ctx, call)
	for _, other := range otherNames {
		if verdict.Action == layer.Allow {
			verdict = l.run.ReviewCall(ctx, layer.ToolCall{ID: call.ID, Name: l.run.ToolName(other), Arguments: call.Arguments})
		}
	}
	switch {
	case verdict.Action != layer.Allow && verdict.Guidance != "":
		return verdict.Guidance, true
	case verdict.Action == layer.Deny:
		return deniedCall, true
	case verdict.Action == layer.Guide:
		return guidedResponse, true
	case l.run.Owns(name):
		return l.run.RunTool(ctx, call), true
	}
	return "", false
}

// guide adds advice. What the model had said stays for it to see, without calls that will not be answered.
func (r *round) guide(d wire.Dialect, role wire.Role, text string) {
	if text == "" {
		text = guidedResponse
	}
	var said, reasoning []wire.Item
	for _, it := range r.items {
		if it.Kind == wire.Reasoning {
			reasoning = append(reasoning, it)
			continue
		}
		rest, ok := it.WithoutCalls(func(i int) bool { return !r.hidden[it.Calls[i].ID] })
		if ok && (len(rest.Calls) > 0 || it.Kind == wire.Message && it.HasText) {
			said = append(append(said, reasoning...), rest)
		}
		reasoning = nil
	}
	r.items = said
	r.note = []wire.Item{layer.NewText(d, role, text)}
}

// extend returns the view for the next answer: the items sent, the model's answer, and the results and advice on it.
func (t *Turn) extend(r *round) []wire.Item {
	l := t.layers
	for _, it := range r.items {
		// The upstream that has just answered still has the sound of its answer.
		if it, ok := it.AsInput(func(wire.Audio) bool { return true }); ok {
			l.extra = append(l.extra, it)
		}
	}

	if l.known == nil {
		l.known = make(map[string]int)
	}
	l.known[l.lastID] = len(l.extra)
	l.extra = slices.Concat(l.extra, r.results, r.note)
	view.ShortenResults(l.extra, t.shape.ToolResult)
	m := t.messages
	switch {
	case t.call.Request.InConversation(): // upstream has kept all else
		m.Before, m.Lead, m.Items, m.Blocks, m.After = nil, nil, nil, nil, slices.Concat(r.results, r.note)
	case t.LastRound():
		m = t.lastView()
	default:
		m.After = l.extra
	}
	return t.goOn(m)
}

// hide records the hidden items of this answer for later views, at their place. If an answer is one message, the client
// gets one message made of all answers: the hidden items led to it, and stand before it.
func (t *Turn) hide(r *round, discarded bool) {
	l := t.layers
	var list []session.Hidden
	for _, a := range r.places {
		h := session.Hidden{Behind: l.visible, Dialect: dialects.CodeOf(l.turn.Dialect), Seen: a.seen, Led: true}
		if !l.turn.Dialect.Rules().OneItem {
			h.Behind += l.shown
			if !discarded {
				h.Behind += a.behind
			}
		}
		for _, it := range slices.Concat(a.kept, a.results) {
			h.Items = append(h.Items, it.Raw)
		}
		list = append(list, h)
	}
	if !discarded {
		l.shown += r.shown
	}
	if len(list) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.entry.Amend(list...); err != nil {
		t.m.o.Log.Error("hidden calls of a turn are not kept", "turn", t.ID, "error", err.Error())
	}
}

// carry stores the items that upstream lacks for a response whose id the client has: the client may continue from that
// id, but upstream has under it only the first of the response's answers, and no result of a hidden call.
func (l *layered) carry(e *session.Entry, r *wire.Request, id string) {
	if r.KeptByID() && id != "" && l.lastID != "" && id != l.lastID {
		e.EndsAs(l.lastID)
	}
	from, ok := l.known[id]
	switch {
	case l.turn.Dialect.Rules().Previous == "":
	case id == l.lastID && len(l.left) > 0:
		e.Carry(l.left)
	case id != l.lastID && ok:
		e.Carry(slices.Concat(l.extra[from:], l.last, l.left))
	}
}

// response describes the model's answers of this turn for reviewers and storers.
func (l *layered) response() *layer.Response {
	r := &layer.Response{Input: l.input, Items: l.output, Done: true}
	for _, it := range r.Items {
		for i, c := range it.Calls {
			r.Calls = append(r.Calls, layer.ToolCall{ID: c.ID, Name: l.run.ToolName(c.Name), Arguments: it.Input(i)})
		}
		if it.Kind == wire.Message {
			r.Text += it.Text()
		}
	}
	for _, it := range l.last {
		r.Done = r.Done && len(it.Calls) == 0
	}
	return r
}
