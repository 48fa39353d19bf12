package memory

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"

	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// layered is the layers' part of one turn.
type layered struct {
	guard  bool    // they only judge the answer
	states *states // nil if no layer keeps any
	run    *pipeline.Run
	turn   layer.Turn
	past   *pastOfTurn // what turn.Past is, nil for none

	blocks     []view.Block
	role       wire.Role   // of blocks and advice
	visible    int         // items of the request, without the leading ones
	shown      int         // items that the client has of the answers so far
	input      []wire.Item // the request's new items, in memory of their own if there are layers
	output     []wire.Item // all that the model answered, hidden items too
	last       []wire.Item // of that, the last answer
	lastID     string
	known      map[string]int // by the id of an answer, how much of extra upstream knows by it
	extra      []wire.Item    // what the view has gained by the answers so far
	left       []wire.Item    // results of hidden calls of the last answer, which the model has not seen yet
	rounds     int            // answers so far
	guides     int            // of these, how many were made again
	denied     bool           // the last one was forbidden
	told       layer.Told     // what they are told of with this turn, too
	evicted    []wire.Item    // items of the conversation that the view lacks and no layer was told of
	passedOver int            // units of the conversation that layers' hooks have not chosen
	counted    bool           // upstream has reported what of the view was cached

	overflow turnrecord.LayerNote // how the summary fared, if it was made
	fitted   pipeline.Fitted      // the view as far as the budget was looked at
	usage    pipeline.Usage       // what it costs
}

// layerTurn describes the call for layers, but for its past.
func (t *Turn) layerTurn() layer.Turn {
	s, r := t.call.Scope, t.call.Request
	lt := layer.Turn{ID: t.ID, Thread: s.Session, Execution: s.Execution, Parent: s.Parent, Now: t.started}
	if s.Resource != s.Session {
		lt.Resource = s.Resource
	}
	if r == nil {
		return lt // no request: the session is being deleted
	}
	lt.Dialect, lt.Model = r.Dialect, r.Model()
	if t.shape.Layers.Empty() {
		return lt
	}
	lt.Tools = r.Tools()
	for _, it := range slices.Backward(r.Items()) {
		if it.Kind == wire.Message && it.Role == wire.User {
			lt.Query = it.Text()
			break
		}
	}
	return lt
}

// enter loads the session, and the states of layers with it, and begins the layers. Its error is of the store, or a
// *pipeline.InitError.
func (t *Turn) enter(ctx, hooks context.Context) error {
	if t.shape.Layers == nil {
		var err error
		t.entry, _, err = t.find(ctx, session.Want{})
		return err
	}
	lt := t.layerTurn()
	st := t.newStates(t.call.Scope, &lt, t.call.Scope.Parent)
	e, extra, err := t.find(ctx, st.want())
	if err != nil {
		return err
	}
	if t.entry, t.states = e, st; st != nil {
		st.load(extra)
	}
	switch e.Standing() {
	case session.Side:
		return t.guard(hooks)
	case session.Alone:
		st.forget()
	default:
	}
	lt.Execution = e.Execution()
	var past *pastOfTurn
	if t.shape.Layers.Recalls() {
		past = t.m.past.of(t)
		lt.Past = past
	}
	run, err := t.shape.Layers.Begin(hooks, t.call.Scope.Tenant, lt, st.known(), t.credential)
	if err != nil {
		return err
	}
	t.layers = &layered{states: st, run: run, turn: lt, past: past, input: e.Input(), visible: e.Visible()}
	if !run.Empty() {
		t.layers.input = t.detach(t.layers.input)
	}
	if st != nil {
		st.begin(run)
		if e.First() && len(st.parent) > 0 {
			above := lt
			above.Thread = t.call.Scope.Parent
			run.Spawn(hooks, above, st.found)
		}
	}
	return nil
}

// detach makes items outlive the request: hooks may see them after its body is used for another one. Where that does not
// happen they are copied all the same if they are less than half of the body, which they would keep in memory.
func (t *Turn) detach(items []wire.Item) []wire.Item {
	size := 0
	for i := range items {
		size += len(items[i].Raw)
	}
	if t.lasting && size > len(t.call.Request.Body)/2 {
		return slices.Clone(items)
	}
	return pipeline.Detach(items)
}

