package pipeline

import (
	"context"
	"math"

	"remora/memory/layer"
	"remora/memory/lru"
	"remora/memory/view"
)

// Guards reports whether any layer judges calls, or whole answers, before the client sees them.
func (p *Pipeline) Guards() bool { return p != nil && p.guard != nil }

// Guard is Begin for a request without a session, or with an unreadable one. Only layers that judge run, so that rules cannot
// be bypassed; they begin without a state, and their new state is dropped. The run is nil if no layer judges.
func (p *Pipeline) Guard(ctx context.Context, tenant string, t layer.Turn, cred Credential) (*Run, error) {
	if !p.Guards() {
		return nil, nil
	}
	t.Execution = "" // whose state a layer may keep in the process
	return p.guard.Begin(ctx, tenant, t, nil, cred)
}

// onlyGuards returns the pipeline with only the hooks that judge, nil if there are none.
func (p *Pipeline) onlyGuards() *Pipeline {
	g := &Pipeline{o: p.o, complaints: p.complaints, byName: make(map[string]*tool)}
	g.o.Policy = view.Policy{Budget: math.Inf(1)}
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
	g.executions = new(lru.Cache[executionKey, *held])
	return g
}
