package memory

import (
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// hiddenCalls are the calls in a view that the client does not see, with their results and reasoning.
type hiddenCalls struct {
	conversation session.Conversation
	view         view.View
	out          []view.Out // the calls, results and reasoning in it
}

// findHiddenCalls looks for hidden calls in a view; nil where there are none.
func findHiddenCalls(c *session.Conversation, v *view.View) *hiddenCalls {
	if c.Hidden == nil {
		return nil
	}

	h := &hiddenCalls{conversation: *c, view: *v}
	open := make(map[string]bool) // hidden calls that wait for their results
	var reasoning []view.Out
	for at, i := range v.Kept {
		it, out := v.Items[len(c.System)+at], view.Out{Index: at, Why: view.ReasonTools}
		switch {
		case !c.Hidden[i]:
			reasoning = nil
		case it.Kind == wire.Reasoning:
			reasoning = append(reasoning, out)
		case it.HasCalls():
			h.out = append(append(h.out, reasoning...), out)
			for _, call := range it.Calls() {
				open[call.ID] = true
			}
			reasoning = nil
		case it.Kind == wire.ToolResult && open[it.Answers().ID]:
			// A hidden result may replace one of the client that a layer has rewritten: it stays.
			h.out = append(h.out, out)
			delete(open, it.Answers().ID)
		}
	}
	if len(h.out) == 0 {
		return nil
	}
	return h
}

// items are the hidden calls and their results.
func (h *hiddenCalls) items() []wire.Item {
	items := make([]wire.Item, len(h.out))
	for n, out := range h.out {
		items[n] = h.view.Items[len(h.conversation.System)+out.Index]
	}
	return items
}
