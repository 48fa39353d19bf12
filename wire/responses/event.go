package responses

import (
	"remora/wire"
	"remora/wire/sse"
)

// event is an event of a stream. Its values are raw and alias the event's data; nil where absent.
type event struct {
	// Type is the data's type, or else the event's name. OwnType is only the data's.
	Type, OwnType  []byte
	Response, Item []byte
	Index, Content []byte // output_index, content_index
	ItemID, Name   []byte
	Delta          []byte // what stands inside the string
	Input          []byte // arguments or input
}

// readEvent reads an event of Responses by its name and data.
func readEvent(name, data []byte) event {
	var e event
	for p := range wire.Children(data) {
		switch string(p.Name) {
		case "type":
			e.OwnType, _ = wire.Inside(p.Value)
		case "response":
			e.Response = p.Value
		case "item":
			e.Item = p.Value
		case "output_index":
			e.Index = p.Value
		case "content_index":
			e.Content = p.Value
		case "item_id":
			e.ItemID = p.Value
		case "name":
			e.Name = p.Value
		case "delta":
			e.Delta, _ = wire.Inside(p.Value)
		case "arguments", "input":
			e.Input = p.Value
		}
	}
	e.OwnType = wire.Unescaped(e.OwnType)
	if e.Type = e.OwnType; len(e.Type) == 0 {
		e.Type = name
	}
	return e
}

// last reports whether the event, which has that name, ends the answer.
func (e *event) last(name []byte) bool { return terminal(e.Type) || terminal(name) }

// Keep returns the same event, read from a copy of its block.
func (e *event) Keep(b *sse.Block) wire.Effect {
	kept := readEvent(b.Name, b.Data)
	return &kept
}
