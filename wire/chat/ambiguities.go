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

// callPlaces are the members that calls depend on.
func callPlaces() map[wire.Place]map[string]wire.Place {
	message := map[string]wire.Place{"tool_calls": inCall, "function_call": inFunction}
	return map[wire.Place]map[string]wire.Place{
		wire.Top:   {"choices": inChoice},
		inChoice:   {"delta": inDelta, "message": inMessage, "index": wire.Number},
		inDelta:    message,
		inMessage:  message,
		inCall:     {"function": inFunction, "custom": inFunction, "index": wire.Leaf, "id": wire.Leaf, "type": wire.Leaf},
		inFunction: {"arguments": wire.CallInput, "input": wire.CallInput, "name": wire.Leaf},
	}
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
