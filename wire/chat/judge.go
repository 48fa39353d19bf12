package chat

import (
	"remora/wire"
	"remora/wire/sse"
)

// judge looks for chunks that hold calls where only a whole body has them.
type judge struct{}

func (answers) Judge() wire.Judge { return judge{} }

const (
	inChoice wire.Place = iota + 1
	inMessage
	inCall
	inFunction
)

func (judge) Names() []string {
	return []string{
		"choices", "delta", "message", "index", "tool_calls", "function_call", "function", "custom", "id", "type", "name", "arguments", "input",
	}
}

func (judge) Enter(p wire.Place, name string) (wire.Place, bool) {
	switch {
	case p == wire.Top && name == "choices":
		return inChoice, true
	case p == inChoice && (name == "delta" || name == "message"):
		return inMessage, true
	case p == inMessage && name == "tool_calls":
		return inCall, true
	case p == inMessage && name == "function_call", p == inCall && (name == "function" || name == "custom"):
		return inFunction, true
	case p == inChoice && name == "index",
		p == inCall && (name == "index" || name == "id" || name == "type"),
		p == inFunction && (name == "name" || name == "arguments" || name == "input"):
		return wire.Leaf, true
	}
	return wire.Leaf, false
}

func (judge) Event(b *sse.Block, _ wire.Effect) (why string) {
	for c := range wire.Children(wire.Member(b.Data, "choices")) {
		message := wire.Member(c.Value, "message")
		if held := wire.Member(message, "tool_calls"); len(held) > 2 && held[0] == '[' || len(wire.Member(message, "function_call")) > len("null") {
			why = "a chunk of a stream holds a whole message with calls"
		}
	}
	return why
}

func (judge) Unclear([][]wire.Item) string { return "" }
