package anchor

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Frozen names the layers that need not be asked for a request of the round: what they said at its beginning is shown
// whatever they would say now. Step is told of them as Held.
func (s State) Frozen(lineage, round string) []string {
	i := s.find(sum(lineage))
	if i < 0 || s.lines[i].Round != sum(round) {
		return nil
	}
	var ids []string
	for _, l := range s.lines[i].Live {
		ids = append(ids, l.ID)
	}
	return ids
}

// Step plans the blocks of a request, and returns the state to keep if the request is.
func (s State) Step(c Config, r Request) (Plan, State) {
	st := s.open(&c, &r)
	if st.begins {
		st.observe()
	}
	if st.first {
		st.l.Live, st.l.Round = nil, sum(r.Round)
	}
	live := st.live()
	reason := st.due()
	if reason == "" {
		st.publish()
		reason = st.pressed(live)
	}
	if reason != "" {
		st.anchor()
		live = st.live()
	}
	st.freeze(live)
	if st.l.Judge = st.begins; st.begins {
		st.l.Age++
	}
	return st.plan(live, reason), s.with(st.l)
}

// Answered takes in what upstream reported of the request that the state was made for. Only the first answer of a round
// is judged: the requests of a tool loop repeat what was sent just before and read it from the cache whatever happened to
// the rest. A miss ends the epoch with the next round; after three in a row figures are ignored until one is good.
func (s State) Answered(c Config, u Usage) State {
	// Providers cache no prompt below this, in tokens.
	const cacheable = 1024
	if len(s.lines) == 0 || !s.lines[0].Judge {
		return s
	}
	l := s.lines[0]
	l.Judge = false
	switch {
	case !u.Reported || u.Cached < 0 || u.Prompt > 0 && u.Prompt < cacheable:
	case u.Cached >= c.MinCachedTokens:
		l.Misses, l.Stale = 0, false
	case l.Age >= c.MinEpochAssemblies:
		l.Misses = min(l.Misses+1, maxMisses)
		l.Stale = l.Misses < maxMisses
	}
	return s.with(l)
}

func (s State) find(key string) int {
	return slices.IndexFunc(s.lines, func(l line) bool { return l.Key == key })
}

// with is the state with the line as the one last used.
func (s State) with(l line) State {
	lines := append(make([]line, 0, len(s.lines)+1), l)
	for _, other := range s.lines {
		if other.Key != l.Key {
			lines = append(lines, other)
		}
	}
	return State{bounded(lines)}
}

// step is one Step under way. The line's lists are replaced, never written into.
type step struct {
	c      *Config
	r      *Request
	l      line
	layers []Layer
	cold   bool // the line is new
	first  bool // the line has not seen the round
	begins bool // nobody has
}

func (s State) open(c *Config, r *Request) *step {
	st := &step{c: c, r: r, layers: cleaned(r.Layers)}
	key := sum(r.Lineage)
	if i := s.find(key); i >= 0 {
		st.l = s.lines[i]
	} else {
		st.cold, st.l.Key = true, key
		if len(s.lines) > 0 {
			st.l.Churn = s.lines[0].Churn // layers change alike whichever model is told
		}
	}
	st.first = st.l.Round != sum(r.Round)
	st.begins = st.first && !r.Loop
	return st
}

// cleaned is what layers say as it will be read again.
func cleaned(layers []Layer) []Layer {
	out := slices.Clone(layers)
	for i := range out {
		texts := out[i].Texts
		if !slices.ContainsFunc(texts, func(text string) bool { return text == "" || !utf8.ValidString(text) }) {
			continue
		}
		out[i].Texts = nil
		for _, text := range texts {
			if text != "" {
				out[i].Texts = append(out[i].Texts, strings.ToValidUTF8(text, string(utf8.RuneError)))
			}
		}
	}
	return out
}
