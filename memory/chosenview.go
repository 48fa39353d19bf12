package memory

import (
	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// chosenView is a view, the conversation that it was chosen from, and the calls in it that the client does not see, with their
// results and reasoning.
type chosenView struct {
	conversation session.Conversation
	view         view.View
	hidden       []view.Out
}

// hides reports whether there are any hidden calls in the view; nil has none.
func (v *chosenView) hides() bool { return v != nil && len(v.hidden) > 0 }

// hiddenItems are the hidden calls and their results.
func (v *chosenView) hiddenItems() []wire.Item {
	items := make([]wire.Item, len(v.hidden))
	for n, out := range v.hidden {
		items[n] = v.view.Items[len(v.conversation.System)+out.Index]
	}
	return items
}

// leaveOut leaves more items out of the view. Copies of it do not change.
func (v *chosenView) leaveOut(out ...view.Out) {
	v.view.LeaveOut(len(v.conversation.System), out...)
	v.hidden = hiddenCalls(&v.conversation, &v.view)
}

// hiddenCalls finds the hidden calls in a view.
func hiddenCalls(c *session.Conversation, v *view.View) (hidden []view.Out) {
	open := make(map[string]bool) // hidden calls that wait for their results
	var reasoning []view.Out
	for at, i := range v.Kept {
		it, out := v.Items[len(c.System)+at], view.Out{Index: at, Why: view.ReasonTools}
		switch {
		case !c.Hidden[i]:
			reasoning = nil
		case it.Kind == wire.Reasoning:
			reasoning = append(reasoning, out)
		case it.HasJudged():
			hidden = append(append(hidden, reasoning...), out)
			for _, call := range it.Judged() {
				open[call.ID] = true
			}
			reasoning = nil
		case it.Answers() != wire.Call{} && open[it.Answers().ID]:
			// A hidden result may replace one of the client that a layer has rewritten: it stays.
			hidden = append(hidden, out)
			delete(open, it.Answers().ID)
		}
	}
	return hidden
}
