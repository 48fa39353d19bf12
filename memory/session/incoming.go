package session

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/wire"
)

// incoming is a parsed request for the merge: its items after the system prompt, with their hashes.
type incoming struct {
	system          []wire.Item // the system prompt: system items before the conversation
	systemPrompt    wire.Hash   // of these and the instructions
	hasSystemPrompt bool
	items           []wire.Item
	marks           []mark
	ends            []position // after each item
	base            position   // where items[0] begins: the beginning of the conversation, or of a run (see merger.run)
	// stateful: upstream itself has the earlier items (previous_response_id, conversation). elsewhere: another provider has them.
	// templated: upstream puts a template before them.
	stateful        bool
	elsewhere       bool
	templated       bool
	refs            map[string]reference
	hashes          *hashCache
	systemPromptHex string // systemPrompt in hex, "" if there is none
}

// mark is an item's contribution to a position.
type mark struct {
	wire.Meaning
	onChain bool // reasoning is not: many clients leave it out when they resend, or send a reference instead
	units   uint64
}

// newIncoming hashes the items of a request to a session. known caches the hashes of earlier items.
func newIncoming(c *Call, st *state, known *hashCache) *incoming {
	req := c.Request
	all := withoutEchoes(req.Items(), st.head.Blocks)
	n := wire.SystemItems(all)
	in := &incoming{system: all[:n], items: all[n:], refs: st.refs, hashes: known}
	if in.systemPrompt, in.hasSystemPrompt = systemPromptHash(in.system, req.Instructions(), known); in.hasSystemPrompt {
		in.systemPromptHex = hexText(in.systemPrompt[:])
	}
	in.elsewhere = st.continuesElsewhere(c)
	in.stateful, in.templated = req.Continues() && !in.elsewhere, req.Templated()
	in.hash()
	return in
}

// hash fills marks and ends: with mark and position.after, or with a cache for both.
func (in *incoming) hash() {
	in.marks, in.ends = make([]mark, len(in.items)), make([]position, len(in.items))
	var at position
	for i := range in.items {
		it, m := &in.items[i], &in.marks[i]
		if it.Kind == wire.Reference || it.Kind == wire.Reasoning {
			*m = in.mark(*it)
			at = at.after(*m)
		} else {
			meaning, chain := in.hashes.chain(at.Chain, it)
			*m = mark{Meaning: meaning, onChain: true, units: uint64(len(it.Parts))}
			at.Chain, at.Units = chain, at.Units+m.units
		}
		in.ends[i] = at
	}
}

// mark hashes an item.
func (in *incoming) mark(it wire.Item) mark {
	if it.Kind == wire.Reference {
		if ref, ok := in.refs[it.ID]; ok {
			return mark{Meaning: wire.Meaning{Content: ref.Content}, onChain: ref.Kind != wire.Reasoning, units: 1}
		}
	}
	return mark{Meaning: in.hashes.meaning(it), onChain: it.Kind != wire.Reasoning, units: uint64(len(it.Parts))}
}

// resolve describes the target of a reference, as far as a view needs it. Other items, and references to unknown targets, stay.
func (in *incoming) resolve(it wire.Item) wire.Item {
	ref, ok := in.refs[it.ID]
	if it.Kind != wire.Reference || !ok {
		return it
	}
	part := wire.Part{Kind: ref.Kind, Call: ref.Pair}
	return wire.Item{
		Kind: ref.Kind, Role: ref.Role, Dialect: it.Dialect, ID: it.ID, Parts: []wire.Part{part}, Raw: it.Raw, Target: ref.Size,
	}
}

// passes reports whether the request's history contains a place in the transcript.
func (in *incoming) passes(chain wire.Hash) bool {
	return slices.ContainsFunc(in.ends, func(end position) bool { return end.Chain == chain })
}

// unresolved reports whether a reference has an unknown target, so that pairs cannot be checked.
func (in *incoming) unresolved() bool {
	for i := range in.items {
		if it := &in.items[i]; it.Kind == wire.Reference {
			if _, ok := in.refs[it.ID]; !ok {
				return true
			}
		}
	}
	return false
}

// answersTemplate reports whether a result has its call outside of the request, so that a template may have it.
func (in *incoming) answersTemplate() bool {
	if !in.templated {
		return false
	}
	calls := make(map[string]bool)
	for _, it := range in.items {
		for _, c := range it.Calls() {
			calls[c.Key()] = true
		}
		if it.Kind == wire.ToolResult && !calls[it.Answers().Key()] {
			return true
		}
	}
	return false
}

// anySaidByModel reports whether one of some items is a message or call of a model.
func (in *incoming) anySaidByModel(items []wire.Item) bool {
	return slices.ContainsFunc(items, in.saidByModel)
}

