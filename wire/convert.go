package wire

import (
	"encoding/hex"
	"slices"
	"strconv"
)

// ContentPart is a part of a content in a neutral form.
type ContentPart struct {
	Kind PartKind
	// Value is the text or the URL of an image as a JSON string, the members of a file as an object, or all of a refusal or
	// sound, which the dialects spell alike.
	Value []byte
	// Detail is the detail level of an image, as a JSON string; nil if absent.
	Detail []byte
}

// PartKind is the kind of a content part.
type PartKind uint8

// Kinds of parts. PartAlike has the same form in all dialects.
const (
	PartText PartKind = iota
	PartImage
	PartFile
	PartAlike
)

// SaidCall is a call in a neutral form: of a function or, if Custom, of a custom tool.
type SaidCall struct {
	Call
	Custom bool
	// CallID, ToolName and Input are JSON strings, nil where absent.
	CallID, ToolName, Input []byte
	// Alone: the call has no counterpart.
	Alone bool
}

// ConvertAll converts items of another dialect, and leaves out items and parts of a content without a counterpart, and their
// partners. What a model has said and called in one answer becomes one Chat message, as Chat itself would have given it: many
// servers refuse two answers in a row.
func ConvertAll(items []Item, d Dialect) []Item {
	if !hasForeign(items, d) {
		return items
	}
	return NewConverter(d).Next(items)
}

func hasForeign(items []Item, d Dialect) bool {
	return slices.ContainsFunc(items, func(it Item) bool { return it.Dialect != d })
}

// Next is ConvertAll for the next piece of a history. No piece parts a call from its result.
func (c *Converter) Next(items []Item) []Item {
	d := c.to
	if !hasForeign(items, d) {
		return items
	}
	out := make([]converted, 0, len(items))
	var a answer
	flush := func() {
		for _, it := range c.items(a) {
			out = append(out, converted{it, true})
		}
		a = answer{}
	}
	for _, it := range items {
		if it.Dialect != d && it.Parts[0].OfModel(it.Role) {
			if !d.Rules().OneItem || it.Dialect.Rules().OneItem {
				flush()
			}
			c.take(&a, it)
			continue
		}
		flush()
		if it.Dialect == d {
			out = append(out, converted{it, false})
			continue
		}
		made, ok := c.convert(it)
		if !ok {
			c.lose(it)
		}
		for _, it := range made {
			out = append(out, converted{it, true})
		}
	}
	flush()
	return c.settle(out)
}

// answer collects the items of one answer of a model.
type answer struct {
	said  []Item // its messages, converted
	calls []SaidCall
	drawn bool // it has an image that was left out
}

// Converter converts the items of a history to one dialect. Calls that it gives an id have different ones.
type Converter struct {
	to     Dialect
	custom map[string]bool     // calls of custom tools, by id: a Chat result does not have this, a Responses result must
	lost   map[string]bool     // keys of the calls and results that were left out
	named  map[string][]string // the ids that were given to calls of legacy functions, by name, until they have a result
	given  map[Hash]int        // how many such ids were made of a message
}

// NewConverter returns a converter to a dialect.
func NewConverter(to Dialect) *Converter {
	return &Converter{
		to: to, custom: make(map[string]bool), lost: make(map[string]bool), named: make(map[string][]string), given: make(map[Hash]int),
	}
}

// lose records that the other half of the item's pairs cannot be sent either.
func (c *Converter) lose(it Item) {
	for _, call := range it.Calls() {
		c.lost[call.Key()] = true
	}
	if it.Kind == ToolResult {
		c.lost[it.Answers().Key()] = true
	}
}

// convert returns false for an item without a counterpart.
func (c *Converter) convert(it Item) ([]Item, bool) {
	switch {
	case it.Parts[0].OfModel(it.Role):
		var a answer
		ok := c.take(&a, it)
		return c.items(a), ok
	case it.Kind == ToolResult:
		return c.result(it)
	case it.Kind == Message:
		return c.message(it)
	}
	return nil, false
}

