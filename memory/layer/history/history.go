// Package history is the layer history_manager (SEMANTICS 3): a strategy chooses what of a conversation fits into the
// model's context, what falls out of views is summarised, and summaries, with what else is worth keeping, are remembered
// and told again when a request is about them.
//
// Strategies keep what upstream needs whatever they choose (D11): the current round stays, calls stay with their results,
// no text is cut inside a character, and what stands beside the history is charged once.
package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"remora/memory/budget"
	"remora/memory/layer"
	"remora/memory/summary"
	"remora/wire"
)

// Strategies, as the key strategy names them and as turn records show them (case 120). The source gives
// sliding_window_with_summary the name of sliding_window; here a record says what was configured.
const (
	SlidingWindow            = "sliding_window"
	SlidingWindowWithSummary = "sliding_window_with_summary"
	PriorityBased            = "priority_based"
)

// Whose memories are recalled, as the key recall_from names it, of those that the layer's scope shares.
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
	maxTokens           = 100_000_000 // of any key
)

// Options configures the layer. The zero Options are the source's defaults (case 122).
type Options struct {
	// Strategy is sliding_window, sliding_window_with_summary, which implies enable_summarization, or priority_based;
	// default sliding_window.
	Strategy string `mapstructure:"strategy"`
	// ContextWindowTokens is what the model can read and write at once; default 128000.
	ContextWindowTokens int `mapstructure:"context_window_tokens"`
	// MaxOutputTokens is the part of that which is kept free for the answer; default 16384.
	MaxOutputTokens int `mapstructure:"max_output_tokens"`
	// EnableSummarization summarises what falls out of views, by the layer's model or else as excerpts.
	EnableSummarization bool `mapstructure:"enable_summarization"`
	// EnableLongTermMemory remembers summaries, and tells those that a request is about.
	EnableLongTermMemory bool `mapstructure:"enable_long_term_memory"`
	// RecallTopK is how many memories are told at most; default 5, at most 50, 0 for none.
	RecallTopK *int `mapstructure:"recall_top_k"`
	// MemoryTokenBudget is what memories may cost, and summaries half of it, in tokens; default 2000.
	MemoryTokenBudget int `mapstructure:"memory_token_budget"`
	// RecallFrom is whose memories are told: all that the scope shares, of the same user (or resource) only, or of the
	// same conversation only; default all.
	RecallFrom string `mapstructure:"recall_from"`
	// MemoryTypes are the types of memories that are told: summary, fact, instruction, tool_result, custom; default all.
	MemoryTypes []string `mapstructure:"memory_types"`
	// MemoryMaxAge is how old memories may be to be told; default 0, no limit.
	MemoryMaxAge time.Duration `mapstructure:"memory_max_age"`
	// AgentID marks the memories of this layer, and where it is set others are not told; default none.
	AgentID string `mapstructure:"agent_id"`
	// MemoryTools offers the model the tools remember and forget; default false.
	MemoryTools bool `mapstructure:"memory_tools"`
}

// Defaults are the layer's place and limits with no options set.
func Defaults() layer.Defaults { return DefaultsFor(Options{}) }

// DefaultsFor are the layer's place and limits. Long-term memory is for all sessions of a resource, and is told behind the
// history, since it changes with the question. The budget is what SEMANTICS 3 lets summaries and memories take.
func DefaultsFor(o Options) layer.Defaults {
	tokens := o.MemoryTokenBudget
	if tokens <= 0 {
		tokens = defaultMemoryBudget
	}
	d := layer.Defaults{ID: "history", Slot: 300, Scope: layer.Thread, Budget: budget.Between(0, float64(tokens)/2)}
	if o.EnableLongTermMemory {
		d.Scope, d.Live, d.Budget = layer.Resource, true, budget.Between(0, 1.5*float64(tokens))
	}
	return d
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	o     Options
	topK  int
	types []Type
}

