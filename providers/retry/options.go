// Package retry decides what follows a failed call to an upstream: a retry after a delay, a fallback to another provider or
// model, or an open circuit breaker. All of it is off unless you configure it for a provider, since SDKs retry by themselves and
// count attempts. A call that upstream may have begun to serve is never retried.
package retry

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"time"

	"remora/providers"
)

// Entry is one entry of the list "providers": how to reach it, and what to do when that fails.
type Entry struct {
	Provider   providers.Options `mapstructure:",squash"`
	Resilience Options           `mapstructure:",squash"`
}

// Options are the keys of a provider about failures. With the zero value no failed call is repeated.
type Options struct {
	Retry Retry `mapstructure:"retry"`
	// Fallback lists the targets to try, in this order, when the provider's attempts are used up or its circuit is open.
	Fallback []Target `mapstructure:"fallback"`
	Breaker  Breaker  `mapstructure:"breaker"`
}

// Retry says when a call is sent again to the same provider.
type Retry struct {
	// Attempts is how many calls there are in all, the first one included. 0 and 1 mean no retry.
	Attempts int `mapstructure:"attempts"`
	// BaseDelay is the most that the first retry waits; each further one may wait twice as long. 0 means 500ms.
	BaseDelay time.Duration `mapstructure:"base_delay"`
	// MaxDelay is the longest wait. If upstream asks for a longer one, the call is not retried. 0 means 10s.
	MaxDelay time.Duration `mapstructure:"max_delay"`
	// On lists the causes of a retry or a fallback: statuses, and "connect" for a connection that could not be made. Empty
	// means 429, 503 and connect. After any other status upstream may have done the work, and billed it.
	On []any `mapstructure:"on"`
}

// Target is a provider or a model to fall back to.
type Target struct {
	// Provider is the name of another provider; empty means the same one.
	Provider string `mapstructure:"provider"`
	// Model replaces the model that the request names; empty keeps it.
	Model string `mapstructure:"model"`
}

// Breaker configures the circuit breaker of a provider.
type Breaker struct {
	// Failures is the share of failed calls, from above 0 to 1, that opens the circuit. 0 turns the breaker off. A call has
	// failed if it got no answer, or one with a status of 500 or more.
	Failures float64 `mapstructure:"failures"`
	// MinCalls is how many calls the window must hold before their failures count. 0 means 10.
	MinCalls int `mapstructure:"min_calls"`
	// Window is how far back calls count. 0 means 30s.
	Window time.Duration `mapstructure:"window"`
	// Cooldown is how long a provider with an open circuit gets no requests. After that, one call per cooldown tries
	// it, and the first that succeeds closes the circuit. 0 means 10s.
	Cooldown time.Duration `mapstructure:"cooldown"`
}

const (
	defaultBaseDelay = 500 * time.Millisecond
	defaultMaxDelay  = 10 * time.Second
	defaultMinCalls  = 10
	defaultWindow    = 30 * time.Second
	defaultCooldown  = 10 * time.Second

	maxAttempts = 10
	maxTargets  = 8
	maxModel    = 256
	longest     = time.Hour // of every duration here
	connect     = "connect"
)

func (r Retry) withDefaults() Retry {
	r.Attempts = max(r.Attempts, 1)
	r.BaseDelay = cmp.Or(r.BaseDelay, min(defaultBaseDelay, cmp.Or(r.MaxDelay, defaultMaxDelay)))
	r.MaxDelay = cmp.Or(r.MaxDelay, max(defaultMaxDelay, r.BaseDelay))
	if len(r.On) == 0 {
		r.On = []any{429, 503, connect}
	}
	return r
}

func (b Breaker) withDefaults() Breaker {
	b.MinCalls = cmp.Or(b.MinCalls, defaultMinCalls)
	b.Window = cmp.Or(b.Window, defaultWindow)
	b.Cooldown = cmp.Or(b.Cooldown, defaultCooldown)
	return b
}

