package transcript

import (
	"encoding/binary"
	"slices"

	"remora/memory/memo"
	"remora/memory/view"
	"remora/wire"
)

// incoming is a request as merging sees it: its items after the leading system items, with their hashes.
type incoming struct {
	leading []wire.Item // system items before the conversation
	lead    wire.Hash   // of the leading system items and the instructions
	hasLead bool
	items   []wire.Item
	marks   []mark
	ends    []position // after each item
	base    position   // where items[0] begins: the beginning of the conversation, or of a run (see head.mergeRun)
	// stateful tells that upstream itself holds what came before (previous_response_id, conversation, prompt).
	stateful bool
	refs     map[string]reference
	hashes   *memo.Hashes
	leadText string        // lead in hex, empty where there is none
	markRoom [roomFor]mark // most requests are short
	endRoom  [roomFor]position
}

// roomFor is how many items a request may have that needs no memory of its own for each list of them.
const roomFor = 8

// inRoom is n zero values, in room if that is large enough.
func inRoom[T any](room []T, n int) []T {
	if n > len(room) {
		return make([]T, n)
	}
	clear(room)
	return room[:n:n]
}

// mark is what an item adds to a position.
type mark struct {
	content wire.Hash
	onChain bool // reasoning is not: many clients leave it out when they resend, or send a reference in its place
	units   uint64
}

// newIncoming hashes the items of a request to a session. known says which items have been hashed before.
func newIncoming(req *wire.Request, st *state, known *memo.Hashes) *incoming {
	return new(incoming).read(req, st, known)
}

// read is newIncoming in memory that is there already.
func (in *incoming) read(req *wire.Request, st *state, known *memo.Hashes) *incoming {
	all := st.head.withoutEchoes(req.Items())
	lead := wire.Leading(all)
	in.leading, in.items, in.refs, in.hashes = all[:lead], all[lead:], st.refs, known
	if in.lead, in.hasLead = leadHash(in.leading, req.Instructions(), known); in.hasLead {
		in.leadText = hexText(in.lead[:])
	}
	in.stateful = req.Dialect == wire.Responses && isStateful(req)
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
	return mark{content: in.hashes.Of(it), onChain: it.Kind != wire.Reasoning, units: view.Units(it)}
}

// follow hashes an item and the place behind it: mark and position.after, but for what is remembered of both.
func (in *incoming) follow(it *wire.Item, at position) (mark, position) {
	if it.Kind == wire.Reference || it.Kind == wire.Reasoning {
		m := in.mark(*it)
		return m, at.after(m)
	}
	m := mark{onChain: true, units: view.Units(*it)}
	m.content, at.Chain = in.hashes.Behind(at.Chain, it)
	at.Units += m.units
	return m, at
}

// resolve tells what a reference stands for, as far as the window and the pairing need to know.
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

// passes tells whether the request's history goes through a place in the transcript.
func (in *incoming) passes(chain wire.Hash) bool {
	for _, end := range in.ends {
		if end.Chain == chain {
			return true
		}
	}
	return false
}

// unresolved tells that a reference stands for something that is not known here, so that pairs can't be judged.
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

// relation says how a request relates to the transcript; it is written into the turn record.
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
	parent   position // the new items come after it
	fresh    int      // items[fresh:] are new
	aside    int      // items[:aside] are the client's own summary of what it left out
	offset   int      // units of the conversation that stand before items[0] without being in the request
	side     bool     // a side line: recorded, the head unmoved
	before   bool     // the stored history goes before the request's items
	certain  bool     // of a trimmed history: it cannot be the beginning of one that is known as a whole
	upto     position // where the items end, of a repetition that has the stored history before it; else zero
}

// merge finds the place of a request by what the head remembers alone. It gives up (false) where the index of
// chains has to be asked, as it has to before a trimmed history is taken for one: see Log.place.
func (h *head) merge(in *incoming, mode History) (plan, bool) {
	if h.NextSeq == 0 {
		return plan{relation: relRoot}, true
	}
	if in.stateful {
		return plan{relation: relUpstream, parent: h.Pos}, true
	}
	if mode == HistoryServer {
		return h.delta(), true
	}
	if len(in.items) == 0 {
		return plan{relation: relRoot, side: true}, true
	}
	if p, ok := h.mergeEnds(in); ok {
		return p, true
	}
	if mode == HistoryAuto && h.Delta {
		if h.onlyNew(in) {
			return h.delta(), true
		}
		if p, ok := h.mergeRun(in); ok {
			return p, true
		}
	}
	return h.mergeTrimmed(in)
}

