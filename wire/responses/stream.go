package responses

import (
	"bytes"
	"cmp"
	"slices"

	"remora/wire"
	"remora/wire/sse"
)

// answers reads answers.
type answers struct{}

// maxOutput bounds the items of an answer.
const maxOutput = 1 << 15

func (answers) Stream() wire.Stream { return new(fold) }

// fold collects the events of a streamed response.
type fold struct {
	final  []byte // the output of the terminal event, nil before it
	output []*outputItem
	full   bool  // nothing more is collected but what the terminal event tells beside its output
	read   event // the current event
}

// Begun: an event is terminal if it is called so. It need not be whole.
func (f *fold) Begun(name, _ []byte) (begun, ended bool) { return terminal(name), false }

func (f *fold) Lost(name []byte) bool { return terminal(name) }

func (f *fold) Stop() { f.full = true }

func (f *fold) Reply(r *wire.Reply, _ []byte) { r.Choices = f.choices() }

// outputItem is one item of the output while it comes.
type outputItem struct {
	index int
	done  []byte // the item, once output_item.done has brought it
	texts []outputText
	// A call that has begun, and its input: the raw content of the pieces, and the whole value once that has come. Many
	// clients run it without waiting for output_item.done.
	call, pieces, input []byte
}

// outputText is the raw content of a text or refusal part.
type outputText struct {
	index   int
	refusal bool
	content []byte
}

// Event takes in one event and reports whether it was the last one.
func (f *fold) Event(m *wire.Meta, ev *sse.Block) (effect wire.Effect, last bool) {
	f.read = readEvent(ev.Name, ev.Data)
	of := &f.read
	typ, response, item, delta, at, content, input := of.Type, of.Response, of.Item, of.Delta, of.Index, of.Content, of.Input
	switch string(typ) {
	case "error":
		m.Err = bytes.Clone(ev.Data)
		if e := wire.Member(ev.Data, "error"); len(e) > 0 && e[0] == '{' {
			m.Err = bytes.Clone(e)
		}
	case "response.output_item.done":
		if o := f.at(at); o != nil && !f.full && len(item) > 0 {
			o.done, o.texts, o.call, o.pieces, o.input = bytes.Clone(item), nil, nil, nil, nil
		}
	case "response.output_item.added":
		if o := f.at(at); o != nil && !f.full && o.done == nil && inputMember(item) != "" {
			o.call = bytes.Clone(item)
		}
	case "response.function_call_arguments.delta", "response.custom_tool_call_input.delta":
		if o := f.at(at); o != nil && !f.full && o.call != nil {
			o.pieces = append(o.pieces, delta...)
		}
	case "response.function_call_arguments.done", "response.custom_tool_call_input.done":
		if o := f.at(at); o != nil && !f.full && o.call != nil {
			o.input = bytes.Clone(input)
		}
	case "response.output_text.delta", "response.refusal.delta":
		if o := f.at(at); o != nil && !f.full {
			o.add(wire.IndexOr(content, 0), string(typ) == "response.refusal.delta", delta)
		}
	default:
		output := noteResponse(m, response)
		if !f.full && of.last(ev.Name) {
			f.final = bytes.Clone(output)
		}
	}
	return of, of.last(ev.Name)
}

// noteResponse reads the response object that some events carry, and returns its output.
func noteResponse(m *wire.Meta, response []byte) (output []byte) {
	for p := range wire.Children(response) {
		m.Note(p.Name, p.Value)
		switch string(p.Name) {
		case "status":
			m.Finish = cmp.Or(wire.Text(p.Value), m.Finish)
		case "output":
			output = p.Value
		}
	}
	return output
}

// at returns the output item of an index, nil if the index is not accepted.
func (f *fold) at(raw []byte) *outputItem {
	i := wire.IndexOr(raw, 0)
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

// choices returns the items of the terminal event, or else those that came before it.
func (f *fold) choices() [][]wire.Item {
	if items := outputItems(f.final); len(items) > 0 {
		return [][]wire.Item{items}
	}
	var items []wire.Item
	dec := wire.NewDecoder(Dialect)
	for _, o := range f.output {
		if raw := o.raw(); raw != nil {
			items = append(items, dec.Item(raw))
		}
	}
	if len(items) == 0 {
		return nil
	}
	return [][]wire.Item{items}
}

// inputMember returns the member of a call that its events bring in pieces, "" for items that have none.
func inputMember(item []byte) string {
	switch wire.Text(wire.Member(item, "type")) {
	case "function_call":
		return "arguments"
	case "custom_tool_call":
		return "input"
	}
	return ""
}

// begunCall returns a call whose input is complete although upstream has not sent the finished item, nil if the input
// is cut off.
func (o *outputItem) begunCall() []byte {
	name := inputMember(o.call)
	input := o.input
	if len(input) == 0 && name == "arguments" && len(o.pieces) > 0 && wire.Valid(wire.Unescaped(o.pieces)) {
		input = append(append([]byte{'"'}, o.pieces...), '"')
	}
	if len(input) == 0 || input[0] != '"' {
		return nil
	}

	out := []byte{'{'}
	for p := range wire.Children(o.call) {
		if string(p.Name) != name && string(p.Name) != "status" {
			out = append(append(append(wire.AppendString(out, string(p.Name)), ':'), p.Value...), ',')
		}
	}
	out = append(append(wire.AppendString(out, name), ':'), input...)
	return append(out, `,"status":"completed"}`...)
}

// raw returns the item, or a message of the text that has come. That message has no id: upstream may not know it. Calls
// that were cut are left out, since they cannot be run.
func (o *outputItem) raw() []byte {
	if o.done != nil {
		return o.done
	}
	if o.call != nil {
		return o.begunCall()
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
func outputItems(raw []byte) []wire.Item {
	var items []wire.Item
	dec := wire.NewDecoder(Dialect)
	for p := range wire.Children(raw) {
		if len(items) == maxOutput || p.Name != nil {
			break
		}
		items = append(items, dec.Item(p.Value))
	}
	return items
}

// Whole reads a response that was not streamed. One that is still to come is not complete.
func (answers) Whole(m *wire.Meta, s *wire.Scanner) (choices [][]wire.Item, complete bool) {
	f := fold{final: noteResponse(m, s.Raw())}
	return f.choices(), m.Finish != "queued" && m.Finish != "in_progress"
}

// terminal reports whether an event of this type is the last one of Responses.
func terminal(typ []byte) bool {
	switch string(typ) {
	case "response.completed", "response.incomplete", "response.failed", "error":
		return true
	}
	return false
}
