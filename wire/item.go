// Package wire turns the bytes of Chat Completions and Responses bodies into items and back.
//
// Nothing is parsed into a closed schema: an [Item] keeps the bytes it came from, a few fields are read beside
// them, and whatever is not edited is re-emitted byte for byte. The package is a leaf: it knows no HTTP, no
// memory and no store, and it survives any input (bounded depth, no recursion, linear time).
package wire

import (
	"fmt"
	"slices"
)

// Dialect says how a body spells a conversation.
type Dialect uint8

// The dialects whose bodies are understood.
const (
	// Chat is Chat Completions: items are the elements of "messages".
	Chat Dialect = iota + 1
	// Responses is the Responses API: items are the elements of "input" and "output".
	Responses
)

// String is the dialect's name, as records and logs spell it.
func (d Dialect) String() string {
	switch d {
	case Chat:
		return "chat"
	case Responses:
		return "responses"
	default:
		return "unknown"
	}
}

// ParseDialect is the inverse of Dialect.String.
func ParseDialect(name string) (Dialect, error) {
	for _, d := range []Dialect{Chat, Responses} {
		if d.String() == name {
			return d, nil
		}
	}
	return 0, fmt.Errorf(`dialect %q: want "chat" or "responses"`, name)
}

// Kind is the part that an item plays in a conversation.
type Kind uint8

// Kinds of items. An item of an unknown type is Other and is kept opaque.
const (
	Other      Kind = iota // hosted calls, compaction, approvals, types that do not exist yet
	Message                // system, developer, user or assistant text; a Chat assistant message may carry Calls too
	ToolCall               // Responses only: one client-side call (function_call, custom_tool_call, ...)
	ToolResult             // a Chat "tool"/"function" message, or a Responses *_output item
	Reasoning              // Responses reasoning item; stays with the item it precedes
	Reference              // Responses item_reference: stands for an item that upstream stores
	Compaction             // Responses compaction item: stands for everything before it
)

// Role is who speaks. Kinds other than Message have RoleNone, except that a ToolResult has RoleTool.
type Role uint8

// Roles of the two dialects. RoleOther is a spelling that is not known here; it is kept as it is.
const (
	RoleNone Role = iota
	System
	Developer
	User
	Assistant
	RoleTool
	RoleOther
)

// Call is one tool call, as pairing needs it.
type Call struct {
	// ID is the pairing key; empty where the dialect has none (legacy function_call pairs by adjacency).
	ID string
	// Family keeps pairing within one kind of tool: "function", "custom_tool", "local_shell", ... A call and
	// its result carry the same family.
	Family string
	// Name is the tool's name, empty where the kind has none.
	Name string
}

// Hash is a content hash or a chain hash.
type Hash [16]byte

// Item is one element of messages, input or output. Items are values; Raw must not be modified.
type Item struct {
	Kind    Kind
	Role    Role
	Dialect Dialect
	// HasText tells that a Message says something beside its Calls: content (text or media), a refusal or audio.
	HasText bool
	// ID is the item's own id, empty where it has none. For a Reference it is the id referred to.
	ID string
	// Calls are the tool calls that the item makes: any number for a Chat assistant message, one for a
	// Responses ToolCall that wants a result, none for everything else.
	Calls []Call
	// Answers is the call that a ToolResult answers. Its ID is empty where the client gave none.
	Answers Call
	// Raw is the element's JSON exactly as it stands in its body, without surrounding white space.
	Raw []byte
}

// Families of calls. The rest is spelled where it is used once.
const (
	familyFunction   = "function"
	familyLegacy     = "function_legacy" // function_call and role "function": paired by adjacency and name
	familyCustom     = "custom_tool"
	familyLocalShell = "local_shell"
	familyToolSearch = "tool_search"
)

// FamilyLegacy is the family of a legacy function_call, which has no id.
const FamilyLegacy = familyLegacy

// Matches tells that answer is a result for call: the same id within one family. A local shell call may be answered by
// a function's result, as Codex does. A legacy call has no id and is matched by its name. A call without id that is
// not legacy matches nothing: only its neighbourhood could tell.
func Matches(call, answer Call) bool {
	if call.Family == familyLegacy || answer.Family == familyLegacy {
		return call.Family == answer.Family && call.Name == answer.Name
	}
	if call.ID == "" || call.ID != answer.ID {
		return false
	}
	return call.Family == answer.Family || call.Family == familyLocalShell && answer.Family == familyFunction
}

