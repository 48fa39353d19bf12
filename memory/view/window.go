package view

import (
	"fmt"
	"math"
	"slices"

	"remora/wire"
)

// In-flight policies of the history window.
const (
	// InFlightKeep leaves the round in flight whole, however long it is (seed 000).
	InFlightKeep = "keep"
	// InFlightWindow also windows inside the round, by whole groups of calls and results, with the round's user
	// message pinned.
	InFlightWindow = "window"
)

// Limits of [Window].MaxItems, and its value where a history_window names none (SEMANTICS 1.3).
const (
	minItems        = 2
	MaxItems        = 10000
	DefaultMaxItems = 40
)

// Window configures the layer kind history_window. A Chat message with tool calls counts as one item for its
// text, if it has any, and one per call.
type Window struct {
	// MaxItems is how many trailing items are sent, 2 to 10000. It is a float so that 1.5, NaN and infinity are
	// refused here, with the code that the conformance cases name, and not by a YAML decoder.
	MaxItems float64 `mapstructure:"max_items"`
	// EvictBatch is by how many items the cut moves at once: 1 slides with every item, more keeps the cut, and so
	// the provider's prompt cache, in place while the window grows back to MaxItems. Less than MaxItems.
	EvictBatch int `mapstructure:"evict_batch"`
	// InFlight is "keep" or "window".
	InFlight string `mapstructure:"in_flight"`
	// MaxExpansion bounds, as a multiple of MaxItems, how far the minimum exchange and the round in flight may take
	// the window beyond MaxItems. 0 is no bound.
	MaxExpansion int `mapstructure:"max_expansion"`
}

// Validate tells every value that cannot be used, by its key.
func (w Window) Validate() []error {
	var errs []error
	if !(w.MaxItems >= minItems && w.MaxItems <= MaxItems) || w.MaxItems != math.Trunc(w.MaxItems) {
		errs = append(errs, fmt.Errorf("max_items: INVALID_HISTORY_WINDOW_MAX_ITEMS: want a whole number from %d to %d, have %v",
			minItems, MaxItems, w.MaxItems))
	}
	if w.EvictBatch < 1 || float64(w.EvictBatch) >= max(w.MaxItems, minItems) {
		errs = append(errs, fmt.Errorf("evict_batch: want 1 to max_items-1, have %d", w.EvictBatch))
	}
	if w.InFlight != InFlightKeep && w.InFlight != InFlightWindow {
		errs = append(errs, fmt.Errorf("in_flight: want %q or %q, have %q", InFlightKeep, InFlightWindow, w.InFlight))
	}
	if w.MaxExpansion < 0 {
		errs = append(errs, fmt.Errorf("max_expansion: want 0 (no bound) or more, have %d", w.MaxExpansion))
	}
	return errs
}

// unit is what the window counts: an item, or one part of a Chat message with tool calls.
type unit struct {
	item int // index in the list of items
	call int // index in the item's Calls, -1 for the item itself or for its text
	kind wire.Kind
	role wire.Role
	// pair is the call that a ToolCall makes or a ToolResult answers.
	pair wire.Call
}

// Units is how many units an item has: what the window counts.
func Units(it wire.Item) uint64 {
	if it.Kind == wire.Message && len(it.Calls) > 0 {
		n := uint64(len(it.Calls))
		if it.HasText {
			n++
		}
		return n
	}
	return 1
}

// unitsOf takes items apart. resolve tells what a Reference stands for; nil leaves references opaque.
func unitsOf(items []wire.Item, resolve func(wire.Item) (wire.Item, bool)) []unit {
	units := make([]unit, 0, len(items)+len(items)/4)
	for i, it := range items {
		if it.Kind == wire.Reference && resolve != nil {
			if target, ok := resolve(it); ok {
				it = target
			}
		}
		if len(it.Calls) == 0 {
			units = append(units, unit{item: i, call: -1, kind: it.Kind, role: it.Role, pair: it.Answers})
			continue
		}
		if it.Kind == wire.Message && it.HasText {
			units = append(units, unit{item: i, call: -1, kind: wire.Message, role: it.Role})
		}
		for c, call := range it.Calls {
			units = append(units, unit{item: i, call: c, kind: wire.ToolCall, pair: call})
		}
	}
	return units
}

