package pipeline

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"remora/memory/layer"
)

// errAllocation is the code for invalid numbers in an allocation.
var errAllocation = errors.New("INVALID_BUDGET_INPUT")

// layersPart is the layers' share of the tokens left after the minimums. The rest is reserved for the history.
const layersPart = 0.6

// allocation is a budget to divide. All numbers are tokens. Infinity is allowed except in a minimum.
type allocation struct {
	Layers  []layer.Budget // one per layer, in any order
	Total   float64        // the model's window, or what the operator wants to use of it
	System  float64        // what system messages and instructions cost
	Reserve float64        // kept free for the answer
}

// allocate returns the tokens that each layer may recall, with fractions, in the order of allocation.Layers. It divides the
// total minus system and reserve: first every layer's minimum; of the rest, 60 % by the layers' headroom. The other 40 % is
// reserved for the history, which also gets the unused tokens of the shares. Automatic layers get at least half of the 60 %. If
// the minimums exceed the total, all are reduced in proportion and rounded down. The result does not depend on the order of the
// layers, not even in the last bit.
//
// Errors wrap errAllocation: a number that is NaN, or a minimum that is negative, infinite or above 2^53.
func allocate(in allocation) ([]float64, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	out := make([]float64, len(in.Layers))
	available := in.Total - in.Reserve - in.System
	if !(available > 0) { // also where infinity less infinity is no number: nothing can be promised
		return out, nil
	}
	mins := make([]float64, len(in.Layers))
	for i, b := range in.Layers {
		mins[i] = b.Min()
	}
	minimum := sum(mins)
	remaining := available - minimum
	if remaining < 0 {
		for i, m := range mins {
			out[i] = math.Floor(m * available / minimum)
		}
		return out, nil
	}
	for i, s := range divide(in.Layers, layersPart*remaining) {
		out[i] = mins[i] + s
	}
	return out, nil
}

func (in allocation) check() error {
	for _, n := range []struct {
		name  string
		value float64
	}{{"total", in.Total}, {"system", in.System}, {"reserve", in.Reserve}} {
		if math.IsNaN(n.value) {
			return fmt.Errorf("%s: %w: want a number, have NaN", n.name, errAllocation)
		}
	}
	for i, b := range in.Layers {
		if err := b.Validate(); err != nil {
			return fmt.Errorf("layers[%d]: %w: %w", i, errAllocation, err)
		}
	}
	return nil
}

// divide divides pool among layers by their headroom. Layers without a limit have no headroom: layers with one get at most half
// of the pool together, and the others split the rest.
func divide(layers []layer.Budget, pool float64) []float64 {
	headrooms := make([]float64, 0, len(layers))
	for _, b := range layers {
		if !math.IsInf(b.Max(), 1) {
			headrooms = append(headrooms, b.Headroom())
		}
	}
	weighed, total := pool, sum(headrooms)
	unlimited := len(layers) - len(headrooms)
	if unlimited > 0 {
		weighed = pool / 2
	}
	out := make([]float64, len(layers))
	given := headrooms[:0]
	for i, b := range layers {
		if !math.IsInf(b.Max(), 1) {
			out[i] = partOf(b.Headroom(), total, weighed)
			given = append(given, out[i])
		}
	}
	if unlimited == 0 {
		return out
	}
	each := pool
	if !math.IsInf(pool, 1) { // else even the sum of what was given may be infinite
		each = (pool - sum(given)) / float64(unlimited)
	}
	for i, b := range layers {
		if math.IsInf(b.Max(), 1) {
			out[i] = each
		}
	}
	return out
}

// partOf returns a layer's part of pool, never more than its headroom h, which is a part of total.
func partOf(h, total, pool float64) float64 {
	if h == 0 || math.IsInf(pool, 1) { // 0/0 and 0*Inf are no numbers
		return h
	}
	return min(h, h/total*pool)
}

// sum adds from the smallest to the largest, so that it does not depend on the order given.
func sum(values []float64) float64 {
	if len(values) == 1 {
		return values[0]
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	var s float64
	for _, v := range sorted {
		s += v
	}
	return s
}
