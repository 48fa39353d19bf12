package demo

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"remora/wire"
)

// entry is a text, a call or a result, alike for both dialects. A Chat message with two calls is three entries, or two if it
// has no text: the units that the window counts.
type entry struct {
	who    string // system, developer, user, assistant, call or result
	id     string // of a call or result: its call id
	text   string
	hidden bool // the client never gets it
}

// entriesOf returns the entries of items. An item of another kind is an entry with only its type, which matches no other.
func entriesOf(items []wire.Item) (all []entry) {
	for _, it := range items {
		who := wire.Text(wire.Member(it.Raw, "role"))
		switch {
		case it.Kind == wire.ToolResult:
			all = append(all, entry{who: "result", id: it.Answers().ID, text: it.Text()})
			continue
		case it.Kind != wire.Message && !it.HasCalls():
			all = append(all, entry{who: wire.Text(wire.Member(it.Raw, "type"))})
		case it.Text() != "":
			all = append(all, entry{who: who, text: it.Text()})
		}
		for i, c := range it.Calls() {
			all = append(all, entry{who: "call", id: c.ID, text: c.Name + it.Input(i)})
		}
	}
	return all
}

// placesIn returns for each entry of conversation whether it is in view. It returns false if view is not a subsequence of
// conversation. It searches from the end, where the entries of the window are.
func placesIn(conversation, view []entry) ([]bool, bool) {
	sent := make([]bool, len(conversation))
	at := len(conversation)
	for _, seen := range slices.Backward(view) {
		for at--; at >= 0 && conversation[at] != seen; at-- {
		}
		if at < 0 {
			return nil, false
		}
		sent[at] = true
	}
	return sent, true
}

// words returns the text of an entry. A call is name(values), or unchanged if its values are nested.
func (e entry) words() string {
	name, arguments, ok := strings.Cut(e.text, "{")
	if e.who != "call" || !ok {
		return e.text
	}
	if strings.ContainsAny(arguments, "{[") {
		return name + " {" + arguments
	}
	var values []string
	dec := json.NewDecoder(strings.NewReader("{" + arguments))
	for i := 0; ; i++ { // the brace, then alternating names and values
		token, err := dec.Token()
		if _, brace := token.(json.Delim); err != nil || brace && i > 0 {
			return name + "(" + strings.Join(values, ", ") + ")"
		}
		if i > 0 && i%2 == 0 {
			values = append(values, fmt.Sprint(token))
		}
	}
}

// String returns the entry in one line, for errors.
func (e entry) String() string {
	if e.hidden {
		return fmt.Sprintf("hidden %s %q", e.who, cut(e.words(), 60))
	}
	return fmt.Sprintf("%s %q", e.who, cut(e.words(), 60))
}
