package pipeline

import (
	"math"
	"slices"

	"remora/memory/budget"
	"remora/memory/tokens"
	"remora/wire"
)

// messageTokens is what a message costs beside its text, as package tokens charges it.
const messageTokens = 4

// unfit is the cost of an entry that was not counted, since what is newer leaves no room for it.
const unfit = math.MaxInt32

// Fitted is what of a view fits, by the policy (SEMANTICS 1.13).
type Fitted struct {
	Blocks  []Block // those that stay
	Dropped []Block // those that do not
	// History is what stays of it, the same slice if that is all.
	History []wire.Item
	// Left are the indices in the history of what does not stay, ascending, and why: what a summary has to cover.
	Left []budget.Out
	// Tokens of the parts that stay. All are 0 where nothing was counted: the policy has no limit, or all fits whatever
	// it costs exactly.
	SystemTokens, BlockTokens, HistoryTokens int
}

// Limited tells whether the policy can leave anything out. If not, Fit returns what it gets.
func (r *Run) Limited() bool {
	return r != nil && (r.p.o.Policy.Window > 0 || !math.IsInf(r.p.free, 1))
}

// Fit chooses which blocks and which history items are sent. System items and the current round, from the last user
// message on, always are, with the pairs before it that the policy never leaves out. Blocks stay each if it fits. Of the rest of the history the newest stays, and calls stay with
// their results. What stands before an item that does not fit is not counted: a body of any size costs no more than
// what fits of it, and the item after, but for a policy that keeps old items for their worth. A body whose bytes are fewer than the tokens that are free is not counted at all.
func (r *Run) Fit(system []wire.Item, blocks []Block, history []wire.Item) Fitted {
	if !r.Limited() || r.fitsAnyway(system, blocks, history) {
		return Fitted{Blocks: blocks, History: history}
	}
	c := counter{r: r, all: !r.p.o.Policy.NewestFirst()}
	entries := budget.Entries(history, r.p.o.Policy)
	lead := make([]budget.Entry, len(system))
	for i, it := range system {
		lead[i].Cost = c.item(it, 0)
	}
	systemTokens := c.used
	pinned := budget.Pinned(entries)
	for i := len(history) - 1; i >= 0; i-- {
		if pinned[i] {
			entries[i].Cost = c.item(history[i], 0)
		}
	}
	recalled := make([]budget.Entry, len(blocks))
	for i, b := range blocks {
		recalled[i].Cost = b.cost()
	}
	// What blocks take is not known yet, and may be nothing: so history is counted as if it were.
	for i := len(history) - 1; i >= 0; i-- {
		if !pinned[i] {
			entries[i].Cost = c.item(history[i], unfit)
		}
	}
	kept, left := budget.Fit(lead, recalled, entries, r.p.o.Policy)
	out := Fitted{Blocks: blocks, History: history, Left: left.History, SystemTokens: systemTokens}
	if len(left.Layers) > 0 {
		out.Blocks = nil
	}
	for _, i := range kept.Layers {
		out.BlockTokens += recalled[i].Cost
		if len(left.Layers) > 0 {
			out.Blocks = append(out.Blocks, blocks[i])
		}
	}
	for _, o := range left.Layers {
		out.Dropped = append(out.Dropped, blocks[o.Index])
	}
	out.keep(history, entries, kept.History)
	return out
}

// cost is what a block costs in a view, in tokens.
func (b *Block) cost() int { return b.Tokens + messageTokens*len(b.Messages) }

// fitsAnyway tells that all of a view stays, whatever its items cost exactly: no price is above tokens.AtMost.
func (r *Run) fitsAnyway(system []wire.Item, blocks []Block, history []wire.Item) bool {
	if r.p.o.Policy.Window > 0 {
		return false
	}
	free := r.p.free
	for i := range blocks {
		free -= float64(blocks[i].cost())
	}
	for _, items := range [][]wire.Item{system, history} {
		for _, it := range items {
			if free -= float64(len(it.Raw)); free < 0 {
				return false // without a closer look
			}
		}
	}
	for _, items := range [][]wire.Item{system, history} {
		for _, it := range items {
			if free -= float64(tokens.AtMost(it) - len(it.Raw)); free < 0 {
				return false
			}
		}
	}
	return true
}

// Firm is from which item on a history stays whatever the budget: the current round, and the pairs before it that the
// policy never leaves out.
func (r *Run) Firm(history []wire.Item) int {
	for i, e := range budget.Entries(history, r.p.o.Policy) {
		if e.Round && history[i].Kind != wire.Compaction {
			return i
		}
	}
	return max(0, len(history)-1)
}

// Room is how many tokens a view may have, math.MaxInt without a limit.
func (r *Run) Room() int {
	if r == nil {
		return math.MaxInt
	}
	return toInt(r.p.free)
}

// Count is how many tokens a text costs the model of the request.
func (r *Run) Count(text string) int {
	if r == nil {
		return len(text)
	}
	return r.p.o.Count(r.turn.Model, text)
}

func (f *Fitted) keep(history []wire.Item, entries []budget.Entry, kept []int) {
	all := len(kept) == len(history)
	if !all {
		f.History = make([]wire.Item, 0, len(kept))
	}
	for _, i := range kept {
		if f.HistoryTokens += entries[i].Cost; !all {
			f.History = append(f.History, history[i])
		}
	}
}

// counter counts items until the budget is used up.
type counter struct {
	r    *Run
	all  bool // whatever is used up
	used int
}

// item is what an item costs, or over if others have used up the budget. Text that cannot fit is not counted at all.
func (c *counter) item(it wire.Item, over int) int {
	const (
		large        = 1 << 20 // bytes
		bytesOfToken = 16      // at most, in text of that size; four is usual
	)
	if math.IsInf(c.r.p.free, 1) {
		return 0
	}
	if !c.all && float64(c.used) > c.r.p.free {
		return over
	}
	n := 0
	if len(it.Raw) > large {
		n = len(it.Text()) / bytesOfToken
	}
	if float64(n) <= c.r.p.free && (c.all || float64(c.used+n) <= c.r.p.free) {
		n = c.r.p.o.CountItem(c.r.turn.Model, it)
	}
	c.used += n
	return n
}

// Cost is what items cost, in tokens, 0 where the policy has no limit. Counting ends with the item that is too much.
func (r *Run) Cost(items []wire.Item) int {
	if !r.Limited() {
		return 0
	}
	c := counter{r: r}
	for _, it := range slices.Backward(items) {
		c.item(it, 0)
	}
	return c.used
}
