package layertest

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"remora/memory/layer"
)

// maxDamaged is how many damaged forms of each good state are tried.
const maxDamaged = 40

// wrong replaces parts of a good state: every type of JSON, at its limits.
var wrong = []string{
	`null`, `true`, `-1`, `9223372036854775807`, `1e400`, `0.5`, `""`, `"x` + closing + `"`, `[]`, `[null]`, `[[0]]`, `{}`,
	`{"":{"":null}}`, `"\ud800"`,
}

// damaged are states that no layer wrote: empty, cut, of the wrong types, too deep, and random ones.
func damaged(good []layer.State) []layer.State {
	const deep = 20_000 // encoding/json gives up at 10,000
	out := []layer.State{
		nil,
		{},
		layer.State(`{`), layer.State(`}`), layer.State("\x00"), layer.State("\xff\xfe{}"), layer.State(`{"a":1}{"a":2}`),
		layer.State(strings.Repeat("[", deep)),
		layer.State(strings.Repeat("[", deep) + strings.Repeat("]", deep)),
		layer.State(strings.Repeat(`{"a":`, deep) + "1" + strings.Repeat("}", deep)),
		layer.State(strings.Repeat(`{"a":`, 2000) + "1" + strings.Repeat("}", 2000)),
	}
	for _, w := range wrong {
		out = append(out, layer.State(w))
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // not a secret: the same bytes on every run
	for range 16 {
		b := make(layer.State, random.IntN(64))
		for i := range b {
			b[i] = byte(random.UintN(256)) //nolint:gosec // below 256
		}
		out = append(out, b)
	}
	for _, g := range good {
		if len(g) > 0 {
			out = append(append(out, g[:len(g)/2], g[:len(g)-1]), thin(replacements(g))...)
		}
	}
	return out
}

// thin leaves maxDamaged states, spread evenly.
func thin(states []layer.State) []layer.State {
	if len(states) <= maxDamaged {
		return states
	}
	var out []layer.State
	for i := range maxDamaged {
		out = append(out, states[i*len(states)/maxDamaged])
	}
	return out
}

// replacements are the state with each value in it, in turn, replaced by each of wrong.
func replacements(good layer.State) []layer.State {
	var v any
	if json.Unmarshal(good, &v) != nil {
		return nil
	}
	var out []layer.State
	spots(v, func(set func(any)) {
		for _, w := range wrong {
			set(json.RawMessage(w))
			if raw, err := json.Marshal(v); err == nil {
				out = append(out, raw)
			}
		}
	})
	return out
}

// spots calls at for every value in v but itself, with a function that replaces it, and puts the value back afterwards.
func spots(v any, at func(set func(any))) {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			was := v[k]
			at(func(w any) { v[k] = w })
			v[k] = was
			spots(was, at)
		}
	case []any:
		for i, was := range v {
			at(func(w any) { v[i] = w })
			v[i] = was
			spots(was, at)
		}
	}
}
