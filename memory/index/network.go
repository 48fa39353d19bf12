package index

import "math"

// A search has two stages. All turns are scored by a sum of weighted features; then the best are scored again by
// combinations of features: a hidden layer of a few units, whose output is added. The mean of several such layers
// counts.
const (
	Finalists = 120 // turns that the second stage scores
	Units     = 8   // of a hidden layer
	Networks  = 3   // hidden layers
)

// hiddenUnit is a unit of a hidden layer: tanh of the weighted features and a bias, times output.
type hiddenUnit struct {
	weights      featureVector
	bias, output float32
}

type network [Units]hiddenUnit

// second returns the second stage's addition to a turn's score.
func second(v *featureVector) float32 {
	var at [featureCount]int // of the features that are not 0: about half
	n := 0
	for i, f := range v {
		if f != 0 {
			at[n] = i
			n++
		}
	}
	sum := float32(0)
	for i := range networks {
		for k := range networks[i] {
			u := &networks[i][k]
			x := u.bias
			for _, j := range at[:n] {
				x += v[j] * u.weights[j]
			}
			sum += u.output * float32(math.Tanh(float64(x)))
		}
	}
	return sum / Networks
}
