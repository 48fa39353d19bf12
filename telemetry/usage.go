package telemetry

import (
	"encoding/json"
	"strconv"
)

// Usage is what a call has cost, in tokens.
type Usage struct {
	// Input holds Cached, what was read from the provider's prompt cache. Output holds Reasoning.
	Input, Cached, Output, Reasoning int64
	// Known tells that upstream has said it, and CacheKnown that it has said what was cached, if that was nothing.
	Known, CacheKnown bool
}

const (
	maxUsage  = 64 << 10 // bytes of a usage object
	maxTokens = 1e12
)

// ParseUsage reads an upstream's usage object, as Chat Completions or Responses spell it. What can't be read counts as
// nothing; the result is never negative.
func ParseUsage(raw []byte) Usage {
	if len(raw) == 0 || len(raw) > maxUsage {
		return Usage{}
	}
	type details struct {
		Cached    *tokens `json:"cached_tokens"`
		Reasoning tokens  `json:"reasoning_tokens"`
	}
	var u *struct {
		Prompt     tokens  `json:"prompt_tokens"`
		Completion tokens  `json:"completion_tokens"`
		PromptD    details `json:"prompt_tokens_details"`
		CompletD   details `json:"completion_tokens_details"`
		Input      tokens  `json:"input_tokens"`
		Output     tokens  `json:"output_tokens"`
		InputD     details `json:"input_tokens_details"`
		OutputD    details `json:"output_tokens_details"`
	}
	_ = json.Unmarshal(raw, &u) // a member of a wrong type leaves the others as they are
	if u == nil {
		return Usage{}
	}
	out := Usage{
		Input:     int64(max(u.Prompt, u.Input)),
		Output:    int64(max(u.Completion, u.Output)),
		Reasoning: int64(max(u.CompletD.Reasoning, u.OutputD.Reasoning)),
	}
	for _, cached := range []*tokens{u.PromptD.Cached, u.InputD.Cached} {
		if cached != nil {
			out.Cached, out.CacheKnown = max(out.Cached, int64(*cached)), true
		}
	}
	out.Known = out.Input > 0 || out.Output > 0
	return out
}

// tokens is a count as foreign JSON has it: any other value than a sensible number is 0.
type tokens int64

// UnmarshalJSON never fails: what can't be read counts as nothing.
func (t *tokens) UnmarshalJSON(raw []byte) error {
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil || f < 0 || f > maxTokens {
		f = 0
	}
	*t = tokens(f)
	return nil
}
