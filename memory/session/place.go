package session

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"remora/wire"
)

// Place is the place of a request in the transcript of its session: the session, the request's items, and the placement. Its
// methods do not use the store.
type Place struct {
	call   Call
	state  state     // the session, as it was read or as the turn's own commit left it
	in     *incoming // the request's items
	plan   plan      // the place of all items, written or not
	loaded bool      // the session was read; otherwise the plan is based on the request alone
	first  bool      // the session did not exist when it was first read
	atHead bool      // the new items are appended to the present head

	runID     uint64 // the turn's run, as first found: layers have state by it
	execution string // its name for layers, once computed
}

// Standing returns how the request relates to the conversation of its session.
func (p *Place) Standing() Standing { return p.plan.standing }

// Found returns the placement to resume the entry with, zero if its place was not found in the transcript.
func (p *Place) Found() Found {
	if !p.loaded {
		return p.call.Found
	}
	return Found{p.plan.standing, string(p.plan.rule)}
}

// Unread reports whether the session could not be read when the turn began.
func (p *Place) Unread() bool { return !p.loaded }

// First reports whether the session did not exist when it was read.
func (p *Place) First() bool { return p.first }

// Forgotten reports whether the session does not exist although the request has a history: it has an answer of a model, or
// continues one.
func (p *Place) Forgotten() bool {
	if !p.first || p.state.version != 0 || p.call.Side != "" {
		return false
	}
	return p.in.anySaidByModel(p.in.items) || p.call.Request.Previous() != ""
}

// Input returns the request's items that are new to the transcript.
func (p *Place) Input() []wire.Item {
	if p.plan.upto.Seq != 0 {
		return nil // a repetition
	}
	return p.in.items[p.plan.fresh:]
}

// Visible returns the number of items in the request, without the system and developer items at the beginning.
func (p *Place) Visible() int { return len(p.in.items) }

// SystemPrompt returns a hash of the system and developer items at the beginning with the instructions; empty for none.
func (p *Place) SystemPrompt() string { return p.in.systemPromptHex }

// LastTurn returns the id of the turn that moved the session's head last, empty if none is known.
func (p *Place) LastTurn() string { return p.state.head.LastTurn }

// UnitsBefore returns the number of units of the conversation before the request's new items, as far as the transcript knows.
func (p *Place) UnitsBefore() uint64 { return p.plan.parent.Units }

// ReplacesHead reports whether the turn makes another line the conversation.
func (p *Place) ReplacesHead() bool {
	h := p.state.head
	return p.plan.standing == InConversation && p.plan.line != h.Line
}

// Trimmed reports whether the client has left out the beginning of a history that the transcript has.
func (p *Place) Trimmed() bool { return !p.plan.before && p.plan.offset > 0 }

// HistoryElsewhere reports whether the session may have messages that are not on the request's line: the client has cut its
// history, or begun a new one. Side requests do not count.
func (p *Place) HistoryElsewhere() bool {
	h := p.state.head
	if p.Trimmed() || h.Line != p.plan.line {
		return true
	}
	lines := uint64(1)
	for i := range h.Tails {
		t := &h.Tails[i]
		switch {
		case t.Line == h.Line:
		case !t.Side:
			return true
		case !slices.ContainsFunc(h.Tails[:i], func(o tail) bool { return o.Line == t.Line }):
			lines++
		}
	}
	return h.Lines > lines
}

// Shown reports whether the texts are the layer's latest in the continued conversation. If the request names no known response,
// the blocks of the latest views count.
func (p *Place) Shown(layer string, texts []string) bool {
	if p.state.shown != nil {
		return slices.Contains(p.state.shown, shownBlock{blockHash(layer), textsHash(texts)})
	}
	return !slices.ContainsFunc(texts, func(text string) bool { return !slices.Contains(p.state.head.Blocks, blockHash(text)) })
}

// Resolved returns items as a view is chosen from them: each reference as its target, if that is known, with the bytes of the
// reference. It is the same slice if there is none.
func (p *Place) Resolved(items []wire.Item) []wire.Item {
	if len(p.in.refs) == 0 {
		return items
	}
	out := make([]wire.Item, len(items))
	for i, it := range items {
		out[i] = p.in.resolve(it)
	}
	return out
}

