package responses

import (
	"bytes"
	"cmp"
	"slices"

	"remora/wire"
	"remora/wire/sse"
)

// ambiguities gathers what the events of a stream say of its calls, for clients that believe one of them or another.
type ambiguities struct {
	odd   string // why the answer is unclear
	calls []*callReading
}

func (answers) Ambiguities() wire.Ambiguities { return new(ambiguities) }

const (
	oddType     = "an event has two types"
	oddCall     = "the events of a call do not agree with each other"
	oddEarly    = "an event lists a call before the end of the answer"
	tooManyOdds = "it has too many calls"
)

const (
	inResponse wire.Place = iota + 1
	inItem
)

// callPlaces are the members that calls depend on.
func callPlaces() map[wire.Place]map[string]wire.Place {
	return map[wire.Place]map[string]wire.Place{
		wire.Top: {
			"response": inResponse, "item": inItem, "output": inItem, "arguments": wire.CallInput, "input": wire.CallInput,
			"type": wire.Leaf, "delta": wire.Leaf, "name": wire.Leaf, "item_id": wire.Leaf, "output_index": wire.Leaf,
		},
		inResponse: {"output": inItem},
		inItem: {
			"arguments": wire.CallInput, "input": wire.CallInput, "action": wire.CallInput, "operation": wire.CallInput,
			"type": wire.Leaf, "id": wire.Leaf, "call_id": wire.Leaf, "name": wire.Leaf,
		},
	}
}

// callReading is a call of Responses as one kind of event tells it.
type callReading struct {
	index, id string // of the output item
	named     bool   // name and callID are known
	name      string
	callID    string
	deltas    []byte   // raw content of the pieces of its input
	inputs    []string // its whole input, as each event has it that does
}

func (a *ambiguities) note(why string) {
	a.odd = cmp.Or(a.odd, why)
}

// Event takes in an event.
func (a *ambiguities) Event(ev *sse.Block, e wire.Effect) (why string) {
	of, ok := e.(*event)
	if !ok {
		return ""
	}
	typ, item := of.Type, of.Item
	index, id, name := string(of.Index), wire.Text(of.ItemID), wire.Text(of.Name)
	if len(of.OwnType) > 0 && len(ev.Name) > 0 && !bytes.Equal(of.OwnType, ev.Name) {
		a.note(oddType)
	}
	if item != nil {
		began := string(typ) == "response.output_item.added"
		a.item(index, item, began)
	}
	if kind, ok := inputEvent(typ); ok {
		c := a.of(index, id)
		if kind == "delta" {
			c.deltas = append(c.deltas, of.Delta...)
		} else {
			c.inputs = append(c.inputs, wire.Text(of.Input))
			if name != "" {
				c.named, c.name = true, name
			}
		}
	}
	for p := range wire.Children(wire.Member(of.Response, "output")) {
		if a.item("", p.Value, false) && !of.last(ev.Name) {
			a.note(oddEarly)
		}
	}
	return a.odd
}

// inputEvent reports whether an event of this type brings the input of a call, and whether as a "delta" or whole, "done".
func inputEvent(typ []byte) (kind string, ok bool) {
	for _, prefix := range [...]string{"response.function_call_arguments.", "response.custom_tool_call_input."} {
		if rest, ok := bytes.CutPrefix(typ, []byte(prefix)); ok {
			return string(rest), true
		}
	}
	return "", false
}

// item takes in an item that an event shows, and reports whether it is a call. One that has just begun may not have its input yet.
func (a *ambiguities) item(index string, raw []byte, began bool) bool {
	it, err := wire.ParseItem(Dialect, raw)
	if err != nil || !it.HasJudged() {
		return false
	}
	c := a.of(index, it.ID)
	call := it.Parts[0].Call
	if c.named && (c.name != call.Name || c.callID != "" && c.callID != call.ID) {
		a.note(oddCall)
	}
	c.named, c.name, c.callID = true, call.Name, call.ID

	input := it.Input(0)
	if began && (input == "" || call.Family != wire.FamilyFunction && call.Family != wire.FamilyCustom) {
		return true
	}
	c.inputs = append(c.inputs, input)
	return true
}

// of returns the reading of an output item, by its index or its id.
func (a *ambiguities) of(index, id string) *callReading {
	for _, c := range a.calls {
		if index != "" && c.index == index || id != "" && c.id == id {
			c.id = cmp.Or(c.id, id)
			return c
		}
	}
	c := &callReading{index: index, id: id}
	if len(a.calls) == wire.MaxIndex {
		a.note(tooManyOdds)
		return c
	}
	a.calls = append(a.calls, c)
	return c
}

// Unclear says why not every reading of the calls is one of the answer's items, "" where all are. A call that was cut, of
// which nothing but pieces came, is in no answer: the client does not get it.
func (a *ambiguities) Unclear(choices [][]wire.Item) string {
	if a.odd != "" || len(a.calls) == 0 {
		return a.odd
	}
	for _, c := range a.calls {
		var items []wire.Item
		if len(choices) > 0 {
			items = choices[0]
		}
		inputs := c.inputs
		if len(c.deltas) > 0 && (len(inputs) > 0 || slices.ContainsFunc(items, c.is)) {
			inputs = append(slices.Clip(inputs), string(wire.Unescaped(c.deltas)))
		}
		for _, input := range inputs {
			if !slices.ContainsFunc(items, func(it wire.Item) bool { return c.is(it) && wire.SameInput(it.Input(0), input) }) {
				return oddCall
			}
		}
	}
	return ""
}

// is reports whether an item is the call, by all that the events have told of it.
func (c *callReading) is(it wire.Item) bool {
	return it.HasJudged() && c.named && it.Parts[0].Call.Name == c.name && (c.callID == "" || it.Parts[0].Call.ID == c.callID)
}
