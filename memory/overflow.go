package memory

import (
	"context"
	"slices"
	"sort"

	"remora/memory/pipeline"
	"remora/memory/summary"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// How a summary is kept and shown; see docs/semantics.md#summaries.
const (
	// summaryID and summarySlot are where records say that it stood: after all layers, before the history.
	summaryID   = "summary"
	summarySlot = 1_000_001
	// A summary costs at most summaryTokens (half of history_manager's limit for memories), and at most the view's room
	// divided by summaryShare.
	summaryTokens = 1000
	summaryShare  = 4
	// At least this many tenths of the unsummarised history are dropped at once, so that the view's beginning, and the
	// provider's cache, stay valid in between.
	summaryTenths = 3
)

// overflow cuts a view to its budget, and replaces the rest by a summary if that is the policy.
type overflow struct {
	*assembly
	keys    []wire.Hash // of the conversation's items
	limit   int         // of the summary, in tokens
	covered int         // the number of the conversation's items that it covers
}

func (o *overflow) fit(ctx context.Context) {
	o.fitOnce(ctx)
	if prefix := o.l.states.values.prefix; prefix.keepUpdates(o.assembly, o.l.fitted.Dropped) {
		o.apply(o.try())
	}
}

func (o *overflow) fitOnce(ctx context.Context) {
	sum := o.l.states.values.summary
	if sum == nil || sum.now.Through == (wire.Hash{}) && o.v.From == 0 {
		if f := o.try(); sum == nil || len(f.Left) == 0 {
			o.apply(f)
			return
		}
	}
	keys, err := o.itemKeys(ctx, o.c.Items)
	if err != nil {
		o.t.m.o.Log.Warn("what falls out of a view is not summarised", "turn", o.t.ID, "error", err.Error())
		o.apply(o.try())
		return
	}
	o.keys, o.limit = keys, min(summaryTokens, o.l.run.Room()/summaryShare)
	o.summarize(ctx, sum)
}

// summarize leaves out the items that the summary covers, and extends it if more must go.
func (o *overflow) summarize(ctx context.Context, sum *storedValue[summary.State]) {
	t, l, state := o.t, o.l, sum.now
	if o.covered = state.Covers(o.keys); o.covered == 0 {
		state = summary.State{Retry: state.Retry} // the summary is of another branch
	}
	if gone := o.before(o.covered); len(gone) > 0 {
		o.v.LeaveOut(len(o.c.System), gone...)
	}

	own := o.block(state)
	f := o.try(own...)
	if len(f.Left) == 0 && o.v.From <= o.covered {
		o.apply(f)
		return
	}

	room := view.Block{Layer: summaryID, Slot: summarySlot, Texts: []string{""}, Tokens: o.limit}
	roomy := o.try(room)
	end := o.end(roomy.Left)
	if last := len(roomy.Blocks) - 1; last < 0 || roomy.Blocks[last].Slot != summarySlot || end <= o.covered {
		o.apply(f) // no room for more, or nothing but the run
		return
	}

	ask := t.overflowModel()
	if o.keys[end-1] == (wire.Hash{}) {
		ask = nil // the next request could not know what was summarised, and would ask again
	}
	began := t.m.o.Now()
	more := summary.More{Items: o.withTargets(ctx, o.c.Items[o.covered:end]), Through: o.keys[end-1], Units: uint64(visible(&o.c, end))} //nolint:gosec // never negative
	shown, next, err := state.Extend(ctx, ask, more, t.started)
	if next.Through != (wire.Hash{}) || !next.Retry.IsZero() {
		sum.replace(next)
	}

	l.overflow = &turnrecord.LayerNote{ID: summaryID, Ms: t.m.o.Now().Sub(began).Milliseconds()}
	if err != nil {
		t.m.o.Log.Warn("overflow_model failed; excerpts stand in", "turn", t.ID, "error", err.Error())
		t.Summary.Skipped = append(t.Summary.Skipped, summaryID+":overflow_model")
		l.overflow.Error = "overflow_model: " + string(pipeline.ClassError)
	}
	roomy.Blocks = slices.Concat(roomy.Blocks[:len(roomy.Blocks)-1], o.block(shown))
	o.apply(roomy, o.before(end)...)
}

// try fits the view, with these blocks after the layers' blocks.
func (o *overflow) try(more ...view.Block) pipeline.Fitted {
	return o.l.run.Fit(o.prompt(), append(slices.Clip(o.l.blocks), more...), o.history())
}

// apply removes the items that did not fit, and more, from the view, and keeps the blocks that stay.
func (o *overflow) apply(f pipeline.Fitted, more ...view.Out) {
	if o.l.blocks = f.Blocks; len(more) > 0 {
		f.SystemTokens, f.HistoryTokens = 0, 0 // more goes than was counted
	}
	o.l.fitted = f
	out := slices.Concat(more, f.Left)
	slices.SortStableFunc(out, func(a, b view.Out) int { return a.Index - b.Index })
	out = slices.CompactFunc(out, func(a, b view.Out) bool { return a.Index == b.Index })
	if len(out) > 0 {
		o.v.LeaveOut(len(o.c.System), out...)
	}
}

// block returns a summary's block, none if the text is empty.
func (o *overflow) block(s summary.State) []view.Block {
	text := s.Block(o.l.run.Count, o.limit)
	if text == "" {
		return nil
	}
	return []view.Block{{Layer: summaryID, Slot: summarySlot, Texts: []string{text}, Tokens: o.l.run.Count(text)}}
}

// runStart returns the beginning of the part of the history that always stays.
func (o *overflow) runStart() int { return o.l.run.Firm(o.history()) }

// before lists the items of the history before item end of the conversation that can go: not the current run, no compaction,
// and nothing that is grouped with items that stay.
func (o *overflow) before(end int) []view.Out {
	history, runStart := o.history(), o.runStart()
	last := min(sort.SearchInts(o.v.Kept, end), runStart)
	groups := view.Groups(history)
	stays := make(map[int]bool)
	for _, g := range groups[last:] {
		stays[g] = g != 0
	}
	var out []view.Out
	for i, it := range history[:last] {
		if it.Kind != wire.Compaction && !stays[groups[i]] {
			out = append(out, view.Out{Index: i, Why: view.ReasonSummary})
		}
	}
	return out
}

// end returns the item of the conversation up to which a summary must reach if left does not fit the budget: never into the
// run, unless the window does. 0 is no further than it reaches.
func (o *overflow) end(left []view.Out) int {
	want := o.v.From
	for _, out := range left {
		want = max(want, o.v.Kept[out.Index]+1)
	}
	if want <= o.covered || len(o.v.Kept) == 0 {
		return 0
	}
	want = max(want, o.covered+summaryTenths*(len(o.c.Items)-o.covered)/10)
	at := min(sort.SearchInts(o.v.Kept, want), o.runStart())
	return max(o.v.From, o.v.Kept[at])
}
