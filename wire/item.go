// Package wire reads and edits the bodies of LLM APIs: requests, answers and streams, in any dialect.
//
// [Parse] reads a [Request], whose conversation is a list of [Item]. An item keeps the bytes that it was read from,
// with the few fields that Remora needs beside them, so unknown members survive. [Request.With] writes the body with
// other items or tools, and all other bytes stay. [FoldBody] and [Folder] read an answer, whole or while it streams,
// into a [Reply]. [Item.ContentHash] is the same however a client spells an item's JSON. [ConvertAll] moves items to
// another dialect.
//
// The differences between dialects are in [Dialect]: its [Rules] are data, its [Codec] is code. Both are defined in a
// folder below this one (chat, responses), and package dialects has their table.
//
// The package does no HTTP and knows no memory and no store. It accepts any input: depth and size are bounded, nothing
// recurses with the input, and time is linear in its size.
package wire

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"iter"
	"slices"
	"strings"
)

// Kind is what an item, or a part of one, is in a conversation.
type Kind uint8

// Kinds of items and of parts. An item of an unknown type is Other and is kept opaque.
const (
	Other      Kind = iota // hosted calls, approvals, programs, types that do not exist yet
	Message                // what the system, a developer, a user or an assistant says; a Chat message has ToolCall parts too
	ToolCall               // one client-side call; an item of this kind is a Responses one (function_call, custom_tool_call, ...)
	ToolResult             // a Chat "tool"/"function" message, or a Responses *_output item
	Reasoning              // Responses reasoning item; stays with the item it precedes
	Reference              // Responses item_reference: stands for an item that upstream stores
	Compaction             // Responses compaction item: stands for everything before it
)

// Role is the speaker of an item. Only messages have System, Developer or User. A ToolResult has RoleTool. A Chat message that
// cannot be understood may have Assistant. All other items that are not messages have RoleNone.
type Role uint8

// Roles of the two dialects. RoleOther is an unknown role, which is kept unchanged.
const (
	RoleNone Role = iota
	System
	Developer
	User
	Assistant
	RoleTool
	RoleOther
)

// Name returns the role as a message spells it, "system" for a role that no message is made with.
func (r Role) Name() string {
	switch r {
	case User:
		return "user"
	case Assistant:
		return "assistant"
	case Developer:
		return "developer"
	default:
		return "system"
	}
}

// Call is one tool call, as pairing needs it.
type Call struct {
	// ID is the pairing key; empty where the dialect has none (legacy function_call pairs by adjacency).
	ID string
	// Family keeps pairing within one kind of tool: "function", "custom_tool", "local_shell", ... A call and
	// its result carry the same family.
	Family string
	// Name is the tool's name, empty if the kind has none.
	Name string
}

// Part is the unit that windows count and repairs drop: the text and media of a message, one call, one result, or a whole item
// of another kind. Parts must not be modified: items share them.
type Part struct {
	Kind Kind
	// Empty: a Message without text, media and calls. It counts like any other.
	Empty bool
	// Call is the call that a ToolCall makes, or that a ToolResult answers. Its ID is empty if the client gave none. Approval
	// requests and programs that upstream runs, of kind Other, have one too, with an ID. Their answers are of kind ToolResult,
	// in an item of kind Other. Upstream accepts both without an answer, but no answer without them.
	Call Call
}

// Answerable reports whether a ToolResult may answer the part.
func (p *Part) Answerable() bool { return p.Kind == ToolCall || p.Kind == Other && p.Call.ID != "" }

// Judged reports whether rules judge the part: a call, or a request to approve one that upstream would run at an MCP server.
func (p *Part) Judged() bool {
	return p.Kind == ToolCall || p.Kind == Other && p.Call.Family == FamilyApproval
}

// OfModel reports whether the part, of an item of that role, is some of what a model answers.
func (p *Part) OfModel(role Role) bool {
	return p.Kind == ToolCall || p.Kind == Reasoning || p.Kind == Other || p.Kind == Message && role == Assistant
}

// Hash is a content hash or a chain hash.
type Hash [16]byte

// MarshalText writes the hash in hexadecimal.
func (h Hash) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, h[:]), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(h)) {
		return errors.New("hash: wrong length")
	}
	_, err := hex.Decode(h[:], text)
	return err
}

