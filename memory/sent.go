package memory

import (
	"remora/memory/view"
	"remora/wire"
)

// Sent returns the items to send upstream in a form that the server takes: the view, or its continuation after Review.
// bare is a request without the tools of layers; without tools of the client's, either, hidden calls stay out of it.
// portable converts stored items to the form that any provider takes. The turn's summary and record describe the last
// result.
func (t *Turn) Sent(f view.Form, bare, portable bool) view.Sent {
	bare = bare && t.hidden != nil && !t.clientTools()
	portable = portable && !t.unkept && !t.messages.Continues
	t.portable = portable
	if !bare && !portable && t.onward == nil && t.messages.Same(f) {
		t.note(f, bare, 0)
		return view.Sent{Items: t.View}
	}

	sent := t.sent(f, bare, portable)
	t.note(f, bare, sent.Repaired)
	return sent
}

func (t *Turn) sent(f view.Form, bare, portable bool) view.Sent {
	m := t.messages
	if t.onward != nil {
		m = *t.onward
	}
	if bare {
		m.Without(t.hidden.items())
	}
	if portable {
		own := make(map[*byte]bool)
		for _, it := range t.call.Request.Items() {
			if len(it.Raw) > 0 {
				own[&it.Raw[0]] = true
			}
		}
		m.MakePortable(func(it wire.Item) bool { return len(it.Raw) == 0 || own[&it.Raw[0]] || it.Kind == wire.ToolResult })
	}
	return m.As(f)
}

// note tells the summary and the record how the view is sent.
func (t *Turn) note(f view.Form, bare bool, repaired int) {
	if t.unkept {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if bare != t.bare {
		t.bare = bare
		v, lead := t.hidden.view, len(t.hidden.of.Lead)
		if bare {
			v.LeaveOut(lead, t.hidden.at...)
		}
		t.count(&t.hidden.of, &v)
		t.entry.Viewed(&t.hidden.of, &v, t.shape.ToolResult)
		if t.layers != nil {
			t.account(v.Items[:lead], v.Items[lead:])
		}
	}
	t.entry.Shaped(f, t.portable, repaired)
	t.Summary.Repaired = t.repaired + repaired
}

// goOn sets what the model goes on with. The advice at the end of what follows is for this request alone.
func (t *Turn) goOn(m view.Messages) []wire.Item {
	t.onward = &m
	return m.As(view.AsIs).Items
}
