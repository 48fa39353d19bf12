package memory

import (
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
)

// windowSizes returns the part of the input that tells a window what items cost, and the most tokens of history to leave; 0 for no
// such limit.
func (t *turnInfo) windowSizes(most int) view.WindowInput {
	in := view.WindowInput{AtMost: tokens.AtMost, Most: most}
	if t.shape.Price != nil {
		model := t.call.Request.Model()
		in.Tokens = func(it wire.Item) int { return t.shape.Price(model, it) }
	}
	return in
}

// price returns what items cost, 0 if that is unknown.
func (t *turnInfo) price(items []wire.Item) (n int) {
	if t.shape.Price == nil {
		return 0
	}
	for _, it := range items {
		n += t.shape.Price(t.call.Request.Model(), it)
	}
	return n
}

// instructions returns those of a Responses request as a message, none of another request.
func (t *turnInfo) instructions() []wire.Item {
	text := wire.Text(t.call.Request.Instructions())
	if text == "" {
		return nil
	}
	return []wire.Item{wire.NewMessage(t.call.Request.Dialect, wire.System, text)}
}

// toolTokens estimates what the definitions of tools cost: the client's, and those of layers.
func (t *turnInfo) toolTokens(definitions [][]byte) int {
	n := len(t.call.Request.Member("tools"))
	for _, tool := range definitions {
		n += len(tool)
	}
	return tokensOf(n)
}

// estimate returns the approximate tokens of items, without counting.
func estimate(items []wire.Item) int { return tokensOf(bytesOf(items)) }

// tokensOf returns the approximate tokens of a number of bytes of JSON: four bytes are one.
func tokensOf(bytes int) int { return (bytes + 3) / 4 }

func bytesOf(items []wire.Item) (n int) {
	for i := range items {
		n += len(items[i].Raw) + int(items[i].Target)
	}
	return n
}
