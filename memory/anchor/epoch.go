package anchor

import "slices"

// consolidate leaves of each layer's updates the last one, and none where that says what is pinned. A round may begin
// with other updates than the one before ended with: what stood behind them is new anyhow.
func (st *step) consolidate() {
	var last []update
	for i, u := range st.l.Updates {
		if slices.ContainsFunc(st.l.Updates[i+1:], func(later update) bool { return later.ID == u.ID }) {
			continue
		}
		pin, _ := find(st.l.Pins, u.ID)
		if slices.Equal(pin.Texts, u.Texts) {
			continue
		}
		u.Late = false
		last = append(last, st.updated(pin, u.said, &u))
	}
	st.l.Updates = last
}

// updated is the update that makes of what was said what is said now. old is one that may say so already.
func (st *step) updated(was, now said, old *update) update {
	u := update{said: now, Kind: replace, Of: called(was)}
	switch {
	case len(now.Texts) == 0:
		u.Kind = retract
	case len(was.Texts) == 0:
		u.Kind, u.Of = add, ""
	}
	if old != nil && old.Kind == u.Kind && old.Of == u.Of {
		u.Tokens = old.Tokens
		return u
	}
	u.Tokens = min(max(st.r.Count(u.text()), 0), maxCount)
	return u
}

func find(list []said, id string) (said, bool) {
	for _, s := range list {
		if s.ID == id {
			return s, true
		}
	}
	return said{ID: id}, false
}

// told is what the model was told of an anchored layer last.
func (st *step) told(id string) (s said, updated bool) {
	for _, u := range slices.Backward(st.l.Updates) {
		if u.ID == id {
			return u.said, true
		}
	}
	s, _ = find(st.l.Pins, id)
	return s, false
}

// last is what a layer that was not asked said last, with what that costs.
func (st *step) last(id string) said {
	s, updated := st.told(id)
	if updated {
		s.Tokens = 0
		for _, text := range s.Texts {
			s.Tokens += st.r.Count(text)
		}
		return s
	}
	if len(s.Texts) == 0 {
		s, _ = find(st.l.Live, id) // it stood behind the history until now
	}
	return s
}

// due tells why the epoch has to end before anything new is said.
func (st *step) due() Reason {
	switch {
	case st.cold:
		return ColdStart
	case st.l.Lead != sum(st.r.Lead):
		return InstructionsChanged
	case st.reconfigured():
		return Reconfigured
	case st.r.CutMoved:
		return CutMoved
	case st.c.IdleReset > 0 && st.r.Idle >= st.c.IdleReset:
		return Idle
	case st.begins && st.l.Stale:
		return CacheMiss
	case st.begins && st.l.Age >= st.c.MaxEpochAssemblies:
		return MaxAge
	}
	return ""
}

// reconfigured tells that a layer is gone from where it was told of in this epoch or round.
func (st *step) reconfigured() bool {
	here := make(map[string]bool, len(st.layers)) // before the history
	for i := range st.layers {
		here[st.layers[i].ID] = !st.behind(&st.layers[i])
	}
	return slices.ContainsFunc(st.l.Pins, func(s said) bool { return !here[s.ID] }) ||
		slices.ContainsFunc(st.l.Loose, func(id string) bool { return !here[id] }) ||
		slices.ContainsFunc(st.l.Updates, func(u update) bool { return !here[u.ID] }) ||
		slices.ContainsFunc(st.l.Live, func(s said) bool { return here[s.ID] })
}

// publish adds what anchored layers say anew.
func (st *step) publish() {
	st.l.Updates = slices.Clip(st.l.Updates)
	for i := range st.layers {
		l := &st.layers[i]
		if l.Held || st.behind(l) || slices.Contains(st.l.Loose, l.ID) {
			continue
		}
		was, _ := st.told(l.ID)
		if !slices.Equal(was.Texts, l.Texts) {
			st.l.Updates = append(st.l.Updates, st.updated(was, said{ID: l.ID, Slot: l.Slot, Texts: l.Texts, Late: !st.first}, nil))
		}
	}
	if st.first {
		st.consolidate()
	}
}

// pressed tells why the epoch has to end if its updates are too much.
func (st *step) pressed(live []Block) Reason {
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
	case tokens+shown > st.r.Free, size > maxUpdated, len(st.l.Updates) > maxEntries:
		return DeltaOverflow
	case float64(tokens) > st.c.DeltaBudgetFraction*float64(of):
		return DeltaPressure
	}
	return ""
}

// anchor begins an epoch with what layers say now.
func (st *step) anchor() {
	if st.begins {
		st.decide()
	}
	var pins []said
	var loose []string
	size := 0
	for i := range st.layers {
		l := &st.layers[i]
		if st.behind(l) {
			continue
		}
		s := said{ID: l.ID, Slot: l.Slot, Texts: l.Texts, Tokens: l.Tokens}
		if l.Held {
			was := st.last(l.ID)
			s.Texts, s.Tokens = was.Texts, was.Tokens
		}
		switch n := s.size(); {
		case n == 0:
		case size+n > maxPinned || len(pins) == maxEntries || len(s.Texts) > maxTexts:
			loose = append(loose, l.ID)
		default:
			size += n
			s.Tokens = min(max(s.Tokens, 0), maxCount)
			pins = append(pins, s)
		}
	}
	st.l.Pins, st.l.Loose, st.l.Updates = pins, loose[:min(len(loose), maxEntries)], nil
	st.l.Lead, st.l.Age, st.l.Stale = sum(st.r.Lead), 0, false
}