// Mode returns the history mode that finds the entry's place again, so that its view stays valid. A request with its history
// keeps its place, and one without goes after all later turns.
func (p *Place) Mode() History {
	switch {
	case !p.loaded, p.in.inRun():
		return p.call.History
	case p.plan.before || p.call.History == HistoryServer:
		return HistoryServer
	default:
		return HistoryClient
	}
}

// SpoolMode is Mode for the record of a turn that is written later. A turn that began before its session had an answer is placed
// again: earlier turns of other processes may be written before it, or later ones whose client has resent it.
func (p *Place) SpoolMode() History {
	if p.loaded && !p.plan.before && p.usesHistory() {
		return p.call.History
	}
	return p.Mode()
}

// usesHistory reports whether the turn's view has the stored history before it, or would have if there were any.
func (p *Place) usesHistory() bool {
	switch {
	case p.in.elsewhere:
		return false // it comes after the answer that it names
	case p.plan.before:
		return true
	case p.call.History == HistoryClient || p.plan.standing != InConversation:
		return false
	}
	// The question itself may be there, if it was written before its answer.
	return !p.state.head.Answered && !p.in.stateful && !p.in.anyMadeByModel(p.in.items)
}

// begins returns the place before the request's items, if the stored history precedes them.
func (p *Place) begins() position {
	if p.in.inRun() {
		return p.in.base
	}
	return p.plan.parent
}

// nowhere is the chain hash of items whose place in the conversation is unknown.
var nowhere = wire.Hash{0: 0xff, 15: 0xff}

// chain returns the chain hash up to each of the request's items in the conversation. stored is the line before the request's
// place, for a client that trimmed its history; items that are not found there are nowhere.
func (p *Place) chain(stored []*storedItem) []wire.Hash {
	out := make([]wire.Hash, len(p.in.items))
	at := p.plan.parent
	for i := p.plan.fresh; i < len(out); i++ {
		at = at.after(p.in.marks[i])
		out[i] = at.Chain
	}
	if p.plan.relation != relTrim {
		for i := range min(p.plan.fresh, len(out)) {
			out[i] = p.in.ends[i].Chain
		}
		return out
	}

	for i := range p.plan.fresh {
		out[i] = nowhere
	}
	here := p.plan.parent.Chain
	for i := p.plan.fresh - 1; i >= p.plan.summary; i-- {
		if out[i] = here; !p.in.marks[i].onChain {
			continue
		}
		for len(stored) > 0 && stored[len(stored)-1].Pos.Chain == here {
			stored = stored[:len(stored)-1]
		}
		var before wire.Hash
		if len(stored) > 0 {
			before = stored[len(stored)-1].Pos.Chain
		}
		if p.in.marks[i].After(before) != here {
			break // the line does not reach that far back
		}
		here = before
	}
	return out
}

// Execution returns the name of the turn's agent run: all turns of a tool loop share the user message that began it.
func (p *Place) Execution() string {
	if p.call.Scope.Execution != "" {
		return p.call.Scope.Execution
	}
	if run := p.run(); run != 0 && p.execution == "" {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], run)
		p.execution = hexText(b[:])
	}
	return p.execution
}

// run caches findRun: layers have state by the name.
func (p *Place) run() uint64 {
	if p.runID == 0 {
		p.runID = p.findRun()
	}
	return p.runID
}

// findRun returns the id of the request's run, by the session and the place of its user message; 0 if unknown. If the message
// or the items before it are not in the request, the head knows the run.
func (p *Place) findRun() uint64 {
	for i := len(p.in.items) - 1; i >= 0; i-- {
		if it := &p.in.items[i]; it.Role != wire.User {
			continue
		}
		at := p.in.ends[i]
		if i >= p.plan.fresh {
			at = p.plan.parent
			for _, m := range p.in.marks[p.plan.fresh : i+1] {
				at = at.after(m)
			}
		} else if p.plan.relation == relTrim && p.atHead {
			break
		}
		return p.call.Scope.runID(at.Chain)
	}
	if p.atHead || p.plan.before {
		return p.state.head.Run
	}
	return 0
}

// runID returns the id of the run that a user message began: by the session and the chain hash up to the message.
func (s Scope) runID(chain wire.Hash) uint64 {
	var room [128]byte
	sum := sha256.Sum256(append(append(room[:0], s.Session...), chain[:]...))
	return binary.BigEndian.Uint64(sum[:8])
}