// Validate reports every problem of a list of providers that is of this package, each under its path
// "providers[i]...". What [providers.Validate] reports is left out.
func Validate(list []Entry) error {
	var problems []error
	byName := make(map[string]int, len(list))
	for i := range list {
		byName[list[i].Provider.NameOrKind()] = i
	}
	for i := range list {
		o, path := &list[i].Resilience, fmt.Sprintf("providers[%d]", i)
		problems = append(problems, o.Retry.validate(path+".retry"), o.Breaker.validate(path+".breaker"))
		if len(o.Fallback) > maxTargets {
			problems = append(problems, fmt.Errorf("%s.fallback: must have at most %d entries, has %d", path, maxTargets, len(o.Fallback)))
		}
		for j, t := range o.Fallback {
			to, known := byName[cmp.Or(t.Provider, list[i].Provider.NameOrKind())]
			at := fmt.Sprintf("%s.fallback[%d]", path, j)
			if !known {
				problems = append(problems, fmt.Errorf("%s.provider: no provider is called %q", at, t.Provider))
				continue
			}
			problems = append(problems, t.validate(at, &list[i].Provider, &list[to].Provider))
		}
	}
	return errors.Join(problems...)
}

// validate checks a fallback. The target needs a credential of its own, since the caller's, which is for from's upstream, must
// not go to another one.
func (t Target) validate(path string, from, to *providers.Options) error {
	switch {
	case from == to && t.Model == "":
		return fmt.Errorf("%s.model: must name another model, since the provider is the same", path)
	case len(t.Model) > maxModel:
		return fmt.Errorf("%s.model: must have at most %d bytes", path, maxModel)
	case from != to && to.APIKey == "":
		return fmt.Errorf("%s.provider: must have an api_key, since the caller's credential is not for it", path)
	}
	return nil
}

func (r Retry) validate(path string) error {
	var problems []error
	if r.Attempts < 0 || r.Attempts > maxAttempts {
		problems = append(problems, fmt.Errorf("%s.attempts: must be from 0 to %d, is %d", path, maxAttempts, r.Attempts))
	}
	problems = append(problems, checkDuration(path+".base_delay", r.BaseDelay), checkDuration(path+".max_delay", r.MaxDelay))
	if d := r.withDefaults(); r.BaseDelay > 0 && r.MaxDelay > 0 && d.BaseDelay > d.MaxDelay {
		problems = append(problems, fmt.Errorf("%s.max_delay: must not be less than base_delay (%s), is %s", path, d.BaseDelay, d.MaxDelay))
	}
	for i, v := range r.On {
		if _, err := parseCause(v); err != nil {
			problems = append(problems, fmt.Errorf("%s.on[%d]: %w", path, i, err))
		}
	}
	return errors.Join(problems...)
}

func (b Breaker) validate(path string) error {
	var problems []error
	if !(b.Failures >= 0 && b.Failures <= 1) { // so that NaN is refused, too
		problems = append(problems, fmt.Errorf("%s.failures: must be from 0 to 1, is %v", path, b.Failures))
	}
	if b.MinCalls < 0 {
		problems = append(problems, fmt.Errorf("%s.min_calls: must not be negative, is %d", path, b.MinCalls))
	}
	problems = append(problems, checkDuration(path+".window", b.Window), checkDuration(path+".cooldown", b.Cooldown))
	return errors.Join(problems...)
}

func checkDuration(path string, d time.Duration) error {
	if d < 0 || d > longest {
		return fmt.Errorf("%s: must be from 0 to %s, is %s", path, longest, d)
	}
	return nil
}

// parseCause reads an entry of retry.on: a status, or 0 for "connect". The list may mix numbers and text, so numbers have the
// type that the file's parser gives them.
func parseCause(v any) (int, error) {
	status := 0
	switch v := v.(type) {
	case int:
		status = v
	case float64:
		status = int(v)
	case string:
		if v == connect {
			return 0, nil
		}
		status, _ = strconv.Atoi(v)
	}
	if status < 400 || status > 599 {
		return 0, errors.New("must be a status from 400 to 599, or connect")
	}
	return status, nil
}
