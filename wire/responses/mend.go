package responses

import "remora/wire"

// mending changes the calls of items.
type mending struct{}

func (mending) WithCallIDs(it wire.Item, ids []string) []byte {
	id := ids[0]
	// A local_shell_call without call_id is paired by its id, which upstream has given it.
	if id == "" || wire.Member(it.Raw, "call_id") == nil {
		return it.Raw
	}
	return wire.WithMember(it.Raw, "call_id", wire.AppendString(nil, id))
}

// WithReasoning returns the item: reasoning is an item of its own, and upstream asks for none.
func (mending) WithReasoning(it wire.Item, _ string) []byte { return it.Raw }

// WithSignature returns the item, for the same reason.
func (mending) WithSignature(it wire.Item) []byte { return it.Raw }

// WithoutNull returns the item: calls have no content.
func (mending) WithoutNull(it wire.Item) []byte { return it.Raw }

func (mending) WithToolNames(it wire.Item, rename func(string) string) []byte {
	if it.Kind != wire.ToolCall {
		return it.Raw
	}
	return wire.RenameTool(it.Raw, rename)
}
