package mark

import (
	"slices"

	"remora/wire"
)

// finder looks for the items that breakpoints belong on.
type finder struct {
	items []wire.Item
	takes []bool // by index of the item: whether it can have one
}

// places are the indices of the items with breakpoints, ascending:
//
//   - the last of the leading instructions, to which the anchored blocks of layers belong: they outlive all else;
//   - where the request before this one had its last, so that what it wrote is found however much came since;
//   - the last item that the next request will still have. Instructions at the end are none: layers speak there
//     anew each time;
//   - where instructions stand behind the user message that began the round, that message too. They are what layers say
//     for this round: they stay there while the model calls tools, and the next round has the conversation without them.
func (f *finder) places() []int {
	lead := wire.Leading(f.items)
	at := []int{f.any(lead - 1)}
	round := f.last(len(f.items)-1, isUser)
	fresh := round + 1 // where the round goes on behind what layers say
	for fresh < len(f.items) && isInstruction(f.items[fresh]) {
		fresh++
	}
	told := round >= 0 && fresh > round+1
	switch {
	case told && fresh == len(f.items):
		// Nothing tells whether these instructions stay: if they do, the next request reads them too.
		at = append(at, f.said(f.last(f.answered(round), isUser)), f.said(round), f.any(fresh-1))
	case told:
		end := f.said(len(f.items) - 1)
		at = append(at, f.said(round), f.any(f.answered(end)), end)
	default:
		end := f.said(len(f.items) - 1)
		at = append(at, f.any(f.answered(end)), end)
	}
	at = slices.DeleteFunc(at, func(i int) bool { return i < 0 })
	slices.Sort(at)
	return slices.Compact(at)
}

// answered is the index of the last item of the request that the latest answer up to i was given to, -1 for none.
func (f *finder) answered(i int) int {
	i = f.last(i, isAssistant)
	for i >= 0 && isAssistant(f.items[i]) {
		i--
	}
	return i
}

// any is the last item up to i that can have a breakpoint, -1 for none.
func (f *finder) any(i int) int {
	for i >= 0 && !f.takes[i] {
		i--
	}
	return i
}

// said is the same without instructions, unless there is nothing else.
func (f *finder) said(i int) int {
	for j := i; j >= 0; j-- {
		if f.takes[j] && !isInstruction(f.items[j]) {
			return j
		}
	}
	return f.any(i)
}

// last is the last item up to i that is of a kind, -1 for none.
func (f *finder) last(i int, is func(wire.Item) bool) int {
	for i >= 0 && !is(f.items[i]) {
		i--
	}
	return i
}

func isUser(it wire.Item) bool { return it.Kind == wire.Message && it.Role == wire.User }

func isAssistant(it wire.Item) bool { return it.Kind == wire.Message && it.Role == wire.Assistant }

func isInstruction(it wire.Item) bool {
	return it.Kind == wire.Message && (it.Role == wire.System || it.Role == wire.Developer)
}
