package breakpoint

import (
	"slices"

	"remora/wire"
)

// finder finds the items that get breakpoints.
type finder struct {
	items []wire.Item
	takes []bool // by index of the item: whether it can have one
	told  []int  // items in the user's role that layers say
}

// places returns the indices of the items with breakpoints, -1 for none; some may be the same:
//
//   - the last of the system prompt, with the anchored blocks of layers: they outlive all else;
//   - the last one of the request before, so that its cache is found however many items came since;
//   - the last item that the next request will still have. Instructions at the end are none: layers replace them each
//     time;
//   - if instructions stand after the user message that began the round, that message too. They are layers' blocks for
//     this round: they stay there while the model calls tools, and the next round has the conversation without them.
func (f *finder) places() []int {
	system := wire.SystemItems(f.items)
	at := []int{f.any(system - 1)}
	round, fresh := f.round()
	told := fresh > round+1
	if told && fresh == len(f.items) {
		// These instructions may stay or not: if they do, the next request reads them from the cache, too.
		return append(at, f.unchanged(round, fresh), f.said(round), f.any(fresh-1))
	}
	if told {
		at = append(at, f.unchanged(round, fresh))
	}
	end := f.said(len(f.items) - 1)
	return append(at, f.any(f.last(end, f.isAssistant)), end)
}

// round returns the user message that began the round, and the item with which the round goes on after what layers say.
func (f *finder) round() (began, fresh int) {
	began = f.last(len(f.items)-1, f.isUser)
	for fresh = began + 1; fresh < len(f.items) && f.isInstruction(fresh); {
		fresh++
	}
	return began, fresh
}

// unchanged returns the last item that stays where it is when the instructions behind a user message go on to the next one: that
// message, or the one of the round before, which had them until this request. -1 is none. Its arguments are those of round.
func (f *finder) unchanged(round, fresh int) int {
	switch {
	case fresh == round+1:
		return -1
	case fresh == len(f.items):
		return f.said(f.last(f.last(round, f.isAssistant), f.isUser))
	}
	return f.said(round)
}

// any returns the last item up to i that can have a breakpoint, -1 for none. An answer never has one, so from an answer it
// leads to the last item that the answer was given to.
func (f *finder) any(i int) int {
	return f.last(i, func(i int) bool { return f.takes[i] })
}

// said returns the same without instructions, unless there is nothing else.
func (f *finder) said(i int) int {
	j := f.last(i, func(i int) bool { return f.takes[i] && !f.isInstruction(i) })
	if j < 0 {
		return f.any(i)
	}
	return j
}

// last returns the last item up to i that is of a kind, -1 for none.
func (f *finder) last(i int, is func(int) bool) int {
	for i >= 0 && !is(i) {
		i--
	}
	return i
}

func (f *finder) isUser(i int) bool {
	return f.items[i].Role == wire.User && !slices.Contains(f.told, i)
}

func (f *finder) isAssistant(i int) bool {
	return f.items[i].Role == wire.Assistant
}

// isInstruction reports whether an item is one that layers may say: in the role of instructions, or told.
func (f *finder) isInstruction(i int) bool {
	it := &f.items[i]
	return it.Role == wire.System || it.Role == wire.Developer || slices.Contains(f.told, i)
}
