package proxy

import (
	"context"
	"slices"

	"remora/memory"
	"remora/memory/view"
	"remora/wire"
)

// turn is the memory.Turn of an exchange, with what only the proxy asks of it.
type turn struct {
	*memory.Turn
	reported memory.Summary // what X-Memory says of it
	provider string         // the provider that the view was made for
	steering memory.Steering
	steered  bool // layers have a say in the answer
	unkept   bool // nothing of it is stored, and no header of the answer mentions it
	// lastText: of an answer of several rounds the client gets the text of the last one only, as two JSON texts are none.
	lastText bool

	// The methods of the memory.Turn by what they are for. Tests have others.
	shaper interface {
		Sent(s view.Shape) view.Sent
		Record(s view.Shape, sent view.Sent) memory.Summary
		RecordAsCame() memory.Summary
		Tokens() int
		TextTokens(moreThan int) int
		Shorten(maxTokens int) bool
	}
	ender interface {
		Forwarded()
		Commit(a memory.Answer)
	}
	judge interface {
		Review(ctx context.Context, r wire.Reply) memory.Next
		LastRound() bool
		WithoutTools()
	}
}

// kept reports whether there is a turn that is stored.
func (t *turn) kept() bool { return t != nil && !t.unkept }

type beginTurn func(ctx context.Context, c memory.Call) (*turn, error)

func adapt(m Memory) beginTurn {
	return func(ctx context.Context, c memory.Call) (*turn, error) {
		t, err := m.Begin(ctx, c)
		if err != nil {
			return nil, err
		}
		out := &turn{Turn: t, reported: t.Summary, unkept: c.Unkept, shaper: t, ender: t, judge: t}
		out.steering, out.steered = t.Steering()
		return out, nil
	}
}

// holdsAll reports whether a stream is held back until it is judged, or known to be the last round.
func (t *turn) holdsAll() bool { return t.steering.HoldAll || t.lastText }

// withholds reports whether the client gets nothing of a round that was judged.
func (t *turn) withholds(next memory.Next) bool { return next.Discard || next.GoesOn && t.lastText }

// offerNoTools removes the tools of layers, and from the view the calls and results that upstream refuses without them.
func (t *turn) offerNoTools() {
	t.judge.WithoutTools()
	t.reported = t.Summary
}

// severalChoices is the reason for denying an answer whose calls cannot all be judged.
const severalChoices = "several choices cannot be judged"

// unjudged reports whether an answer has calls that layers have to judge and do not see: they see the first choice only.
func (t *turn) unjudged(r wire.Reply) bool {
	if !t.steering.HoldCalls && !t.steering.HoldAll || len(r.Choices) < 2 {
		return false
	}
	return slices.ContainsFunc(r.Choices[1:], func(choice []wire.Item) bool { return slices.ContainsFunc(choice, wire.Item.HasCalls) })
}
