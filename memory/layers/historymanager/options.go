package historymanager

import (
	"time"

	"remora/memory/layer"
)

// Strategies, as configured by the key strategy. Turn records show the configured name, even where two strategies
// choose alike.
const (
	SlidingWindow            = "sliding_window"
	SlidingWindowWithSummary = "sliding_window_with_summary"
	PriorityBased            = "priority_based"
)

// Values of the key recall_from: which memories are recalled, among those that the layer's scope shares.
const (
	FromAll          = "all"
	FromUser         = "user"
	FromConversation = "conversation"
)

const (
	defaultWindow       = 128000 // tokens
	defaultOutput       = 16384  // tokens
	defaultTopK         = 5
	defaultMemoryBudget = 2000 // tokens
	maxTopK             = 50
	maxExcerpt          = 2000        // characters of excerpts
	maxTokens           = 100_000_000 // of any key
)

// Options configures the layer. The zero Options are the defaults.
type Options struct {
	// Strategy is sliding_window, sliding_window_with_summary, which implies enable_summarization, or priority_based;
	// default sliding_window.
	Strategy string `mapstructure:"strategy"`
	// ContextWindowTokens is the model's context window, input and output; default 128000.
	ContextWindowTokens int `mapstructure:"context_window_tokens"`
	// MaxOutputTokens is the part of that which is kept free for the answer; default 16384.
	MaxOutputTokens int `mapstructure:"max_output_tokens"`
	// EnableSummarization summarises what falls out of views, by the layer's model or else as excerpts.
	EnableSummarization bool `mapstructure:"enable_summarization"`
	// MaxChars is how long one part of a summary of excerpts may be, in characters; default 500, at most 2000.
	MaxChars int `mapstructure:"max_chars"`
	// EnableLongTermMemory stores summaries, and recalls them when a request is about them.
	EnableLongTermMemory bool `mapstructure:"enable_long_term_memory"`
	// RecallTopK is the maximum number of memories in the block; default 5, at most 50, 0 for none.
	RecallTopK *int `mapstructure:"recall_top_k"`
	// MemoryTokenBudget limits recalled memories, in tokens; summaries get half of it. Default 2000.
	MemoryTokenBudget int `mapstructure:"memory_token_budget"`
	// RecallFrom selects the memories to recall: all that the scope shares, only the same user's (or resource's), or
	// only the same conversation's; default all.
	RecallFrom string `mapstructure:"recall_from"`
	// MemoryTypes are the types of memories that are shown: summary, fact, instruction, tool_result, custom; default all.
	MemoryTypes []string `mapstructure:"memory_types"`
	// MemoryMaxAge is the maximum age of shown memories; default 0, no limit.
	MemoryMaxAge time.Duration `mapstructure:"memory_max_age"`
	// AgentID marks the memories of this layer; if set, no others are shown; default none.
	AgentID string `mapstructure:"agent_id"`
	// MemoryTools offers the model the tools remember and forget; default false.
	MemoryTools bool `mapstructure:"memory_tools"`
}

// Defaults returns the layer's place and limits. Long-term memory is shared by the sessions of a resource and stands
// behind the history, since it changes with the question. The budget is the default cost of summaries and memories.
func Defaults(o Options) layer.Defaults {
	tokens := o.MemoryTokenBudget
	if tokens <= 0 {
		tokens = defaultMemoryBudget
	}
	d := layer.Defaults{ID: "history", Slot: 300, Scope: layer.Thread, Budget: layer.AtMost(float64(tokens) / 2)}
	if o.EnableLongTermMemory {
		d.Scope, d.Placement, d.Budget = layer.Resource, layer.AutoLive, layer.AtMost(1.5*float64(tokens))
	}
	return d
}
