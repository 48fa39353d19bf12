package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"remora/memory/index"
)

// sample is a question with the features of all turns of its dialogue.
type sample struct {
	dialogue int
	question *question
	features []float32 // of all turns, consecutively
	sessions []int     // of each turn
	count    int       // turns
}

// samplesOf computes the samples of all questions. Turns have the same indexes as in their dialogue.
func samplesOf(all []dialogue) []*sample {
	width := len(index.Features())
	var samples []*sample
	for n := range all {
		d := &all[n]
		ix := index.New()
		for _, t := range d.turns {
			ix.Add(t)
		}
		for i := range d.questions {
			s := &sample{
				dialogue: n, question: &d.questions[i], count: len(d.turns),
				features: make([]float32, 0, width*len(d.turns)), sessions: make([]int, 0, len(d.turns)),
			}
			ix.Samples(index.Question{Text: s.question.text}, func(_, session int, features []float32) {
				s.features = append(s.features, features...)
				s.sessions = append(s.sessions, session)
			})
			samples = append(samples, s)
		}
	}
	return samples
}

// scores returns the turns' scores, nil if no turn matches the question.
func (s *sample) scores(weights []float32) []float32 {
	if len(s.features) == 0 {
		return nil
	}
	width := len(weights)
	out := make([]float32, s.count)
	for i := range out {
		row, sum := s.features[i*width:(i+1)*width], float32(0)
		for j, w := range weights {
			sum += row[j] * w
		}
		out[i] = sum
	}
	return out
}

