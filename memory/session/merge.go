package session

import (
	"encoding/binary"
	"slices"

	"remora/memory/view"
	"remora/wire"
)

// incoming is a request for the merge: its items after the system prompt, with their hashes.
type incoming struct {
	leading []wire.Item // the system prompt: system items before the conversation
	lead    wire.Hash   // of the system prompt and the instructions
	hasLead bool
	items   []wire.Item
	marks   []mark
	ends    []position // after each item
	base    position   // where items[0] begins: the beginning of the conversation, or of a run (see head.mergeRun)
	// stateful: upstream itself holds what came before (previous_response_id, conversation, prompt).
	stateful bool
	refs     map[string]reference
	hashes   *hashCache
	leadText string        // lead in hex, "" if there is none
	markRoom [roomFor]mark // most requests are short
	endRoom  [roomFor]position
}

// roomFor is the number of items up to which the lists of a request need no allocation.
const roomFor = 8

// inRoom returns n zero values, in room if that is large enough.
func inRoom[T any](room []T, n int) []T {
	if n > len(room) {
		return make([]T, n)
	}
	clear(room)
	return room[:n:n]
}

// mark is an item's contribution to a position.
type mark struct {
	content wire.Hash
	onChain bool // reasoning is not: many clients leave it out when they resend, or send a reference in its place
	units   uint64
}

// newIncoming hashes the items of a request to a session. known caches the hashes of earlier items.
func newIncoming(req *wire.Request, st *state, known *hashCache) *incoming {
	return new(incoming).read(req, st, known)
}

// read is newIncoming without an allocation for in itself.
func (in *incoming) read(req *wire.Request, st *state, known *hashCache) *incoming {
	all := withoutEchoes(req.Items(), st.head.Blocks)
	lead := wire.Leading(all)
	in.leading, in.items, in.refs, in.hashes = all[:lead], all[lead:], st.refs, known
	if in.lead, in.hasLead = leadHash(in.leading, req.Instructions(), known); in.hasLead {
		in.leadText = hexText(in.lead[:])
	}
	in.stateful = req.Continues()
	in.marks, in.ends = inRoom(in.markRoom[:], len(in.items)), inRoom(in.endRoom[:], len(in.items))
	var at position
	for i := range in.items {
		in.marks[i], at = in.follow(&in.items[i], at)
		in.ends[i] = at
	}
	return in
}

// mark hashes an item.
func (in *incoming) mark(it wire.Item) mark {
	if it.Kind == wire.Reference {
		if ref, ok := in.refs[it.ID]; ok {
			return mark{content: ref.Content, onChain: ref.Kind != wire.Reasoning, units: 1}
		}
	}
	return mark{content: in.hashes.content(it), onChain: it.Kind != wire.Reasoning, units: view.Units(it)}
}

// follow hashes an item and the position behind it: mark and position.after, with a cache for both.
func (in *incoming) follow(it *wire.Item, at position) (mark, position) {
	if it.Kind == wire.Reference || it.Kind == wire.Reasoning {
		m := in.mark(*it)
		return m, at.after(m)
	}
	m := mark{onChain: true, units: view.Units(*it)}
	m.content, at.Chain = in.hashes.chain(at.Chain, it)
	at.Units += m.units
	return m, at
}

// resolve finds what a reference stands for, as far as the window and the pairing need it.
func (in *incoming) resolve(it wire.Item) (wire.Item, bool) {
	ref, ok := in.refs[it.ID]
	if !ok {
		return it, false
	}
	out := wire.Item{Kind: ref.Kind, Role: ref.Role, Dialect: it.Dialect, HasText: ref.Kind == wire.Message, ID: it.ID, Raw: it.Raw}
	if ref.Kind == wire.ToolCall {
		out.Calls = []wire.Call{ref.Pair}
	}
	if ref.Kind == wire.ToolResult {
		out.Answers = ref.Pair
	}
	return out, true
}

// passes reports whether the request's history goes through a place in the transcript.
func (in *incoming) passes(chain wire.Hash) bool {
	for _, end := range in.ends {
		if end.Chain == chain {
			return true
		}
	}
	return false
}

// unresolved reports whether a reference stands for something unknown, so that pairs can't be checked.
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

// relation is how a request relates to the transcript; it is written into the turn record.
type relation string

const (
	relRoot     relation = "root"     // a new beginning
	relContinue relation = "continue" // the history was resent, with something new behind it
	relResend   relation = "resend"   // nothing new: a repeated request, or a regeneration
	relBranch   relation = "branch"   // an edited history: shares a beginning
	relTrim     relation = "trim"     // the client trimmed or compacted its own history
	relDelta    relation = "delta"    // only what is new was sent
	relUpstream relation = "upstream" // upstream holds the history
)