// guard has layers judge the answer of a turn in which they have no other part. Its error is a *pipeline.InitError.
func (t *Turn) guard(ctx context.Context) error {
	t.layers = nil
	if !t.shape.Layers.Guards() {
		return nil
	}
	lt := t.layerTurn()
	run, err := t.shape.Layers.Guard(ctx, t.call.Scope.Tenant, lt, t.credential)
	if err != nil {
		return err
	}
	t.layers = &layered{
		guard: true, run: run, turn: lt, input: t.detach(t.entry.Input()), visible: t.entry.Visible(),
		role: instructionRole(lt.Dialect, t.call.Request.Items()),
	}
	return nil
}

func (st *states) known() map[pipeline.Cell]layer.State {
	if st == nil {
		return nil
	}
	return st.found
}

// append passes the request's new items to layers. The model sees their replacements from now on.
func (t *Turn) append(ctx context.Context) error {
	l := t.layers
	if l.run.Empty() {
		return nil
	}
	items := l.run.Append(ctx, l.input)
	if len(items) == 0 && len(l.input) > 0 {
		t.m.o.Log.Warn("layers would leave nothing of what the client sent; it is sent as it came", "turn", t.ID, "items", len(l.input))
		return nil
	}
	first := l.visible - len(l.input)
	return t.entry.Amend(amendments(l.input, items, first, l.turn.Dialect)...)
}

