package view

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"remora/wire"
)

// Mend is a set of changes to calls that another model has made, or whose client has not sent all of them back. Only a
// refusal shows that a server needs one, so they concern the client's own items as well.
type Mend uint8

// Mends.
const (
	// CallIDs names calls and their results by ids that all servers take: Mistral takes no others.
	CallIDs Mend = 1 << iota
	// OddCallIDs does so where an id is long or has characters that few servers put into one.
	OddCallIDs
	// Reasoning puts a thought into each answer that has none. Kimi and DeepSeek refuse calls without one.
	Reasoning
	// Signatures puts Google's placeholder where a call is not signed. Gemini refuses one that is not.
	Signatures
	// NullContent leaves out the content beside calls where it is null, which Gemini refuses, as DeepSeek does one that lacks.
	NullContent
	// ToolNames replaces what no server takes in the name of a tool that a model has made up.
	ToolNames
	// Arguments empties arguments that are no JSON object, which servers that parse them refuse.
	Arguments
)

var mendNames = [...]string{"call_ids", "odd_call_ids", "reasoning", "signatures", "null_content", "tool_names", "arguments"} //nolint:gochecknoglobals // a constant list

// Names spell the changes in records.
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

// Apply returns the items with the changes. Items without need of any keep their bytes.
func (m Mend) Apply(items []wire.Item) []wire.Item {
	if m == 0 {
		return items
	}
	out := make([]wire.Item, len(items))
	ids := callIDs{all: m&CallIDs != 0, given: make(map[string]bool), stay: make(map[string]bool)}
	for i, it := range items {
		codec := it.Dialect.Codec()
		if m&(CallIDs|OddCallIDs) != 0 {
			it = ids.rename(it)
		}
		if m&Reasoning != 0 {
			it = it.Rewritten(codec.WithReasoning(it, thoughtOf(it)))
		}
		if m&ToolNames != 0 {
			it = it.Rewritten(codec.WithToolNames(it, toolName))
		}
		if m&Arguments != 0 {
			it = it.WithObjectArguments()
		}
		if m&NullContent != 0 && it.HasCalls() {
			it = it.Rewritten(codec.WithoutNull(it))
		}
		if m&Signatures != 0 && it.HasCalls() {
			it = it.Rewritten(codec.WithSignature(it))
		}
		out[i] = it
	}
	return out
}

// callIDs gives the calls of a view other ids. An id depends on the old one alone, so that a prompt cache still fits.
type callIDs struct {
	all   bool            // also those that most servers take
	given map[string]bool // to calls without one
	stay  map[string]bool // of calls that are paired by another member
	open  []string        // ids of the calls whose ids are empty and that have no result yet
}

func (c *callIDs) rename(it wire.Item) wire.Item {
	codec := it.Dialect.Codec()
	switch {
	case it.Kind == wire.ToolResult && it.Answers().Family != wire.FamilyLegacy:
		old := it.Answers().ID
		id := c.portable(old)
		if old == "" {
			if len(c.open) == 0 {
				return it
			}
			id, c.open = c.open[0], c.open[1:]
		}
		if id == old || c.stay[old] {
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
		c.stay[call.ID] = ids[i] != "" && out.Parts[i].Call.ID == call.ID
	}
	return out
}

// ofNone returns an id for a call that has none, which no other of them has.
func (c *callIDs) ofNone(message []byte, call int) string {
	for n := call; ; n += maxOpen {
		id := hashedID(fmt.Appendf(nil, "%d %s", n, message))
		if !c.given[id] {
			c.given[id] = true
			return id
		}
	}
}

// longestName is the length up to which servers take names of tools.
const longestName = 64

// toolName returns the name of a tool as all servers take it.
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

// idLength is the length of call ids at Mistral, whose servers take no other, and only letters and digits.
const idLength = 9

// longestID is the length up to which OpenAI takes ids of calls in Chat, which is less than others take.
const longestID = 40

// portable returns the id of a call as servers take it.
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

// thoughtOf returns what stands for the reasoning of an answer whose own is not known: its beginning. A text that is the same
// in all answers leads models to repeat it.
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