// take adds an item of a model to an answer, and returns false if it has no counterpart.
func (c *Converter) take(a *answer, it Item) bool {
	if it.Kind == Reasoning {
		return true
	}
	if it = it.DrawnInWords(); it.Kind == Message && (it.HasContent() || !it.HasCalls()) {
		made, _ := c.message(it)
		a.said = append(a.said, made...)
		if len(made) > 0 && !it.HasCalls() {
			return true
		}
	}
	if !it.HasCalls() {
		a.drawn = a.drawn || it.IsImage()
		c.lose(it)
		return it.IsImage()
	}
	kept := it.Kind == Message
	for _, call := range it.Dialect.Codec().ReadCalls(it) {
		if call.Alone {
			c.lost[call.Key()] = true
			continue
		}
		if call.Family == FamilyLegacy {
			call.ID = c.idFor(call.Name, it)
			call.CallID = AppendString(nil, call.ID)
		}
		a.calls, kept = append(a.calls, call), true
	}
	return kept
}

// idFor gives the call of a legacy function an id, which such calls lack. It is the same in each request with that message, so that
// the prompt cache still matches.
func (c *Converter) idFor(name string, message Item) string {
	hash := message.ContentHash()
	id := "call_" + hex.EncodeToString(hash[:])
	if n := c.given[hash]; n > 0 {
		id += "_" + strconv.Itoa(n)
	}
	c.given[hash]++
	c.named[name] = append(c.named[name], id)
	return id
}

// items makes items of an answer.
func (c *Converter) items(a answer) []Item {
	if a.drawn && len(a.said) == 0 && len(a.calls) == 0 {
		return []Item{NewMessage(c.to, Assistant, inWords("image"))}
	}
	made := c.make(a.calls)
	if len(made) == 0 || !c.to.Rules().OneItem {
		return append(a.said, made...)
	}
	var contents [][]byte
	for _, it := range a.said {
		contents = append(contents, Member(it.Raw, "content"))
	}
	if content := c.to.JoinContents(Assistant, contents...); content != nil {
		made[0] = made[0].Rewritten(WithMember(made[0].Raw, "content", content))
	}
	return made
}

func (c *Converter) message(it Item) ([]Item, bool) {
	if it.Role == RoleOther {
		return nil, false
	}
	content, ok := c.content(it)
	if !ok {
		return nil, false
	}
	raw := append([]byte(`{"role":`), Member(it.Raw, "role")...)
	raw = append(append(append(raw, `,"content":`...), content...), '}')
	return []Item{NewDecoder(c.to).Item(raw)}, true
}

// make makes items of calls.
func (c *Converter) make(calls []SaidCall) []Item {
	if len(calls) == 0 {
		return nil
	}
	for _, call := range calls {
		if call.Custom {
			c.custom[call.ID] = true
		}
	}
	var items []Item
	for _, raw := range c.to.Codec().MakeCalls(calls) {
		items = append(items, NewDecoder(c.to).Item(raw))
	}
	return items
}

func (c *Converter) result(it Item) ([]Item, bool) {
	content, ok := c.content(it)
	call := Call{ID: it.Answers().ID, Family: FamilyFunction}
	switch it.Answers().Family {
	case FamilyFunction, FamilyCustom:
	case FamilyLegacy:
		name := it.Answers().Name
		last := len(c.named[name]) - 1
		if last < 0 {
			return nil, false
		}
		call.ID, c.named[name] = c.named[name][last], c.named[name][:last]
	default:
		return nil, false
	}
	if c.custom[call.ID] {
		call.Family = FamilyCustom
	}
	if !ok {
		return nil, false
	}
	return []Item{NewDecoder(c.to).Item(c.to.Codec().Result(call, content))}, true
}

// OrEmpty is raw, or an empty string where there is none.
func OrEmpty(raw []byte) []byte {
	if len(raw) == 0 {
		return []byte(`""`)
	}
	return raw
}

// content converts the content of a message, or the output of a result. A string stays the string that it is, and a list of one
// text becomes one: many servers take no list, above all not from the assistant. It returns false where no part of a list has a
// counterpart.
func (c *Converter) content(it Item) ([]byte, bool) {
	raw, refusal := Member(it.Raw, it.contentName()), Member(it.Raw, "refusal")
	_, refused := Inside(refusal)
	if _, ok := Inside(raw); ok && !refused {
		return raw, true
	}
	if !refused && (len(raw) == 0 || IsNull(raw)) {
		return []byte(`""`), true
	}
	out := []byte{'['}
	if s, ok := Inside(raw); ok && len(s) > 0 {
		out = append(out, c.to.TextPart(it.Role, raw)...)
	}
	out, text := c.parts(out, raw, it)
	if text != nil && !refused {
		return text, true
	}
	if refused && it.Role == Assistant {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, `{"type":"refusal","refusal":`...), refusal...), '}')
	}
	if len(out) == 1 {
		return []byte(`""`), it.Kind == ToolResult // its call needs it
	}
	return append(out, ']'), true
}

