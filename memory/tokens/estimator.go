package tokens

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"remora/wire"
)

// Estimator is a way to count tokens without a vocabulary, as one of the source documents does it (SEMANTICS.md, D13).
// Real budgets are kept with Tiktoken; the others let the conformance cases be run to the digit.
type Estimator uint8

// The estimators, and their names in configuration.
const (
	// Tiktoken, "tiktoken", counts with the model's vocabulary; see Counter. By itself it only knows bytes / 3.6.
	Tiktoken Estimator = iota
	// UTF16, "utf16/4", is Noetic's: UTF-16 code units / 4, rounded up; an item is priced as its JSON without spaces.
	UTF16
	// Floor, "floor/4", is Octopus's: UTF-16 code units / 4, rounded down, at least 1; a message costs 4 more.
	Floor
	// Mixed, "mixed", is that of the Rust crate: ASCII bytes / 4 and other bytes / 3, their sum rounded up; a message
	// is priced by its role, its content and its calls.
	Mixed
)

// String is the estimator's name.
func (e Estimator) String() string {
	switch e {
	case Tiktoken:
		return "tiktoken"
	case UTF16:
		return "utf16/4"
	case Floor:
		return "floor/4"
	case Mixed:
		return "mixed"
	default:
		return "unknown"
	}
}

// ParseEstimator is the inverse of Estimator.String.
func ParseEstimator(name string) (Estimator, error) {
	for _, e := range []Estimator{Tiktoken, UTF16, Floor, Mixed} {
		if e.String() == name {
			return e, nil
		}
	}
	return 0, fmt.Errorf(`token estimator %q: want "tiktoken", "utf16/4", "floor/4" or "mixed"`, name)
}

// Count is the number of tokens of a text.
func (e Estimator) Count(text string) int {
	switch e {
	case UTF16:
		return (utf16Units(text) + 3) / 4
	case Floor:
		return max(1, utf16Units(text)/4)
	case Mixed:
		ascii := 0
		for i := range len(text) {
			if text[i] < utf8.RuneSelf {
				ascii++
			}
		}
		return (3*ascii + 4*(len(text)-ascii) + 11) / 12
	default:
		return estimate(len(text))
	}
}

// CountItem is the number of tokens of an item.
func (e Estimator) CountItem(it wire.Item) int {
	switch e {
	case UTF16:
		return e.Count(stringify(it.Raw))
	case Floor:
		return messageTokens + e.Count(it.Text())
	case Mixed:
		return e.message(it)
	default:
		return new(walker).item(nil, it)
	}
}

// CountItems is the number of tokens of a conversation: for Mixed, three more than its items have.
func (e Estimator) CountItems(items []wire.Item) int {
	n := 0
	if e == Mixed {
		n = sequenceTokens
	}
	for _, it := range items {
		n += e.CountItem(it)
	}
	return n
}

// What Floor and Mixed add for a message, and Mixed for a call in it and for a list of messages.
const (
	messageTokens     = 4
	messageCallTokens = 3
	sequenceTokens    = 3
)

// message is what a Chat message costs the Rust crate. Content that is no string is free there. A Responses item costs
// what it would as a message; one that has no counterpart costs its JSON.
func (e Estimator) message(it wire.Item) int {
	converted, err := it.Convert(wire.Chat)
	if err != nil {
		return messageTokens + e.Count(stringify(it.Raw))
	}
	n := 0
	for _, c := range converted {
		var m struct {
			Role      string          `json:"role"`
			Content   json.RawMessage `json:"content"`
			ToolCalls []struct {
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		}
		if json.Unmarshal(c.Raw, &m) != nil {
			n += messageTokens + e.Count(stringify(c.Raw))
			continue
		}
		var content string
		if json.Unmarshal(m.Content, &content) != nil {
			content = ""
		}
		n += messageTokens + e.Count(m.Role) + e.Count(content)
		for _, call := range m.ToolCalls {
			n += messageCallTokens + e.Count(call.Function.Name) + e.Count(call.Function.Arguments)
		}
	}
	return n
}

// stringify is raw as JSON.stringify writes what JSON.parse made of it: in the same order, without spaces, escaped only
// where that is needed. Numbers stay as they are spelled.
func stringify(raw []byte) string {
	out, err := jsontext.AppendFormat(nil, raw, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return string(raw)
	}
	return string(out)
}

func utf16Units(s string) int {
	const surrogates = 0x10000 // from here on, a character is two code units
	n := 0
	for _, r := range s {
		n++
		if r >= surrogates {
			n++
		}
	}
	return n
}