// plan is where a request's items go in the transcript.
type plan struct {
	relation relation
	rule     rule     // why they go there
	standing Standing // of the request to the conversation
	helper   string   // what the helper's request is that it was taken for, empty for another
	shown    evidence // what it shows of its client's habit
	// line is the line that the items are stored on, 0 for a new one. A line is all that shares its beginning, with its
	// branches; one of them is the conversation.
	line    uint64
	claims  bool      // the place that it begins behind belongs to its line from now on
	lead    wire.Hash // of the history that the request goes on from, as far as the head knows
	parent  position  // the new items come after it
	fresh   int       // items[fresh:] are new
	summary int       // items[:summary] are the client's own summary of the items that it left out
	offset  int       // units of the conversation that stand before items[0] without being in the request
	side    bool      // the line was stored as a side request's
	before  bool      // the stored history goes before the request's items
	certain bool      // of a trimmed history: it cannot be the beginning of one that is known as a whole
	upto    position  // where the items end, of a repetition that has the stored history before it; else zero
}

// mergeEnds looks for the head and the other known ends among the request's chain hashes; the longest wins.
func (h *head) mergeEnds(in *incoming) (plan, bool) {
	for i, end := range slices.Backward(in.ends) {
		at, ok := h.endAt(end.Chain)
		if !ok || !in.marks[i].onChain {
			continue
		}
		p := plan{relation: relContinue, parent: h.Pos, line: h.Line, lead: h.Lead, fresh: i + 1}
		if at >= 0 {
			t := &h.Tails[at]
			p.parent, p.line, p.lead, p.side = t.Pos, t.Line, t.Lead, t.Side
		} else {
			p.fresh = h.afterReasoning(in, p.fresh)
		}
		if p.fresh == len(in.items) {
			p.relation = relResend
		}
		return p, true
	}
	return plan{}, false
}

// endAt returns the end that a chain hash belongs to: -1 for the head, else the index of a tail, the latest of several.
func (h *head) endAt(chain wire.Hash) (tail int, ok bool) {
	if h.Pos.Seq != 0 && chain == h.Pos.Chain {
		return -1, true
	}
	for i, t := range slices.Backward(h.Tails) {
		if t.Pos.Chain == chain {
			return i, true
		}
	}
	return 0, false
}

// mergeTrimmed recognises a client that left out the beginning of its own history: the head stands in the request,
// and what the request says before it is the end of the head line. What stands before that is the client's summary.
func (h *head) mergeTrimmed(in *incoming) (plan, bool) {
	if len(h.Ring) == 0 {
		return plan{}, false
	}
	last := h.Ring[len(h.Ring)-1].Content
	for i := range slices.Backward(in.items) {
		if !in.marks[i].onChain || shortHash(in.marks[i].content) != last {
			continue
		}
		first, run := h.runBack(in, i)
		if run < 2 && first > 0 {
			continue
		}
		p := plan{relation: relTrim, parent: h.Pos, line: h.Line, lead: h.Lead, fresh: i + 1, summary: first, certain: first == 0 && run >= certainRun && h.endsOnce()}
		p.offset = unitsBetween(in.ends[i], h.Pos)
		return p, true
	}
	return plan{}, false
}

// certainRun is the number of items at the beginning of a request, equal to the end of the head line, that cannot be there
// by chance.
const certainRun = 8

// endsOnce reports whether the last two items of a long head line did not come together before, as far as the head remembers.
func (h *head) endsOnce() bool {
	last := len(h.Ring) - 1
	if len(h.Ring) < ringSize {
		return false
	}
	for i := 1; i < last; i++ {
		if h.Ring[i].Content == h.Ring[last].Content && h.Ring[i-1].Content == h.Ring[last-1].Content {
			return false
		}
	}
	return true
}

// runBack compares items[..i] with the end of the ring, backwards, and returns the first item that belongs to the
// equal run and the length of the run in chain items.
func (h *head) runBack(in *incoming, i int) (first, run int) {
	first = i + 1
	for r := len(h.Ring) - 1; i >= 0 && r >= 0; i-- {
		if in.marks[i].onChain {
			if shortHash(in.marks[i].content) != h.Ring[r].Content {
				break
			}
			r--
			run++
		}
		first = i
	}
	if run == len(h.Ring) && len(h.Ring) == ringSize {
		// The ring is full and equal: what stands before it is older history, not a summary.
		first = 0
	}
	return first, run
}

// delta returns the place behind the head.
func (h *head) delta() plan {
	return plan{relation: relDelta, parent: h.Pos, line: h.Line, lead: h.Lead, offset: unitsBetween(position{}, h.Pos), before: true}
}

// mergeRun finds the place of a later request of an agent's run, of which the first sent only what was new: agents without
// a memory of their own resend what was said since then, and nothing from before. The stored history goes before it as it
// went before the first.
func (h *head) mergeRun(in *incoming) (plan, bool) {
	runs := h.runs(in)
	for _, start := range runs {
		in.begin(start)
		if p, ok := h.mergeEnds(in); ok && in.modelled(p.fresh) {
			return p.behind(start), true
		}
	}
	if len(runs) > 0 {
		in.begin(position{})
	}
	return plan{}, false
}

