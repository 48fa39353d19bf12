package session

import (
	"fmt"
	"slices"

	"remora/wire"
	"remora/wire/dialects"
)

// Hidden is an Amendment that a turn makes. Its place is a count of items, since a turn that was overtaken may get another
// place.
type Hidden struct {
	// After is the number of visible items before it: items of the request, without the system prompt, and then of the
	// answer's first choice. It is written to the log only after the known items; before their end it is only shown in views.
	After    int         `json:"behind"`
	Replaces bool        `json:"replaces,omitempty"` // the last of those visible items is not shown to the model
	Items    [][]byte    `json:"items"`
	Dialect  uint8       `json:"dialect"`        // its code
	Seen     []wire.Hash `json:"seen,omitempty"` // see Amendment
	// Led: the items led to the answer (tools of a layer, a refused answer). They are not shown with another answer to the same
	// request. If the turn has no answer, since its last call failed, they are shown with any: the tools of layers have run.
	Led bool `json:"led,omitempty"`
}

// hiddenItem is a Hidden on its way into the log.
type hiddenItem struct {
	Hidden
	parsed []wire.Item
	seqs   []uint64 // sequence numbers after a successful commit; empty before
}

// hiddenItems are the items that a turn hides from its client.
type hiddenItems struct {
	list    []hiddenItem
	amended Amendments // the turn's written part of the session's amendments
	written bool       // a commit has written amended, even if it is empty
}

// add parses items and adds them. If one does not parse, it returns an error and adds nothing.
func (hs *hiddenItems) add(list []Hidden) error {
	var added []hiddenItem
	for i, h := range list {
		it := hiddenItem{Hidden: h}
		if len(h.Items) > maxAmendItems || len(h.Seen) > maxAmendItems || h.After < 0 || h.After == 0 && h.Replaces {
			return fmt.Errorf("amendment %d: after %d, with %d items, is none that can be kept", i, h.After, len(h.Items))
		}
		for n, raw := range h.Items {
			parsed, err := wire.ParseItem(dialects.ByCode(h.Dialect), raw)
			if err != nil {
				return fmt.Errorf("amendment %d: item %d: %w", i, n, err)
			}
			it.parsed = append(it.parsed, parsed)
		}
		added = append(added, it)
	}
	hs.list = append(hs.list, added...)
	return nil
}

// restore marks the hidden items that are in the log, by the sequence numbers in the turn's open record: another commit wrote
// them while the answer was pending.
func (hs *hiddenItems) restore(seqs []uint64, requestItems int) {
	for i := range hs.list {
		h := &hs.list[i]
		if h.After > requestItems {
			continue
		}
		if len(h.parsed) > len(seqs) {
			return
		}
		h.seqs, seqs = seqs[:len(h.parsed):len(h.parsed)], seqs[len(h.parsed):]
	}
}

// limit moves hidden items whose place is after the last visible item to that item: an answer may be shorter than expected.
func (hs *hiddenItems) limit(visible int) {
	for i := range hs.list {
		hs.list[i].After = min(hs.list[i].After, visible)
	}
}

// amendments returns the hidden items at their places in the conversation. answer is nil while it is pending.
func (hs *hiddenItems) amendments(p *Place, answer []mark, made Origin) Amendments {
	if len(hs.list) == 0 {
		return nil
	}
	chain, n := p.chain(nil), len(p.in.items)
	end := p.plan.parent.Chain
	if n > 0 {
		end = chain[n-1]
	}
	at := func(after int) wire.Hash {
		switch {
		case after == 0 && p.plan.fresh == 0:
			return p.plan.parent.Chain
		case after == 0:
			return p.in.base.Chain
		case after <= n:
			return chain[after-1]
		}
		pos := position{Chain: end}
		for _, m := range answer[:min(after-n, len(answer))] {
			pos = pos.after(m)
		}
		return pos.Chain
	}

	var list Amendments
	for _, h := range hs.list {
		if h.After > n+len(answer) {
			continue // its place is in the pending answer
		}
		a := Amendment{At: at(h.After), Replaces: h.Replaces, Items: h.Items, Dialect: dialects.ByCode(h.Dialect), Seen: h.Seen, Made: made}
		for i := max(h.After-n, 0); h.Led && i < len(answer) && a.Next == (wire.Hash{}); i++ {
			if answer[i].onChain {
				a.Next = at(n + i + 1)
			}
		}
		if a.At != nowhere {
			list = append(list, a)
		}
	}
	return list
}

// view returns a session's amendments for the turn's view, before there is an answer.
func (hs *hiddenItems) view(all Amendments, p *Place) Amendments {
	if len(hs.list) == 0 {
		return all
	}
	return all.replace(hs.amended, hs.amendments(p, nil, p.call.target()))
}

// hiddenWrite is the part of a turn's hidden items that one commit writes.
type hiddenWrite struct {
	of     *hiddenItems
	anew   bool             // earlier writes are retracted
	seqs   map[int][]uint64 // of the items that it writes, by the index of their hiddenItem
	amends bool             // it writes the session's amendments:
	all    Amendments       // as they will be,
	own    Amendments       // and those among them that are the turn's
}

// mustWrite reports whether a hidden item stands after that many visible items, and the commit has to write it.
func (w *hiddenWrite) mustWrite(i, after int) bool {
	h := &w.of.list[i]
	return h.After == after && (len(h.seqs) == 0 || w.anew)
}

// amend decides whether and how the commit changes the session's amendments (all).
func (w *hiddenWrite) amend(all Amendments, p *Place, answer []mark, made Origin) {
	if len(w.of.list) == 0 {
		return
	}
	w.own = w.of.amendments(p, answer, made)
	same := func(a, b Amendment) bool { return a.equal(&b) && a.Made == b.Made }
	if w.of.written && !w.anew && slices.EqualFunc(w.own, w.of.amended, same) {
		return
	}
	w.amends = true
	w.all = all.replace(w.of.amended, w.own)
}

// allSeqs returns the sequence numbers of all hidden items of the turn after the commit.
func (w *hiddenWrite) allSeqs() []uint64 {
	var seqs []uint64
	for i := range w.of.list {
		now, ok := w.seqs[i]
		if !ok {
			now = w.of.list[i].seqs
		}
		seqs = append(seqs, now...)
	}
	return seqs
}

// done records the writes of a commit for the next one.
func (w *hiddenWrite) done() {
	for i, seqs := range w.seqs {
		w.of.list[i].seqs = seqs
	}
	if w.amends {
		w.of.amended, w.of.written = w.own, true
	}
}
