package session

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"remora/wire"
)

// Place is where a request stands in the transcript of its session: the session as it was read, the request's items, and
// what the placement made of both. Its questions need no store.
type Place struct {
	call   Call
	state  state     // the session, as it was read or as the turn's own commit left it
	in     *incoming // the request's items
	plan   plan      // where they go, however many of them are written by now
	loaded bool      // the session was read; else the plan is made of what the request says itself
	first  bool      // the session did not exist when it was read first
	atHead bool      // the new items go behind the present head

	runID     uint64 // of the run that the turn belongs to, as it was found first: layers have state by it
	execution string // the same as layers know it, once it was asked for
}

// Standing returns how the request relates to the conversation of its session.
func (p *Place) Standing() Standing { return p.plan.standing }

// StandingFound returns the Standing to resume the entry with, or Undecided if its place was not found in the transcript.
func (p *Place) StandingFound() Standing {
	if !p.loaded {
		return p.call.Standing
	}
	return p.plan.standing
}

// Unread reports whether the session could not be read when the turn began.
func (p *Place) Unread() bool { return !p.loaded }

// First reports whether the session did not exist when it was read.
func (p *Place) First() bool { return p.first }

// Forgotten reports whether the session does not exist although the request shows that it had a past: it holds an answer
// of a model, or goes on from one.
func (p *Place) Forgotten() bool {
	if !p.first || p.state.version != 0 || p.call.Side != "" {
		return false
	}
	return p.in.modelled(len(p.in.items)) || p.call.Request.Previous() != ""
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

// SystemPrompt names the system and developer items at the beginning with the instructions; empty for none.
func (p *Place) SystemPrompt() string { return p.in.systemPromptHex }

// LastTurn returns the id of the turn that moved the session's head last, empty if none is known.
func (p *Place) LastTurn() string { return p.state.head.LastTurn }

// UnitsBefore returns how many units of the conversation stand before the request's new items, as far as the transcript knows.
func (p *Place) UnitsBefore() uint64 { return p.plan.parent.Units }

// ReplacesHead reports whether the turn makes another line the conversation.
func (p *Place) ReplacesHead() bool {
	h := p.state.head
	return p.plan.standing == InConversation && h.Line != 0 && p.plan.line != h.Line
}

// Trimmed reports whether the client has left out the beginning of a history that the transcript has.
func (p *Place) Trimmed() bool { return !p.plan.before && p.plan.offset > 0 }

// HistoryElsewhere reports whether users or models may have said something in the session that is not on the request's line: the
// client has cut its history, or begun it anew. Side requests do not count.
func (p *Place) HistoryElsewhere() bool {
	h := p.state.head
	if p.Trimmed() || h.Line != p.plan.line && h.Line != 0 {
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

// Shown reports whether these texts are the layer's latest in the conversation that the request continues. If the
// request names no known response, everything in the latest views counts.
func (p *Place) Shown(layer string, texts []string) bool {
	if p.state.shown != nil {
		return slices.Contains(p.state.shown, shownBlock{blockHash(layer), textsHash(texts)})
	}
	return !slices.ContainsFunc(texts, func(text string) bool { return !slices.Contains(p.state.head.Blocks, blockHash(text)) })
}

// Resolver returns a function that looks up references for windows and the pairing of calls. It is nil if the request
// has no known reference.
func (p *Place) Resolver() func(wire.Item) (wire.Item, bool) {
	if len(p.in.refs) == 0 {
		return nil
	}
	return p.in.resolve
}

// Mode is the history mode that finds the entry's place again, so that its view stays true. A request that brought its
// history keeps its place in it, and one that did not goes behind all later turns.
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

// SpoolMode is Mode for a record that waits on disk. A turn that began when nothing was answered in its session is placed
// anew: others that began earlier, in other processes, may be written before it.
func (p *Place) SpoolMode() History {
	if p.loaded && !p.plan.before && p.behindOthers() {
		return p.call.History
	}
	return p.Mode()
}

// ParkMode is Mode for a record that waits in the store for an earlier turn. Where nothing was answered when the turn
// began, it goes behind the one that it has waited for.
func (p *Place) ParkMode() History {
	if p.loaded && p.behindOthers() && !p.plan.before {
		return HistoryServer
	}
	return p.Mode()
}

// behindOthers reports whether the turn's view has the stored history before it, or would have if there were any.
func (p *Place) behindOthers() bool {
	switch {
	case p.plan.before:
		return true
	case p.call.History == HistoryClient || p.plan.standing != InConversation:
		return false
	}
	// The question itself may be there, if it was written before its answer.
	return !p.state.head.Answered && !p.in.stateful && !p.in.brings(len(p.in.items))
}

// begins is where the request's items begin, if the stored history goes before them.
func (p *Place) begins() position {
	if p.in.inRun() {
		return p.in.base
	}
	return p.plan.parent
}

// nowhere is the chain hash of items whose place in the conversation is unknown.
var nowhere = wire.Hash{0: 0xff, 15: 0xff}

// chain returns the chain hash behind each of the request's items, as they stand in the conversation. stored is the
// line before the request's place, for a client that trimmed its history; items that are not found there are nowhere.
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
		if p.in.marks[i].meaning().After(before) != here {
			break // the line does not reach that far back
		}
		here = before
	}
	return out
}

// Execution names the agent run that the turn belongs to: all turns of a tool loop share the user message it began with.
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

// run is findRun, asked once: layers have state by the name.
func (p *Place) run() uint64 {
	if p.runID == 0 {
		p.runID = p.findRun()
	}
	return p.runID
}

// findRun names the run of the request by the session and the place of its user message there, 0 for no run that is
// known. Where the message is not in the request, or was trimmed off what stands before it, the head knows.
func (p *Place) findRun() uint64 {
	for i := len(p.in.items) - 1; i >= 0; i-- {
		if it := &p.in.items[i]; it.Kind != wire.Message || it.Role != wire.User {
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

// runID names the run that a user message began: by the session and the chain behind the message.
func (s Scope) runID(chain wire.Hash) uint64 {
	var room [128]byte
	sum := sha256.Sum256(append(append(room[:0], s.Session...), chain[:]...))
	return binary.BigEndian.Uint64(sum[:8])
}
