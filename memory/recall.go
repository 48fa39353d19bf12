package memory

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync"

	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// recall gets the layers' blocks and their choice of the history. If upstream stores the conversation, it also stores the
// blocks, which are not repeated. A conversation with its own id lists its items to its users forever, so layers add nothing
// there.
func (a *assembly) recall(ctx context.Context) {
	l, c := a.l, &a.c
	if l.run.Empty() || c.Opaque && l.run.Turn().Query == "" || l.call.Request.InConversation() {
		return // without a query, upstream was told when the user spoke
	}
	// Without a resource, a side line of a session, such as an agent's worker, shares nothing with it.
	others := l.call.Scope.Resource != "" && a.entry.HistoryElsewhere()
	if others || a.entry.Trimmed() || c.Stored && c.Offset > 0 || l.run.MayLeave(a.entry.Resolved(c.Items)) {
		l.past.ReachBeyond()
	}
	l.blocks = l.run.Recall(ctx, l.run.Cost(a.prompt()), l.states.values.prefix.frozen(a)...)
	if !c.Opaque {
		given := a.entry.Resolved(c.Items)
		a.narrow(l.run.Project(ctx, given, a.beside, 0, a.windowSlot()), given)
		return
	}

	if len(l.blocks) > 0 && l.run.OfView() {
		l.blocks = l.run.RecallOfView(ctx, pipeline.ViewOf{Upstream: true})
	}
	l.blocks = slices.DeleteFunc(l.blocks, func(b view.Block) bool { return a.entry.Shown(b.Layer, b.Texts) })
}

// recallOfView pins the blocks, and calls the layers again whose recall depends on the view: on its items, and on the window's cut.
func (a *assembly) recallOfView(ctx context.Context, cut *windowCut) {
	l, c := a.l, &a.c
	nothing := len(l.blocks) == 0 && cut == nil && l.passedOver == 0
	a.pin()
	if nothing || l.run.Empty() || !l.run.OfView() || l.call.Request.InConversation() {
		return
	}
	if cut != nil || l.passedOver > 0 {
		l.past.ReachBeyond()
	}
	history := a.history()

	// Blocks that have become larger take the room of items that were shown: layers that left these to the view are called again.
	const most = 3
	for range most {
		before, asking := l.blocks, &lease{}
		shown := sync.OnceValue(func() map[wire.Hash]bool { return contentsOf(history, l.run.Fit(a.prompt(), before, history).Left) })
		has := func(content wire.Hash) (has bool) {
			asking.ask(func() { has = shown()[content] })
			return has
		}
		l.blocks = l.run.RecallOfView(ctx, pipeline.ViewOf{Has: has, Cut: cut.of(asking, c.Items, &a.v)})
		asking.end()
		if a.pin(); costOf(l.blocks) <= costOf(before) {
			break
		}
	}
}

// lease is the time in which layers may ask for parts of an assembly, which waits for them. A hook that has run out of its own time
// still runs while the assembly goes on, and when another request has got the memory of this one.
type lease struct {
	mu   sync.Mutex
	over bool
}

// ask calls f, one at a time, and reports whether it did: not when the lease has ended.
func (l *lease) ask(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		f()
	}
	return !l.over
}

// end waits for the present call of ask and allows no further one.
func (l *lease) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
}

// contentsOf returns the content hashes of messages and results, without the items that are left out.
func contentsOf(history []wire.Item, left []view.Out) map[wire.Hash]bool {
	contents := make(map[wire.Hash]bool, len(history))
	for i, it := range history {
		if len(left) > 0 && left[0].Index == i {
			left = left[1:]
		} else if it.Kind == wire.Message || it.Kind == wire.ToolResult {
			contents[it.ContentHash()] = true
		}
	}
	return contents
}

func costOf(blocks []view.Block) (tokens int) {
	for i := range blocks {
		tokens += blocks[i].Cost()
	}
	return tokens
}

// beside returns the tokens of everything that is sent except the history and the blocks of this request's layers.
func (a *assembly) beside() (tokens int) {
	l := a.l
	request := l.call.Request
	for _, it := range a.c.System {
		tokens += l.run.CountItem(it)
	}
	for _, text := range [][]byte{request.Instructions(), request.Member("tools")} {
		tokens += l.run.Count(string(text))
	}
	for _, definition := range l.tools() {
		tokens += l.run.Count(string(definition))
	}
	if prefix := l.states.values.prefix; prefix != nil {
		tokens += prefix.frozenCost
	}
	return tokens
}

// windowSlot is the slot from which on layers choose from what the window leaves.
func (a *assembly) windowSlot() int {
	if w := a.t.shape.Window; w != nil && w.Slot > 0 {
		return w.Slot
	}
	return math.MaxInt
}

// projectWindow lets the layers after the window choose from its items. It reports whether they left anything out.
func (a *assembly) projectWindow(ctx context.Context) bool {
	from := a.windowSlot()
	if a.l == nil || from == math.MaxInt || !a.l.run.Projects(from) {
		return false
	}
	kept := a.entry.Resolved(pipeline.Pick(a.c.Items, a.v.Kept))
	chosen := a.l.run.Project(ctx, kept, a.beside, from, math.MaxInt)
	return len(chosen) < len(kept) && a.narrow(chosen, kept)
}

// narrow reduces the conversation to the layers' choice of the given items, and counts the others. A choice without the current
// run is ignored.
func (a *assembly) narrow(chosen, given []wire.Item) bool {
	l, c := a.l, &a.c
	if !endsWith(chosen, given[view.RunStart(given):]) {
		l.m.o.Log.Warn("layers would leave out what is being asked; their choice of history is ignored", "turn", l.ID)
		return false
	}
	if len(chosen) == len(c.Items) {
		return true
	}

	items := make([]wire.Item, 0, len(chosen))
	var hidden []bool
	var moved []int
	next := 0
	for i, it := range c.Items {
		if next < len(chosen) && wire.SameBytes(chosen[next].Raw, it.Raw) {
			items, hidden = append(items, it), append(hidden, c.Hidden[i])
			if _, ok := slices.BinarySearch(c.Moved, i); ok {
				moved = append(moved, next)
			}
			next++
			continue
		}
		n := len(it.Parts)
		l.passedOver += n
		if next == 0 && !c.Hidden[i] {
			c.Offset += n // stands before what is left, for windows that count from the beginning
			if c.Stored {
				l.passedOver -= n // is counted with the offset
			}
		}
	}
	c.Items, c.Hidden, c.Moved = items, hidden, moved
	return true
}

// endsWith reports whether items end with last.
func endsWith(items, last []wire.Item) bool {
	return len(items) >= len(last) && slices.EqualFunc(items[len(items)-len(last):], last, func(a, b wire.Item) bool {
		return bytes.Equal(a.Raw, b.Raw)
	})
}
