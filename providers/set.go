package providers

import (
	"fmt"
	"strings"
)

// Set is the providers of one configuration. It is immutable and safe for concurrent use.
type Set struct {
	all      []*Provider
	exact    map[string]*Provider
	globs    []glob
	fallback *Provider // first without models; nil if every provider names its models
}

type glob struct {
	pattern  string
	provider *Provider
}

// NewSet opens every provider of list. Its error joins all problems, each under its path "providers[i]...".
func NewSet(list []Options) (*Set, error) {
	if err := Validate(list); err != nil {
		return nil, err
	}
	s := &Set{exact: make(map[string]*Provider)}
	for i, o := range list {
		p, err := Open(o)
		if err != nil {
			return nil, fmt.Errorf("providers[%d]: %w", i, err)
		}
		s.all = append(s.all, p)
		s.claim(p, o.Models)
	}
	return s, nil
}

func (s *Set) claim(p *Provider, models []string) {
	if len(models) == 0 && s.fallback == nil {
		s.fallback = p
	}
	for _, m := range models {
		if strings.Contains(m, "*") {
			s.globs = append(s.globs, glob{m, p})
			continue
		}
		if _, taken := s.exact[m]; !taken {
			s.exact[m] = p
		}
	}
}

// All returns the providers in the order of the configuration. The slice must not be modified.
func (s *Set) All() []*Provider { return s.all }

// Named returns the provider with a name, nil if there is none.
func (s *Set) Named(name string) *Provider {
	for _, p := range s.all {
		if p.Name() == name {
			return p
		}
	}
	return nil
}

// NeedsModel reports whether Pick looks at the model at all. If not, a body need not be read to route it.
func (s *Set) NeedsModel() bool { return len(s.exact) > 0 || len(s.globs) > 0 }

// Pick returns the provider for a model: the first that names it, else the first with a pattern that fits, else the
// first without models, else nil. A request that names no model ("") goes to the first
// provider without models, or else to the first one.
func (s *Set) Pick(model string) *Provider {
	if model == "" {
		if s.fallback == nil {
			return s.all[0]
		}
		return s.fallback
	}
	if p, ok := s.exact[model]; ok {
		return p
	}
	for _, g := range s.globs {
		if Matches(g.pattern, model) {
			return g.provider
		}
	}
	return s.fallback
}

// Matches compares a model's name with an entry of [Options].Models, in which * stands for any run of bytes, slashes
// included, since model names have them. It is linear per star: after a star the leftmost fit of the next piece is never
// worse than a later one.
func Matches(pattern, name string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == name
	}
	name, ok := strings.CutPrefix(name, head)
	if !ok {
		return false
	}
	for {
		piece, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(name, piece)
		}
		i := strings.Index(name, piece)
		if i < 0 {
			return false
		}
		name, rest = name[i+len(piece):], after
	}
}
