// Package anchor keeps the beginning of a view the same from request to request, so that the provider's prompt cache
// holds it (SEMANTICS 1.15).
//
// An epoch is a run of requests whose views begin alike. What anchored layers said when it began is pinned: these bytes
// are sent until it ends, whatever the layers say meanwhile. What they say instead is published behind the history, as a
// small update that replaces the earlier block. A new epoch begins where the cache is lost anyhow, or where updates cost
// more than it is worth; then updates are folded into the pins. Live layers stand behind the history as well: they are
// asked once in a round, and what they said then is shown until the round is over.
//
// What a round begins with stays the same until it is over. So it stands best directly behind the user message, where
// the tool loop grows behind it: at the end of the view it would be paid in full with every request.
//
// The package is pure: no store, no clock. State is a value of the session. Whatever it is, an older one or one that
// another replica wrote, the model is told what layers say now; a state that is lost costs one prompt at full price.
package anchor

import (
	"fmt"
	"slices"
	"time"
)

// Config says when an epoch ends and where layers with placement auto stand. An assembly is a round: a user turn with its
// whole tool loop.
type Config struct {
	// MinCachedTokens is how many cached tokens the first answer of a round must report; fewer are a cache-miss.
	MinCachedTokens int `mapstructure:"min_cached_tokens"`
	// MinEpochAssemblies is in which round of an epoch cache figures are first judged: the first one fills the cache.
	MinEpochAssemblies int `mapstructure:"min_epoch_assemblies"`
	// MaxEpochAssemblies is after how many rounds an epoch ends.
	MaxEpochAssemblies int `mapstructure:"max_epoch_assemblies"`
	// DeltaBudgetFraction is which share of the view updates may take before the epoch ends. They are paid in full with
	// every request.
	DeltaBudgetFraction float64 `mapstructure:"delta_budget_fraction"`
	// AutoDemoteChurn is from which share of changed rounds on a layer with placement auto stands behind the history.
	AutoDemoteChurn float64 `mapstructure:"auto_demote_churn"`
	// AutoPromoteChurn is up to which share it stands before the history.
	AutoPromoteChurn float64 `mapstructure:"auto_promote_churn"`
	// MinChurnSamples is how many rounds must have been watched before placement auto decides anything.
	MinChurnSamples int `mapstructure:"min_churn_samples"`
	// ChurnDecay is which part of the watched rounds counts on after a decision.
	ChurnDecay float64 `mapstructure:"churn_decay"`
	// IdleReset is after which pause the cache is taken for lost; 0 is never.
	IdleReset time.Duration `mapstructure:"idle_reset"`
}

// DefaultConfig has the values of SEMANTICS 1.15. Providers drop a prompt that was not used for five to ten minutes.
func DefaultConfig() Config {
	return Config{
		MinCachedTokens: 100, MinEpochAssemblies: 2, MaxEpochAssemblies: 50, DeltaBudgetFraction: 0.15,
		AutoDemoteChurn: 0.5, AutoPromoteChurn: 0.2, MinChurnSamples: 3, ChurnDecay: 0.5, IdleReset: 10 * time.Minute,
	}
}

// Validate tells every value that cannot be used, by its key.
func (c Config) Validate() []error {
	var errs []error
	for _, n := range []struct {
		key         string
		value, from int
	}{
		{"min_cached_tokens", c.MinCachedTokens, 0},
		{"min_epoch_assemblies", c.MinEpochAssemblies, 1},
		{"max_epoch_assemblies", c.MaxEpochAssemblies, 1},
		{"min_churn_samples", c.MinChurnSamples, 1},
	} {
		if n.value < n.from {
			errs = append(errs, fmt.Errorf("%s: want %d or more, have %d", n.key, n.from, n.value))
		}
	}
	for _, f := range []struct {
		key   string
		value float64
	}{
		{"delta_budget_fraction", c.DeltaBudgetFraction},
		{"auto_demote_churn", c.AutoDemoteChurn},
		{"auto_promote_churn", c.AutoPromoteChurn},
		{"churn_decay", c.ChurnDecay},
	} {
		if !(f.value >= 0 && f.value <= 1) {
			errs = append(errs, fmt.Errorf("%s: want 0 to 1, have %v", f.key, f.value))
		}
	}
	if c.AutoPromoteChurn >= c.AutoDemoteChurn {
		errs = append(errs, fmt.Errorf("auto_promote_churn: want less than auto_demote_churn, which is %v, have %v",
			c.AutoDemoteChurn, c.AutoPromoteChurn))
	}
	if c.IdleReset < 0 {
		errs = append(errs, fmt.Errorf("idle_reset: want 0 (never) or more, have %v", c.IdleReset))
	}
	return errs
}