// runs are the places where a request may begin that is not the first of its run, the likeliest first.
func (h *head) runs(in *incoming) []position {
	if len(h.Begun) == 0 || !in.modelled(len(in.items)) || in.unresolved() {
		return nil
	}
	runs := slices.Clone(h.Begun)
	slices.Reverse(runs)
	return runs
}

// modelled reports whether a model has said or called something among the first items.
func (in *incoming) modelled(first int) bool {
	for i := range in.items[:first] {
		if in.saidByModel(i) {
			return true
		}
	}
	return false
}

// saidByModel reports whether an item is a model's message or call.
func (in *incoming) saidByModel(i int) bool {
	it := &in.items[i]
	if it.Kind != wire.Reference {
		return it.Kind == wire.ToolCall || it.Kind == wire.Message && it.Role == wire.Assistant
	}
	ref, ok := in.refs[it.ID]
	return ok && (ref.Kind == wire.ToolCall || ref.Kind == wire.Message && ref.Role == wire.Assistant)
}

// brings reports whether anything of a model is among the first items: what it said or called, its reasoning, what
// upstream did for it, or a reference, which mostly stands for one of these.
func (in *incoming) brings(first int) bool {
	for i := range in.items[:first] {
		switch it := &in.items[i]; it.Kind {
		case wire.ToolCall, wire.Reasoning, wire.Compaction:
			return true
		case wire.Message:
			if it.Role == wire.Assistant {
				return true
			}
		case wire.Reference:
			if ref, ok := in.refs[it.ID]; !ok || ref.Role != wire.User {
				return true
			}
		case wire.Other:
			if !it.FromClient() {
				return true
			}
		case wire.ToolResult:
		}
	}
	return false
}

// resends reports whether the request brings something of a model from before the user's last message: then its client
// sends its history again.
func (in *incoming) resends() bool {
	for i := len(in.items) - 1; i >= 0; i-- {
		if it := &in.items[i]; it.Kind == wire.Message && it.Role == wire.User {
			return in.brings(i)
		}
	}
	return false
}

// bringsHistory reports whether anything of a model is among the items but for the beginning of the answer that a client asks
// for: text of the model behind the user's, as the last item.
func (in *incoming) bringsHistory() bool {
	n := len(in.items)
	if n > 1 {
		last, before := &in.items[n-1], &in.items[n-2]
		if in.saidByModel(n-1) && last.Kind == wire.Message && len(last.Calls) == 0 && before.Kind == wire.Message && before.Role == wire.User {
			n--
		}
	}
	return in.brings(n)
}

// drop leaves out the items from first to end: what the request says without them.
func (in *incoming) drop(first, end int) {
	if first == end {
		return
	}
	in.items = slices.Concat(in.items[:first], in.items[end:])
	in.marks, in.ends = make([]mark, len(in.items)), make([]position, len(in.items))
	var at position
	for i := range in.items {
		in.marks[i], at = in.follow(&in.items[i], at)
		in.ends[i] = at
	}
}

// begin takes items[0] to stand behind a place.
func (in *incoming) begin(at position) {
	in.base = at
	for i, m := range in.marks {
		at = at.after(m)
		in.ends[i] = at
	}
}

// inRun reports whether the request begins where a run did.
func (in *incoming) inRun() bool { return in.base.Seq != 0 }

// behind returns the plan of a request that begins where a run did.
func (p plan) behind(start position) plan {
	p.before, p.offset = true, unitsBetween(position{}, start)
	return p
}

// answers reports whether the request begins with the result of a call, or with an answer to a request for approval.
// No conversation does.
func (in *incoming) answers() bool {
	if len(in.items) == 0 {
		return false
	}
	it := &in.items[0]
	return it.Kind == wire.ToolResult || it.Approves()
}

// answersAgain reports whether a request begins with results of which not all are waited for: they may have come before.
func (h *head) answersAgain(in *incoming) bool {
	return in.answers() && slices.ContainsFunc(in.items, func(it wire.Item) bool {
		return it.Kind == wire.ToolResult && !h.isOpen(it.Answers)
	})
}

// waits reports whether items behind a place are the end of a line other than the head's: an input without an answer.
func (h *head) waits(at position, items []mark) bool {
	for _, m := range items {
		at = at.after(m)
	}
	return slices.ContainsFunc(h.Tails, func(t tail) bool { return t.Pos.Chain == at.Chain })
}

func (h *head) isOpen(answer wire.Call) bool {
	return slices.Contains(h.Open, openKey(answer))
}

// tailThatWaits returns the index of the latest tail that waits for a result, -1 for none.
func (h *head) tailThatWaits(answer wire.Call) int {
	key := openKey(answer)
	if key == "" {
		return -1
	}
	for i, t := range slices.Backward(h.Tails) {
		if slices.Contains(t.Open, textHash(key)) {
			return i
		}
	}
	return -1
}

func shortHash(h wire.Hash) uint64 { return binary.BigEndian.Uint64(h[:8]) }