// mergeEnds looks for the head and the other known ends among the request's chain hashes; the longest wins.
func (h *head) mergeEnds(in *incoming) (plan, bool) {
	for i, end := range slices.Backward(in.ends) {
		at, ok := h.endAt(end.Chain)
		if !ok || !in.marks[i].onChain {
			continue
		}
		p := plan{relation: relContinue, parent: h.Pos, fresh: i + 1}
		if at >= 0 {
			p.parent, p.side = h.Tails[at].Pos, h.Tails[at].Side && !h.promotes(h.Tails[at], in.items[p.fresh:])
		} else {
			p.fresh = h.behindThought(in, p.fresh)
		}
		if p.fresh == len(in.items) {
			p.relation = relResend
		}
		return p, true
	}
	return plan{}, false
}

// endAt tells which end a chain hash is of: the head, which is -1, or one of the tails, the latest where several are.
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

// promotes tells that a side line turns out to be the conversation: it goes on, and the line that came first never
// did (a client that asks for a title before it asks its question). While that line waits for the results of its calls, what
// goes on may be an agent that works them out: then it takes the user to say that it is not.
func (h *head) promotes(t tail, fresh []wire.Item) bool {
	if h.Turns > 1 || t.Turns == 0 {
		return false
	}
	return len(h.Open) == 0 || slices.ContainsFunc(fresh, func(it wire.Item) bool { return it.Kind == wire.Message && it.Role == wire.User })
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
		p := plan{relation: relTrim, parent: h.Pos, fresh: i + 1, aside: first, certain: first == 0 && run >= certainRun && h.endsOnce()}
		p.offset = unitsBetween(in.ends[i], h.Pos)
		return p, true
	}
	return plan{}, false
}

// certainRun is how many items a request has to begin with, as the head line ends, for nobody to have said as much twice.
const certainRun = 8

// endsOnce tells that the last two items of a long head line do not come together before, as far as the head remembers.
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

// mergeUnknown is the place of a request that shares no beginning with the transcript.
func (h *head) mergeUnknown(in *incoming, mode History) plan {
	if mode == HistoryAuto && h.onlyNew(in) {
		return h.delta()
	}
	return plan{relation: relRoot, side: h.Pos.Seq != 0 && in.lead != h.Lead}
}

func (h *head) delta() plan {
	return plan{relation: relDelta, parent: h.Pos, offset: unitsBetween(position{}, h.Pos), before: true}
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

// modelled tells that a model has said or called something among the first items.
func (in *incoming) modelled(first int) bool {
	return slices.ContainsFunc(in.items[:first], func(it wire.Item) bool {
		if it.Kind == wire.Reference {
			it, _ = in.resolve(it)
		}
		return it.Kind == wire.ToolCall || it.Kind == wire.Message && it.Role == wire.Assistant
	})
}

// begin takes items[0] to stand behind a place.
func (in *incoming) begin(at position) {
	in.base = at
	for i, m := range in.marks {
		at = at.after(m)
		in.ends[i] = at
	}
}

// inRun tells that the request begins where a run did.
func (in *incoming) inRun() bool { return in.base.Seq != 0 }

// behind is the plan of a request that begins where a run did.
func (p plan) behind(start position) plan {
	p.before, p.offset = true, unitsBetween(position{}, start)
	return p
}

// onlyNew tells that a request looks like one of a client that sends only what is new: no assistant item, and either the
// same instructions or none, with results only of calls that are open in the transcript; or a result at its beginning,
// since no conversation begins with one. Instructions behind its first item are new as well.
func (h *head) onlyNew(in *incoming) bool {
	answers := in.answers()
	if !h.Answered || !answers && in.hasLead && in.lead != h.Lead {
		return false
	}
	for i := range in.items {
		switch it := &in.items[i]; {
		case it.Kind == wire.Message && (it.Role == wire.User || it.Role == wire.System || it.Role == wire.Developer):
		case it.Kind == wire.ToolResult && (answers || h.isOpen(it.Answers)):
		default:
			return false
		}
	}
	return true
}

// answers tells that the request begins with the result of a call.
func (in *incoming) answers() bool { return len(in.items) > 0 && in.items[0].Kind == wire.ToolResult }

// answersAgain tells that a request begins with results of which not all are waited for: they may have come before.
func (h *head) answersAgain(in *incoming) bool {
	return in.answers() && slices.ContainsFunc(in.items, func(it wire.Item) bool {
		return it.Kind == wire.ToolResult && !h.isOpen(it.Answers)
	})
}

// waits tells that items behind a place are the end of a line other than the head's: an input without an answer.
func (h *head) waits(at position, items []mark) bool {
	for _, m := range items {
		at = at.after(m)
	}
	return slices.ContainsFunc(h.Tails, func(t tail) bool { return t.Pos.Chain == at.Chain })
}

func (h *head) isOpen(answer wire.Call) bool {
	return slices.Contains(h.Open, openKey(answer))
}

func shortHash(h wire.Hash) uint64 { return binary.BigEndian.Uint64(h[:8]) }
