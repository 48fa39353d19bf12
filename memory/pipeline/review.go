package pipeline

import (
	"context"
	"strings"

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

// ReviewCall asks the reviewers of tool calls, in slot order, until one denies. The strongest decision counts. A
// reviewer that fails decides nothing.
func (r *review) ReviewCall(ctx context.Context, c layer.ToolCall) layer.Verdict {
	var all decision
	for _, m := range r.layers {
		if m.off || m.reviewCall == nil {
			continue
		}
		v, ok := judge(ctx, m, layer.HookReviewToolCall, func(ctx context.Context, s layer.State) (layer.Verdict, error) {
			return m.reviewCall.ReviewToolCall(ctx, m.turn, s, c)
		})
		if ok && all.add(v) {
			break
		}
	}
	return all.verdict()
}

// judge returns a reviewer's verdict, not ok if it fails.
func judge(ctx context.Context, m *runningLayer, hook string, ask func(context.Context, layer.State) (layer.Verdict, error)) (v layer.Verdict, ok bool) {
	v, err := update(ctx, m, hook, func(ctx context.Context, s layer.State) (layer.Verdict, layer.State, error) {
		v, err := ask(ctx, s)
		return v, unlessNil(v.State, s), err
	})
	return v, err == nil
}

// ReviewResponse asks the reviewers of responses, in slot order, until one denies. Asynchronous reviewers are called, too, but
// do not decide. A reviewer that fails decides nothing.
func (r *review) ReviewResponse(ctx context.Context, resp *layer.Response) layer.Verdict {
	var all decision
	for _, m := range r.layers {
		if m.off || m.reviewAll == nil {
			continue
		}
		v, ok := judge(ctx, m, layer.HookReviewResponse, func(ctx context.Context, s layer.State) (layer.Verdict, error) {
			return m.reviewAll.ReviewResponse(ctx, m.turn, s, resp)
		})
		if ok && !m.async && all.add(v) {
			break
		}
	}
	return all.verdict()
}

// decision aggregates verdicts: deny over guide over allow, with one guidance per line. An empty guidance never erases another.
type decision struct {
	action  layer.Action
	advice  []string // of those that guide
	refusal string   // of the one that denies
}

// add takes a verdict into the decision, and reports whether the decision is final.
func (d *decision) add(v layer.Verdict) bool {
	text := layer.Head(v.Guidance, maxGuidance)
	switch {
	case v.Action >= layer.Deny: // unknown actions deny
		d.action, d.refusal = layer.Deny, text
		return true
	case v.Action == layer.Guide:
		d.action = layer.Guide
		if text != "" {
			d.advice = append(d.advice, text)
		}
	default:
	}
	return false
}

func (d *decision) verdict() layer.Verdict {
	v := layer.Verdict{Action: d.action, Guidance: d.refusal}
	if v.Guidance == "" {
		v.Guidance = strings.Join(d.advice, "\n")
	}
	return v
}
