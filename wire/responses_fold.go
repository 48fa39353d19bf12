package wire

import (
	"bytes"
	"cmp"
	"slices"
)

// responsesFold collects the events of a streamed response.
type responsesFold struct {
	final  []byte // the output of the terminal event, nil before it
	output []*outputItem
	full   bool // nothing more is collected but what the terminal event tells beside its output
}

// outputItem is one item of the output while it comes.
type outputItem struct {
	index int
	done  []byte // the item, once output_item.done has brought it
	texts []outputText
}

// outputText is the raw content of a text or refusal part.
type outputText struct {
	index   int
	refusal bool
	content []byte
}

// event takes in one event and tells whether it was the last one.
func (f *responsesFold) event(m *replyMeta, ev Event) (last bool) {
	var typ, response, item, delta, at, content []byte
	for p := range parts(ev.Data) {
		switch string(p.name) {
		case "type":
			typ, _ = inside(p.value)
		case "response":
			response = p.value
		case "item":
			item = p.value
		case "delta":
			delta, _ = inside(p.value)
		case "output_index":
			at = p.value
		case "content_index":
			content = p.value
		}
	}
	if len(typ) == 0 {
		typ = ev.Name
	}
	switch string(typ) {
	case "error":
		m.err = bytes.Clone(ev.Data)
		if e := member(ev.Data, "error"); len(e) > 0 && e[0] == '{' {
			m.err = bytes.Clone(e)
		}
	case "response.output_item.done":
		if o := f.at(at); o != nil && !f.full && len(item) > 0 {
			o.done, o.texts = bytes.Clone(item), nil
		}
	case "response.output_text.delta", "response.refusal.delta":
		if o := f.at(at); o != nil && !f.full {
			o.add(index(content, 0), string(typ) == "response.refusal.delta", delta)
		}
	default:
		output := m.noteResponse(response)
		if !f.full && (terminal(typ) || terminal(ev.Name)) {
			f.final = bytes.Clone(output)
		}
	}
	return terminal(typ) || terminal(ev.Name)
}

// noteResponse reads the response object that some events carry, and returns its output.
func (m *replyMeta) noteResponse(response []byte) (output []byte) {
	for p := range parts(response) {
		m.note(p)
		switch string(p.name) {
		case "status":
			m.finish = orElse(text(p.value), m.finish)
		case "output":
			output = p.value
		}
	}
	return output
}

// at is the output item of an index, nil if the index is not accepted.
func (f *responsesFold) at(raw []byte) *outputItem {
	i := index(raw, 0)
	if i < 0 {
		return nil
	}
	k, found := slices.BinarySearchFunc(f.output, i, func(o *outputItem, i int) int { return cmp.Compare(o.index, i) })
	if !found {
		f.output = slices.Insert(f.output, k, &outputItem{index: i})
	}
	return f.output[k]
}

func (o *outputItem) add(i int, refusal bool, delta []byte) {
	if i < 0 || o.done != nil {
		return
	}
	k, found := slices.BinarySearchFunc(o.texts, i, func(t outputText, i int) int { return cmp.Compare(t.index, i) })
	if !found {
		o.texts = slices.Insert(o.texts, k, outputText{index: i, refusal: refusal})
	}
	o.texts[k].content = append(o.texts[k].content, delta...)
}

// choices are the items: those of the terminal event, or else what came before it.
func (f *responsesFold) choices() [][]Item {
	if items := outputItems(f.final); len(items) > 0 {
		return [][]Item{items}
	}
	var items []Item
	dec := decoder{dialect: Responses, calls: maxCalls}
	for _, o := range f.output {
		if raw := o.raw(); raw != nil {
			items = append(items, dec.item(raw))
		}
	}
	if len(items) == 0 {
		return nil
	}
	return [][]Item{items}
}

// raw is the item, or a message of the text that has come. That message has no id: upstream may not know it. Calls
// that were cut are left out: nobody can run them.
func (o *outputItem) raw() []byte {
	if o.done != nil {
		return o.done
	}
	out := []byte(`{"type":"message","role":"assistant","content":[`)
	parts := 0
	for _, t := range o.texts {
		if len(t.content) == 0 {
			continue
		}
		if parts > 0 {
			out = append(out, ',')
		}
		parts++
		if t.refusal {
			out = append(out, `{"type":"refusal","refusal":"`...)
		} else {
			out = append(out, `{"type":"output_text","text":"`...)
		}
		out = append(append(out, t.content...), `"}`...)
	}
	if parts == 0 {
		return nil
	}
	return append(out, `]}`...)
}

// outputItems reads an output array.
func outputItems(raw []byte) []Item {
	var items []Item
	dec := decoder{dialect: Responses, calls: maxCalls}
	for p := range parts(raw) {
		if len(items) == maxElements || p.name != nil {
			break
		}
		items = append(items, dec.item(p.value))
	}
	return items
}

// wholeResponse reads a response that was not streamed.
func wholeResponse(m *replyMeta, body []byte) [][]Item {
	f := responsesFold{final: m.noteResponse(body)}
	return f.choices()
}
