package historymanager

import (
	"encoding/json"
	"unicode/utf8"

	"remora/wire"
	"remora/wire/dialects"
)

// mixed counts a quarter of a token for a byte of ASCII and a third for any other byte, and rounds the sum up.
func mixed(s string) int {
	twelfths := 11
	for i := range len(s) {
		if s[i] < utf8.RuneSelf {
			twelfths += 3
		} else {
			twelfths += 4
		}
	}
	return twelfths / 12
}

// mixedItem prices an item as a Chat message: 4, its role and its text, and for each call 3, its name and its
// arguments. Content that is not a string is free. An item without a counterpart in Chat costs 4 and its JSON.
func mixedItem(it wire.Item) int {
	const perMessage, perCall = 4, 3

	messages, ok := it.Convert(dialects.Chat)
	if !ok {
		return perMessage + mixed(string(it.Raw))
	}
	n := 0
	for _, m := range messages {
		var v struct {
			Role      string `json:"role"`
			Content   any    `json:"content"`
			ToolCalls []struct {
				Function struct{ Name, Arguments string } `json:"function"`
			} `json:"tool_calls"`
		}
		if json.Unmarshal(m.Raw, &v) != nil {
			n += perMessage + mixed(string(m.Raw))
			continue
		}
		text, _ := v.Content.(string)
		n += perMessage + mixed(v.Role) + mixed(text)
		for _, call := range v.ToolCalls {
			n += perCall + mixed(call.Function.Name) + mixed(call.Function.Arguments)
		}
	}
	return n
}

// mixedItems prices a conversation: 3 and its items.
func mixedItems(items []wire.Item) int {
	n := 3
	for _, it := range items {
		n += mixedItem(it)
	}
	return n
}
