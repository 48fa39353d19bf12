package view

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Frozen returns the layers whose recall need not run again in this run: their blocks from its beginning are shown. Pass them
// to Step as Held. cost is that of the blocks, in tokens.
func (s Prefix) Frozen(lineage, run string) (ids []string, cost int) {
	i := s.find(sum(lineage))
	if i < 0 || s.lines[i].Run != sum(run) {
		return nil, 0
	}
	for _, b := range s.lines[i].Live {
		ids, cost = append(ids, b.Layer), cost+b.Cost()
	}
	return ids, cost
}

// Step plans the blocks of a request, and returns the state to store with it.
func (s Prefix) Step(c PromptCache, r PrefixRequest) (Plan, Prefix) {
	st := s.open(&c, &r)
	if st.begins {
		st.observe()
	}
	if st.first {
		st.shifts = slices.ContainsFunc(st.l.Live, func(s Block) bool { return s.Run && len(s.Texts) > 0 })
		st.l.Live, st.l.Run = nil, sum(r.Run)
	}
	live := st.live()
	reason := st.due()
	if reason == "" {
		st.publish()
		reason = st.pressed(live)
	}
	if reason != "" {
		st.repin()
		live = st.live()
	}
	st.freeze(live)
	if st.l.AwaitsUsage = st.begins; st.begins {
		st.l.Age++
	}
	return st.plan(live, reason), s.with(st.l)
}

// Answered records the cache usage that upstream reported for the last request. Only the first answer of a run
// counts: the requests of a tool loop repeat the one before and read it from the cache in any case. A miss ends the
// prefix version with the next run; after three in a row, misses are ignored until there is a hit.
func (s Prefix) Answered(c PromptCache, u CacheUsage) Prefix {
	// Providers do not cache shorter prompts, in tokens.
	const cacheable = 1024
	if len(s.lines) == 0 || !s.lines[0].AwaitsUsage {
		return s
	}
	l := s.lines[0]
	l.AwaitsUsage = false
	switch {
	case !u.Reported || u.Cached < 0 || u.Prompt > 0 && u.Prompt < cacheable:
	case u.Cached >= c.MinCachedTokens:
		l.Misses, l.Stale = 0, false
	case l.Age >= c.MinPrefixRuns:
		l.Misses = min(l.Misses+1, maxMisses)
		l.Stale = l.Misses < maxMisses
	}
	return s.with(l)
}

func (s Prefix) find(key string) int {
	return slices.IndexFunc(s.lines, func(l line) bool { return l.Key == key })
}

// with returns the state with the line as the one last used.
func (s Prefix) with(l line) Prefix {
	lines := append(make([]line, 0, len(s.lines)+1), l)
	for _, other := range s.lines {
		if other.Key != l.Key {
			lines = append(lines, other)
		}
	}
	return Prefix{bounded(lines)}
}

// step is one Step under way. The line's lists are replaced, never written into.
type step struct {
	c      *PromptCache
	r      *PrefixRequest
	l      line
	layers []Said
	cold   bool // the line is new
	first  bool // the line has not seen the run
	begins bool // no line has
	// shifts: live blocks leave their place after the previous run's message, so the cache of that run is lost.
	shifts bool
}

func (s Prefix) open(c *PromptCache, r *PrefixRequest) *step {
	st := &step{c: c, r: r, layers: cleaned(r.Layers)}
	key := sum(r.Lineage)
	if i := s.find(key); i >= 0 {
		st.l = s.lines[i]
	} else {
		st.cold, st.l.Key = true, key
		if len(s.lines) > 0 {
			st.l.Churn = s.lines[0].Churn // layers change alike for all models
		}
	}
	st.first = st.l.Run != sum(r.Run)
	st.begins = st.first && !r.Loop
	return st
}

