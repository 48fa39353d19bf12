package memory

import (
	"slices"
	"sync"

	"remora/memory/view"
	"remora/wire"
)

// Tokens returns the number of tokens of the request with the view, 0 if unknown: all that a model's context has to hold, apart from
// the answer.
func (t *Turn) Tokens() int {
	if t.shape.Price == nil {
		return 0
	}
	items := t.View
	if t.continuation != nil {
		items = t.continuation.As(view.AsIs).Items
	}
	return t.price(t.resolved(items)) + t.price(t.instructions()) + t.toolTokens(t.Tools)
}

// TextTokens returns how many tokens the texts of the view have, if these are more than a number, else 0. A model reads these in any
// case; of thoughts, pictures and files servers leave some out, or count others.
func (t *Turn) TextTokens(moreThan int) (n int) {
	const leastBytes = 3 // of a token, on average
	if t.shape.Price == nil || bytesOf(t.View) <= leastBytes*moreThan {
		return 0
	}
	for _, it := range t.View {
		if text := it.Said(); text != "" {
			n += t.shape.Price(t.call.Request.Model(), wire.NewMessage(t.call.Request.Dialect, wire.User, text))
		}
	}
	if n <= moreThan {
		return 0
	}
	return n
}

// room returns how many of the tokens that the model takes are left beside the definitions of tools.
func (t *Turn) room() int {
	var definitions [][]byte
	if t.layers != nil {
		definitions = t.layers.tools()
	}
	return max(1, t.call.MaxTokens-t.toolTokens(definitions))
}

// resolved is session.Entry.Resolved for a request that may be written meanwhile.
func (t *Turn) resolved(items []wire.Item) []wire.Item {
	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	return t.writer.entry.Resolved(items)
}

// WithoutTools removes the layers' tools from the turn. If the client offers none either, or only functions, hidden calls are
// removed from the view with their results: gateways in front of Bedrock and Anthropic refuse calls in a request without tools.
func (t *Turn) WithoutTools() {
	t.Tools = nil
	if !t.chosen.hides() || t.call.Request.OffersTools() && !t.call.Request.OffersFunctions() {
		return
	}

	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	t.messages.Without(t.chosen.hiddenItems())
	t.View = t.messages.As(view.AsIs).Items

	t.chosen.leaveOut(t.chosen.hidden...)
	t.describe(t.chosen)
}

// Shorten leaves older items out of the request with which the model goes on, as a window does that leaves it at most maxTokens:
// upstream has refused its length. What the turn has added stays. It reports whether that leaves anything out.
func (t *Turn) Shorten(maxTokens int) bool {
	if t.chosen == nil || t.chosen.conversation.Side || t.continuation == nil || t.noTools || t.shape.Window == nil {
		return false
	}
	history := t.chosen.view.Items[len(t.chosen.conversation.System):]
	resolved := t.resolved(history)
	beside := t.Tokens() - t.price(resolved)
	kept := view.Assemble(view.Request{
		Items: history, Resolved: resolved, Window: t.shape.Window, WindowInput: t.windowSizes(max(1, maxTokens-beside)),
	}).Kept

	var out []view.Out
	var gone []wire.Item
	for i, it := range history {
		if _, stays := slices.BinarySearch(kept, i); !stays {
			out, gone = append(out, view.Out{Index: i, Why: view.ReasonWindow}), append(gone, it)
		}
	}
	if len(out) == 0 {
		return false
	}

	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	t.messages.Without(gone)
	t.continuation.Without(gone)
	t.chosen.leaveOut(out...)
	t.describe(t.chosen)
	return true
}

// describe tells the summary and the turn's record what of a conversation is in the view. The caller holds t.writer.mu.
func (t *Turn) describe(chosen *chosenView) {
	c, v := &chosen.conversation, &chosen.view
	system := len(c.System)
	t.Summary.count(system, v)
	t.writer.entry.View.Chosen(c, v, t.shape.ToolResult)
	if t.layers != nil {
		t.layers.account(t.writer.entry, t.Tools, v.Items[:system], v.Items[system:])
	}
}

// shapeFor returns the part of a shape that concerns the view. If the client or layers offer tools, hidden calls stay: upstream then
// accepts calls of other tools as well.
func (t *Turn) shapeFor(s view.Shape) view.Shape {
	noTools := s.NoTools || len(t.Tools) == 0
	s.NoTools = s.NoTools && t.chosen.hides() && !t.call.Request.OffersTools()
	if t.call.Unkept || t.messages.Continues { // upstream has items of the conversation that can't be changed
		s.Portable, s.Own, s.NoMedia, s.Mend = false, false, false, 0
	}
	s.NoCalls = s.NoCalls && s.Portable && noTools && !t.call.Request.OffersTools()
	return s
}

// Sent returns the items to send upstream in a shape: the view, or its continuation after Review. Several shapes may be tried; see
// Record.
func (t *Turn) Sent(s view.Shape) view.Sent {
	s = t.shapeFor(s)
	if s == (view.Shape{Form: s.Form}) && t.continuation == nil && t.messages.Same(s.Form) {
		return view.Sent{Items: t.View}
	}
	m := t.messages
	if t.continuation != nil {
		m = *t.continuation
	}
	if s.NoTools {
		m.Without(t.chosen.hiddenItems())
	}
	m.Own = t.owns()
	return m.In(s)
}

// owns returns a function that reports whether an item is the client's own.
func (t *Turn) owns() func(wire.Item) bool {
	type clients struct {
		items   wire.ItemSet
		results map[string]bool // one may have been shortened, so that its bytes are others
	}
	own := sync.OnceValue(func() clients { // most views need no answer
		c := clients{wire.NewItemSet(t.call.Request.Items()), make(map[string]bool)}
		for _, it := range t.call.Request.Items() {
			if id := it.Answers().ID; it.Kind == wire.ToolResult && id != "" {
				c.results[id] = true
			}
		}
		return c
	})
	return func(it wire.Item) bool {
		return len(it.Raw) == 0 || own().items.Has(it) || it.Kind == wire.ToolResult && own().results[it.Answers().ID]
	}
}

// Record tells the turn's record and summary in which shape the view is sent, with what Sent has returned for it. It returns the
// summary.
func (t *Turn) Record(s view.Shape, sent view.Sent) Summary {
	if t.call.Unkept {
		return t.Summary
	}
	s = t.shapeFor(s)
	t.writer.mu.Lock()
	defer t.writer.mu.Unlock()
	if s.NoTools != t.noTools {
		t.noTools = s.NoTools
		shown := *t.chosen
		if s.NoTools {
			shown.leaveOut(shown.hidden...)
		}
		t.describe(&shown)
	}
	t.showBlocks(t.messages.Blocks)
	t.writer.entry.View.SentAs(s, sent.Repaired)
	t.Summary.Repaired = t.repaired + sent.Repaired
	return t.Summary
}

// RecordAsCame is Record for a request that is sent as it came, since its view cannot be encoded. The next Record replaces it.
func (t *Turn) RecordAsCame() Summary {
	items := len(t.call.Request.Items())
	if !t.call.Unkept {
		t.writer.mu.Lock()
		defer t.writer.mu.Unlock()
		t.showBlocks(nil)
		t.writer.entry.View.SentAsCame()
	}
	return Summary{Status: StatusDegraded, Items: items, Sent: items, Side: t.Summary.Side}
}

// showBlocks tells the turn's record which blocks of layers are sent. The caller holds t.writer.mu.
func (t *Turn) showBlocks(blocks []view.Block) {
	t.writer.entry.Notes.Blocks = blocks
	if t.layers != nil {
		t.layers.blocks = blocks
	}
}
