package memory

import (
	"context"
	"encoding/hex"
	"math"
	"slices"
	"sort"
	"strconv"
	"time"

	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// bytesOfToken is about how many bytes of an item make a token, where counting would cost more than it is worth.
const bytesOfToken = 4

// keptPrefix carries the session's pinned prefix through a turn.
type keptPrefix struct {
	keptValue[view.Prefix]
	known   *prefixes
	config  view.PromptCache
	request view.PrefixRequest // of the step that was made
}

func newKeptPrefix(c view.PromptCache, known *prefixes) *keptPrefix {
	return &keptPrefix{keptValue: keptValue[view.Prefix]{decode: known.decode}, known: known, config: c}
}

// held names the layers that need not be asked, since what they said at the beginning of the round is still shown.
func (t *Turn) held(c *session.Conversation) []string {
	l := t.layers
	e := l.states.keeps().prefix
	if e == nil || c.Opaque {
		return nil
	}
	// What was pinned for one resource is not for another that shares the session.
	e.request.Lineage = l.turn.Dialect.String() + " " + l.turn.Model + " " + l.turn.Resource
	e.request.Round, e.request.Loop = t.roundName(c)
	return e.now.Frozen(e.request.Lineage, e.request.Round)
}

// roundName tells the round of a request from others, also from one that began with the same words, and whether the
// request is not the first of it.
func (t *Turn) roundName(c *session.Conversation) (name string, loop bool) {
	first := view.Round(c.Items)
	name = t.layers.turn.Execution + "@" + strconv.Itoa(visible(c, first))
	if t.call.Scope.Execution != "" && first < len(c.Items) {
		// A client's own name for the run may outlive an edit of the message; a derived one includes the message.
		content := c.Items[first].ContentHash()
		name += "@" + hex.EncodeToString(content[:])
	}
	return name, first < len(c.Items)-1
}

// plan decides where the blocks of layers stand, so that the provider's prompt cache holds what it can.
func (t *Turn) plan(c *session.Conversation, v *view.View) {
	l := t.layers
	e := l.states.keeps().prefix
	if e == nil {
		return
	}
	r := &e.request
	r.Lead, r.CutMoved, r.Idle = t.entry.Lead(), t.cutMoved(v), t.idle()
	r.Count, r.Free = l.run.Count, math.MaxInt
	r.End = visible(c, len(c.Items))
	r.View = sizeOf(v.Items)
	if l.run.Limited() {
		r.Free = max(0, l.run.Room()-sizeOf(c.Lead)-sizeOf(c.Items[view.Round(c.Items):]))
	}
	r.Layers = l.run.Said()
	t.step(e)
}

// step puts the layers' blocks in their places for the prompt cache.
func (t *Turn) step(e *keptPrefix) {
	p, next := e.read.Step(e.config, e.request)
	e.replace(next)
	t.entry.PrefixReason(string(p.Reason))
	anchored := p.Anchored
	for _, b := range t.layers.blocks {
		if b.Slot == summarySlot {
			anchored = append(anchored, b)
		}
	}
	t.layers.blocks = slices.Concat(anchored, p.Updates, p.Live)
}

// seat turns places in the conversation into places in the view that was chosen from it. Nothing stands between a call and
// its result, or between reasoning and what it led to.
func (l *layered) seat(c *session.Conversation, v *view.View) {
	if !slices.ContainsFunc(l.blocks, func(b view.Block) bool { return b.Inside }) {
		return
	}

	history := v.Items[len(c.Lead):]
	for i := range l.blocks {
		b := &l.blocks[i]
		if !b.Inside {
			continue
		}
		n := sort.Search(len(v.Kept), func(n int) bool { return visible(c, v.Kept[n]) >= b.At })
		for n < len(history) && (history[n].Kind == wire.ToolResult || n > 0 && leadsOn(history[n-1])) {
			n++
		}
		b.At = n
	}
}

// leadsOn reports whether upstream wants the next item directly behind this one.
func leadsOn(it wire.Item) bool { return it.Kind == wire.ToolCall || it.Kind == wire.Reasoning }

// visible is how much of the conversation the client sees before one of its items.
func visible(c *session.Conversation, item int) int {
	n := max(0, c.Offset)
	for i, it := range c.Items[:min(item, len(c.Items))] {
		if len(c.Hidden) != len(c.Items) || !c.Hidden[i] {
			n += int(view.Units(it)) //nolint:gosec // as many as it has calls, and a text
		}
	}
	return n
}

// keepUpdates begins a new prefix version if the view has no room for all updates: a model that misses one would rely on
// an outdated block. It reports whether it began one.
func (t *Turn) keepUpdates(dropped []view.Block) bool {
	e := t.layers.states.keeps().prefix
	for _, b := range dropped {
		if e != nil && b.Update {
			e.request.Free = 0
			t.step(e)
			return true
		}
	}
	return false
}

// sizeOf is about how many tokens items cost.
func sizeOf(items []wire.Item) (n int) {
	for _, it := range items {
		n += len(it.Raw) / bytesOfToken
	}
	return n
}

// cutMoved reports whether the history begins elsewhere than in the session's latest view: the window was cut anew, or
// another line has become the conversation.
func (t *Turn) cutMoved(v *view.View) bool {
	cut := t.layers.states.keeps().cut
	return t.entry.ReplacesHead() || cut != nil && cut.read.Units != v.Start.Units
}

// windowInput returns the input for a window to begin where the session's latest view did.
func (t *Turn) windowInput(ctx context.Context, c *session.Conversation) view.WindowInput {
	w := t.shape.Window
	if !w.Stateful() {
		return view.WindowInput{}
	}
	model := t.call.Request.Model()
	a := view.WindowInput{AtMost: t.shape.AtMost}
	if t.shape.Price != nil {
		a.Tokens = func(it wire.Item) int { return t.shape.Price(model, it) }
	}
	if t.shape.Context != nil && w.MaxShare > 0 { // asking may have the provider's list of models fetched
		a.Context = t.shape.Context(model)
	}
	if t.layers == nil || t.layers.states.keeps().cut == nil {
		return a // nothing of the session was read: layers only judge the answer, or there are none
	}
	a.Previous = t.layers.states.keeps().cut.now
	a.Cold = w.IdleReset > 0 && t.idle() > w.IdleReset
	whole := *c // in memory of its own, which most windows need not: they ask for no names
	a.Keys = func() []wire.Hash {
		keys, err := t.entry.Keys(ctx, &whole)
		if err != nil {
			t.m.o.Log.Warn("a window is cut anew", "turn", t.ID, "error", err.Error())
		}
		return keys
	}
	return a
}

// idle is how long the session had no request before this one, 0 where that is not known.
func (t *Turn) idle() time.Duration {
	last, ok := timeOfTurn(t.entry.LastTurn())
	if !ok {
		return 0
	}
	return max(0, t.started.Sub(last))
}

// observeCache passes the reported cache usage to the prefix: of several requests for one answer, only the first sent the view.
func (l *layered) observeCache(r *wire.Reply) {
	e := l.states.keeps().prefix
	if e == nil || !e.set || l.counted || len(r.Usage) == 0 {
		return
	}
	l.counted = true
	u := wire.ParseUsage(r.Usage)
	e.replace(e.now.Answered(e.config, view.CacheUsage{Prompt: int(u.Input), Cached: int(u.Cached), Reported: u.CacheKnown}))
}
