package view

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"remora/wire"
)

// Mend is a set of changes to calls of another model, or to calls that the client resends incompletely. Only a refusal shows
// that a server needs one, so they apply to the client's own items as well.
type Mend uint16

// Mends.
const (
	// CallIDs replaces the ids of calls and results by ids that all servers accept: Mistral accepts no others.
	CallIDs Mend = 1 << iota
	// OddCallIDs does the same for ids that are long or have unusual characters.
	OddCallIDs
	// Reasoning adds a thought to each answer without one. Kimi and DeepSeek refuse calls without one.
	Reasoning
	// Signatures adds Google's placeholder to unsigned calls, which Gemini refuses.
	Signatures
	// NullContent removes a null content from messages with calls, which Gemini refuses. DeepSeek refuses a missing one.
	NullContent
	// ToolNames replaces invalid characters in tool names that a model has made up.
	ToolNames
	// Arguments replaces arguments that are not a JSON object by {}, since servers that parse them refuse the request.
	Arguments
	// EmptyText says "(empty)" where a message or a result says nothing, which Anthropic and Bedrock refuse. The last item stays if
	// it is a message: its client can put it right.
	EmptyText
	// EmptyCalls removes empty lists of calls, which some servers answer with, and OpenAI refuses.
	EmptyCalls
)

var mendNames = [...]string{"call_ids", "odd_call_ids", "reasoning", "signatures", "null_content", "tool_names", "arguments", "empty_text", "empty_calls"} //nolint:gochecknoglobals // a constant list

// Names returns the names of the changes in records.
func (m Mend) Names() (names []string) {
	for i, name := range mendNames {
		if m&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ParseMend is the inverse of Mend.Names.
func ParseMend(names []string) (m Mend, err error) {
	for _, name := range names {
		i := slices.Index(mendNames[:], name)
		if i < 0 {
			return 0, fmt.Errorf("change of calls %q is unknown", name)
		}
		m |= 1 << i
	}
	return m, nil
}

// Apply returns the items with the changes. Unaffected items keep their bytes.
func (m Mend) Apply(items []wire.Item) []wire.Item {
	if m == 0 {
		return items
	}
	out := make([]wire.Item, len(items))
	ids := callIDs{all: m&CallIDs != 0, given: make(map[string]bool), renamed: make(map[string]string)}
	for i, it := range items {
		if m&(CallIDs|OddCallIDs) != 0 {
			it = ids.rename(it)
		}
		if m&Reasoning != 0 {
			it = it.WithReasoning(thoughtOf(it))
		}
		if m&EmptyCalls != 0 {
			it, _ = it.AsInput(func(wire.Audio) bool { return true })
		}
		if m&EmptyText != 0 && (i < len(items)-1 || it.Kind == wire.ToolResult) {
			it = it.WithText("(empty)")
		}
		if m&ToolNames != 0 {
			it = it.WithToolNames(toolName)
		}
		if m&Arguments != 0 {
			it = it.WithObjectArguments()
		}
		if m&NullContent != 0 && it.HasCalls() {
			it = it.WithoutNull()
		}
		if m&Signatures != 0 && it.HasCalls() {
			it = it.WithSignature()
		}
		out[i] = it
	}
	return out
}

// callIDs gives the calls of a view other ids. An id depends only on the old one, so that the prompt cache still matches.
type callIDs struct {
	all     bool              // also those that most servers accept
	given   map[string]bool   // to calls without one
	renamed map[string]string // by the id that a call of the view had
	open    []string          // ids of the calls whose ids are empty and that have no result yet
}

func (c *callIDs) rename(it wire.Item) wire.Item {
	codec := it.Dialect.Codec()
	switch {
	case it.Kind == wire.ToolResult && it.Answers().Family != wire.FamilyLegacy:
		// Upstream itself may have the call, as the target of an item_reference or in the answer that the request continues. Then the
		// call keeps its id.
		id := c.renamed[it.Answers().ID]
		if it.Answers().ID == "" && len(c.open) > 0 {
			id, c.open = c.open[0], c.open[1:]
		}
		if id == "" {
			return it
		}
		return it.Rewritten(codec.WithCallIDs(it, []string{id}))
	case !it.HasCalls():
		return it
	}

	c.open = nil
	ids, same, number := make([]string, len(it.Parts)), true, 0
	for i, call := range it.Calls() {
		switch {
		case call.Family == wire.FamilyLegacy:
		case call.ID == "":
			ids[i] = c.ofNone(it.Raw, number)
			c.open, same = append(c.open, ids[i]), false
		default:
			if id := c.portable(call.ID); id != call.ID {
				ids[i], same = id, false
			}
		}
		number++
	}
	if same {
		return it
	}
	out := it.Rewritten(codec.WithCallIDs(it, ids))
	for i, call := range it.Calls() {
		if id := ids[i]; call.ID != "" && id == out.Parts[i].Call.ID {
			c.renamed[call.ID] = id
		}
	}
	return out
}

// ofNone returns a unique id for a call without one.
func (c *callIDs) ofNone(message []byte, call int) string {
	for n := call; ; n += maxOpen {
		id := hashedID(fmt.Appendf(nil, "%d %s", n, message))
		if !c.given[id] {
			c.given[id] = true
			return id
		}
	}
}

// longestName is the length up to which servers accept names of tools.
const longestName = 64

// toolName returns the name of a tool in a form that all servers accept.
func toolName(name string) string {
	if name == "" {
		return "_"
	}
	clean := strings.Map(func(r rune) rune {
		if strings.ContainsRune(idDigits+"_-", r) {
			return r
		}
		return '_'
	}, name)
	return clean[:min(len(clean), longestName)]
}

// idLength is the length of call ids for Mistral, which accepts no other, and only letters and digits.
const idLength = 9

// longestID is the length up to which OpenAI accepts call ids in Chat; others accept longer ones.
const longestID = 40

// portable returns the id of a call in a form that all servers accept.
func (c *callIDs) portable(id string) string {
	switch {
	case id == "", len(id) == idLength && strings.Trim(id, idDigits) == "", !c.all && len(id) <= longestID && strings.Trim(id, idDigits+"_-") == "":
		return id
	}
	return hashedID([]byte(id))
}

const idDigits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func hashedID(of []byte) string {
	sum := sha256.Sum256(of)
	n := binary.BigEndian.Uint64(sum[:])
	var id [idLength]byte
	for i := range id {
		id[i] = idDigits[n%uint64(len(idDigits))]
		n /= uint64(len(idDigits))
	}
	return string(id[:])
}

// maxThought bounds a thought that is made of an answer, in bytes.
const maxThought = 160

// thoughtOf returns a replacement for the unknown reasoning of an answer: its beginning. A fixed text in all answers leads
// models to repeat it.
func thoughtOf(it wire.Item) string {
	text := strings.TrimSpace(it.Text())
	for i, call := range it.Calls() {
		if text != "" {
			break
		}
		text = strings.TrimSpace(call.Name + " " + it.Input(i))
	}
	if len(text) > maxThought {
		text = strings.ToValidUTF8(text[:maxThought], "") // without a half character at its end
	}
	if text == "" {
		return " " // servers refuse an empty one
	}
	return text
}
