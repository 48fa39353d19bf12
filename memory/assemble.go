package memory

import (
	"context"
	"time"

	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/summary"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// assembly builds the view of a turn from the conversation and the blocks of layers.
type assembly struct {
	t     *Turn                // the owner of the view
	entry *session.Entry       // its place in the session
	l     *turnLayers          // its layers, nil for none
	c     session.Conversation // the input of the view
	v     view.View

	all    []wire.Item // the conversation's items before layers chose from them
	offset int         // of the conversation then
}

// prompt returns what stands before the history.
func (a *assembly) prompt() pipeline.Prompt {
	return pipeline.Prompt{System: a.c.System, Instructions: a.t.call.Request.Instructions()}
}

// assemble makes the view and the summary of the turn.
func assemble(ctx context.Context, t *Turn) (err error) {
	l := t.layers
	a := assembly{t: t, entry: t.writer.entry, l: l}
	if l != nil {
		if err := l.append(ctx, a.entry); err != nil {
			return err
		}
	}
	if err := a.read(ctx); err != nil {
		return err
	}
	a.all, a.offset = a.c.Items, a.c.Offset

	t.Summary = Summary{Side: a.c.Side}
	if l != nil {
		a.recall(ctx)
	}
	if a.c.Opaque {
		a.v = view.Whole(a.c.System, a.c.Items)
		t.View = a.v.Items
		view.ShortenResults(t.View, t.shape.ToolResult)
		t.Summary.Items, t.Summary.Sent = len(t.View), len(t.View)
		a.entry.View.Chosen(&a.c, &a.v, t.shape.ToolResult)
		a.show()
		return nil
	}

	cut := a.choose(ctx)
	if l != nil {
		a.recallOfView(ctx, cut)
	}
	view.ShortenResults(a.v.Items, t.shape.ToolResult)
	if l != nil {
		a.fit(ctx)
	}
	if a.c.Stored {
		a.v.Outside += a.c.Offset // stored history that is too far back to be read
	}
	t.Summary.Saved = max(0, estimate(a.all)-estimate(a.v.Items[len(a.c.System):]))
	a.finish()
	return nil
}

// read reads the conversation.
func (a *assembly) read(ctx context.Context) (err error) {
	read := withTimeout(ctx, a.t.m.o.ReadWait)
	defer read.end()
	a.c, err = a.entry.History.Conversation(read, a.want()) //nolint:contextcheck // read is made of ctx
	return err
}

// itemKeys returns the keys of items of the conversation, which the store may have to be read for.
func (a *assembly) itemKeys(ctx context.Context, items []wire.Item) ([]wire.Hash, error) {
	read := withTimeout(ctx, a.t.m.o.ReadWait)
	defer read.end()
	return a.entry.History.ItemKeys(read, items) //nolint:contextcheck // read is made of ctx
}

// want returns how many units of the stored history to read: those that the window may keep, and those that are not summarised
// yet.
func (a *assembly) want() uint64 {
	var cut view.WindowStart
	var sum *storedValue[summary.State]
	if a.l != nil {
		values := &a.l.states.values
		if sum = values.summary; values.window != nil {
			cut = values.window.now
		}
	}
	want := a.t.shape.Window.Reach(cut, a.entry.UnitsBefore())
	if sum == nil {
		return want
	}
	if before := a.entry.UnitsBefore(); before >= sum.now.Units {
		want = max(want, before-sum.now.Units+1)
	}
	return min(want, view.MaxItems)
}

// choose chooses the items to send: by the window, and by the layers that choose from the rest. It returns the window's cut,
// for layers.
func (a *assembly) choose(ctx context.Context) *windowCut {
	t, c := a.t, &a.c
	w := t.shape.Window
	summarises := !c.Side && a.entry.OrdersSummary()
	if c.Side || summarises {
		w = nil // a summary, or another side request, needs all items of the client
	}
	request := view.Request{
		System: c.System, Items: c.Items, Resolved: a.entry.Resolved(c.Items), Hidden: c.Hidden, Offset: c.Offset, Window: w,
		Own:         t.call.Request.Items(),
		Moved:       c.Moved,
		WindowInput: a.windowInput(ctx),
	}
	a.v = view.Assemble(request)
	if summarises {
		a.v.Start = request.Previous // the conversation may go on without the summary
	}

	cut := newWindowCut(a)
	if w != nil && a.projectWindow(ctx) {
		start := a.v.Start
		request.Items, request.Resolved, request.Hidden = c.Items, a.entry.Resolved(c.Items), c.Hidden
		request.Moved, request.Offset, request.Window = c.Moved, c.Offset, nil
		a.v = view.Assemble(request)
		a.v.Start = start // the window's cut, even if more was left out after it
	}
	return cut
}

// windowInput returns the input for a window that begins where the session's latest view began.
func (a *assembly) windowInput(ctx context.Context) view.WindowInput {
	t, w := a.t, a.t.shape.Window
	if !w.Stateful() {
		return view.WindowInput{}
	}
	most := 0
	if t.call.MaxTokens > 0 {
		most = max(1, t.room()-t.price(a.c.System)-t.price(t.instructions()))
	}
	in := t.windowSizes(most)
	if t.shape.Context != nil && w.MaxShare > 0 { // the call may fetch the provider's list of models
		in.Context = t.shape.Context(t.call.Request.Model())
	}
	in.Apart = a.entry.Standing() == session.Alone
	if a.l == nil || a.l.states.values.window == nil {
		return in // nothing of the session was read: layers only judge the answer, or there are none
	}
	in.Previous = a.l.states.values.window.now
	in.Cold = w.IdleReset > 0 && a.idle() > w.IdleReset
	in.Keys = func() []wire.Hash {
		keys, err := a.itemKeys(ctx, a.c.Items)
		if err != nil {
			t.m.o.Log.Warn("a window is cut anew", "turn", t.ID, "error", err.Error())
		}
		return keys
	}
	return in
}

// idle returns the time since the session's previous request, 0 if unknown.
func (a *assembly) idle() time.Duration {
	last, ok := turnrecord.Began(a.entry.LastTurn())
	if !ok {
		return 0
	}
	return max(0, a.t.began.Sub(last))
}

// fit leaves out what exceeds the budget, and hands layers what the view lacks.
func (a *assembly) fit(ctx context.Context) {
	if a.t.shape.ToolResult > 0 {
		a.pin() // updates are weighed against the view, which has become smaller
	}
	values := &a.l.states.values
	if w := values.window; w != nil && !a.c.Side && a.v.Start != w.now { // most sessions have none, and most requests do not move it
		w.replace(a.v.Start)
	}
	o := overflow{assembly: a}
	o.fit(ctx)
	if values.seen != nil {
		a.l.evictions.find(ctx, a, pipeline.Pick(a.c.Items, a.v.Kept))
	}
	a.v.Outside += a.l.passedOver
}

// pin replaces the layers' blocks by those of the pinned prefix and its updates.
func (a *assembly) pin() {
	if prefix := a.l.states.values.prefix; prefix != nil {
		prefix.plan(a)
	}
}

// withTargets returns items of the conversation for those that read their text: references as the stored items that they name, or as
// they are if the store cannot be read.
func (a *assembly) withTargets(ctx context.Context, items []wire.Item) []wire.Item {
	read, cancel := context.WithTimeout(ctx, a.t.m.o.ReadWait)
	defer cancel()
	out, err := a.entry.History.WithTargets(read, items)
	if err != nil {
		a.t.m.o.Log.Warn("layers do not read what references name", "turn", a.t.ID, "error", err.Error())
		return items
	}
	return out
}

// history returns the view's part of the conversation, with references resolved.
func (a *assembly) history() []wire.Item { return a.entry.Resolved(a.v.Items[len(a.c.System):]) }

// finish makes v the turn's view and records how it was chosen.
func (a *assembly) finish() {
	t, c, v := a.t, &a.c, &a.v
	t.View = v.Items
	t.Summary.count(len(c.System), v)
	t.Summary.Repaired += v.Repaired
	t.repaired = t.Summary.Repaired
	a.entry.View.Chosen(c, v, t.shape.ToolResult)
	if a.l != nil {
		placeInside(a)
	}
	a.show()
	hidden := hiddenCalls(c, v)
	if _, steered := t.Steering(); steered || len(hidden) > 0 {
		t.chosen = &chosenView{*c, *v, hidden}
	}
	if len(t.Tools) == 0 {
		t.WithoutTools()
	}
}

// show inserts the layers' blocks into the view, and records them.
func (a *assembly) show() {
	t, c := a.t, &a.c
	system, history := t.View[:len(c.System)], t.View[len(c.System):]
	t.messages = view.Messages{
		Dialect: t.call.Request.Dialect, Instructions: t.call.Request.Instructions(), System: system, Items: history,
	}
	if c.Continues {
		t.messages.Continue(c.Carried)
		t.View = t.messages.As(view.AsIs).Items
	}
	l := a.l
	if l == nil {
		return
	}

	l.rounds.role = instructionRole(t.call.Request.Dialect, c.System)
	if len(l.blocks) > 0 {
		for i := range l.blocks {
			l.blocks[i].Role = l.rounds.role
			t.Summary.Recalled += l.blocks[i].Tokens
		}
		t.messages.Blocks = l.blocks
		t.View = t.messages.As(view.AsIs).Items
	}
	t.Tools = l.tools()
	l.account(a.entry, t.Tools, system, history)
	a.entry.Notes.Blocks = l.blocks

	reports := l.run.Report()
	for _, r := range reports {
		if r.Failed != "" {
			t.Summary.Skipped = append(t.Summary.Skipped, r.ID+":"+r.Failed)
		}
	}
	if len(t.Summary.Skipped) > 0 {
		t.Summary.Status = StatusDegraded
	}
	l.run.LeftOut(l.fitted.Dropped)
	l.unfit = l.withoutRoom(reports)
	for _, id := range l.unfit { // which is no failure
		t.Summary.Skipped = append(t.Summary.Skipped, id+":"+noRoom)
	}
}

// instructionRole is the role of a block, or of advice on an answer: the dialect's, unless the client writes developer
// messages.
func instructionRole(d wire.Dialect, system []wire.Item) wire.Role {
	for _, it := range system {
		if it.Role == wire.Developer {
			return wire.Developer
		}
	}
	return d.Rules().InstructionRole
}
