package budget

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrInput is the code for an input of [Allocate] that no allocation can be made from.
var ErrInput = errors.New("INVALID_BUDGET_INPUT")

// How what is left after the minimums is divided.
const (
	layersPart  = 0.6
	historyPart = 0.4
)

// Input is what [Allocate] divides. All numbers are tokens. Infinity is allowed everywhere but in a minimum.
type Input struct {
	Layers  []Budget // one per layer, in any order
	Total   float64  // the model's window, or what the operator wants to use of it
	System  float64  // what system messages and instructions cost
	Reserve float64  // kept free for the answer
}

// Allocation is how a window is divided. All numbers are tokens, with fractions.
type Allocation struct {
	Layers []float64 // one per layer, in the order of Input.Layers
	// History is what the history can count on. It gets more where layers recall less than their share.
	History float64
}

// Allocate divides what system and reserve leave of the total: first every layer's minimum; of the rest, 60 % goes to
// the layers by their headroom and 40 % to the history. Automatic layers share at least half of the layers' part.
// Where the minimums alone are too much, each is cut in proportion and rounded down, and nothing is left for the
// history. The order of the layers changes nothing, not even in the last bit.
//
// Errors wrap [ErrInput]: a number that is NaN, or a minimum that is negative, infinite or above 2^53.
func Allocate(in Input) (Allocation, error) {
	if err := in.check(); err != nil {
		return Allocation{}, err
	}
	out := Allocation{Layers: make([]float64, len(in.Layers))}
	available := in.Total - in.Reserve - in.System
	if !(available > 0) { // also where infinity less infinity is no number: nothing can be promised
		return out, nil
	}
	mins := make([]float64, len(in.Layers))
	for i, b := range in.Layers {
		mins[i] = b.min
	}
	minimum := sum(mins)
	remaining := available - minimum
	if remaining < 0 {
		for i, m := range mins {
			out.Layers[i] = math.Floor(m * available / minimum)
		}
		return out, nil
	}
	for i, s := range shares(in.Layers, layersPart*remaining) {
		out.Layers[i] = mins[i] + s
	}
	out.History = historyPart * remaining
	return out, nil
}

func (in Input) check() error {
	for _, n := range []struct {
		name  string
		value float64
	}{{"total", in.Total}, {"system", in.System}, {"reserve", in.Reserve}} {
		if math.IsNaN(n.value) {
			return fmt.Errorf("%s: %w: want a number, have NaN", n.name, ErrInput)
		}
	}
	for i, b := range in.Layers {
		if err := checkMin("min", b.min); err != nil {
			return fmt.Errorf("layers[%d]: %w: %w", i, ErrInput, err)
		}
		if math.IsNaN(b.max) {
			return fmt.Errorf("layers[%d]: %w: max: want a number, have NaN", i, ErrInput)
		}
	}
	return nil
}

// shares divides pool among layers by their headroom. A layer without limit cannot be weighed against others: layers
// with one get at most half of the pool together, and those without split what these leave.
func shares(layers []Budget, pool float64) []float64 {
	var headrooms []float64
	for _, b := range layers {
		if b.limited {
			headrooms = append(headrooms, b.headroom())
		}
	}
	weighed, total := pool, sum(headrooms)
	unlimited := len(layers) - len(headrooms)
	if unlimited > 0 {
		weighed = pool / 2
	}
	out := make([]float64, len(layers))
	var given []float64
	for i, b := range layers {
		if b.limited {
			out[i] = share(b.headroom(), total, weighed)
			given = append(given, out[i])
		}
	}
	each := pool
	if !math.IsInf(pool, 1) { // else even the sum of what was given may be infinite
		each = (pool - sum(given)) / float64(unlimited)
	}
	for i, b := range layers {
		if !b.limited {
			out[i] = each
		}
	}
	return out
}

// share is a layer's part of pool, never more than its headroom h, which is a part of total.
func share(h, total, pool float64) float64 {
	if h == 0 || math.IsInf(pool, 1) { // 0/0 and 0*Inf are no numbers
		return h
	}
	return min(h, h/total*pool)
}

// sum adds from the smallest to the largest, so that it does not depend on the order given.
func sum(values []float64) float64 {
	var s float64
	for _, v := range slices.Sorted(slices.Values(values)) {
		s += v
	}
	return s
}
