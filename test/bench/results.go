package main

import (
	"math"
	"slices"
	"time"
)

// results are values by variant, measure and round, NaN for none.
type results map[string]map[measure][]float64

func (r results) put(variant string, m measure, round int, value float64) {
	if r[variant] == nil {
		r[variant] = map[measure][]float64{}
	}
	s := r[variant][m]
	for len(s) <= round {
		s = append(s, math.NaN())
	}
	s[round] = value
	r[variant][m] = s
}

func (r results) median(variant string, m measure) float64 { return median(r[variant][m]) }

// compared returns the median over the rounds of f for two variants. Both are measured within seconds in each round, so that
// noise of the machine affects both alike.
func (r results) compared(a, b string, m measure, f func(a, b float64) float64) float64 {
	x, y := r[a][m], r[b][m]
	var each []float64
	for i := range min(len(x), len(y)) {
		each = append(each, f(x[i], y[i]))
	}
	return median(each)
}

// median ignores NaN.
func median(values []float64) float64 {
	v := slices.DeleteFunc(slices.Clone(values), math.IsNaN)
	slices.Sort(v)
	if n := len(v); n > 0 && n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return quantile(v, 0.5)
}

// quantile returns the value below which a share of the sorted values is, NaN if there are none.
func quantile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	i := int(math.Ceil(share*float64(len(sorted)))) - 1
	return sorted[min(max(i, 0), len(sorted)-1)]
}

// millis returns durations in milliseconds, sorted.
func millis(durations []time.Duration) []float64 {
	ms := make([]float64, len(durations))
	for i, d := range durations {
		ms[i] = d.Seconds() * 1e3
	}
	slices.Sort(ms)
	return ms
}

func ratio(a, b float64) float64 { return a / b }

func difference(a, b float64) float64 { return a - b }