// Placement is where a layer's block stands.
type Placement string

// Placements. The empty one is Auto.
const (
	Before Placement = "anchor" // before the history, pinned
	Behind Placement = "live"   // behind the history
	Auto   Placement = "auto"   // where the layer's kind belongs, until it is known how often it changes
)

// Layer is a configured layer, and what it says now. Every layer that is configured must be told of, in the order of
// blocks: one that is missing counts as taken out of the configuration.
type Layer struct {
	ID        string
	Slot      int
	Placement Placement
	// Live is where its kind belongs under Auto: behind the history.
	Live bool
	// Fresh layers are shown as they answer, even inside a round, and Auto never pins them: a recall that changes the
	// layer's state, or one that follows the tool loop. It matters for live ones only.
	Fresh bool
	// Held: it was not asked, or failed. What it said last stands, if that is still known.
	Held bool
	// Texts is what it says, one message each; none if that is nothing. What is not valid UTF-8 in them is replaced, as
	// in any message.
	Texts []string
	// Tokens is what Texts cost.
	Tokens int
}

// Request is what one request is made of.
type Request struct {
	// Lineage names the cache that the request goes to, and whose memory it is told: dialect, model and resource.
	Lineage string
	// Lead tells the leading system text and instructions apart from others: a hash.
	Lead string
	// Round names the user turn, so that the same words said later are another one.
	Round string
	// Loop: the request is not the first of its round. It begins none even where the state does not know the round.
	Loop bool
	// CutMoved: the history begins elsewhere than in the request before, so that the cache behind the lead is lost.
	CutMoved bool
	// Idle is how long ago the session's last request was.
	Idle time.Duration
	// View is about how large the view is, in tokens. 0 is not known: then updates are measured by what is pinned.
	View int
	// Free is how many tokens updates and live blocks may take together; math.MaxInt without a limit.
	Free int
	// Count counts the tokens of a text. It is called for updates when they are published.
	Count func(text string) int
	// Layers are all that are configured, in slot order.
	Layers []Layer
}

// Block is what of a layer stands in the view.
type Block struct {
	Layer  string
	Slot   int
	Texts  []string // one message each
	Tokens int
	// Late: it was not there, or not the same, when the round began, and belongs at the end of the view.
	Late bool
}

// Reason is why an epoch began.
type Reason string

// Reasons, in the order in which they are tried.
const (
	ColdStart           Reason = "cold-start"           // nothing is known of the lineage
	InstructionsChanged Reason = "instructions-changed" // the leading text is another one
	Reconfigured        Reason = "reconfigured"         // a pinned layer is gone, or has another placement
	CutMoved            Reason = "cut-moved"
	Idle                Reason = "idle"
	CacheMiss           Reason = "cache-miss"     // the round before was not served from the cache
	MaxAge              Reason = "max-age"        // the epoch had its rounds
	DeltaOverflow       Reason = "delta-overflow" // updates do not fit
	DeltaPressure       Reason = "delta-pressure" // updates take too large a share
)

// Plan is what layers put into a view: [leading items] Anchored [history] Updates Live, or, cheaper where there are tool
// loops, [leading items] Anchored [history with the user message] AtRound [tool loop] AtEnd.
type Plan struct {
	// Anchored have the same bytes throughout an epoch, but for blocks too large to pin, which stand last.
	Anchored []Block
	// Updates replace blocks of Anchored and one another, the later the earlier. Inside a round the list only grows. None
	// of them may be left out of a view, or the model believes what no longer holds.
	Updates []Block
	// Live are the blocks of layers that stand behind the history.
	Live []Block
	// Reason is why an epoch begins with this request, empty if it goes on.
	Reason Reason
}

// AtRound are the updates and live blocks that the round began with: the same in all its requests, while the epoch lasts.
func (p *Plan) AtRound() []Block { return p.behind(false) }

// AtEnd are the other updates and live blocks.
func (p *Plan) AtEnd() []Block { return p.behind(true) }

func (p *Plan) behind(late bool) []Block { //nolint:revive // which of two places
	var out []Block
	for _, b := range slices.Concat(p.Updates, p.Live) {
		if b.Late == late {
			out = append(out, b)
		}
	}
	return out
}

// Usage is what upstream reported of a request.
type Usage struct {
	Prompt int // tokens, 0 if not reported
	Cached int // of these, read from the cache
	// Reported: Cached was among what upstream said. Without it nothing is known of the cache, which is not 0.
	Reported bool
}