// parts appends the converted parts of a list. If that is one text, it returns it as well, as a JSON string.
func (c *Converter) parts(out, raw []byte, it Item) (list, text []byte) {
	for p := range Children(raw) {
		part, ok := it.Dialect.Codec().ReadPart(p.Value)
		if _, said := Inside(p.Value); said {
			part, ok = ContentPart{Value: p.Value}, true
		}
		if !ok || p.Name != nil { // no API takes an object
			continue
		}
		first := len(out) == 1
		if !first {
			out = append(out, ',')
		}
		if it.Kind == ToolResult && c.to.Rules().TextResults {
			part = part.InWords()
		}
		text = nil
		if part.Kind == PartText {
			value := OrEmpty(part.Value)
			out = append(out, c.to.TextPart(it.Role, value)...)
			if first {
				text = value
			}
		} else {
			out = c.to.Codec().AppendPart(out, part)
		}
	}
	return out, text
}

// InWords replaces the part if the content may only have text, or the dialect has no such file.
func (p ContentPart) InWords() ContentPart {
	switch p.Kind {
	case PartImage:
		return ContentPart{Value: AppendString(nil, inWords("image"))}
	case PartFile:
		return ContentPart{Value: AppendString(nil, inWords("file"))}
	default:
		return p
	}
}

// converted is an item in the request's dialect; foreign if it came from another one.
type converted struct {
	Item
	foreign bool
}

// pairs maps calls to results: results[i][k] is the index of the item that answers part k of item i, -1 for none.
type pairs struct {
	results  [][]int
	answered []bool // by index of the result
}

// settle leaves out converted calls and results without a partner, and items that lost their partner by conversion. In Chat it
// moves results after the message with their calls.
func (c *Converter) settle(items []converted) []Item {
	p := pair(items)
	out := make([]Item, 0, len(items))
	for i, it := range items {
		if it.Kind == ToolResult {
			gone := !p.answered[i] && (it.foreign || c.lost[it.Answers().Key()])
			moved := p.answered[i] && c.to.Rules().ResultsAdjacent
			if !gone && !moved {
				out = append(out, it.Item)
			}
			continue
		}
		rest, ok := it.Item, true
		if it.HasCalls() {
			rest, ok = it.withoutUnanswered(p.results[i], c.lost)
		}
		if ok {
			out = append(out, rest)
		}
		for _, at := range p.results[i] {
			if at >= 0 && c.to.Rules().ResultsAdjacent {
				out = append(out, items[at].Item)
			}
		}
	}
	return out
}

func (it converted) withoutUnanswered(results []int, lost map[string]bool) (Item, bool) {
	return it.Keep(func(i int) bool {
		p := &it.Parts[i]
		return p.Kind != ToolCall || results[i] >= 0 || !it.foreign && !lost[p.Call.Key()]
	})
}

// pair assigns each result to the latest open call before it, and remaining results to calls after them.
func pair(items []converted) pairs {
	type place struct{ item, call int }
	p := pairs{results: make([][]int, len(items)), answered: make([]bool, len(items))}
	open := make(map[string][]place)
	var early []int
	for i, it := range items {
		if it.HasCalls() {
			p.results[i] = slices.Repeat([]int{-1}, len(it.Parts))
		}
		for k, call := range it.Calls() {
			open[call.Key()] = append(open[call.Key()], place{i, k})
		}
		if it.Kind != ToolResult {
			continue
		}
		key := it.Answers().Key()
		n := len(open[key])
		if n == 0 {
			early = append(early, i)
			continue
		}
		last := open[key][n-1]
		p.results[last.item][last.call], p.answered[i], open[key] = i, true, open[key][:n-1]
	}
	for _, i := range early {
		key := items[i].Answers().Key()
		if calls := open[key]; len(calls) > 0 {
			p.results[calls[0].item][calls[0].call], p.answered[i], open[key] = i, true, calls[1:]
		}
	}
	return p
}
