package layertest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"sync"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/test/kit"
)

// counter is a layer that counts its turns and tells the model.
type counter struct{}

func (counter) Init(_ context.Context, _ *layer.Turn, stored layer.State) (layer.State, error) {
	var n int8
	if err := json.Unmarshal(stored, &n); err == nil && n >= 0 {
		return stored, nil
	}
	return nil, nil
}

func (counter) Recall(_ context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	text := layer.Block("turns", string(s))
	if cost := t.Count(text); s != nil && cost <= budget {
		return layer.OneBlock(text), nil
	}
	return layer.Recalled{NoRoom: s != nil}, nil
}

func (counter) Store(_ context.Context, _ *layer.Turn, s layer.State, _ *layer.Response) (layer.State, error) {
	var n int8
	if err := json.Unmarshal(s, &n); s != nil && err != nil {
		return nil, err
	}
	return json.Marshal(n%100 + 1)
}

func TestGoodLayerPasses(t *testing.T) {
	layertest.Run(t, func() any { return counter{} }, layertest.States(layer.State(`7`)))
}

// brokenEnv names the promise that the layer of a child breaks. The child is the re-executed test binary.
const brokenEnv = "REMORA_LAYERTEST_BROKEN"

// broken is a counter whose hooks are replaced.
type broken struct {
	counter
	init   func(stored layer.State) (layer.State, error)
	recall func(t *layer.Turn, s layer.State) layer.Recalled
	store  func(s layer.State, r *layer.Response) (layer.State, error)
}

func (b *broken) Init(ctx context.Context, t *layer.Turn, stored layer.State) (layer.State, error) {
	if b.init != nil {
		return b.init(stored)
	}
	return b.counter.Init(ctx, t, stored)
}

func (b *broken) Recall(ctx context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	if b.recall != nil {
		return b.recall(t, s), nil
	}
	return b.counter.Recall(ctx, t, s, budget)
}

func (b *broken) Store(ctx context.Context, t *layer.Turn, s layer.State, r *layer.Response) (layer.State, error) {
	if b.store != nil {
		return b.store(s, r)
	}
	return b.counter.Store(ctx, t, s, r)
}

// stateless is a counter that says that it has no state.
type stateless struct{ counter }

func (stateless) Stateless() bool { return true }

// nameless is a counter with a tool that upstreams refuse.
type nameless struct{ counter }

func (nameless) Tools() []layer.Tool {
	run := func(context.Context, *layer.Turn, layer.State, []byte) (string, layer.State, error) {
		return "", nil, nil
	}
	return []layer.Tool{{Name: "a tool", Description: "Does something.", Parameters: []byte(`{"type":"object"}`), Run: run}}
}

// shared is a layer that counts the turns of all sessions together.
func shared() any {
	var mu sync.Mutex
	n := 0
	return &broken{store: func(layer.State, *layer.Response) (layer.State, error) {
		mu.Lock()
		defer mu.Unlock()
		n++
		return json.Marshal(n % 100)
	}}
}

// promises are layers that break a promise, by the subtest that must fail.
var promises = map[string]func() any{ //nolint:gochecknoglobals // constants
	"HasHook": func() any { return struct{}{} },
	"Tools":   func() any { return nameless{} },
	"InputsKept": func() any {
		return &broken{store: func(s layer.State, r *layer.Response) (layer.State, error) {
			r.Items[0].Raw[1] = ' '
			return s, nil
		}}
	},
	"Budget": func() any {
		return &broken{recall: func(_ *layer.Turn, s layer.State) layer.Recalled {
			return layer.Recalled{Messages: []string{layer.Block("turns", fmt.Sprintf("Turns so far: %q.", s))}}
		}}
	},
	"Escaped": func() any {
		return &broken{recall: func(t *layer.Turn, _ layer.State) layer.Recalled {
			return layer.Recalled{Messages: []string{"<said>" + t.Query + "</said>"}}
		}}
	},
	"AnyState": func() any {
		return &broken{init: func(stored layer.State) (layer.State, error) {
			if stored != nil && !json.Valid(stored) {
				return nil, errors.New("the state is damaged")
			}
			return stored, nil
		}}
	},
	"BoundedState": func() any {
		return &broken{
			init: func(stored layer.State) (layer.State, error) { return stored, nil },
			store: func(s layer.State, r *layer.Response) (layer.State, error) {
				var all []string
				_ = json.Unmarshal(s, &all) // empty at first
				return json.Marshal(append(all, r.Text+string(r.Input[0].Raw)))
			},
		}
	},
	"Stateless":     func() any { return stateless{} },
	"Deterministic": shared,
	"SessionsApart": shared,
	"ManySessions":  shared,
}

// TestBroken runs the suite on a broken layer, in a child.
func TestBroken(t *testing.T) {
	open := promises[os.Getenv(brokenEnv)]
	if open == nil {
		t.Skip("TestBrokenLayersFail runs it in a child")
	}
	layertest.Run(t, open, layertest.States(layer.State(`7`)))
}

// TestBrokenLayersFail: a layer that breaks a promise fails in the subtest of that promise.
func TestBrokenLayersFail(t *testing.T) {
	t.Parallel()
	kit.WantFailures(t, brokenEnv, maps.Keys(promises))
}