// softmax replaces scores by their softmax.
func softmax(scores []float32) {
	top := float32(math.Inf(-1))
	for _, s := range scores {
		top = max(top, s)
	}
	sum := float32(0)
	for i, s := range scores {
		scores[i] = float32(math.Exp(float64(s - top)))
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
}

// Weights are fitted with Adam. The loss is the cross-entropy between the softmax over a dialogue's turns and its evidence.
// Half of it is that of sessions, each with the sum of its turns.
const (
	learningRate = .05
	batchSize    = 64
	decay        = 2e-3
	passes       = 12
	sessionShare = .5
	beta1, beta2 = .9, .999
)

// adam fits weights in place. descend adds the gradient of one sample's loss.
func adam[T any](weights []float32, samples []T, random *rand.Rand, rate, decay float64, descend func(s T, gradient []float32)) {
	m, v := make([]float64, len(weights)), make([]float64, len(weights))
	step := 0
	for range passes {
		random.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		for batch := range slices.Chunk(samples, batchSize) {
			gradient := make([]float32, len(weights))
			for _, s := range batch {
				descend(s, gradient)
			}

			step++
			bias1, bias2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
			for i := range weights {
				g := float64(gradient[i])/float64(len(batch)) + decay*float64(weights[i])
				m[i] = beta1*m[i] + (1-beta1)*g
				v[i] = beta2*v[i] + (1-beta2)*g*g
				weights[i] -= float32(rate * (m[i] / bias1) / (math.Sqrt(v[i]/bias2) + 1e-8))
			}
		}
	}
}

// loss returns the derivatives of the loss by the turns' scores. shares is the softmax of the scores, sessions the turns' sessions;
// evidence are indexes of turns.
func loss(shares []float32, sessions, evidence []int) []float32 {
	in, wanted := map[int]float32{}, map[int]float32{} // shares by session: of all turns, and of the evidence
	for i, p := range shares {
		in[sessions[i]] += p
	}
	each := 1 / float32(len(evidence))
	for _, e := range evidence {
		wanted[sessions[e]] += each
	}

	d := make([]float32, len(shares))
	for i, p := range shares {
		// The sessions' loss: a turn's share of its session times the session's share of the dialogue.
		d[i] = p - sessionShare*p*wanted[sessions[i]]/max(in[sessions[i]], 1e-12)
	}
	for _, e := range evidence {
		d[e] -= (1 - sessionShare) * each
	}
	return d
}

// fit fits weights to samples.
func fit(samples []*sample) []float32 {
	weights := make([]float32, len(index.Features()))
	adam(weights, samples, rand.New(rand.NewPCG(1, 2)), learningRate, decay, func(s *sample, gradient []float32) {
		s.descend(weights, gradient)
	})
	return weights
}

// descend adds the gradient of the sample's loss.
func (s *sample) descend(weights, gradient []float32) {
	shares := s.scores(weights)
	if shares == nil {
		return
	}
	softmax(shares)
	for i, d := range loss(shares, s.sessions, s.question.evidence) {
		if d > 1e-7 || d < -1e-7 {
			addTo(gradient, s.features[i*len(weights):], d)
		}
	}
}

func addTo(sum, row []float32, times float32) {
	for j := range sum {
		sum[j] += times * row[j]
	}
}

// Parameters of fitting the hidden layers of the second stage, each from another start.
const (
	hiddenRate  = .01
	hiddenDecay = 1e-3
)

// model holds the weights of both stages.
type model struct {
	weights  []float32
	networks []network
}

func fitModel(samples []*sample) model {
	m := model{weights: fit(samples)}
	for seed := range uint64(index.Networks) {
		m.networks = append(m.networks, fitNetwork(samples, m.weights, seed+1))
	}
	return m
}

// network is a hidden layer: for each unit the weights of the features, a bias, and the weight of its output.
type network []float32

func (n network) unit(k int) []float32 {
	width := len(index.Features()) + 2
	return n[k*width : (k+1)*width]
}

// add returns the hidden layer's addition to a turn's score, and stores the outputs of the units in outputs.
func (n network) add(row, outputs []float32) float32 {
	sum := float32(0)
	for k := range index.Units {
		u := n.unit(k)
		x := u[len(row)]
		for j, f := range row {
			x += u[j] * f
		}
		outputs[k] = float32(math.Tanh(float64(x)))
		sum += u[len(row)+1] * outputs[k]
	}
	return sum
}

// final is a sample for the second stage.
type final struct {
	*sample
	first []float32 // scores of the first stage
	turns []int     // the best turns
}

func finalOf(s *sample, weights []float32) final {
	f := final{sample: s, first: s.scores(weights)}
	if f.first == nil {
		return f
	}
	f.turns = ranking(f.first)
	f.turns = f.turns[:min(len(f.turns), index.Finalists)]
	return f
}

// ranking returns the turns, best first; of equal ones the newer.
func ranking(scores []float32) []int {
	turns := make([]int, len(scores))
	for i := range turns {
		turns[i] = i
	}
	slices.SortFunc(turns, func(a, b int) int { return cmp.Or(cmp.Compare(scores[b], scores[a]), b-a) })
	return turns
}

// fitNetwork fits a hidden layer to the remaining errors of the first stage.
func fitNetwork(samples []*sample, weights []float32, seed uint64) network {
	width := len(weights) + 2
	n := make(network, index.Units*width)
	random := rand.New(rand.NewPCG(seed, 2))
	for i := range n {
		n[i] = float32(random.NormFloat64() * .2)
	}
	finals := make([]final, len(samples))
	for i, s := range samples {
		finals[i] = finalOf(s, weights)
	}
	adam(n, finals, random, hiddenRate, hiddenDecay, func(f final, gradient []float32) { f.descendNetwork(n, gradient) })
	return n
}

func (f *final) descendNetwork(n, gradient network) {
	if len(f.turns) == 0 {
		return
	}
	width := len(index.Features())
	shares, outputs := make([]float32, len(f.turns)), make([]float32, index.Units*len(f.turns))
	for i, at := range f.turns {
		shares[i] = f.first[at] + n.add(f.features[at*width:(at+1)*width], outputs[i*index.Units:])
	}
	softmax(shares)

	sessions := make([]int, len(f.turns))
	var evidence []int
	for i, at := range f.turns {
		sessions[i] = f.sessions[at]
		if slices.Contains(f.question.evidence, at) {
			evidence = append(evidence, i)
		}
	}
	if len(evidence) == 0 {
		return
	}
	for i, d := range loss(shares, sessions, evidence) {
		if d < 1e-6 && d > -1e-6 {
			continue
		}
		at := f.turns[i]
		row := f.features[at*width : (at+1)*width]
		for k := range index.Units {
			u, g, o := n.unit(k), gradient.unit(k), outputs[i*index.Units+k]
			g[width+1] += d * o
			inner := d * u[width+1] * (1 - o*o)
			g[width] += inner
			addTo(g[:width], row, inner)
		}
	}
}

// rescored returns a sample's scores after both stages. Turns that are not finalists stay below them.
func (s *sample) rescored(m model) []float32 {
	f := finalOf(s, m.weights)
	if f.first == nil {
		return nil
	}
	const behind = 1e6
	width, outputs := len(m.weights), make([]float32, index.Units)
	scores := make([]float32, s.count)
	for i := range scores {
		scores[i] = f.first[i] - behind
	}
	for _, at := range f.turns {
		sum := float32(0)
		for _, n := range m.networks {
			sum += n.add(f.features[at*width:(at+1)*width], outputs)
		}
		scores[at] = f.first[at] + sum/float32(len(m.networks))
	}
	return scores
}
