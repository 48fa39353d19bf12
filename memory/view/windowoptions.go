package view

import (
	"fmt"
	"math"
	"time"
)

// In-flight policies of the history window.
const (
	// InFlightKeep never cuts the run in flight.
	InFlightKeep = "keep"
	// InFlightWindow also windows inside the run, by whole groups of calls and results, with the run's user
	// message pinned.
	InFlightWindow = "window"
)

// Limits and default of [Window].MaxItems.
const (
	minItems        = 2
	MaxItems        = 10000
	DefaultMaxItems = 40
)

// DefaultEvictShare is the default of Window.EvictShare; maxTokens is the limit of Window.MaxTokens.
const (
	DefaultEvictShare = 0.5
	maxTokens         = 1_000_000_000
)

// Window configures the layer kind history_window. It has a limit by items, one by tokens, or both, and then the one
// that leaves out more counts. A Chat message with tool calls counts as one item for its text, if it has any, and one
// per call.
type Window struct {
	// MaxItems is how many trailing items are sent, 2 to 10000; 0 is no limit by items, which needs one by tokens. It
	// is a float so that 1.5, NaN and infinity are refused here, with a code that clients know, and not
	// by a YAML decoder.
	MaxItems float64 `mapstructure:"max_items"`
	// EvictBatch is by how many items the cut moves at once: 1 slides with every item, more keeps the cut, and so
	// the provider's prompt cache, in place while the window grows back to MaxItems. Less than MaxItems.
	EvictBatch int `mapstructure:"evict_batch"`
	// MaxTokens is how many tokens of history are sent, 0 for no such limit. The system prompt and what layers say
	// are not history.
	MaxTokens int `mapstructure:"max_tokens"`
	// MaxShare limits the tokens of history to a share of the model's context length, 0 to 1; 0 is no limit. It has no
	// effect if the context length is unknown.
	MaxShare float64 `mapstructure:"max_share"`
	// EvictShare is how much of the token limit the cut frees at once when the limit is passed: at least 0, which
	// slides with every item, and less than 1. The cut stays put until the limit is passed again.
	EvictShare float64 `mapstructure:"evict_share"`
	// IdleReset is the pause after which the prompt cache of a session counts as lost. The window is then cut as if its limit
	// had been exceeded, since the whole prompt is billed in full anyway. 0 is never.
	IdleReset time.Duration `mapstructure:"idle_reset"`
	// InFlight is "keep" or "window".
	InFlight string `mapstructure:"in_flight"`
	// MaxExpansion bounds, as a multiple of each limit, how far the minimum exchange and the run in flight may take
	// the window beyond that. 0 is no bound.
	MaxExpansion int `mapstructure:"max_expansion"`
	// Slot is the window's place among layers that choose history: it cuts what layers of lower slots leave, and the
	// others choose from what it leaves. 0 is after all of them.
	Slot int `mapstructure:"slot"`
}

// Defaults fills in what a configuration leaves out. given reports whether it has a key. A window that is given a limit by
// tokens has none by items unless that is given too.
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

// problems are the errors of a configuration.
type problems []error

// want adds an error, which names the key and what it wants, unless the value is valid.
func (p *problems) want(valid bool, format string, args ...any) {
	if !valid {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

// Validate returns one error per invalid value, with its key.
func (w Window) Validate() []error {
	var p problems
	if w.MaxItems == 0 && w.countsTokens() {
		p.want(w.EvictBatch == 0 || w.EvictBatch == 1, "evict_batch: has no use without max_items, have %d", w.EvictBatch)
	} else {
		p.want(w.MaxItems >= minItems && w.MaxItems <= MaxItems && w.MaxItems == math.Trunc(w.MaxItems),
			"max_items: INVALID_HISTORY_WINDOW_MAX_ITEMS: want a whole number from %d to %d, or 0 beside a limit by tokens, have %v", minItems, MaxItems, w.MaxItems)
		p.want(w.EvictBatch >= 1 && !(float64(w.EvictBatch) >= max(w.MaxItems, minItems)), "evict_batch: want 1 to max_items-1, have %d", w.EvictBatch)
	}
	p.want(w.MaxTokens >= 0 && w.MaxTokens <= maxTokens, "max_tokens: want 0 (no limit) to %d, have %d", maxTokens, w.MaxTokens)
	p.want(w.MaxShare >= 0 && w.MaxShare <= 1, "max_share: want 0 (no limit) to 1, have %v", w.MaxShare)
	p.want(w.EvictShare >= 0 && w.EvictShare < 1, "evict_share: want 0 or more and less than 1, have %v", w.EvictShare)
	p.want(w.IdleReset >= 0, "idle_reset: want 0 (never) or more, have %v", w.IdleReset)
	p.want(w.InFlight == InFlightKeep || w.InFlight == InFlightWindow, "in_flight: want %q or %q, have %q", InFlightKeep, InFlightWindow, w.InFlight)
	p.want(w.Slot >= 0, "slot: want 0 (after all layers) or more, have %d", w.Slot)
	p.want(w.MaxExpansion >= 0, "max_expansion: want 0 (no bound) or more, have %d", w.MaxExpansion)
	return p
}

func (w Window) countsTokens() bool { return w.MaxTokens != 0 || w.MaxShare != 0 }

// Stateful reports whether the window's cut must be stored in the session. A cut by items alone follows from the length of the
// conversation.
func (w *Window) Stateful() bool { return w != nil && (w.countsTokens() || w.IdleReset > 0) }

// Reach returns how many units of a stored history of stored units must be read for the window. cut is the WindowStart of the
// session's latest view.
func (w *Window) Reach(cut WindowStart, stored uint64) uint64 {
	switch {
	case w == nil:
		return MaxItems
	case w.MaxItems > 0:
		return uint64(w.MaxItems)
	case cut.Units > 0 && cut.Units <= stored:
		return min(stored-cut.Units+1, MaxItems)
	default:
		return MaxItems
	}
}

// tokenLimit returns the limit by tokens, 0 for none.
func (w *Window) tokenLimit(in WindowInput) int {
	limit := w.MaxTokens
	lower := func(to int) {
		if to > 0 && (limit == 0 || to < limit) {
			limit = to
		}
	}
	if w.MaxShare > 0 && in.Context > 0 {
		lower(max(1, int(w.MaxShare*float64(min(in.Context, maxTokens)))))
	}
	if w.countsTokens() {
		lower(in.Most)
	}
	return limit
}

// cutAt returns the absolute position of the first unit to send of a conversation of n units.
func (w Window) cutAt(n int) int {
	over := n - int(w.MaxItems)
	if over <= 0 {
		return 0
	}
	batches := (over + w.EvictBatch - 1) / w.EvictBatch
	return batches * w.EvictBatch
}
