package pipeline

import (
	"math"

	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
)

// Fitted is the part of a view that fits, by the policy (docs/semantics.md#what-fits).
type Fitted struct {
	Blocks  []view.Block // those that stay
	Dropped []view.Block // those that do not
	// Left are the indices in the history of items that do not stay, ascending, with the reasons: a summary has to cover them.
	Left []view.Out
	// Tokens of the parts that stay. All are 0 if nothing was counted: the policy has no limit, or everything fits at
	// its upper bound.
	SystemTokens, HistoryTokens int
}

// Prompt is what stands before the blocks and the history of a view.
type Prompt struct {
	System []wire.Item
	// Instructions are those of a Responses request, as they came; nil for none.
	Instructions []byte
}

// Sizer cuts views to the size that the policy allows, at the prices of one model. It needs no layers.
type Sizer struct {
	o      *Options
	policy view.Policy
	model  string
}

// free returns how many tokens a view may have.
func (s *Sizer) free() float64 { return s.policy.HistoryBudget(0) }

// Limited reports whether the policy can leave anything out. If not, Fit returns what it gets.
func (s *Sizer) Limited() bool {
	return s.policy.Window > 0 || !math.IsInf(s.free(), 1)
}

// MayLeave reports whether Fit could leave out a part of a history, by its size in bytes: a token of ordinary text has at least
// two bytes.
func (s *Sizer) MayLeave(history []wire.Item) bool {
	const bytesPerToken = 2
	if most := s.policy.Window; most > 0 && len(history) > most {
		return true
	}
	size := 0
	for i := range history {
		size += len(history[i].Raw) + int(history[i].Target)
	}
	return float64(size) > bytesPerToken*s.free()
}

// Fit chooses which blocks and which history items are sent. The prompt and the current run, from the last user
// message on, always are, with the pairs before it that the policy never leaves out. Each block stays if it fits. Of
// the rest of the history the newest stays, and calls stay with their results.
//
// As little as possible is counted: nothing of a body with fewer bytes than free tokens.
func (s *Sizer) Fit(prompt Prompt, blocks []view.Block, history []wire.Item) Fitted {
	if !s.Limited() || s.fitsAnyway(prompt, blocks, history) {
		return Fitted{Blocks: blocks}
	}
	systemTokens := s.Cost(prompt)
	recalled := make([]view.Candidate, len(blocks))
	for i, b := range blocks {
		recalled[i].Cost = b.Cost()
	}
	entries := view.Candidates(history, s.policy)
	view.Fit(float64(systemTokens), recalled, entries, s.policy, s.CountItem)
	out := Fitted{Blocks: make([]view.Block, 0, len(blocks)), SystemTokens: systemTokens}
	for i, c := range recalled {
		if c.Why == view.ReasonNone {
			out.Blocks = append(out.Blocks, blocks[i])
		} else {
			out.Dropped = append(out.Dropped, blocks[i])
		}
	}
	for i, c := range entries {
		if c.Why == view.ReasonNone {
			out.HistoryTokens += c.Cost
		} else {
			out.Left = append(out.Left, view.Out{Index: i, Why: c.Why})
		}
	}
	return out
}

// fitsAnyway reports whether a view fits at the upper bound of its cost: no price is above tokens.AtMost.
func (s *Sizer) fitsAnyway(prompt Prompt, blocks []view.Block, history []wire.Item) bool {
	if s.policy.Window > 0 {
		return false
	}
	free := s.free() - float64(len(prompt.Instructions))
	for i := range blocks {
		free -= float64(blocks[i].Cost())
	}
	for _, items := range [][]wire.Item{prompt.System, history} {
		for _, it := range items {
			if free -= float64(tokens.AtMost(it)); free < 0 {
				return false
			}
		}
	}
	return true
}

// Firm returns the index of the first item that stays at any budget: of the current run, or of the pairs before it
// that the policy never leaves out.
func (s *Sizer) Firm(history []wire.Item) int { return view.Firm(history, s.policy) }

// Room returns how many tokens a view may have, math.MaxInt without a limit.
func (s *Sizer) Room() int { return toInt(s.free()) }

// Count returns how many tokens a text costs the model of the request.
func (s *Sizer) Count(text string) int { return s.o.Count(s.model, text) }

// Cost returns the tokens of a prompt, 0 if the policy has no limit of them. Counting ends with the item that exceeds the limit.
func (s *Sizer) Cost(p Prompt) int {
	if math.IsInf(s.free(), 1) {
		return 0
	}
	cost := view.Cost(p.System, s.free(), s.CountItem)
	if p.Instructions != nil {
		cost += s.Count(wire.Text(p.Instructions))
	}
	return cost
}

// CountItem returns how many tokens an item costs the model of the request.
func (s *Sizer) CountItem(it wire.Item) int { return s.o.CountItem(s.model, it) }
