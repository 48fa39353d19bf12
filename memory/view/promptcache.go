package view

import (
	"slices"
	"time"

	"remora/memory/layer"
)

// PromptCache configures when a prefix version ends and the place of layers with placement auto. A run is a user message with
// its whole tool loop.
type PromptCache struct {
	// MinCachedTokens is how many cached tokens the first answer of a run must report; fewer are a cache-miss.
	MinCachedTokens int `mapstructure:"min_cached_tokens"`
	// MinPrefixRuns is the run of a prefix version from which on cache usage is checked: the first one fills the cache.
	MinPrefixRuns int `mapstructure:"min_prefix_runs"`
	// MaxPrefixRuns is after how many runs a prefix version ends.
	MaxPrefixRuns int `mapstructure:"max_prefix_runs"`
	// DeltaBudgetFraction is the share of the view that updates may take before the version ends. The replaced blocks are
	// billed as well.
	DeltaBudgetFraction float64 `mapstructure:"delta_budget_fraction"`
	// AutoDemoteChurn is the share of changed runs from which on a layer with placement auto stands after the history.
	AutoDemoteChurn float64 `mapstructure:"auto_demote_churn"`
	// AutoPromoteChurn is the share up to which it stands before the history.
	AutoPromoteChurn float64 `mapstructure:"auto_promote_churn"`
	// MinChurnSamples is the number of observed runs before placement auto decides.
	MinChurnSamples int `mapstructure:"min_churn_samples"`
	// ChurnDecay is the weight of earlier samples after a decision.
	ChurnDecay float64 `mapstructure:"churn_decay"`
	// IdleReset is the pause after which the cache counts as lost; 0 is never.
	IdleReset time.Duration `mapstructure:"idle_reset"`
}

// DefaultPromptCache returns the options that hold where the configuration says nothing. Providers drop a prompt that was
// not used for five to ten minutes.
func DefaultPromptCache() PromptCache {
	return PromptCache{
		MinCachedTokens: 100, MinPrefixRuns: 2, MaxPrefixRuns: 50, DeltaBudgetFraction: 0.15,
		AutoDemoteChurn: 0.5, AutoPromoteChurn: 0.2, MinChurnSamples: 3, ChurnDecay: 0.5, IdleReset: 10 * time.Minute,
	}
}

// Validate returns one error per invalid value, with its key.
func (c PromptCache) Validate() []error {
	var p problems
	p.want(c.MinCachedTokens >= 0, "min_cached_tokens: want 0 or more, have %d", c.MinCachedTokens)
	p.want(c.MinPrefixRuns >= 1, "min_prefix_runs: want 1 or more, have %d", c.MinPrefixRuns)
	p.want(c.MaxPrefixRuns >= 1, "max_prefix_runs: want 1 or more, have %d", c.MaxPrefixRuns)
	p.want(c.MinChurnSamples >= 1, "min_churn_samples: want 1 or more, have %d", c.MinChurnSamples)
	share := func(key string, have float64) { p.want(have >= 0 && have <= 1, "%s: want 0 to 1, have %v", key, have) }
	share("delta_budget_fraction", c.DeltaBudgetFraction)
	share("auto_demote_churn", c.AutoDemoteChurn)
	share("auto_promote_churn", c.AutoPromoteChurn)
	share("churn_decay", c.ChurnDecay)
	p.want(!(c.AutoPromoteChurn >= c.AutoDemoteChurn), "auto_promote_churn: want less than auto_demote_churn, which is %v, have %v", c.AutoDemoteChurn, c.AutoPromoteChurn)
	p.want(c.IdleReset >= 0, "idle_reset: want 0 (never) or more, have %v", c.IdleReset)
	return p
}

// Said is a configured layer's current block, and where it may stand. Every configured layer must be passed, in the
// order of blocks; a missing one counts as removed from the configuration.
type Said struct {
	// Block has no texts if the layer says nothing, and its Place is ignored. What is not valid UTF-8 in the texts is replaced,
	// as in any message.
	Block
	Placement layer.Placement
	// Fresh layers are shown as they answer, even inside a run, and no auto placement pins them: a recall that changes the
	// layer's state, or one that follows the tool loop. It matters for live ones only.
	Fresh bool
	// Held: recall did not run, or failed. The last block stays, if it is still known.
	Held bool
	// Quiet: recall did not run, since the layer has no text. The last block does not stay.
	Quiet bool
}

// NothingToPin reports whether an empty Prefix may stay empty: no layer has text, and no recall ran whose empty result would
// have to be kept for the run.
func NothingToPin(layers []Said) bool {
	return !slices.ContainsFunc(layers, func(s Said) bool { return len(s.Texts) > 0 || !s.Held && !s.Quiet })
}

// PrefixRequest is the input of Step for one request.
type PrefixRequest struct {
	// Lineage identifies the prompt cache and the owner of the memory: dialect, model and resource.
	Lineage string
	// SystemPrompt is a hash of the system prompt.
	SystemPrompt string
	// Run identifies the run; a repeated message has another one.
	Run string
	// Loop: the request is not the first of its run. It begins none even where the state does not know the run.
	Loop bool
	// CutMoved: the history begins elsewhere than in the request before, so that the cache after the system prompt is lost.
	CutMoved bool
	// Idle is how long ago the session's last request was.
	Idle time.Duration
	// End is the length of the conversation with this request, in units: new updates and live blocks are placed there.
	// 0 is unknown: they are placed at the end of each view.
	End int
	// View is the approximate size of the view in tokens. 0 is unknown: then updates are compared with the pinned
	// blocks.
	View int
	// Free is how many tokens updates and live blocks may take together; math.MaxInt without a limit.
	Free int
	// Count counts the tokens of a text. It is called for updates when they are published.
	Count func(text string) int
	// Layers are all that are configured, in slot order.
	Layers []Said
}

// PrefixReason is why a prefix version began.
type PrefixReason string

// Reasons, in the order in which they are tried.
const (
	ColdStart           PrefixReason = "cold-start"           // the lineage is unknown
	InstructionsChanged PrefixReason = "instructions-changed" // the system prompt has changed
	Reconfigured        PrefixReason = "reconfigured"         // a pinned layer was removed, or has another placement
	CutMoved            PrefixReason = "cut-moved"
	Idle                PrefixReason = "idle"
	CacheMiss           PrefixReason = "cache-miss"     // the run before was not served from the cache
	MaxAge              PrefixReason = "max-age"        // the version had its runs
	DeltaOverflow       PrefixReason = "delta-overflow" // updates do not fit
	DeltaPressure       PrefixReason = "delta-pressure" // updates take too large a share
)

// Plan places layers' blocks in a view: [system prompt] Anchored [history up to the user message] Live [tool loop],
// with updates where they were first sent.
type Plan struct {
	// Anchored blocks have the same bytes throughout a prefix version, except those too large to pin, which are last.
	Anchored []Block
	// Updates replace blocks of Anchored, at most one per layer, in the order in which they were first sent. None may be left
	// out of a view, or the model would use outdated blocks.
	Updates []Block
	// Live are the blocks of layers that stand after the history.
	Live []Block
	// Reason is why a prefix version begins with this request, empty if none begins.
	Reason PrefixReason
}

// CacheUsage is the cache usage that upstream reported for a request.
type CacheUsage struct {
	Prompt int // tokens, 0 if not reported
	Cached int // of these, read from the cache
	// Reported: Cached was among what upstream said. Without it nothing is known of the cache, which is not 0.
	Reported bool
}