// saidByModel reports whether an item is a model's message or call.
func (in *incoming) saidByModel(it wire.Item) bool {
	it = in.resolve(it)
	return it.Kind == wire.ToolCall || it.Kind == wire.Message && it.Role == wire.Assistant
}

// anyMadeByModel reports whether some items have anything of a model: a message, a call, reasoning, a hosted call, or a reference,
// which usually stands for one of these.
func (in *incoming) anyMadeByModel(items []wire.Item) bool {
	return slices.ContainsFunc(items, in.madeByModel)
}

// madeByModel reports whether an item comes from a model: see anyMadeByModel.
func (in *incoming) madeByModel(it wire.Item) bool {
	switch it.Kind {
	case wire.ToolCall, wire.Reasoning, wire.Compaction:
		return true
	case wire.Message:
		return it.Role == wire.Assistant
	case wire.Reference:
		ref, ok := in.refs[it.ID]
		return !ok || ref.Role != wire.User
	case wire.Other:
		return !it.FromClient()
	default:
		return false
	}
}

// compacts reports whether a compaction is the request's only item of a model.
func (in *incoming) compacts() bool {
	found := false
	for _, it := range in.items {
		switch {
		case it.Kind == wire.Compaction:
			found = true
		case in.madeByModel(it):
			return false
		}
	}
	return found
}

// resends reports whether the request has an item of a model before the last user message: then its client resends its history.
func (in *incoming) resends() bool {
	for i, it := range slices.Backward(in.items) {
		if it.Role == wire.User && !in.feedback(i) {
			return in.anyMadeByModel(in.items[:i])
		}
	}
	return false
}

// feedback reports whether item i is a program's message about the answer before it: both belong to the run of an earlier message.
func (in *incoming) feedback(i int) bool {
	return i > 0 && i < len(in.items) && in.saidByModel(in.items[i-1]) && in.isFeedback(i)
}

// isFeedback reports whether item i is a program's message about an answer, wherever it stands.
func (in *incoming) isFeedback(i int) bool {
	it := in.items[i]
	return it.Role == wire.User && mayBeFeedback(it.Raw) && isFeedback(it.Text())
}

// hasHistory reports whether the request has items of a model, except for a prefilled answer: text of the model after the
// user's, as the last item.
func (in *incoming) hasHistory() bool {
	n := len(in.items)
	if n > 1 {
		last, before := in.items[n-1], in.items[n-2]
		if in.saidByModel(last) && last.Kind == wire.Message && !last.HasCalls() && before.Role == wire.User {
			n--
		}
	}
	return in.anyMadeByModel(in.items[:n])
}

// drop leaves the items from first to end out of the request.
func (in *incoming) drop(first, end int) {
	if first == end {
		return
	}
	in.items = slices.Concat(in.items[:first], in.items[end:])
	in.hash()
}

// begin sets the place before items[0].
func (in *incoming) begin(at position) {
	in.base = at
	for i, m := range in.marks {
		at = at.after(m)
		in.ends[i] = at
	}
}

// inRun reports whether the request begins where a run did.
func (in *incoming) inRun() bool { return in.base.Seq != 0 }

// answers reports whether the request begins with the result of a call, or with an answer to an approval request. No
// conversation begins so.
func (in *incoming) answers() bool {
	if len(in.items) == 0 {
		return false
	}
	it := &in.items[0]
	return it.Kind == wire.ToolResult || it.Approves()
}

// answersAgain reports whether a request begins with results that are not all open: they may be repeated.
func (in *incoming) answersAgain(h *head) bool {
	return in.answers() && slices.ContainsFunc(in.items, func(it wire.Item) bool {
		return it.Kind == wire.ToolResult && !h.Open.has(it.Answers())
	})
}

const (
	// questionRunes and questionWords are the least of a question that is a retry where it comes again: a user may say "go on" twice.
	questionRunes = 24
	questionWords = 4
	// brokenItems is the number of items of an answer after which its question is looked for.
	brokenItems = 8
)

// mayAskAgain reports whether a request may repeat the question whose answer is the latest on the head line.
func (in *incoming) mayAskAgain(h *head) bool {
	n := len(in.items)
	if n == 0 || in.items[n-1].Role != wire.User || in.anyMadeByModel(in.items) {
		return false
	}
	latest, asked := h.Ring[max(0, len(h.Ring)-1-brokenItems):], shortHash(in.marks[n-1].Content)
	if !slices.ContainsFunc(latest, func(e echo) bool { return e.Content == asked }) {
		return false
	}
	text := in.items[n-1].Text()
	if utf8.RuneCountInString(text) >= questionRunes {
		return true // before a long text is split
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return len(words) >= questionWords
}

// landmark reports whether an item can be found by its content alone: an item of the client, since a client that trims its
// history begins it with its own item.
func landmark(it wire.Item) bool {
	return it.Kind == wire.ToolResult || it.Role == wire.User
}
