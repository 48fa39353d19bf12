package chat

import (
	"slices"

	"remora/wire"
	"remora/wire/sse"
)

// ambiguities are chunks that hold calls where only a whole body has them.
type ambiguities struct{}

func (answers) Ambiguities() wire.Ambiguities { return ambiguities{} }

const (
	inChoice wire.Place = iota + 1
	inDelta
	inMessage
	inCall
	inFunction
)

func (ambiguities) Names() []string {
	return []string{
		"choices", "delta", "message", "index", "tool_calls", "function_call", "function", "custom", "id", "type", "name", "arguments", "input",
	}
}

func (ambiguities) Enter(p wire.Place, name string) (wire.Place, bool) {
	switch {
	case p == wire.Top && name == "choices":
		return inChoice, true
	case p == inChoice && name == "delta":
		return inDelta, true
	case p == inChoice && name == "message":
		return inMessage, true
	case (p == inDelta || p == inMessage) && name == "tool_calls":
		return inCall, true
	case (p == inDelta || p == inMessage) && name == "function_call", p == inCall && (name == "function" || name == "custom"):
		return inFunction, true
	case p == inChoice && name == "index":
		return wire.Number, true
	case p == inFunction && (name == "arguments" || name == "input"):
		return wire.CallInput, true
	case p == inCall && (name == "index" || name == "id" || name == "type"), p == inFunction && name == "name":
		return wire.Leaf, true
	}
	return wire.Leaf, false
}

func (ambiguities) Event(b *sse.Block, e wire.Effect) (why string) {
	if about, ok := e.(*effect); ok && slices.ContainsFunc(about.Touched, (*streamedCall).odd) {
		return oddKind
	}
	choices := wire.Member(b.Data, "choices")
	if !isList(choices) {
		return oddList
	}
	for c := range wire.Children(choices) {
		message := wire.Member(c.Value, "message")
		held := wire.Member(message, "tool_calls")
		if !isList(held) || !isList(wire.Member(wire.Member(c.Value, "delta"), "tool_calls")) {
			return oddList
		}
		if len(held) > 2 && held[0] == '[' || len(wire.Member(message, "function_call")) > len("null") {
			why = "a chunk of a stream holds a whole message with calls"
		}
	}
	return why
}

const oddKind = "a call is one of a function in some of its pieces, and one of a custom tool in others"

const oddList = "its choices or tool calls are not in a list"

// isList reports whether a value is a list or says nothing.
func isList(value []byte) bool {
	return len(value) == 0 || value[0] == '[' || string(value) == "null"
}

func (ambiguities) Unclear([][]wire.Item) string { return "" }
