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
func samplesOf(all []dialogue) []sample {
	width := len(index.Features())
	var samples []sample
	for n := range all {
		d := &all[n]
		ix := index.New()
		for _, t := range d.turns {
			ix.Add(t)
		}
		for i := range d.questions {
			s := sample{
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

// fit fits weights to samples.
func fit(samples []*sample) []float32 {
	width := len(index.Features())
	weights := make([]float32, width)
	m, v := make([]float64, width), make([]float64, width)
	order := rand.New(rand.NewPCG(1, 2))
	step := 0
	for range passes {
		order.Shuffle(len(samples), func(i, j int) { samples[i], samples[j] = samples[j], samples[i] })
		for from := 0; from < len(samples); from += batchSize {
			batch := samples[from:min(len(samples), from+batchSize)]
			gradient := make([]float32, width)
			for _, s := range batch {
				s.descend(weights, gradient)
			}
			step++
			for i := range weights {
				g := float64(gradient[i])/float64(len(batch)) + decay*float64(weights[i])
				m[i] = beta1*m[i] + (1-beta1)*g
				v[i] = beta2*v[i] + (1-beta2)*g*g
				bias1, bias2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
				weights[i] -= float32(learningRate * (m[i] / bias1) / (math.Sqrt(v[i]/bias2) + 1e-8))
			}
		}
	}
	return weights
}

// descend adds the gradient of one sample's loss.
func (s *sample) descend(weights, gradient []float32) {
	shares := s.scores(weights)
	if shares == nil {
		return
	}
	softmax(shares)
	sessions := map[int]float32{}
	for i, p := range shares {
		sessions[s.sessions[i]] += p
	}
	wanted := map[int]float32{} // shares of the evidence, by session
	each := 1 / float32(len(s.question.evidence))
	for _, e := range s.question.evidence {
		wanted[s.sessions[e]] += each
	}
	width := len(weights)
	for i, p := range shares {
		// The sessions' loss: a turn's share of its session times the session's share of the dialogue.
		in := sessions[s.sessions[i]]
		d := p - sessionShare*p*wanted[s.sessions[i]]/max(in, 1e-12)
		if d > 1e-7 || d < -1e-7 {
			addTo(gradient, s.features[i*width:], d)
		}
	}
	for _, e := range s.question.evidence {
		addTo(gradient, s.features[e*width:], -(1-sessionShare)*each)
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
	f.turns = make([]int, s.count)
	for i := range f.turns {
		f.turns[i] = i
	}
	slices.SortFunc(f.turns, func(a, b int) int { return cmp.Or(cmp.Compare(f.first[b], f.first[a]), b-a) })
	f.turns = f.turns[:min(len(f.turns), index.Finalists)]
	return f
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
	m, v := make([]float64, len(n)), make([]float64, len(n))
	step := 0
	for range passes {
		random.Shuffle(len(finals), func(i, j int) { finals[i], finals[j] = finals[j], finals[i] })
		for from := 0; from < len(finals); from += batchSize {
			batch := finals[from:min(len(finals), from+batchSize)]
			gradient := make(network, len(n))
			for i := range batch {
				batch[i].descendNetwork(n, gradient)
			}
			step++
			for i := range n {
				g := float64(gradient[i])/float64(len(batch)) + hiddenDecay*float64(n[i])
				m[i] = beta1*m[i] + (1-beta1)*g
				v[i] = beta2*v[i] + (1-beta2)*g*g
				bias1, bias2 := 1-math.Pow(beta1, float64(step)), 1-math.Pow(beta2, float64(step))
				n[i] -= float32(hiddenRate * (m[i] / bias1) / (math.Sqrt(v[i]/bias2) + 1e-8))
			}
		}
	}
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
	sessions, wanted := map[int]float32{}, map[int]float32{}
	evidence := map[int]bool{}
	for i, at := range f.turns {
		sessions[f.sessions[at]] += shares[i]
		if slices.Contains(f.question.evidence, at) {
			evidence[at] = true
		}
	}
	if len(evidence) == 0 {
		return
	}
	each := 1 / float32(len(evidence))
	for at := range evidence {
		wanted[f.sessions[at]] += each
	}
	for i, at := range f.turns {
		in := f.sessions[at]
		d := shares[i] - sessionShare*shares[i]*wanted[in]/max(sessions[in], 1e-12)
		if evidence[at] {
			d -= (1 - sessionShare) * each
		}
		if d < 1e-6 && d > -1e-6 {
			continue
		}
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
