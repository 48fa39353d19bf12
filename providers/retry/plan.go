package retry

import (
	"fmt"
	"slices"
	"time"

	"remora/providers"
)

// Config configures a Policy.
type Config struct {
	// Set holds the providers that Entries describe, in the same order.
	Set     *providers.Set
	Entries []Entry
	// Previous is the policy of the configuration before, nil at the start: circuits keep their state if their provider
	// and options are unchanged.
	Previous *Policy
	// Now is the clock.
	Now func() time.Time
	// Rand returns numbers from 0 to below 1; it is called from many goroutines.
	Rand func() float64
	// OnCircuit, if set, is called when the circuit of a provider opens or closes. It must not block.
	OnCircuit func(provider string, open bool)
}

// Policy decides what follows failed calls. It is safe for concurrent use.
type Policy struct {
	now      func() time.Time
	rand     func() float64
	routes   map[string][]step // by provider, itself and what to try after it; those with something configured
	circuits map[string]*circuit
}

// step is a provider, or a model of one, that a request may go to.
type step struct {
	provider *providers.Provider
	model    string
	retry    Retry
	on       map[int]bool
	circuit  *circuit
}

// New makes a policy. It returns the error of [Validate].
func New(c Config) (*Policy, error) {
	if err := Validate(c.Entries); err != nil {
		return nil, err
	}
	p := &Policy{now: c.Now, rand: c.Rand, routes: map[string][]step{}, circuits: map[string]*circuit{}}
	all := c.Set.All()
	own := make(map[string]step, len(all))
	for i, pr := range all {
		own[pr.Name()] = p.newStep(&c, pr, &c.Entries[i].Resilience)
	}
	for i, pr := range all {
		o := &c.Entries[i].Resilience
		first := own[pr.Name()]
		if o.Retry.Attempts <= 1 && len(o.Fallback) == 0 && first.circuit == nil {
			continue
		}
		steps := []step{first}
		for _, t := range o.Fallback {
			s := first
			if t.Provider != "" {
				s = own[t.Provider]
			}
			s.model = t.Model
			steps = append(steps, s)
		}
		p.routes[pr.Name()] = steps
	}
	return p, nil
}

func (p *Policy) newStep(c *Config, pr *providers.Provider, o *Options) step {
	s := step{provider: pr, retry: o.Retry.withDefaults(), on: map[int]bool{}}
	for _, v := range s.retry.On {
		cause, _ := parseCause(v) // Validate has seen it
		s.on[cause] = true
	}
	if s.circuit = c.inherited(pr, o.Breaker); s.circuit == nil {
		notify, name := c.OnCircuit, pr.Name() // not c: the circuit outlives the configurations that keep it
		s.circuit = newCircuit(o.Breaker, func(open bool) {
			if notify != nil {
				notify(name, open)
			}
		})
	}
	if s.circuit != nil {
		p.circuits[circuitKey(pr)] = s.circuit
	}
	return s
}

// inherited is the circuit of the policy before, if it is about the same upstream under the same options.
func (c *Config) inherited(pr *providers.Provider, o Breaker) *circuit {
	if c.Previous == nil {
		return nil
	}
	old := c.Previous.circuits[circuitKey(pr)]
	if old == nil || o.Failures <= 0 || old.o != o.withDefaults() {
		return nil
	}
	return old
}

func circuitKey(pr *providers.Provider) string { return pr.Name() + " " + pr.Address().Addr }

// Repeats reports whether a request may be sent more than once, so that its body has to be kept until the answer comes. A nil policy
// never repeats one.
func (p *Policy) Repeats() bool {
	if p == nil {
		return false
	}
	for _, steps := range p.routes {
		if len(steps) > 1 || steps[0].retry.Attempts > 1 {
			return true
		}
	}
	return false
}

// OpenError is returned for a call that was not made: the circuit of its provider is open, and there is no fallback.
type OpenError struct {
	Provider string
	// RetryAfter is when the provider is tried again.
	RetryAfter time.Duration
}

// Error names the provider.
func (e *OpenError) Error() string {
	return fmt.Sprintf("circuit of provider %s is open for %s (providers.breaker)", e.Provider, e.RetryAfter)
}