// cut says which units of a conversation's history are sent: those from start on, and, where pinned is not
// negative, the unit pinned before them. offset is how many units of the conversation stand before units[0] without
// being in the list (a client that trims its own history); the cut is taken in whole batches of the absolute
// position, so it needs no state to stay put while a conversation grows.
//
// The algorithm is that of SEMANTICS 1.3 with decisions D1, D15 and D16.
func (w Window) cut(units []unit, offset int) (start, pinned int) {
	maxItems := int(w.MaxItems)
	start = w.cutAt(offset+len(units)) - offset
	if start <= 0 {
		return 0, -1
	}
	round := lastUser(units)
	if w.InFlight == InFlightKeep && round >= 0 {
		start = min(start, round)
	}
	if round >= 0 && start > round {
		return snapToGroup(units, start, round+1), round
	}
	start = minimumExchange(units, start)
	if bound := w.MaxExpansion * maxItems; bound > 0 && len(units)-start > bound {
		start = len(units) - bound
		if round >= 0 && start > round {
			return snapToGroup(units, start, round+1), round
		}
	}
	return withReasoning(units, start), -1
}

// cutAt is the absolute position of the first unit to send of a conversation of n units.
func (w Window) cutAt(n int) int {
	over := n - int(w.MaxItems)
	if over <= 0 {
		return 0
	}
	batches := (over + w.EvictBatch - 1) / w.EvictBatch
	return batches * w.EvictBatch
}

// lastUser is the index of the last user message, -1 if there is none: the round in flight starts there.
func lastUser(units []unit) int {
	for i, unit := range slices.Backward(units) {
		if unit.kind == wire.Message && unit.role == wire.User {
			return i
		}
	}
	return -1
}

// minimumExchange moves start back until the window holds a user and an assistant message, as far as the history
// has them at all.
func minimumExchange(units []unit, start int) int {
	var user, assistant bool
	see := func(u unit) bool {
		if u.kind != wire.Message {
			return false
		}
		missing := (u.role == wire.User && !user) || (u.role == wire.Assistant && !assistant)
		user = user || u.role == wire.User
		assistant = assistant || u.role == wire.Assistant
		return missing
	}
	for _, u := range units[start:] {
		see(u)
	}
	for i := start - 1; i >= 0 && (!user || !assistant); i-- {
		if see(units[i]) {
			start = i
		}
	}
	return start
}

// snapToGroup moves start to the next place, not before low, that splits neither a message nor a call from its
// result: forward, so that the cap holds, or back where the last group reaches to the end.
func snapToGroup(units []unit, start, low int) int {
	splits := groupSplits(units, low)
	for i := start; i < len(units); i++ {
		if !splits[i-low] {
			return i
		}
	}
	for i := start - 1; i > low; i-- {
		if !splits[i-low] {
			return i
		}
	}
	return low
}

// groupSplits tells for every unit from low on whether a cut right before it would split a group: a message, a call
// and its results, or reasoning and the rest of its answer.
func groupSplits(units []unit, low int) []bool {
	splits := make([]bool, len(units)-low)
	opened := make(map[string]int, len(units)-low)
	reach := make([]int, len(units)-low) // reach[i]: last unit that must stay with unit i
	for i := low; i < len(units); i++ {
		u := units[i]
		reach[i-low] = i
		switch u.kind {
		case wire.ToolCall:
			opened[pairKey(u.pair)] = i
		case wire.ToolResult:
			if at, ok := opened[pairKey(u.pair)]; ok {
				reach[at-low] = i
			}
		default:
		}
		if i > low && units[i-1].item == u.item {
			reach[i-1-low] = max(reach[i-1-low], i)
		}
	}
	end := len(units) // behind the last unit of the answer that the walk is in
	for i := len(units) - 1; i >= low; i-- {
		if !modelMade(units[i]) {
			end = i
		} else if units[i].kind == wire.Reasoning {
			reach[i-low] = max(reach[i-low], end-1)
		}
	}
	furthest := -1
	for i := range splits {
		splits[i] = furthest >= i+low
		furthest = max(furthest, reach[i])
	}
	return splits
}

// withReasoning moves start back to the reasoning that led to what stands there: upstream refuses an item that was
// sent with its id but without its reasoning.
func withReasoning(units []unit, start int) int {
	for i := start; i > 0 && modelMade(units[i]); i-- {
		if units[i-1].kind == wire.Reasoning {
			for start = i - 1; start > 0 && units[start-1].kind == wire.Reasoning; start-- {
			}
			return start
		}
	}
	return start
}

// modelMade tells whether a unit is part of what a model answers.
func modelMade(u unit) bool {
	return u.kind == wire.ToolCall || u.kind == wire.Reasoning || u.kind == wire.Other ||
		u.kind == wire.Message && u.role == wire.Assistant
}