// Leading counts the system and developer messages at the head of items.
func Leading(items []Item) int {
	for i, it := range items {
		if it.Kind != Message || it.Role != System && it.Role != Developer {
			return i
		}
	}
	return len(items)
}

// Text is the item's plain text: the text parts of its content and its refusal, or a result's output. Parts are put
// together without anything between them. It is "" for kinds without text of their own.
func (it Item) Text() string {
	if it.Kind != Message && it.Kind != ToolResult {
		return ""
	}
	var content, refusal []byte
	for p := range parts(it.Raw) {
		switch string(p.name) {
		case "content", "output":
			content = p.value
		case "refusal":
			refusal = p.value
		}
	}
	dst := appendContent(nil, content)
	if c, ok := inside(refusal); ok {
		dst = appendText(dst, c)
	}
	return string(dst)
}

// spoken are the members of a part that hold text.
var spoken = [...]string{"text", "refusal", "stdout", "stderr"} //nolint:gochecknoglobals // a constant list

// appendContent appends the text of a string or of a list of parts; a shell's parts have stdout and stderr.
func appendContent(dst, content []byte) []byte {
	if c, ok := inside(content); ok {
		return appendText(dst, c)
	}
	if len(content) == 0 || content[0] != '[' {
		return dst
	}
	for e := range parts(content) {
		if c, ok := inside(e.value); ok {
			dst = appendText(dst, c)
		}
		var said [len(spoken)][]byte // in a fixed order: that of members means nothing
		for p := range parts(e.value) {
			if i := slices.Index(spoken[:], string(p.name)); i >= 0 {
				said[i], _ = inside(p.value)
			}
		}
		for _, c := range said {
			dst = appendText(dst, c)
		}
	}
	return dst
}

// Input is what the model wrote for a call of the item, by its index in Calls: the arguments of a function, the input of
// a custom tool, and of a call of another kind its action or operation as JSON. It is "" where there is none.
func (it Item) Input(call int) string {
	if call < 0 || call >= len(it.Calls) {
		return ""
	}
	raw := it.Raw
	switch {
	case it.Calls[call].Family == familyLegacy:
		raw = member(raw, "function_call")
	case it.Dialect == Chat:
		i := 0
		for p := range parts(member(it.Raw, "tool_calls")) {
			if i == call {
				raw = p.value
			}
			i++
		}
		if fn := member(raw, "function"); fn != nil {
			raw = fn
		} else {
			raw = member(raw, "custom")
		}
	}
	for _, name := range [...]string{"arguments", "input", "action", "operation"} {
		if v := member(raw, name); v != nil {
			if _, ok := inside(v); ok {
				return text(v)
			}
			return string(v)
		}
	}
	return ""
}

// FunctionTool is the definition of a function in dialect d, for Request.With. Parameters is a JSON schema; none means a
// function without arguments.
func FunctionTool(d Dialect, name, description string, parameters []byte) []byte {
	if len(parameters) == 0 {
		parameters = []byte(`{"type":"object","properties":{}}`)
	}
	out := []byte(`{"type":"function",`)
	if d == Chat {
		out = append(out, `"function":{`...)
	}
	out = append(appendString(append(out, `"name":`...), name), `,"description":`...)
	out = append(append(appendString(out, description), `,"parameters":`...), parameters...)
	if d == Chat {
		return append(out, "}}"...)
	}
	// Without it some servers make every property a required one.
	return append(out, `,"strict":false}`...)
}

// NewToolResult is a result that answers the call with a text, in the dialect that the call was made in.
func NewToolResult(c Call, d Dialect, text string) Item {
	var out []byte
	switch {
	case d == Chat && c.Family == familyLegacy:
		out = appendString([]byte(`{"role":"function","name":`), c.Name)
		out = append(appendString(append(out, `,"content":`...), text), '}')
	case d == Chat:
		out = appendString([]byte(`{"role":"tool","tool_call_id":`), c.ID)
		out = append(appendString(append(out, `,"content":`...), text), '}')
	default:
		out = responsesResult(c, text)
	}
	dec := decoder{dialect: d, calls: maxCalls}
	return dec.item(out)
}

