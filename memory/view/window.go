package view

import (
	"fmt"
	"math"
	"slices"
	"time"

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

// Defaults of a history_window that names the key of none of its limits, and of the share that a token limit evicts.
const (
	DefaultEvictShare = 0.5
	maxTokens         = 1_000_000_000
)

// Window configures the layer kind history_window. It has a limit by items, one by tokens, or both, and then the one
// that leaves out more counts. A Chat message with tool calls counts as one item for its text, if it has any, and one
// per call.
type Window struct {
	// MaxItems is how many trailing items are sent, 2 to 10000; 0 is no limit by items, which needs one by tokens. It
	// is a float so that 1.5, NaN and infinity are refused here, with the code that the conformance cases name, and not
	// by a YAML decoder.
	MaxItems float64 `mapstructure:"max_items"`
	// EvictBatch is by how many items the cut moves at once: 1 slides with every item, more keeps the cut, and so
	// the provider's prompt cache, in place while the window grows back to MaxItems. Less than MaxItems.
	EvictBatch int `mapstructure:"evict_batch"`
	// MaxTokens is how many tokens of history are sent, 0 for no such limit. Leading system items and what layers say
	// are not history.
	MaxTokens int `mapstructure:"max_tokens"`
	// MaxShare limits the tokens of history to a share of the model's context length, 0 to 1; 0 is no such limit. It
	// does not bind a model whose context length nobody knows.
	MaxShare float64 `mapstructure:"max_share"`
	// EvictShare is how much of the token limit the cut frees at once when the limit is passed: at least 0, which
	// slides with every item, and less than 1. The cut stays put until the limit is passed again.
	EvictShare float64 `mapstructure:"evict_share"`
	// IdleReset is after how long without a request the prompt cache of a session counts as lost. The window is then cut
	// down as if its limit had been passed, since the whole prompt costs its full price anyway. 0 is never.
	IdleReset time.Duration `mapstructure:"idle_reset"`
	// InFlight is "keep" or "window".
	InFlight string `mapstructure:"in_flight"`
	// MaxExpansion bounds, as a multiple of each limit, how far the minimum exchange and the round in flight may take
	// the window beyond that. 0 is no bound.
	MaxExpansion int `mapstructure:"max_expansion"`
}

// Defaults fills in what a configuration leaves out. given tells whether it has a key. A window whose configuration has
// a limit by tokens has none by items unless it says so too.
func (w *Window) Defaults(given func(key string) bool) {
	if !given("max_items") && w.MaxTokens == 0 && w.MaxShare == 0 {
		w.MaxItems = DefaultMaxItems
	}
	if !given("evict_batch") {
		w.EvictBatch = max(1, int(w.MaxItems)/2)
	}
	if !given("evict_share") {
		w.EvictShare = DefaultEvictShare
	}
	if !given("in_flight") {
		w.InFlight = InFlightKeep
	}
}

// Validate tells every value that cannot be used, by its key.
func (w Window) Validate() []error {
	errs := w.validateItems()
	if w.MaxTokens < 0 || w.MaxTokens > maxTokens {
		errs = append(errs, fmt.Errorf("max_tokens: want 0 (no limit) to %d, have %d", maxTokens, w.MaxTokens))
	}
	if !(w.MaxShare >= 0 && w.MaxShare <= 1) {
		errs = append(errs, fmt.Errorf("max_share: want 0 (no limit) to 1, have %v", w.MaxShare))
	}
	if !(w.EvictShare >= 0 && w.EvictShare < 1) {
		errs = append(errs, fmt.Errorf("evict_share: want 0 or more and less than 1, have %v", w.EvictShare))
	}
	if w.IdleReset < 0 {
		errs = append(errs, fmt.Errorf("idle_reset: want 0 (never) or more, have %v", w.IdleReset))
	}
	if w.InFlight != InFlightKeep && w.InFlight != InFlightWindow {
		errs = append(errs, fmt.Errorf("in_flight: want %q or %q, have %q", InFlightKeep, InFlightWindow, w.InFlight))
	}
	if w.MaxExpansion < 0 {
		errs = append(errs, fmt.Errorf("max_expansion: want 0 (no bound) or more, have %d", w.MaxExpansion))
	}
	return errs
}

// validateItems is Validate for the limit by items (SEMANTICS 1.3, case 17).
func (w Window) validateItems() (errs []error) {
	if w.MaxItems == 0 && w.countsTokens() {
		if w.EvictBatch < 0 || w.EvictBatch > 1 {
			errs = append(errs, fmt.Errorf("evict_batch: has no use without max_items, have %d", w.EvictBatch))
		}
		return errs
	}
	if !(w.MaxItems >= minItems && w.MaxItems <= MaxItems) || w.MaxItems != math.Trunc(w.MaxItems) {
		errs = append(errs, fmt.Errorf("max_items: INVALID_HISTORY_WINDOW_MAX_ITEMS: want a whole number from %d to %d, have %v",
			minItems, MaxItems, w.MaxItems))
	}
	if w.EvictBatch < 1 || float64(w.EvictBatch) >= max(w.MaxItems, minItems) {
		errs = append(errs, fmt.Errorf("evict_batch: want 1 to max_items-1, have %d", w.EvictBatch))
	}
	return errs
}

func (w Window) countsTokens() bool { return w.MaxTokens != 0 || w.MaxShare != 0 }

// Stateful tells whether the window's cut has to be kept from one request of a session to the next: one by items alone
// follows from how long the conversation is.
func (w *Window) Stateful() bool { return w != nil && (w.countsTokens() || w.IdleReset > 0) }

// Reach is how much of a stored history has to be read for the window, in units: behind is how many there are, cut what
// the session's latest view returned.
func (w *Window) Reach(cut Cut, behind uint64) uint64 {
	switch {
	case w == nil:
		return MaxItems
	case w.MaxItems > 0:
		return uint64(w.MaxItems)
	case cut.Units > 0 && cut.Units <= behind:
		return min(behind-cut.Units+1, MaxItems)
	default:
		return MaxItems
	}
}

// tokenLimit is the limit by tokens for a model with that context length, 0 for none.
func (w *Window) tokenLimit(context int) int {
	limit := w.MaxTokens
	if w.MaxShare > 0 && context > 0 {
		share := max(1, int(w.MaxShare*float64(min(context, maxTokens))))
		if limit == 0 || share < limit {
			limit = share
		}
	}
	return limit
}

// unit is what the window counts: an item, or one part of a Chat message with tool calls.
type unit struct {
	item int // index in the list of items
	call int // index in the item's Calls, -1 for the item itself or for its text
	kind wire.Kind
	role wire.Role
	// hidden tells that the client does not see it: it counts as nothing, so that cuts stay where they are.
	hidden bool
	// pair is the call that a ToolCall makes or a ToolResult answers; for all others it is empty, and never nil. It is
	// the item's own: histories are long, and a copy would be most of what a unit takes.
	pair *wire.Call
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
	for i := range items {
		it := &items[i]
		if it.Kind == wire.Reference && resolve != nil {
			if target, ok := resolve(*it); ok {
				it = &target
			}
		}
		if len(it.Calls) == 0 {
			units = append(units, unit{item: i, call: -1, kind: it.Kind, role: it.Role, pair: &it.Answers})
			continue
		}
		if it.Kind == wire.Message && it.HasText {
			units = append(units, unit{item: i, call: -1, kind: wire.Message, role: it.Role, pair: &it.Answers})
		}
		for c := range it.Calls {
			units = append(units, unit{item: i, call: c, kind: wire.ToolCall, pair: &it.Calls[c]})
		}
	}
	return units
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
// and its results, reasoning and the rest of its answer, or an item and what is hidden behind it.
func groupSplits(units []unit, low int) []bool {
	splits := make([]bool, len(units)-low)
	opened := make(map[string]int, len(units)-low)
	reach := make([]int, len(units)-low) // reach[i]: last unit that must stay with unit i
	for i := low; i < len(units); i++ {
		u := units[i]
		reach[i-low] = i
		switch u.kind {
		case wire.ToolCall:
			opened[pairKey(*u.pair)] = i
		case wire.ToolResult:
			if at, ok := opened[pairKey(*u.pair)]; ok {
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
		splits[i] = furthest >= i+low || i > 0 && units[i+low].hidden
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
