package memory

import (
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// hiddenCalls are the calls in a view that its client does not see, with their results and the reasoning that led to them.
type hiddenCalls struct {
	of   session.Conversation
	view view.View
	at   []view.Out
}

// findHiddenCalls looks for hidden calls in a view; nil where there are none.
func findHiddenCalls(c *session.Conversation, v *view.View) *hiddenCalls {
	if c.Hidden == nil {
		return nil
	}

	h := &hiddenCalls{of: *c, view: *v}
	open := make(map[string]bool) // hidden calls that wait for their results
	var reasoning []view.Out
	for at, i := range v.Kept {
		it, out := v.Items[len(c.Lead)+at], view.Out{Index: at, Why: view.ReasonTools}
		switch {
		case !c.Hidden[i]:
			reasoning = nil
		case it.Kind == wire.Reasoning:
			reasoning = append(reasoning, out)
		case len(it.Calls) > 0:
			h.at = append(append(h.at, reasoning...), out)
			for _, call := range it.Calls {
				open[call.ID] = true
			}
			reasoning = nil
		case it.Kind == wire.ToolResult && open[it.Answers.ID]:
			// A hidden result may also stand for a client's own that a layer has rewritten: that one stays.
			h.at = append(h.at, out)
			delete(open, it.Answers.ID)
		}
	}
	if len(h.at) == 0 {
		return nil
	}
	return h
}

// WithoutTools makes the turn one that offers none of the layers' tools. If the client offers none either, hidden calls
// leave the view with their results: gateways in front of Bedrock and Anthropic refuse calls in a request without tools.
// It returns the view and the summary as they are then.
func (t *Turn) WithoutTools() ([]wire.Item, Summary) {
	t.Tools = nil
	h := t.hidden
	if h == nil || t.clientTools() {
		return t.View, t.Summary
	}

	t.mu.Lock()
	defer t.mu.Unlock()
	t.hidden = nil
	t.messages.Without(h.items())
	t.View = t.messages.As(view.AsIs).Items

	lead := len(h.of.Lead)
	h.view.LeaveOut(lead, h.at...)
	t.count(&h.of, &h.view)
	t.entry.Viewed(&h.of, &h.view, t.shape.ToolResult)
	if t.layers != nil {
		t.account(h.view.Items[:lead], h.view.Items[lead:])
	}
	return t.View, t.Summary
}

// clientTools reports whether the client offers tools of its own. Upstream then accepts calls of other tools as well.
func (t *Turn) clientTools() bool { return len(t.call.Request.Tools()) > 0 }

// items are the hidden calls and their results.
func (h *hiddenCalls) items() []wire.Item {
	items := make([]wire.Item, len(h.at))
	for n, out := range h.at {
		items[n] = h.view.Items[len(h.of.Lead)+out.Index]
	}
	return items
}

// lastView is the view for an answer that must be the last of its turn, so that layers offer no tools for it. Where the
// client offers none either, it holds no hidden calls, neither of this turn nor of earlier ones: the model begins anew.
func (t *Turn) lastView() view.Messages {
	l := t.layers
	m := t.messages
	if m.After = l.extra; t.clientTools() {
		return m
	}

	if t.hidden != nil {
		m.Without(t.hidden.items())
	}
	m.After = nil
	end := 0 // behind the last item that is not the model's: many upstreams want another's word last
	var reasoning []wire.Item
	for _, it := range l.extra {
		switch {
		case it.Kind == wire.Reasoning:
			reasoning = append(reasoning, it)
			continue
		case it.Kind == wire.ToolResult || len(it.Calls) > 0:
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