// Item is one element of messages, input or output. Items are values; Raw must not be modified.
type Item struct {
	Kind Kind
	Role Role
	// Target is set in an item that describes the target of a Reference, whose own text is not here: Raw is the reference's. It
	// is the size of what a model reads of the target, in bytes.
	Target  uint32
	Dialect Dialect
	// ID is the item's own id, empty if it has none. For a Reference it is the id referred to.
	ID string
	// Parts are the item's parts in order, at least one: the text of a Message, if any, then its calls.
	Parts []Part
	// Raw is the element's exact JSON in its body, without surrounding white space.
	Raw []byte
}

// singles are the shared parts of items with one part and no partner, by kind, then that of an empty message. Most items have
// one of these.
var singles = [...]Part{ //nolint:gochecknoglobals // constants
	Other:      {Kind: Other},
	Message:    {Kind: Message},
	ToolCall:   {Kind: ToolCall},
	ToolResult: {Kind: ToolResult},
	Reasoning:  {Kind: Reasoning},
	Reference:  {Kind: Reference},
	Compaction: {Kind: Compaction},
	{Kind: Message, Empty: true},
}

// OnePart returns the parts of an item with one part of a kind, without a call.
func OnePart(k Kind) []Part { return singles[k : k+1 : k+1] }

// MessageParts returns the parts of a message without calls, with or without text.
func MessageParts(says bool) []Part {
	if says {
		return OnePart(Message)
	}
	return singles[len(singles)-1:]
}

// HasContent reports whether a message has content besides its calls: text, media, a refusal or audio.
func (it Item) HasContent() bool {
	return len(it.Parts) > 0 && it.Parts[0].Kind == Message && !it.Parts[0].Empty
}

// Calls iterates over the calls that the item makes, each with its index in Parts.
func (it Item) Calls() iter.Seq2[int, Call] {
	return func(yield func(int, Call) bool) {
		for i := range it.Parts {
			if p := &it.Parts[i]; p.Kind == ToolCall && !yield(i, p.Call) {
				return
			}
		}
	}
}

// Judged returns the calls of the item that rules judge, those that it asks to approve included, by the indexes of their parts.
func (it Item) Judged() iter.Seq2[int, Call] {
	return func(yield func(int, Call) bool) {
		for i := range it.Parts {
			if p := &it.Parts[i]; p.Judged() && !yield(i, p.Call) {
				return
			}
		}
	}
}

// HasJudged reports whether the item has a call that rules judge.
func (it Item) HasJudged() bool {
	return slices.ContainsFunc(it.Parts, func(p Part) bool { return p.Judged() })
}

// HasCalls reports whether the item makes calls.
func (it Item) HasCalls() bool {
	for i := range it.Parts {
		if it.Parts[i].Kind == ToolCall {
			return true
		}
	}
	return false
}

// Answers returns the call that the item is the result of, the zero Call for other items.
func (it Item) Answers() Call {
	if len(it.Parts) == 0 || it.Parts[0].Kind != ToolResult {
		return Call{}
	}
	return it.Parts[0].Call
}

// Families of calls. Dialects may define others.
const (
	FamilyFunction   = "function"
	FamilyLegacy     = "function_legacy" // function_call and role "function": without an id, paired by adjacency and name
	FamilyCustom     = "custom_tool"
	FamilyLocalShell = "local_shell"
	FamilyApproval   = "mcp_approval" // a request for approval, of kind Other, whose answer approves or refuses
	FamilyProgram    = "program"      // programs, which upstream runs, and which make calls of their own
)

