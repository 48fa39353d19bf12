package pipeline

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"

	"remora/memory/budget"
	"remora/memory/layer"
)

// Block is what one layer tells the model.
type Block struct {
	Layer    string
	Slot     int
	Live     bool     // stands behind the history
	Round    bool     // directly behind the user message that began the round, if it is Live
	Update   bool     // replaces an earlier block of its layer, which still stands in the view
	Messages []string // one developer message each
	Tokens   int      // of the texts
}

type recallKey struct {
	tenant, model string
	cell          Cell
}

// recalled is what an eventual layer said, and of which state it said it.
type recalled struct {
	of    [sha256.Size]byte
	block Block
}

// Recall asks the layers what the model should be told, each within its share of the budget: first those that are
// asked every time, then the eventual ones, both in slot order. The blocks come in slot order. system is what system
// messages and instructions cost, in tokens.
//
// A layer that takes more than its share is left out, and its state stays: what was not shown was not said. One whose
// share is nothing is asked too, with a budget of 0: most then say nothing, and what an operator's rules say all the
// same (SEMANTICS 1.9, case 85) may take what the whole view has, so that Fit decides about it. An eventual layer is
// asked again when its state changed, by whichever replica, when an append hook wants it, and when its earlier text no
// longer fits. held names layers that are not asked, since what they said before will do.
func (r *Run) Recall(ctx context.Context, system int, held ...string) []Block {
	if r.none() {
		return nil
	}
	shares := r.shares(system)
	blocks := make([]Block, len(shares))
	for _, eventual := range []bool{false, true} {
		for i, s := range shares {
			if s.cached == eventual && !slices.Contains(held, s.m.ID) {
				blocks[i] = r.recall(ctx, s)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var said []Block
	r.overhead = max(0, system)
	for i, s := range shares {
		s.m.report.Tokens, s.m.report.Items = blocks[i].Tokens, len(blocks[i].Messages)
		s.m.said, s.m.asked = blocks[i], !slices.Contains(held, s.m.ID)
		if len(blocks[i].Messages) > 0 {
			said = append(said, blocks[i])
			r.overhead += blocks[i].cost()
		}
	}
	return said
}

// Said is a layer that recalls, and what it said.
type Said struct {
	ID   string
	Slot int
	// Live, Placed and Fresh are as in its Layer.
	Live, Placed, Fresh bool
	// Held: it was not asked, or failed.
	Held  bool
	Block Block
}

// Said lists all layers that recall, in slot order, as the last Recall has left them.
func (r *Run) Said() []Said {
	if r.none() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []Said
	for _, m := range r.members {
		if m.recall != nil {
			held := m.off || !m.asked || m.report.Failed == layer.HookRecall
			list = append(list, Said{m.ID, m.Slot, m.Live, m.Placed, m.Fresh, held, m.said})
		}
	}
	return list
}

// share is what a layer may recall.
type share struct {
	m      *member
	tokens int
	cached bool // what it said before will do, if it still holds
	dirty  bool // but not now
}

// shares divides the budget among the layers that recall, and takes down who has to be asked again.
func (r *Run) shares(system int) []share {
	r.mu.Lock()
	defer r.mu.Unlock()
	in := budget.Input{Total: r.p.o.Policy.Budget, Reserve: r.p.o.Policy.Reserve, System: float64(max(0, system))}
	var shares []share
	again := false
	for _, m := range r.members {
		if !m.off && m.recall != nil {
			shares = append(shares, share{m: m, cached: m.Eventual && !r.p.o.AtomicOnly, dirty: m.dirty})
			in.Layers = append(in.Layers, m.Budget)
		}
		again = again || m.dirty
		m.dirty = false
	}
	if again {
		r.renders++
	}
	a, err := budget.Allocate(in)
	if err != nil {
		return nil // a number that is none: nobody gets anything
	}
	for i, tokens := range a.Layers {
		shares[i].tokens = toInt(tokens)
	}
	return shares
}

func toInt(tokens float64) int {
	if tokens >= math.MaxInt64 { // as a float64 it is 2^63, the first that an int cannot hold
		return math.MaxInt
	}
	return int(tokens)
}

func (r *Run) recall(ctx context.Context, of share) Block {
	m, limit := of.m, of.tokens
	if limit == 0 {
		limit = r.Room()
	}
	if limit == 0 {
		return Block{} // the view has room for nothing at all
	}
	key := recallKey{r.tenant, r.turn.Model, m.cell}
	cached := of.cached && m.cell.Key != ""
	if cached && !of.dirty {
		s, _ := m.held.load()
		if old, ok := r.p.recalls.get(key); ok && old.of == sha256.Sum256(s) && old.block.Tokens <= of.tokens {
			return old.block
		}
	}
	got, err := update(ctx, r, m, layer.HookRecall, func(ctx context.Context, s layer.State) (recalled, layer.State, error) {
		rec, err := m.recall.Recall(ctx, m.turn, s, of.tokens)
		if err != nil {
			return recalled{}, s, err
		}
		next := unlessNil(rec.State, s)
		block, err := m.block(rec, limit)
		return recalled{sha256.Sum256(next), block}, next, err
	})
	switch {
	case !cached || err != nil:
	case len(got.block.Messages) == 0:
		r.p.recalls.remove(key)
	default:
		size := 0
		for _, text := range got.block.Messages {
			size += len(text)
		}
		r.p.recalls.put(key, got, size)
	}
	return got.block
}

// block checks what a layer recalled. The layer's own count stands if it is the larger one.
func (m *member) block(rec layer.Recalled, limit int) (Block, error) {
	const (
		refusedAt    = 4  // times the budget
		bytesOfToken = 32 // at most, in text that somebody wrote
	)
	b := Block{Layer: m.ID, Slot: m.Slot, Live: m.Live}
	size := 0
	for _, text := range rec.Messages {
		if size += len(text); text != "" {
			b.Messages = append(b.Messages, text)
		}
	}
	if size > maxRecall || len(b.Messages) > maxMessages || size/bytesOfToken/refusedAt > limit {
		return Block{}, refuse(ClassRefused)
	}
	for _, text := range b.Messages {
		b.Tokens += m.turn.Count(text)
	}
	if len(b.Messages) > 0 {
		b.Tokens = max(b.Tokens, rec.Tokens)
	}
	switch {
	case (b.Tokens-1)/refusedAt >= limit: // more than refusedAt times, without overflow
		return Block{}, refuse(ClassRefused)
	case b.Tokens > limit:
		return Block{}, refuse(ClassBudget)
	}
	return b, nil
}
