package pipeline

import (
	"context"

	"remora/memory/layer"
)

// review is the hooks that judge tool calls and answers.
type review struct {
	*layerSet
}

// ReviewsCalls reports whether tool calls must be held back until ReviewCall has judged them.
func (r *review) ReviewsCalls() bool {
	return r.any(func(m *runningLayer) bool { return m.reviewCall != nil })
}

// HoldsResponse reports whether answers must be held back until ReviewResponse has judged them.
func (r *review) HoldsResponse() bool {
	return r.any(func(m *runningLayer) bool { return m.reviewAll != nil && !m.async })
}

// ReviewCall asks the reviewers of tool calls.
func (r *review) ReviewCall(ctx context.Context, c layer.ToolCall) layer.Verdict {
	reviews := func(m *runningLayer) bool { return m.reviewCall != nil }
	return r.judge(ctx, layer.HookReviewToolCall, reviews, func(ctx context.Context, m *runningLayer, s layer.State) (layer.Verdict, error) {
		return m.reviewCall.ReviewToolCall(ctx, m.turn, s, c)
	})
}

// ReviewResponse asks the reviewers of responses. Asynchronous ones are called, too, but do not decide.
func (r *review) ReviewResponse(ctx context.Context, resp *layer.Response) layer.Verdict {
	reviews := func(m *runningLayer) bool { return m.reviewAll != nil }
	return r.judge(ctx, layer.HookReviewResponse, reviews, func(ctx context.Context, m *runningLayer, s layer.State) (layer.Verdict, error) {
		v, err := m.reviewAll.ReviewResponse(ctx, m.turn, s, resp)
		if m.async {
			v.Action = layer.Allow
		}
		return v, err
	})
}

// judge asks reviewers, in slot order, until one denies. One that fails decides nothing.
func (r *review) judge(
	ctx context.Context, hook string, reviews func(*runningLayer) bool, ask func(context.Context, *runningLayer, layer.State) (layer.Verdict, error),
) (all layer.Verdict) {
	for _, m := range r.layers {
		if m.off || !reviews(m) {
			continue
		}
		v, err := update(ctx, m, hook, func(ctx context.Context, s layer.State) (layer.Verdict, layer.State, error) {
			v, err := ask(ctx, m, s)
			return v, unlessNil(v.State, s), err
		})
		if err != nil {
			continue
		}
		// Unknown actions deny.
		all = all.With(layer.Verdict{Action: min(v.Action, layer.Deny), Guidance: layer.Head(v.Guidance, maxGuidance)})
		if all.Action == layer.Deny {
			break
		}
	}
	return all
}