// amendments returns the hidden items that turn one list of new items into another. behind is the number of visible
// items before the list.
func amendments(was, is []wire.Item, behind int, d wire.Dialect) []session.Hidden {
	changed := make([]session.Hidden, len(was)+1) // [i] is behind the first i items
	next := 0
	for _, it := range is {
		at := slices.IndexFunc(was[next:], func(w wire.Item) bool { return sameItem(w, it) })
		if at < 0 {
			changed[next].Items = append(changed[next].Items, it.Raw)
			continue
		}
		for ; at > 0; at-- { // what stood between is gone, and what came in its place stands there
			next++
			changed[next].Replaces = true
		}
		next++
	}
	for next < len(was) {
		next++
		changed[next].Replaces = true
	}
	var list []session.Hidden
	for i, h := range changed {
		if h.Behind, h.Dialect = behind+i, dialects.CodeOf(d); h.Replaces || len(h.Items) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// sameItem reports whether an item was not touched: its bytes are the same memory, not only equal.
func sameItem(a, b wire.Item) bool {
	return len(a.Raw) == len(b.Raw) && (len(a.Raw) == 0 || &a.Raw[0] == &b.Raw[0])
}

// recall asks layers what the model should be told, and what of the history it should see. Where upstream keeps the
// conversation, it keeps what it was told as well: that is not said again. What is said in a conversation with an id of its
// own is listed to its users for ever, so layers say nothing there.
func (t *Turn) recall(ctx context.Context, c *session.Conversation) {
	l := t.layers
	if l.run.Empty() || c.Opaque && l.turn.Query == "" || t.call.Request.InConversation() {
		return // without a query, upstream was told when the user spoke
	}
	// Without a resource a conversation beside that of its session, such as that of an agent's worker, shares nothing with it.
	others := l.turn.Resource != "" && t.entry.Beyond()
	if others || t.entry.Trimmed() || c.Stored && c.Offset > 0 || l.run.MayLeave(c.Items) {
		l.past.reachBeyond()
	}
	l.blocks = l.run.Recall(ctx, l.run.Cost(c.Lead), t.held(c)...)
	if !c.Opaque {
		t.narrow(c, l.run.Project(ctx, c.Items, 0, t.windowSlot()), c.Items)
		return
	}
	if len(l.blocks) > 0 && l.run.OfView() {
		l.blocks = l.run.RecallOfView(ctx, l.run.Cost(c.Lead), pipeline.ViewOf{Upstream: true}, t.held(c)...)
	}
	l.blocks = slices.DeleteFunc(l.blocks, func(b view.Block) bool { return t.entry.Shown(b.Layer, b.Texts) })
}

// recallOfView asks the layers again whose recall depends on the view: on its items, and on those that the window has
// cut off.
func (t *Turn) recallOfView(ctx context.Context, c *session.Conversation, v *view.View, cut *windowCut) {
	l := t.layers
	if len(l.blocks) == 0 && cut == nil && l.passedOver == 0 || l.run.Empty() || !l.run.OfView() || t.call.Request.InConversation() {
		return
	}
	if cut != nil || l.passedOver > 0 {
		l.past.reachBeyond()
	}
	lead, history := v.Items[:len(c.Lead)], v.Items[len(c.Lead):]

	var shown map[wire.Hash]bool
	inView := func(content wire.Hash) bool {
		if shown == nil {
			left := map[int]bool{} // what the budget will have no room for
			for _, out := range l.run.Fit(lead, l.blocks, history).Left {
				left[out.Index] = true
			}
			shown = make(map[wire.Hash]bool, len(history))
			for i, it := range history {
				if !left[i] && (it.Kind == wire.Message || it.Kind == wire.ToolResult) {
					shown[it.ContentHash()] = true
				}
			}
		}
		return shown[content]
	}
	l.blocks = l.run.RecallOfView(ctx, l.run.Cost(c.Lead), pipeline.ViewOf{Has: inView, Cut: cut.of(c.Items, v)}, t.held(c)...)
	cut.end()
}

// windowSlot is the slot from which on layers choose of what the window leaves.
func (t *Turn) windowSlot() int {
	if w := t.shape.Window; w != nil && w.Slot > 0 {
		return w.Slot
	}
	return math.MaxInt
}

// projectWindow has the layers behind the window choose of what it has left. It reports whether they left anything out.
func (t *Turn) projectWindow(ctx context.Context, c *session.Conversation, v *view.View) bool {
	from := t.windowSlot()
	if t.layers == nil || from == math.MaxInt || !t.layers.run.Projects(from) {
		return false
	}
	kept := pipeline.Pick(c.Items, v.Kept)
	chosen := t.layers.run.Project(ctx, kept, from, math.MaxInt)
	return len(chosen) < len(kept) && t.narrow(c, chosen, kept)
}

// narrow reduces the view to the items that layers have chosen from the given ones. A choice without the current round
// is ignored.
func (t *Turn) narrow(c *session.Conversation, chosen, given []wire.Item) bool {
	if !endsWith(chosen, given[view.Round(given):]) {
		t.m.o.Log.Warn("layers would leave out what is being asked; their choice of history is ignored", "turn", t.ID)
		return false
	}
	t.layers.narrow(c, chosen)
	return true
}

// narrow takes over what layers have chosen of a conversation, and counts what they have not.
func (l *layered) narrow(c *session.Conversation, chosen []wire.Item) {
	if len(chosen) == len(c.Items) {
		return
	}
	marked := len(c.Hidden) == len(c.Items)
	var hidden []bool
	var moved []int
	next := 0
	for i, it := range c.Items {
		seen := !marked || !c.Hidden[i]
		if next < len(chosen) && sameItem(chosen[next], it) {
			hidden = append(hidden, !seen)
			if _, ok := slices.BinarySearch(c.Moved, i); ok {
				moved = append(moved, next)
			}
			next++
			continue
		}
		n := int(view.Units(it)) //nolint:gosec // as many as it has calls, and a text
		l.passedOver += n
		if next == 0 && seen {
			c.Offset += n // stands before what is left, for windows that count from the beginning
			if c.Stored {
				l.passedOver -= n // is counted with the offset
			}
		}
	}
	c.Items, c.Moved = chosen, moved
	if marked {
		c.Hidden = hidden
	}
}

// endsWith reports whether items end with last.
func endsWith(items, last []wire.Item) bool {
	return len(items) >= len(last) && slices.EqualFunc(items[len(items)-len(last):], last, func(a, b wire.Item) bool {
		return bytes.Equal(a.Raw, b.Raw)
	})
}

// instructionRole is the role of a block, or of advice on an answer: the dialect's, unless the client writes developer
// messages.
func instructionRole(d wire.Dialect, lead []wire.Item) wire.Role {
	for _, it := range lead {
		if it.Role == wire.Developer {
			return wire.Developer
		}
	}
	return d.Rules().InstructionRole
}

// tools are the definitions of the layers' functions, as the dialect spells them.
func (l *layered) tools(r *wire.Request) [][]byte {
	if l.run.Empty() {
		return nil
	}
	if n, err := strconv.Atoi(r.Text("n")); err == nil && n > 1 || r.Text("tool_choice") == "none" {
		return nil // of several answers none could be continued
	}
	if r.InConversation() {
		return nil // upstream would keep each call there
	}
	return l.run.Definitions(l.turn.Dialect)
}

// show puts into the view what layers add to it, and says so.
func (t *Turn) show(c *session.Conversation) {
	lead, history := t.View[:len(c.Lead)], t.View[len(c.Lead):]
	t.messages = view.Messages{
		Dialect: t.call.Request.Dialect, Instructions: t.call.Request.Instructions(), Lead: lead, Items: history,
	}
	if c.Continues {
		t.messages.Continue(c.Carried)
		t.View = t.messages.As(view.AsIs).Items
	}
	l := t.layers
	if l == nil {
		return
	}
	l.role = instructionRole(l.turn.Dialect, c.Lead)
	if len(l.blocks) > 0 {
		for i := range l.blocks {
			l.blocks[i].Role = l.role
			t.Summary.Recalled += l.blocks[i].Tokens
		}
		t.messages.Blocks = l.blocks
		t.View = t.messages.As(view.AsIs).Items
	}
	t.Tools = l.tools(t.call.Request)
	t.account(lead, history)
	t.entry.Blocks(l.blocks...)
	for _, r := range l.run.Report() {
		if r.Failed != "" {
			t.Summary.Skipped = append(t.Summary.Skipped, r.ID+":"+r.Failed)
		}
	}
	if len(t.Summary.Skipped) > 0 {
		t.Summary.Status = StatusDegraded
	}
	for i := range l.fitted.Dropped { // which is no failure
		t.Summary.Skipped = append(t.Summary.Skipped, l.fitted.Dropped[i].Layer+":"+noRoom)
	}
}

// noRoom is recorded for a layer whose block did not fit into the view.
const noRoom = "no_room"

// account notes what the view costs, without counting anything for it.
func (t *Turn) account(lead, history []wire.Item) {
	l := t.layers
	if l.guard || l.run.Empty() && !l.run.Limited() {
		return
	}
	tools := len(t.call.Request.Member("tools"))
	for _, tool := range t.Tools {
		tools += len(tool)
	}
	f := l.fitted
	f.Blocks, f.History = l.blocks, history
	l.usage = l.run.Usage(lead, tools, &f)
	u := &l.usage
	t.entry.Cost(turnrecord.Tokens{
		System: u.System, Tools: u.Tools, History: u.History, Layers: u.Total - u.System - u.Tools - u.History,
		Total: u.Total, Estimated: u.Estimated,
	})
}

// note tells the turn record how the layers fared.
func (l *layered) note(e *session.Entry) {
	var notes []turnrecord.LayerNote
	for _, r := range l.run.Report() {
		n := turnrecord.LayerNote{ID: r.ID, Name: r.Name, Ms: r.Time.Milliseconds(), Notes: r.Notes}
		if r.Failed != "" {
			n.Error = r.Failed + ": " + string(r.Class)
		}
		notes = append(notes, l.priced(n))
	}
	if l.overflow.ID != "" {
		notes = append(notes, l.priced(l.overflow))
	}
	e.Layers(notes...)
}

// priced adds to a note what the layer has of the view, or that it had no room there.
func (l *layered) priced(n turnrecord.LayerNote) turnrecord.LayerNote {
	for _, u := range l.usage.Layers {
		if u.ID == n.ID {
			n.Tokens, n.Items = u.Tokens, u.Items
		}
	}
	for i := range l.fitted.Dropped {
		if n.Error == "" && l.fitted.Dropped[i].Layer == n.ID {
			n.Error = noRoom
		}
	}
	return n
}