// responsesResult spells a result as its kind of tool does.
func responsesResult(c Call, text string) []byte {
	typ, id := c.Family+"_call_output", "call_id"
	switch c.Family {
	case familyToolSearch:
		typ = "tool_search_output"
	case familyLocalShell:
		id = "id"
	case "":
		typ = "function_call_output"
	}
	out := appendString([]byte(`{"type":`), typ)
	out = appendString(append(appendString(append(out, ','), id), ':'), c.ID)
	out = append(out, `,"output":`...)
	if c.Family == "shell" { // its output is a list of commands' outputs
		out = appendString(append(out, `[{"stdout":"","stderr":`...), text)
		return append(out, `,"outcome":{"type":"exit","exit_code":1}}]}`...)
	}
	return append(appendString(out, text), '}')
}

// Check returns every violation of the pairing rules of dialect d, in the order of the items; none for a history that
// a strict upstream accepts. A call needs its result and a result its call, once each. In Responses the call comes
// first, wherever the result stands; in Chat the results of a message stand directly behind it.
//
// A Responses result without call id is legal and not judged. Whether a call may be unknown here because upstream
// stores it (previous_response_id, conversation, references) is for the caller to know.
func Check(d Dialect, items []Item) []error {
	if d == Chat {
		return checkChat(items)
	}
	return checkResponses(items)
}

func checkResponses(items []Item) []error {
	type open struct {
		call     Call
		item     int
		answered bool
	}
	var errs []error
	calls := make(map[string][]*open)
	var order []*open
	for i, it := range items {
		for _, c := range it.Calls {
			o := &open{call: c, item: i}
			calls[c.ID], order = append(calls[c.ID], o), append(order, o)
		}
		if it.Kind != ToolResult || it.Answers.ID == "" {
			continue
		}
		matching := slices.DeleteFunc(slices.Clone(calls[it.Answers.ID]), func(o *open) bool { return !Matches(o.call, it.Answers) })
		k := slices.IndexFunc(matching, func(o *open) bool { return !o.answered })
		switch {
		case k >= 0:
			matching[k].answered = true
		case len(matching) > 0:
			errs = append(errs, fmt.Errorf("item %d: second result for %s call %q", i, it.Answers.Family, it.Answers.ID))
		default:
			errs = append(errs, fmt.Errorf("item %d: result without a %s call %q before it", i, it.Answers.Family, it.Answers.ID))
		}
	}
	for _, o := range order {
		if !o.answered {
			errs = append(errs, fmt.Errorf("item %d: %s call %q without result", o.item, o.call.Family, o.call.ID))
		}
	}
	return errs
}

func checkChat(items []Item) []error {
	var c chatChecker
	for i, it := range items {
		if it.Kind == ToolResult {
			c.result(i, it.Answers)
			continue
		}
		c.settle()
		if len(it.Calls) > 0 {
			c.maker, c.calls, c.answered = i, it.Calls, make([]bool, len(it.Calls))
		}
	}
	c.settle()
	return c.errs
}

// chatChecker holds the message whose results may come now.
type chatChecker struct {
	maker    int
	calls    []Call
	answered []bool
	errs     []error
}

func (c *chatChecker) result(i int, answers Call) {
	again := false
	for k, call := range c.calls {
		if !Matches(call, answers) {
			continue
		}
		if !c.answered[k] {
			c.answered[k] = true
			return
		}
		again = true
	}
	if again {
		c.errs = append(c.errs, fmt.Errorf("item %d: second result for call %q", i, callName(answers)))
		return
	}
	c.errs = append(c.errs, fmt.Errorf("item %d: result without call %q in the message before", i, callName(answers)))
}

func (c *chatChecker) settle() {
	for k, ok := range c.answered {
		if !ok {
			c.errs = append(c.errs, fmt.Errorf("item %d: call %q without result directly behind it", c.maker, callName(c.calls[k])))
		}
	}
	c.calls, c.answered = nil, nil
}

func callName(c Call) string {
	if c.ID == "" {
		return c.Name
	}
	return c.ID
}
