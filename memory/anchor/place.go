package anchor

import "slices"

// behind tells whether the layer stands behind the history in this epoch.
func (st *step) behind(l *Layer) bool {
	switch l.Placement {
	case Before:
		return false
	case Behind:
		return true
	default:
		for i := range st.l.Churn {
			if st.l.Churn[i].ID == l.ID {
				return st.l.Churn[i].Live
			}
		}
		return l.Live
	}
}

// observe counts which layers changed since the round before.
func (st *step) observe() {
	old := make(map[string]churn, len(st.l.Churn))
	for _, c := range st.l.Churn {
		old[c.ID] = c
	}
	var watched []churn
	for i := range st.layers {
		l := &st.layers[i]
		c, known := old[l.ID]
		switch {
		case l.Held && !known || len(watched) == maxEntries:
			continue
		case !known:
			c = churn{ID: l.ID, Live: l.Live, Sum: sum(l.Texts...)}
		case !l.Held:
			now := sum(l.Texts...)
			if c.Seen++; c.Sum != now {
				c.Changed++
			}
			c.Sum = now
		}
		watched = append(watched, c)
	}
	st.l.Churn = watched
}

// decide moves layers with placement auto to where their churn says. Samples that were used count less from then on;
// those of a layer that was not watched for long enough are kept.
func (st *step) decide() {
	all := slices.Clone(st.l.Churn)
	for i := range all {
		c := &all[i]
		if c.Seen < float64(st.c.MinChurnSamples) {
			continue
		}
		at := slices.IndexFunc(st.layers, func(l Layer) bool { return l.ID == c.ID })
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

// live is what stands at the end: inside a round what was said at its beginning. Layers that say nothing are in it.
func (st *step) live() []Block {
	var out []Block
	for i := range st.layers {
		l := &st.layers[i]
		if !st.behind(l) {
			continue
		}
		frozen, ok := find(st.l.Live, l.ID)
		switch {
		case ok && (!l.Fresh || l.Held):
			out = append(out, Block{l.ID, l.Slot, frozen.Texts, frozen.Tokens, frozen.Late})
		case !l.Held:
			out = append(out, Block{l.ID, l.Slot, l.Texts, l.Tokens, !st.first})
		}
	}
	return out
}

// freeze keeps for the round what live layers said. What is not kept may be another text with the next request: it
// belongs at the end.
func (st *step) freeze(live []Block) {
	var frozen []said
	size := 0
	for i := range live {
		b := &live[i]
		s := said{ID: b.Layer, Slot: b.Slot, Texts: b.Texts, Tokens: min(max(b.Tokens, 0), maxCount), Late: b.Late}
		fresh := slices.ContainsFunc(st.layers, func(l Layer) bool { return l.ID == b.Layer && l.Fresh })
		if fresh || len(frozen) == maxEntries || len(s.Texts) > maxTexts || size+s.size() > maxFrozen {
			b.Late = true
			continue
		}
		size += s.size()
		frozen = append(frozen, s)
	}
	st.l.Live = frozen
}

func (st *step) plan(live []Block, reason Reason) Plan {
	p := Plan{Reason: reason}
	for _, s := range st.l.Pins {
		p.Anchored = append(p.Anchored, Block{s.ID, s.Slot, s.Texts, s.Tokens, false})
	}
	for i := range st.layers {
		if l := &st.layers[i]; !l.Held && len(l.Texts) > 0 && slices.Contains(st.l.Loose, l.ID) {
			p.Anchored = append(p.Anchored, Block{l.ID, l.Slot, l.Texts, l.Tokens, false})
		}
	}
	for i := range st.l.Updates {
		u := &st.l.Updates[i]
		p.Updates = append(p.Updates, Block{u.ID, u.Slot, []string{u.text()}, u.Tokens, u.Late})
	}
	for _, b := range live {
		if len(b.Texts) > 0 {
			p.Live = append(p.Live, b)
		}
	}
	return p
}