// cleaned returns layers' texts in the form in which they are decoded.
func cleaned(layers []Said) []Said {
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

// updated returns the update from a pinned block to the current one.
func (st *step) updated(pin, now Block) update {
	u := update{Block: now, Kind: replace, Of: called(pin)}
	switch {
	case len(now.Texts) == 0:
		u.Kind = retract
	case len(pin.Texts) == 0:
		u.Kind, u.Of = add, ""
	}
	u.Tokens = min(max(st.r.Count(u.text()), 0), maxCount)
	return u
}

func find(list []Block, id string) (Block, bool) {
	for _, s := range list {
		if s.Layer == id {
			return s, true
		}
	}
	return Block{Layer: id}, false
}

// shown returns the latest text of an anchored layer that the model has got.
func (st *step) shown(id string) (s Block, updated bool) {
	for _, u := range slices.Backward(st.l.Updates) {
		if u.Layer == id {
			return u.Block, true
		}
	}
	s, _ = find(st.l.Pins, id)
	return s, false
}

// last returns the last block of a layer whose recall did not run.
func (st *step) last(id string) Block {
	s, updated := st.shown(id)
	if updated {
		s.Tokens = 0
		for _, text := range s.Texts {
			s.Tokens += st.r.Count(text)
		}
		return s
	}
	if len(s.Texts) == 0 {
		s, _ = find(st.l.Live, id) // it stood after the history until now
	}
	return s
}

// due returns why the version has to end before new blocks are considered.
func (st *step) due() PrefixReason {
	switch {
	case st.cold:
		return ColdStart
	case st.l.SystemPrompt != sum(st.r.SystemPrompt):
		return InstructionsChanged
	case st.reconfigured():
		return Reconfigured
	case st.r.CutMoved:
		return CutMoved
	case st.c.IdleReset > 0 && st.r.Idle >= st.c.IdleReset:
		return Idle
	case st.begins && st.l.Stale:
		return CacheMiss
	case st.begins && st.l.Age >= st.c.MaxPrefixRuns:
		return MaxAge
	}
	return ""
}

// reconfigured reports whether a layer whose block was sent in this prefix version or run is no longer placed there.
func (st *step) reconfigured() bool {
	here := make(map[string]bool, len(st.layers)) // before the history
	for i := range st.layers {
		here[st.layers[i].Layer] = !st.isLive(&st.layers[i])
	}
	return slices.ContainsFunc(st.l.Pins, func(s Block) bool { return !here[s.Layer] }) ||
		slices.ContainsFunc(st.l.Loose, func(id string) bool { return !here[id] }) ||
		slices.ContainsFunc(st.l.Updates, func(u update) bool { return !here[u.Layer] }) ||
		slices.ContainsFunc(st.l.Live, func(s Block) bool { return here[s.Layer] })
}

// publish turns the changed blocks of anchored layers into updates: at most one per layer, and none if the block is the pinned
// one. A valid update stays where it was first sent.
func (st *step) publish() {
	st.l.Updates = slices.Clone(st.l.Updates)
	for i := range st.l.Updates {
		switch u := &st.l.Updates[i]; {
		case st.r.End == 0:
		case st.shifts: // moving costs nothing now, and their next change costs less
			u.Place = sentAt(st.r.End)
		default: // a history that became shorter ends before their place
			u.Place = sentAt(min(u.At, st.r.End))
		}
	}
	for i := range st.layers {
		l := &st.layers[i]
		if l.Held || st.isLive(l) || slices.Contains(st.l.Loose, l.Layer) {
			continue
		}
		if was, _ := st.shown(l.Layer); slices.Equal(was.Texts, l.Texts) {
			continue
		}

		st.l.Updates = slices.DeleteFunc(st.l.Updates, func(u update) bool { return u.Layer == l.Layer })
		if pin, _ := find(st.l.Pins, l.Layer); !slices.Equal(pin.Texts, l.Texts) {
			now := Block{Layer: l.Layer, Slot: l.Slot, Texts: l.Texts, Place: sentAt(st.r.End)}
			st.l.Updates = append(st.l.Updates, st.updated(pin, now))
		}
	}
}

// sentAt is the place of a block that is first sent after a number of units of the conversation, 0 if that is unknown.
func sentAt(units int) Place {
	if units == 0 {
		return End()
	}
	return Inside(units)
}

// pressed returns why the version has to end because of its updates.
func (st *step) pressed(live []Block) PrefixReason {
	if len(st.l.Updates) == 0 {
		return ""
	}
	size, tokens, pinned, shown := 0, 0, 0, 0
	for i := range st.l.Updates {
		size += st.l.Updates[i].size()
		tokens += st.l.Updates[i].Tokens
	}
	for _, p := range st.l.Pins {
		pinned += p.Tokens
	}
	for _, b := range live {
		shown += b.Tokens
	}
	of := st.r.View
	if of <= 0 {
		of = pinned
	}
	switch {
	case tokens+shown > st.r.Free, size > maxUpdated, len(st.l.Updates) > maxPrefixEntries:
		return DeltaOverflow
	case float64(tokens) > st.c.DeltaBudgetFraction*float64(of):
		return DeltaPressure
	}
	return ""
}

// repin begins a prefix version with the layers' current blocks.
func (st *step) repin() {
	if st.begins {
		st.decide()
	}
	var pins []Block
	var loose []string
	size := 0
	for i := range st.layers {
		l := &st.layers[i]
		if st.isLive(l) {
			continue
		}
		s := Block{Layer: l.Layer, Slot: l.Slot, Texts: l.Texts, Tokens: l.Tokens}
		if l.Held {
			was := st.last(l.Layer)
			s.Texts, s.Tokens = was.Texts, was.Tokens
		}
		switch n := s.size(); {
		case n == 0:
		case size+n > maxPinned || len(pins) == maxPrefixEntries || len(s.Texts) > maxTexts:
			loose = append(loose, l.Layer)
		default:
			size += n
			s.Tokens = min(max(s.Tokens, 0), maxCount)
			pins = append(pins, s)
		}
	}
	st.l.Pins, st.l.Loose, st.l.Updates = pins, loose[:min(len(loose), maxPrefixEntries)], nil
	st.l.SystemPrompt, st.l.Age, st.l.Stale = sum(st.r.SystemPrompt), 0, false
}

// isLive reports whether the layer's block stands after the history in this version.
func (st *step) isLive(l *Said) bool {
	if l.Placement.Auto() {
		for i := range st.l.Churn {
			if st.l.Churn[i].ID == l.Layer {
				return st.l.Churn[i].Live
			}
		}
	}
	return l.Placement.Live()
}

// observe counts which layers changed since the run before.
func (st *step) observe() {
	old := make(map[string]churn, len(st.l.Churn))
	for _, c := range st.l.Churn {
		old[c.ID] = c
	}
	var watched []churn
	for i := range st.layers {
		l := &st.layers[i]
		c, known := old[l.Layer]
		switch {
		case l.Held && !known || len(watched) == maxPrefixEntries:
			continue
		case !known:
			c = churn{ID: l.Layer, Live: l.Placement.Live(), Sum: sum(l.Texts...)}
		case !l.Held:
			now := sum(l.Texts...)
			if c.Seen = min(c.Seen+1, maxCount); c.Sum != now {
				c.Changed = min(c.Changed+1, c.Seen)
			}
			c.Sum = now
		}
		watched = append(watched, c)
	}
	st.l.Churn = watched
}

// decide moves layers with placement auto according to their churn. Samples that were used count less from then on;
// samples of a layer that was not watched for long enough are kept.
func (st *step) decide() {
	all := slices.Clone(st.l.Churn)
	for i := range all {
		c := &all[i]
		if c.Seen < float64(st.c.MinChurnSamples) {
			continue
		}
		at := slices.IndexFunc(st.layers, func(l Said) bool { return l.Layer == c.ID })
		switch rate := c.Changed / c.Seen; {
		case rate >= st.c.AutoDemoteChurn:
			c.Live = true
		case rate <= st.c.AutoPromoteChurn && (at < 0 || !st.layers[at].Fresh):
			c.Live = false
		}
		c.Seen *= st.c.ChurnDecay
		c.Changed *= st.c.ChurnDecay
	}
	st.l.Churn = all
}

// live returns the blocks at the end: inside a run, those from its beginning, unless the layer was called again and says
// something else. Layers without text are included.
func (st *step) live() []Block {
	place := End()
	if st.first {
		place = AfterUser()
	}
	var out []Block
	for i := range st.layers {
		l := &st.layers[i]
		if !st.isLive(l) {
			continue
		}
		frozen, ok := find(st.l.Live, l.Layer)
		switch {
		case ok && (l.Held || !l.Fresh && slices.Equal(frozen.Texts, l.Texts)):
			frozen.Slot = l.Slot
			out = append(out, frozen)
		case !l.Held:
			out = append(out, Block{Layer: l.Layer, Slot: l.Slot, Texts: l.Texts, Tokens: l.Tokens, Place: place})
		}
	}
	return out
}

// freeze keeps for the run what live layers said. What is not kept may be another text with the next request: it
// belongs at the end.
func (st *step) freeze(live []Block) {
	var frozen []Block
	size := 0
	for i := range live {
		b := &live[i]
		fresh := slices.ContainsFunc(st.layers, func(l Said) bool { return l.Layer == b.Layer && l.Fresh })
		if fresh || len(frozen) == maxPrefixEntries || len(b.Texts) > maxTexts || size+b.size() > maxFrozen {
			b.Place = End()
			continue
		}

		size += b.size()
		if !b.Run && st.r.End > 0 { // it stays where it is sent first
			b.Place = Inside(min(cmp.Or(b.At, st.r.End), st.r.End))
		}
		kept := *b
		kept.Tokens = min(max(b.Tokens, 0), maxCount)
		frozen = append(frozen, kept)
	}
	st.l.Live = frozen
}

func (st *step) plan(live []Block, reason PrefixReason) Plan {
	p := Plan{Reason: reason, Anchored: slices.Clone(st.l.Pins)}
	for i := range st.layers {
		if l := &st.layers[i]; !l.Held && len(l.Texts) > 0 && slices.Contains(st.l.Loose, l.Layer) {
			p.Anchored = append(p.Anchored, Block{Layer: l.Layer, Slot: l.Slot, Texts: l.Texts, Tokens: l.Tokens})
		}
	}
	for i := range st.l.Updates {
		u := &st.l.Updates[i]
		b := u.Block
		b.Texts, b.Update = []string{u.text()}, true
		p.Updates = append(p.Updates, b)
	}
	for _, b := range live {
		if len(b.Texts) > 0 {
			p.Live = append(p.Live, b)
		}
	}
	return p
}
