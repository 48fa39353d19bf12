package session

import (
	"context"
	"slices"

	"remora/memory/turnrecord"
)

// journaled is a turn's input that was written before its answer.
type journaled struct {
	names          []string // of its values
	parent         uint64   // the item before it
	end            position
	seqs           []uint64 // of its items
	inConversation bool     // by its record, it belongs to the conversation
}

// reload reads the transcript again, finds the turn's place, and returns the values that were read with it. It returns nil if the turn
// is already stored: an earlier attempt was written although its reply was lost, or its answer before its input.
func (e *Entry) reload(ctx context.Context, a *Answer) (*Extra, error) {
	st, extra, err := e.History.stored.load(ctx, e.call.Request, e.id, e.want)
	if err != nil {
		return nil, err
	}
	if st.turn != nil && (a == nil || !st.turn.Open) || a == nil && st.head.Pending.isParked(e.id) {
		return nil, nil
	}
	e.gone = e.gone || e.loaded && e.state.version != 0 && st.version == 0
	if st.turn != nil {
		if err := e.restoreInput(ctx, st.turn); err != nil {
			return nil, err
		}
	} else {
		e.journaled, e.moved = nil, false // it was written together with the record, and has gone with it
	}
	in := newIncoming(&e.call, &st, e.log.hashes)
	p, err := e.findAgain(ctx, &st, in)
	if err != nil {
		return nil, err
	}
	if !e.loaded {
		e.unanswered = !st.head.Answered
	}
	if e.resent, err = e.findResent(ctx, in, a, &p); err != nil {
		return nil, err
	}
	e.setPlace(st, in, p)
	e.values = extra.Values
	if st.turn != nil {
		e.emptyBefore = st.turn.Before
		e.Notes.hidden.restore(st.turn.Hidden, len(e.in.items))
	}
	if err := e.keepInput(ctx); err != nil {
		return nil, err
	}
	if err := e.lookupKnown(ctx, a); err != nil {
		return nil, err
	}
	return &extra, nil
}

// restoreInput restores the written input from the turn's open record: another process may have written it, or an attempt
// whose reply was lost.
func (e *Entry) restoreInput(ctx context.Context, r *turnrecord.Record) error {
	if e.journaled != nil || len(r.Input) == 0 {
		return nil
	}
	seqs := append(slices.Clone(r.Input), r.Hidden...)
	if !slices.Contains(seqs, r.Tip) {
		return nil // it has no item of its own
	}
	if len(seqs) > maxBatchItems {
		return nil
	}
	items, err := e.History.stored.withoutMedia(ctx, seqs)
	if err != nil {
		return err
	}

	j := &journaled{parent: r.Parent, seqs: r.Input, inConversation: !r.Alone && r.Side == ""}
	for i, seq := range seqs {
		at := items[i]
		if at == nil {
			return nil // it was retracted
		}
		j.names = append(j.names, itemName(seq))
		if at.Flags&flagOffChain == 0 {
			j.names = append(j.names, chainName(at.Pos.Chain))
		}
		if seq == r.Tip {
			j.end = at.Pos
		}
	}
	e.journaled = j
	return nil
}

// findAgain finds the place of a request in the present transcript, by the rules of placement, in the mode that keeps its view valid.
func (e *Entry) findAgain(ctx context.Context, st *state, in *incoming) (plan, error) {
	p, err := e.placement(st, in, e.Mode()).find(ctx)
	switch {
	case err != nil:
		return plan{}, err
	case !e.loaded:
		return e.asFound(st, in, p), nil
	case in.elsewhere:
		return p, nil
	default:
		return e.asShown(ctx, st, in, p)
	}
}

// isOwnInput reports whether the request seems to continue a place that is the end of its own input, which was written before.
func (e *Entry) isOwnInput(p *plan) bool {
	return e.journaled != nil && p.parent.Seq == e.journaled.end.Seq
}

