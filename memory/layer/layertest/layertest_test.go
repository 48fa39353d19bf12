package layertest_test

import (
	"context"
	"encoding/json"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
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
		return layer.Recalled{Messages: []string{text}, Tokens: cost}, nil
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
