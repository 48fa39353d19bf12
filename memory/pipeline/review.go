package pipeline

import (
	"context"
	"math"
	"strings"

	"remora/memory/budget"
	"remora/memory/layer"
)

// Guards tells whether any layer judges calls, or whole answers, before the client sees them.
func (p *Pipeline) Guards() bool { return p != nil && p.guard != nil }

// Guard is Begin for a request that layers neither add to nor learn from: one without a session, or one whose session
// cannot be read. Those that judge what the model wants still do, so that nobody gets around them; they begin with no
// state, and what they make of it is forgotten. The run is nil where no layer judges.
func (p *Pipeline) Guard(ctx context.Context, tenant string, t layer.Turn, cred Credential) (*Run, error) {
	if !p.Guards() {
		return nil, nil
	}
	t.Execution = "" // whose state a layer may keep in the process
	return p.guard.Begin(ctx, tenant, t, nil, cred)
}

// onlyGuards is the pipeline with no hooks but those that judge, nil where none does.
func (p *Pipeline) onlyGuards() *Pipeline {
	g := &Pipeline{o: p.o, free: math.Inf(1), byName: make(map[string]*tool)}
	g.o.Policy = budget.Policy{Budget: math.Inf(1)}
	for _, u := range p.layers {
		only := &unit{Layer: u.Layer, init: u.init, reviewCall: u.reviewCall}
		if only.Scope = layer.Execution; !u.async {
			only.reviewAll = u.reviewAll
		}
		if only.reviewCall != nil || only.reviewAll != nil {
			g.layers = append(g.layers, only)
		}
	}
	if len(g.layers) == 0 {
		return nil
	}
	g.executions = newLRU[executionKey, *held](1, keptBytes)
	g.recalls = newLRU[recallKey, recalled](1, keptBytes)
	return g
}

// ReviewsCalls tells whether tool calls have to be held back until ReviewCall has judged them.
func (r *Run) ReviewsCalls() bool {
	return r.any(func(m *member) bool { return m.reviewCall != nil })
}

// HoldsResponse tells whether answers have to be held back until ReviewResponse has judged them.
func (r *Run) HoldsResponse() bool {
	return r.any(func(m *member) bool { return m.reviewAll != nil && !m.async })
}

func (r *Run) any(is func(*member) bool) bool {
	if r.none() {
		return false
	}
	for _, m := range r.members {
		if !m.off && is(m) {
			return true
		}
	}
	return false
}

// ReviewCall asks the reviewers of tool calls, in slot order, until one denies. The strongest decision counts. A
// reviewer that fails decides nothing.
func (r *Run) ReviewCall(ctx context.Context, wanted layer.ToolCall) layer.Verdict {
	var all decision
	if r.none() {
		return all.verdict()
	}
	c := wanted
	c.Name = r.ToolName(c.Name)
	for _, m := range r.members {
		if m.off || m.reviewCall == nil {
			continue
		}
		v, err := update(ctx, r, m, layer.HookReviewToolCall,
			func(ctx context.Context, s layer.State) (layer.Verdict, layer.State, error) {
				v, err := m.reviewCall.ReviewToolCall(ctx, m.turn, s, c)
				return v, unlessNil(v.State, s), err
			})
		if err == nil && all.add(v) {
			break
		}
	}
	return all.verdict()
}

// ReviewResponse asks the reviewers of responses, in slot order, until one denies. Those that are asynchronous are asked
// too, but whatever they say comes too late to count. A reviewer that fails decides nothing.
func (r *Run) ReviewResponse(ctx context.Context, resp *layer.Response) layer.Verdict {
	var all decision
	if r.none() {
		return all.verdict()
	}
	for _, m := range r.members {
		if m.off || m.reviewAll == nil {
			continue
		}
		v, err := update(ctx, r, m, layer.HookReviewResponse,
			func(ctx context.Context, s layer.State) (layer.Verdict, layer.State, error) {
				v, err := m.reviewAll.ReviewResponse(ctx, m.turn, s, resp)
				return v, unlessNil(v.State, s), err
			})
		if err == nil && !m.async && all.add(v) {
			break
		}
	}
	return all.verdict()
}

// decision aggregates verdicts: deny over guide over allow, guidances one a line (SEMANTICS 1.7). An empty guidance
// never erases another.
type decision struct {
	action  layer.Action
	advice  []string // of those that guide
	refusal string   // of the one that denies
}

// add tells whether nothing can change the decision any more.
func (d *decision) add(v layer.Verdict) bool {
	text := cut(v.Guidance, maxGuidance)
	switch {
	case v.Action >= layer.Deny: // what is no action of ours is not let through
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
