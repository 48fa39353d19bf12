package layer

import (
	"encoding/json"
	"fmt"
	"strings"

	"remora/wire"
)

// Block wraps stored text in a tag of its own, with LF between tag and text. The text is data: a closing tag in it is
// escaped, so that nothing that somebody once said can leave its block.
func Block(tag, text string) string {
	return "<" + tag + ">\n" + Escape(text) + "\n</" + tag + ">"
}

// Escape makes text harmless within any block: every "</" becomes "<\/", which opens and closes nothing. Text without
// it is returned as it is.
func Escape(text string) string { return strings.ReplaceAll(text, "</", `<\/`) }

var roleNames = map[wire.Role]string{
	wire.System: "system", wire.Developer: "developer", wire.User: "user", wire.Assistant: "assistant",
}

// NewText is a message of the dialect. Role is system, developer, user or assistant.
func NewText(d wire.Dialect, role wire.Role, text string) wire.Item {
	raw, err := json.Marshal(struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{roleNames[role], text})
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a message: %v", err)) // two strings
	}
	it, err := wire.ParseItem(d, raw)
	if err != nil {
		panic(fmt.Sprintf("BUG: parse a message: %v", err))
	}
	return it
}