// Plan is the sequence of attempts of one request: call Begin, then Next after each call until it returns false. It is for one
// goroutine. The zero value allows a single attempt, with the provider that the caller has.
type Plan struct {
	policy *Policy
	first  *providers.Provider
	steps  []step // nil if nothing is configured
	at     int    // the step under way
	tries  int    // calls at this step
	probe  bool   // the call under way tries out an open circuit
	// portable is called once at most, when another provider would be next; nil after it returned true.
	portable func() bool
	pinned   bool // portable returned false
}

// Attempt is a call to make.
type Attempt struct {
	Provider *providers.Provider
	// Model is to replace the model of the request, see [WithModel]; empty keeps what the client named.
	Model string
	// Delay is how long to wait before it.
	Delay time.Duration
}

// Plan begins a request that is meant for the provider first. portable reports whether another provider can serve it too,
// see [Portable]; nil means that any can. It is called only before a fallback is used, so most requests never pay for it.
func (p *Policy) Plan(first *providers.Provider, portable func() bool) Plan {
	return Plan{policy: p, first: first, steps: p.routes[first.Name()], portable: portable}
}

// Stay begins a later call of a request that the provider at has answered: no other provider or model can continue it. The
// retries and the circuit of at apply. model is that of its attempts.
func (p *Policy) Stay(at *providers.Provider, model string) Plan {
	steps := slices.Clone(p.routes[at.Name()])
	steps = steps[:min(len(steps), 1)]
	for i := range steps {
		steps[i].model = model
	}
	return Plan{policy: p, first: at, steps: steps}
}

// Begin is the first attempt. The error is an *[OpenError], or nil.
func (p *Plan) Begin() (Attempt, error) {
	if p.steps == nil {
		return Attempt{Provider: p.first}, nil
	}
	if a, ok := p.enter(0); ok {
		return a, nil
	}
	return Attempt{}, &OpenError{Provider: p.first.Name(), RetryAfter: p.steps[0].circuit.wait(p.policy.now())}
}

// Next records the outcome of the last attempt and returns the next one. False means that the client gets this outcome: it is
// a success, or nothing is left to try, or upstream may have begun to serve the request.
//
// It must be called after every attempt, and before anything of an answer has gone to the client. Headers of the
// outcome are read at once and not kept.
func (p *Plan) Next(o Outcome) (Attempt, bool) {
	if p.steps == nil {
		return Attempt{}, false
	}
	s, now := &p.steps[p.at], p.policy.now()
	s.circuit.report(now, o.verdict(), p.probe)
	p.probe = false
	cause := o.cause()
	if !s.on[cause] {
		return Attempt{}, false
	}
	if delay, again := p.delay(s, &o, now); again {
		if ok, probe := s.circuit.allow(now); ok {
			p.probe = probe
			return p.attempt(delay), true
		}
	}
	return p.enter(p.at + 1)
}

// enter finds the first step from i on that is possible now.
func (p *Plan) enter(i int) (Attempt, bool) {
	for ; i < len(p.steps); i++ {
		s := &p.steps[i]
		if s.provider != p.first && p.stays() {
			continue
		}
		if ok, probe := s.circuit.allow(p.policy.now()); ok {
			p.at, p.tries, p.probe = i, 0, probe
			return p.attempt(0), true
		}
	}
	return Attempt{}, false
}

// stays reports whether the request makes sense at its own provider only.
func (p *Plan) stays() bool {
	if p.portable != nil {
		p.pinned, p.portable = !p.portable(), nil
	}
	return p.pinned
}

func (p *Plan) attempt(delay time.Duration) Attempt {
	p.tries++
	s := &p.steps[p.at]
	return Attempt{Provider: s.provider, Model: s.model, Delay: delay}
}

// delay returns how long to wait before the step's provider is called again: as long as it asks for, or a random part of a time
// that doubles with each attempt, so that callers that failed together do not come back together. False means no retry.
func (p *Plan) delay(s *step, o *Outcome, now time.Time) (time.Duration, bool) {
	if p.tries >= s.retry.Attempts {
		return 0, false
	}
	var a advice
	if o.Err == nil {
		a = adviceOf(o.Head, now)
	}
	if a.stop || a.wait > s.retry.MaxDelay {
		return 0, false
	}
	spread := s.retry.BaseDelay
	if a.wait == 0 {
		spread = min(spread<<(p.tries-1), s.retry.MaxDelay)
	}
	return a.wait + time.Duration(p.policy.rand()*float64(spread)), true
}