// asFound returns the plan of a turn whose session could not be read when it began: what was decided about it by another process,
// or when its input was written, stays.
func (e *Entry) asFound(st *state, in *incoming, p plan) plan {
	own := e.isOwnInput(&p)
	if own && e.journaled.parent == 0 || st.head.Tails.isQuestion(p.parent) { // its input was written before any answer
		p = e.placement(st, in, HistoryAuto).followFirst(p)
	}
	if own && e.journaled.inConversation && !p.before {
		p.standing = InConversation // one of several first questions without an answer
	}
	found := e.call.Found
	if found.Standing != Undecided && !p.before {
		p.standing = found.Standing
	}
	if found.Rule != "" && p.rule == ruleDeclared {
		p.rule = rule(found.Rule) // by the mode that found leads to
	}
	return p
}

// asShown returns the plan of a turn whose view was made before others were written: it stands where the view says, and to the
// conversation as it did then. If nothing had an answer then, one of several requests was the first to get one, and the others follow it.
func (e *Entry) asShown(ctx context.Context, st *state, in *incoming, p plan) (plan, error) {
	was, line, own := &e.plan, e.unwritten.line, e.isOwnInput(&p)
	if was.before && line != st.head.Line && !e.in.inRun() {
		if t := st.head.Tails.answeredOn(line); t != nil {
			p.moveAfter(t)
		}
	}

	if e.unanswered && was.standing == InConversation {
		q := e.placement(st, in, HistoryAuto)
		switch {
		case own || p.relation == relRoot || st.head.Tails.isQuestion(p.parent):
			if p = q.followFirst(p); p.standing == Side {
				return p, nil
			}
		case q.mayPrecede() && q.guards(): // it asks what the user asks
			return q.beside(ctx, ruleSigns)
		}
	}

	if !p.before {
		p.standing, p.helper = was.standing, was.helper
		if was.standing != InConversation && p.line == st.head.Line {
			p.line = line
		}
	}
	if p.rule = was.rule; p.before && !was.before {
		p.rule = ruleBehind
	}
	p.shown = was.shown
	return p, nil
}

// findResent reports whether the client has resent a first turn before it was written: then the turn stands at the beginning of the
// line of that request, and p is set to this place.
func (e *Entry) findResent(ctx context.Context, in *incoming, a *Answer, p *plan) (bool, error) {
	if a == nil || !e.Order.Resumed || p.fresh > 0 || in.stateful || len(a.firstChoice()) == 0 {
		return false, nil
	}
	var at position
	for _, m := range slices.Concat(in.marks, e.answer.of(a, in)[0]) {
		at = at.after(m)
	}
	places, err := e.History.stored.lookup(ctx, []position{at})
	if err != nil || places[0] == nil {
		return false, err
	}
	p.relation, p.parent, p.upto, p.line = relRoot, position{}, position{}, places[0].Line
	return true, nil
}

// keepInput decides whether a written input stays in its place.
func (e *Entry) keepInput(ctx context.Context) error {
	j := e.journaled
	if e.moved = false; j == nil {
		return nil
	}
	if e.plan.relation == relDelta && e.plan.parent.Seq == j.end.Seq && e.plan.fresh == 0 {
		// It was taken for an unanswered question before the request.
		e.parent, e.unwritten.parent, e.unwritten.fresh = j.parent, j.end, len(e.in.items)
		return nil
	}

	end := e.unwritten.parent
	for _, m := range e.in.marks[e.unwritten.fresh:] {
		end = end.after(m)
	}
	if end.Chain == j.end.Chain {
		e.unwritten.parent, e.unwritten.fresh = j.end, len(e.in.items)
		return nil
	}
	continued, err := e.isContinued(ctx)
	if err != nil {
		return err
	}
	if e.moved = !continued; continued {
		e.journaled = nil // it is the other turn's now
	}
	return nil
}

// isContinued reports whether another turn stands after the written input or one of its items: a client has repeated the question.
func (e *Entry) isContinued(ctx context.Context) (bool, error) {
	own := e.journaled.names
	first, last := e.journaled.end.Seq+1, e.state.head.NextSeq-1
	if first > last {
		return false, nil
	}
	if last-first >= maxBatchItems {
		return true, nil // an item that is stored twice is better than one that is missing
	}
	items, err := e.History.stored.withoutMedia(ctx, sequence(first, last))
	return slices.ContainsFunc(items, func(it *storedItem) bool {
		return it != nil && slices.Contains(own, itemName(it.Parent)) && !slices.Contains(own, itemName(it.Pos.Seq))
	}), err
}