// New returns the layer. The error joins one line per key that is wrong.
func New(o Options) (*Layer, error) {
	l := &Layer{o: o, topK: defaultTopK}
	if o.RecallTopK != nil {
		l.topK = *o.RecallTopK
	}
	errs := []error{
		choice("strategy", &l.o.Strategy, SlidingWindow, SlidingWindowWithSummary, PriorityBased),
		choice("recall_from", &l.o.RecallFrom, FromAll, FromUser, FromConversation),
		within("context_window_tokens", &l.o.ContextWindowTokens, defaultWindow),
		within("max_output_tokens", &l.o.MaxOutputTokens, defaultOutput),
		within("memory_token_budget", &l.o.MemoryTokenBudget, defaultMemoryBudget),
	}
	if l.o.MaxOutputTokens >= l.o.ContextWindowTokens {
		errs = append(errs, fmt.Errorf("max_output_tokens: want less than context_window_tokens, which is %d", l.o.ContextWindowTokens))
	}
	if l.topK < 0 || l.topK > maxTopK {
		errs = append(errs, fmt.Errorf("recall_top_k: want 0 to %d", maxTopK))
	}
	for i, name := range o.MemoryTypes {
		if !slices.Contains(types(), Type(name)) {
			errs = append(errs, fmt.Errorf("memory_types[%d]: want summary, fact, instruction, tool_result or custom", i))
		}
		l.types = append(l.types, Type(name))
	}
	if o.MemoryMaxAge < 0 {
		errs = append(errs, errors.New("memory_max_age: want 0 or more"))
	}
	if o.AgentID != identifier(o.AgentID) {
		errs = append(errs, fmt.Errorf("agent_id: want at most %d bytes of text", maxIdentifier))
	}
	if o.MemoryTools && !o.EnableLongTermMemory {
		errs = append(errs, errors.New("memory_tools: want enable_long_term_memory with it"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return l, nil
}

// choice puts the first word in the place of none, and refuses what is no word of the list.
func choice(key string, have *string, words ...string) error {
	if *have == "" {
		*have = words[0]
	}
	if !slices.Contains(words, *have) {
		return fmt.Errorf("%s: want one of %s", key, strings.Join(words, ", "))
	}
	return nil
}

// within puts the default in the place of zero and refuses what is out of range.
func within(key string, n *int, fallback int) error {
	if *n == 0 {
		*n = fallback
	}
	if *n < 0 || *n > maxTokens {
		return fmt.Errorf("%s: want 1 to %d tokens, or 0 for %d", key, maxTokens, fallback)
	}
	return nil
}

// summarises tells whether what falls out of views is summarised.
func (l *Layer) summarises() bool {
	return l.o.EnableSummarization || l.o.Strategy == SlidingWindowWithSummary
}

// Has tells that what falls out of views matters only with summarisation (case 116), and that tools are offered only if
// they are configured (layer.Selective).
func (l *Layer) Has(hook string) bool {
	switch hook {
	case layer.HookEvicted:
		return l.summarises()
	case layer.HookTools:
		return l.o.MemoryTools
	default:
		return true
	}
}

// Evicted summarises what fell out of a view (case 116). Where the model fails, excerpts stand in, and the error is
// returned beside them.
func (l *Layer) Evicted(ctx context.Context, t *layer.Turn, s layer.State, items []wire.Item) (layer.State, error) {
	if len(items) == 0 || !l.summarises() {
		return s, nil
	}
	text, fault := summarize(ctx, t, items)
	st := decode(s)
	if text = clean(text, maxSummary); text != "" {
		st.addSummary(identifier(t.Thread), text)
		if l.o.EnableLongTermMemory {
			st.Memories.Store(l.entry(t, Summary, text))
		}
	}
	t.Note("evicted", len(items))
	t.Note("summaries", len(st.of(identifier(t.Thread))))
	if text == "" {
		return s, fault
	}
	next, err := st.encode()
	if err != nil {
		return nil, errors.Join(err, fault)
	}
	return next, fault
}

// summarize asks the layer's model, if there is one, else makes excerpts (case 117).
func summarize(ctx context.Context, t *layer.Turn, items []wire.Item) (text string, fault error) {
	if t.Ask != nil {
		if text, fault = summary.Ask(ctx, t.Ask, items); fault == nil {
			return text, nil
		}
		fault = fmt.Errorf("summarize: %w", fault)
	}
	return summary.Extractive(items, summary.MaxChars), fault
}

// entry is something to remember of this turn.
func (l *Layer) entry(t *layer.Turn, of Type, text string) Entry {
	return Entry{
		Type: of, Content: text, Agent: l.o.AgentID, User: identifier(t.Resource), Conversation: identifier(t.Thread),
		At: t.Now.UnixMilli(),
	}
}