// Key returns the common key of a call and its result within one dialect: the id, or the family and name of a call without one.
func (c Call) Key() string {
	if c.ID == "" {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

// Matches reports whether answer is a result for call: the same id within one family. A local shell call may be answered
// by a function's result, as Codex does. A legacy call has no id and is matched by its name. A call without id that is not
// legacy matches nothing: its pair can be found by its neighbours only.
func Matches(call, answer Call) bool {
	if call.Family == FamilyLegacy || answer.Family == FamilyLegacy {
		return call.Family == answer.Family && call.Name == answer.Name
	}
	if call.ID == "" || call.ID != answer.ID {
		return false
	}
	return call.Family == answer.Family || call.Family == FamilyLocalShell && answer.Family == FamilyFunction
}

// SystemItems counts the system and developer messages at the head of items.
func SystemItems(items []Item) int {
	for i, it := range items {
		if it.Role != System && it.Role != Developer {
			return i
		}
	}
	return len(items)
}

// Text returns the item's plain text: the text parts of its content and its refusal, or a result's output. Parts are put
// together without anything between them. It is "" for kinds without text of their own.
func (it Item) Text() string {
	if it.Kind != Message && it.Kind != ToolResult {
		return ""
	}
	var content, refusal []byte
	for p := range Children(it.Raw) {
		switch string(p.Name) {
		case "content", "output":
			content = p.Value
		case "refusal":
			refusal = p.Value
		}
	}
	dst := appendContent(nil, content)
	if c, ok := Inside(refusal); ok {
		dst = AppendText(dst, c)
	}
	return string(dst)
}

// Said is Text without what programs put at its beginning: see WithoutThoughts for answers, WithoutDocuments for users' messages.
func (it Item) Said() string {
	switch it.Role {
	case Assistant:
		return WithoutThoughts(it.Text())
	case User:
		return WithoutDocuments(it.Text())
	default:
		return it.Text()
	}
}

// WithoutDocuments removes what Open WebUI puts before a message that it has retrieved documents for: its instructions to use them,
// and the documents.
func WithoutDocuments(message string) string {
	const begin, end = "### Task:\nRespond to the user query using the provided context", "</context>"
	at := strings.LastIndex(message, end)
	if at < 0 || !strings.HasPrefix(message, begin) {
		return message
	}
	said := strings.TrimSpace(message[at+len(end):])
	said = strings.TrimSuffix(strings.TrimPrefix(said, "<user_query>"), "</user_query>")
	return strings.TrimSpace(said)
}

// WithoutThoughts removes the thoughts that servers without a reasoning parser leave at the beginning of an answer, between <think>
// and </think>. Some chat templates write the first tag themselves, so it may be missing; an answer that is cut off may lack the second.
func WithoutThoughts(answer string) string {
	const begin, end = "<think>", "</think>"
	_, rest, ended := strings.Cut(answer, "\n"+end+"\n")
	if strings.HasPrefix(strings.TrimLeft(answer, " \t\r\n"), begin) {
		_, rest, _ = strings.Cut(answer, end) // "" without an end
	} else if !ended {
		return answer
	}
	return strings.TrimLeft(rest, " \t\r\n")
}

// spoken are the members of a part that hold text.
var spoken = [...]string{"text", "refusal", "stdout", "stderr"} //nolint:gochecknoglobals // a constant list

// appendContent appends the text of a string or of a list of parts; a shell's parts have stdout and stderr.
func appendContent(dst, content []byte) []byte {
	if c, ok := Inside(content); ok {
		return AppendText(dst, c)
	}
	if len(content) == 0 || content[0] != '[' {
		return dst
	}
	for e := range Children(content) {
		if c, ok := Inside(e.Value); ok {
			dst = AppendText(dst, c)
		}
		var said [len(spoken)][]byte // in a fixed order: the order of members has no meaning
		for p := range Children(e.Value) {
			if i := slices.Index(spoken[:], string(p.Name)); i >= 0 {
				said[i], _ = Inside(p.Value)
			}
		}
		for _, c := range said {
			dst = AppendText(dst, c)
		}
	}
	return dst
}

// Input returns the model's input for a call of the item, by the index of its part: the arguments of a function, the input of a
// custom tool, or the action or operation of another call as JSON. It is "" if there is none.
func (it Item) Input(part int) string {
	_, raw := it.input(part)
	if _, ok := Inside(raw); ok {
		return Text(raw)
	}
	return string(raw)
}

// TakesText reports whether the call in a part is to a custom tool, whose input is text and need not be JSON.
func (it Item) TakesText(part int) bool {
	name, _ := it.input(part)
	return name == "input"
}

// input returns the member that has the input of the call in a part, "" if there is none.
func (it Item) input(part int) (name string, raw []byte) {
	if part < 0 || part >= len(it.Parts) || !it.Parts[part].Judged() {
		return "", nil
	}
	call := it.Dialect.Codec().Input(it, part)
	for _, name := range [...]string{"arguments", "input", "action", "operation"} {
		if v := Member(call, name); v != nil && !IsNull(v) {
			return name, v
		}
	}
	return "", nil
}

// FunctionTool returns the definition of a function in dialect d, for Request.With. Parameters is a JSON schema; none means a
// function without arguments.
func FunctionTool(d Dialect, name, description string, parameters []byte) []byte {
	if len(parameters) == 0 {
		parameters = []byte(`{"type":"object","properties":{}}`)
	}
	return d.Codec().Function(name, description, parameters)
}

// AppendFunctionTool appends the members of a function's definition that all dialects name alike.
func AppendFunctionTool(out []byte, name, description string, parameters []byte) []byte {
	out = append(AppendString(append(out, `"name":`...), name), `,"description":`...)
	return append(append(AppendString(out, description), `,"parameters":`...), parameters...)
}

// NewMessage returns a message of a text.
func NewMessage(d Dialect, role Role, text string) Item {
	return MessageOf(d, role, AppendString(nil, strings.ToValidUTF8(text, "\uFFFD")))
}

// MessageOf returns a message of a content, which is given as JSON.
func MessageOf(d Dialect, role Role, content []byte) Item {
	raw := append(AppendString([]byte(`{"role":`), role.Name()), `,"content":`...)
	return NewDecoder(d).Item(append(append(raw, content...), '}'))
}

// NewToolResult returns a result that answers the call with a text, in the dialect that the call was made in.
func NewToolResult(c Call, d Dialect, text string) Item {
	return NewDecoder(d).Item(d.Codec().Result(c, AppendString(nil, text)))
}

// FromClient reports whether an item of kind Other is of a type that clients make, not models. Of a type that is not known, it is
// a client's if it has no id, which upstream gives to all that a model makes, and is not named as a call.
func (it Item) FromClient() bool {
	types := it.Dialect.Rules().ClientTypes
	if types == nil {
		return true // a role of its own
	}
	typ := Text(Member(it.Raw, "type"))
	return slices.Contains(types, typ) || it.ID == "" && !strings.HasSuffix(typ, "_call")
}

// Approves reports whether the item answers a model's request for approval.
func (it Item) Approves() bool {
	approval := it.Dialect.Rules().Approval
	return approval != "" && it.Kind == Other && Text(Member(it.Raw, "type")) == approval
}

// IsImage reports whether the item is an image that a model made.
func (it Item) IsImage() bool {
	image := it.Dialect.Rules().Image
	return image != "" && it.Kind == Other && Text(Member(it.Raw, "type")) == image
}

// Keep returns the item with those of its parts whose index in Parts keep names; the bytes of these, and of all that belongs
// to no part, stay. It returns false when no part stays. A tool_calls list that loses all its elements goes as a whole, since
// upstream refuses an empty one.
func (it Item) Keep(keep func(part int) bool) (Item, bool) {
	stays, n := make([]bool, len(it.Parts)), 0
	for i := range stays {
		if stays[i] = keep(i); stays[i] {
			n++
		}
	}
	switch n {
	case len(stays):
		return it, n > 0
	case 0:
		return Item{}, false
	}
	return it.Rewritten(it.Dialect.Codec().Keep(it, stays)), true
}

// WithoutCalls returns the item without some of its calls, and false when nothing else is in it; see Keep.
func (it Item) WithoutCalls(drop func(Call) bool) (Item, bool) {
	return it.Keep(func(i int) bool { return it.Parts[i].Kind != ToolCall || !drop(it.Parts[i].Call) })
}

// OnlyCalls returns the item with only the judged calls whose parts keep names, by their index, without its text. Everything else
// that upstream sent with the calls stays: thinking models refuse a call that comes back without its reasoning_content,
// reasoning_details or thought signature. It returns false when no call is kept.
func (it Item) OnlyCalls(keep func(part int) bool) (Item, bool) {
	calls, ok := it.Keep(func(i int) bool { return it.Parts[i].Judged() && keep(i) })
	if !ok {
		return Item{}, false
	}
	return calls.Rewritten(calls.Dialect.Codec().WithoutText(calls)), true
}

// CallsAsText returns an answer with the input of its calls as text, below the text that it has, in place of the calls.
func (it Item) CallsAsText() Item {
	said := []string{it.Text()}
	for i := range it.Calls() {
		said = append(said, it.Input(i))
	}
	said = slices.DeleteFunc(said, func(text string) bool { return strings.TrimSpace(text) == "" })
	if len(said) == 0 {
		return it
	}
	return NewMessage(it.Dialect, Assistant, strings.Join(said, "\n"))
}

// Audio is the sound of a Chat answer, as far as a later request needs to know.
type Audio struct {
	ID string
	// Expires is when upstream deletes the audio, in seconds since 1970; 0 if unknown.
	Expires int64
}

// AsInput returns the answer of a model as upstream accepts it back in a later request. Answers hold what requests must
// not: empty lists of calls, empty text beside calls, and sound, which goes back as its id where kept says that upstream
// still has it, and as the text of its transcript otherwise. It returns false for a message that says nothing, as after a
// content filter or when reasoning took all tokens: upstreams refuse null as content, and many refuse empty text as well.
//
// Messages of others than the assistant are returned as they are.
func (it Item) AsInput(kept func(Audio) bool) (Item, bool) {
	if it.Kind == Message && it.Role != Assistant {
		return it, true
	}
	return it.Dialect.Codec().AsInput(it, kept)
}

// WithoutMarks returns the item without what its client has marked it with for one request: prompt cache breakpoints, of which
// providers take few, and that the model is to continue it, which they take in the last message alone (Mistral and DeepSeek say
// prefix, Kimi and Qwen partial).
func (it Item) WithoutMarks() Item {
	found := func(name string) bool { return bytes.Contains(it.Raw, []byte(name)) }
	if !found(`"cache_control"`) && !found(`"prefix"`) && !found(`"partial"`) {
		return it
	}
	raw := EditMember(it.Raw, "content", func(content []byte) []byte {
		return EditElements(content, func(part []byte) []byte { return WithoutMembers(part, "cache_control") })
	})
	return it.Rewritten(WithoutMembers(raw, "cache_control", "prefix", "partial"))
}

// WithoutThoughts returns an answer without the thoughts that a server without a reasoning parser has left at the beginning of its
// text. One with calls keeps them, since its model may be at work still.
func (it Item) WithoutThoughts() Item {
	if it.Kind != Message || it.Role != Assistant || !bytes.Contains(it.Raw, []byte("think")) || it.HasCalls() {
		return it
	}
	return it.Rewritten(EditMember(it.Raw, "content", func(content []byte) []byte {
		said, ok := Inside(content)
		if !ok {
			return content
		}
		text := string(Unescaped(said))
		if left := WithoutThoughts(text); left != text {
			return AppendString(nil, left)
		}
		return content
	}))
}

// WithoutReasoning returns an answer of Chat without the reasoning that servers send beside its text, as most of them leave it out of
// later prompts. One with calls keeps it: thinking models want to have it back.
func (it Item) WithoutReasoning() Item {
	if it.Kind != Message || it.Role != Assistant || !bytes.Contains(it.Raw, []byte(`"reasoning`)) || it.HasCalls() {
		return it
	}
	return it.Rewritten(WithoutMembers(it.Raw, "reasoning_content", "reasoning"))
}

// Convert returns the item in dialect d: as it is if it has that dialect already. A Chat assistant message with calls
// becomes a message and one item for each call. Reasoning becomes nothing in Chat, which has no place for it. It returns false
// for what has no counterpart: hosted calls, references, and content without any part that has one.
func (it Item) Convert(d Dialect) ([]Item, bool) {
	if it.Dialect == d {
		return []Item{it}, true
	}
	return NewConverter(d).convert(it)
}

// Reach is the distance from the upstream of an earlier item to the upstream of a new request.
type Reach uint8

// Reaches, from the nearest. Each loses what the ones before it lose.
const (
	// Near items were made by the provider and the model that are asked now, and what they refer to is known there.
	Near Reach = iota
	// Unnamed items were made there as well, but upstream has not kept what their ids refer to.
	Unnamed
	// OtherModel items were made by another model of the same provider.
	OtherModel
	// OtherProvider items were made elsewhere.
	OtherProvider
)

// Portable returns the item in a form that an upstream at that distance accepts, and false if nothing remains. Text, and calls
// with their pairing ids, stay. Data that only the maker can read or find is removed: reasoning, references, hosted calls,
// items of unknown types, ids and signatures, and for another provider files, containers, audio, null members, and arguments
// that are not a JSON object. Other items are returned unchanged.
func (it Item) Portable(r Reach) (Item, bool) {
	if r == Near || len(it.Raw) == 0 || it.Raw[0] != '{' {
		return it, r == Near || it.Kind != Other
	}
	return it.Dialect.Codec().Portable(it, r)
}

// StringArguments returns the arguments of a call as a JSON string. Some servers answer with the object itself, which the API
// does not take back.
func StringArguments(raw []byte) []byte {
	if len(raw) > 0 && raw[0] == '{' {
		return AppendString(nil, string(raw))
	}
	return raw
}

// ObjectArguments returns the arguments of a call as a JSON string, or empty arguments if their text is not a JSON object, as
// after a cut: servers that parse them would refuse the whole history.
func ObjectArguments(raw []byte) []byte {
	raw = StringArguments(raw)
	text, _ := Inside(raw)
	if text = bytes.TrimSpace(Unescaped(text)); IsObject(text) {
		return raw
	}
	return []byte(`"{}"`)
}

// WithObjectArguments returns the item with the arguments of its function calls as [ObjectArguments] returns them. If they are
// so already, it is returned as it is.
func (it Item) WithObjectArguments() Item {
	for i, call := range it.Calls() {
		if call.Family != FamilyFunction && call.Family != FamilyLegacy {
			continue // its arguments are no string
		}
		v := Member(it.Dialect.Codec().Input(it, i), "arguments")
		if v != nil && !SameBytes(ObjectArguments(v), v) {
			return it.editTools(func(tool []byte) []byte { return EditMember(tool, "arguments", ObjectArguments) })
		}
	}
	return it
}

// WithToolNames returns the item with renamed tools in its calls or result. Where rename returns the same name, all bytes stay.
func (it Item) WithToolNames(rename func(name string) string) Item {
	if it.Kind != ToolResult && !it.HasCalls() {
		return it
	}
	return it.editTools(func(tool []byte) []byte {
		return EditMember(tool, "name", func(value []byte) []byte {
			was := Text(value)
			if is := rename(was); isString(value) && is != was {
				return AppendString(nil, is)
			}
			return value
		})
	})
}

// editTools rewrites the objects of an item that name a tool: the item itself, or, of a message, those in its calls.
func (it Item) editTools(edit func(tool []byte) []byte) Item {
	if it.Kind != Message {
		return it.Rewritten(edit(it.Raw))
	}
	raw := editCalls(it.Raw, func(_ int, call []byte) []byte {
		return EditMember(EditMember(call, "function", edit), "custom", edit)
	})
	return it.Rewritten(EditMember(raw, "function_call", edit))
}

// editCalls rewrites the elements of a message's list of calls.
func editCalls(message []byte, edit func(i int, call []byte) []byte) []byte {
	return EditMember(message, "tool_calls", func(list []byte) []byte {
		return Edit(list, func(i int, p Child) ([]byte, bool) { return edit(i, p.Value), true })
	})
}

// WithReasoning returns an answer with a text as its reasoning, unless it has one. Where reasoning is an item of its own, upstream
// asks for none.
func (it Item) WithReasoning(text string) Item {
	if !it.Dialect.Rules().OneItem || it.Kind != Message || it.Role != Assistant || Text(Member(it.Raw, "reasoning_content")) != "" {
		return it
	}
	text = cmp.Or(Text(Member(it.Raw, "reasoning")), text) // OpenRouter's name for it
	return it.Rewritten(WithMember(it.Raw, "reasoning_content", AppendString(nil, text)))
}

// unsigned is the signature that Google documents for calls that another model has made.
const unsigned = `{"google":{"thought_signature":"skip_thought_signature_validator"}}`

// WithSignature returns an answer with a placeholder as the signature of its first call, unless that is signed.
func (it Item) WithSignature() Item {
	return it.Rewritten(editCalls(it.Raw, func(i int, call []byte) []byte {
		if signed := Member(call, "extra_content"); i > 0 || signed != nil && !IsNull(signed) {
			return call
		}
		return WithMember(call, "extra_content", []byte(unsigned))
	}))
}

// WithoutNull returns the item without a null content.
func (it Item) WithoutNull() Item {
	return it.Rewritten(Edit(it.Raw, func(_ int, p Child) ([]byte, bool) {
		return p.Value, string(p.Name) != "content" || !IsNull(p.Value)
	}))
}

// contentName is the member that has the content of a message or a result.
func (it Item) contentName() string {
	if it.Kind == ToolResult {
		return it.Dialect.Rules().Result
	}
	return "content"
}

// WithText returns a message or a result with a text in place of a content that is blank or null, and without blank texts beside
// other parts. A refusal is a text of its own. A message with calls or audio needs no text.
func (it Item) WithText(text string) Item {
	if it.Kind != ToolResult && (it.Kind != Message || it.HasCalls() || it.hasAudio()) {
		return it
	}
	blank := func(raw []byte) bool { return IsNull(raw) || Blank(raw) }
	text = cmp.Or(Text(Member(it.Raw, "refusal")), text)
	return it.Rewritten(EditMember(it.Raw, it.contentName(), func(content []byte) []byte {
		left := !blank(content)
		if HasChildren(content) {
			content, left = WithoutElements(content, func(part []byte) bool { return blank(Member(part, "text")) })
		}
		if left && string(content) != "[]" {
			return content
		}
		return AppendString(nil, text)
	}))
}

// hasAudio reports whether a message is an answer with sound.
func (it Item) hasAudio() bool {
	audio := Member(it.Raw, "audio")
	return len(audio) > 0 && audio[0] == '{'
}

// WithoutAudio returns an answer with the transcript in place of its sound, or with words if there is none: upstream keeps sound for
// some hours.
func (it Item) WithoutAudio() Item {
	if it.Kind != Message || it.Role != Assistant || !it.hasAudio() {
		return it
	}
	out, says := it.AsInput(func(Audio) bool { return false })
	if !says {
		out = out.WithText(inWords("audio"))
	}
	return out
}

// InWords returns the item with text in place of images, files, audio and videos in its content. The content becomes one text,
// unless the item has an id: servers that take no images often take no lists. A content that is not a list stays.
func (it Item) InWords() Item {
	it = it.DrawnInWords()
	name := it.contentName()
	content := bytes.TrimSpace(Member(it.Raw, name))
	if len(content) == 0 || content[0] != '[' {
		return it
	}
	var texts []string
	for part := range Children(content) {
		typ, text := Text(Member(part.Value, "type")), Text(Member(part.Value, "text"))
		switch words := inWords(typ); {
		case words != "":
			texts = append(texts, words)
		case text != "":
			texts = append(texts, text)
		case !strings.Contains(typ, "text"):
			return it // a refusal, or what does not exist yet
		}
	}
	said := AppendString(nil, strings.Join(texts, "\n"))
	if it.ID != "" {
		said = slices.Concat([]byte("["), it.Dialect.TextPart(it.Role, said), []byte("]"))
	}
	return it.Rewritten(WithMember(it.Raw, name, said))
}

// DrawnInWords returns an answer without the images that it has beside its content, as OpenRouter's models draw them, and with
// text in their place if that is all it has.
func (it Item) DrawnInWords() Item {
	if it.Role != Assistant || !HasChildren(Member(it.Raw, "images")) {
		return it
	}
	return it.Rewritten(WithoutMembers(it.Raw, "images")).WithText(inWords("image"))
}

// inWords returns the text that replaces a content part of a type, "" for a type that is not a medium.
func inWords(typ string) string {
	for _, medium := range [...][2]string{{"image", "(an image)"}, {"file", "(a file)"}, {"audio", "(a sound)"}, {"video", "(a video)"}} {
		if strings.Contains(typ, medium[0]) {
			return medium[1]
		}
	}
	return ""
}

// Rewritten returns the item with other bytes, or itself where nothing was taken from them.
func (it Item) Rewritten(raw []byte) Item {
	if string(raw) == string(it.Raw) {
		return it
	}
	return NewDecoder(it.Dialect).Item(raw)
}

// StoredFile reports whether a part is nothing but the id of a file.
func StoredFile(part []byte) bool {
	if Text(Member(part, "file_id")) == "" {
		return false
	}
	inline := [...]string{"file_data", "file_url", "image_url"}
	return !slices.ContainsFunc(inline[:], func(name string) bool { return Text(Member(part, name)) != "" })
}

// StoredInWords returns a content of the item, or the output of a call, with text in place of files that only the account of its
// provider has.
func (it Item) StoredInWords(content []byte) []byte {
	return EditElements(content, func(part []byte) []byte {
		if !StoredFile(part) && !StoredFile(Member(part, "file")) { // in Chat one level down
			return part
		}
		return it.Dialect.TextPart(it.Role, AppendString(nil, inWords(Text(Member(part, "type")))))
	})
}

// WithoutElements leaves out elements of a list. It returns false where it leaves out all of them.
func WithoutElements(list []byte, drop func(part []byte) bool) ([]byte, bool) {
	if len(list) == 0 || list[0] != '[' {
		return list, true
	}
	kept, dropped := 0, 0
	out := Edit(list, func(_ int, e Child) ([]byte, bool) {
		if drop(e.Value) {
			dropped++
			return nil, false
		}
		kept++
		return e.Value, true
	})
	return out, kept > 0 || dropped == 0
}
