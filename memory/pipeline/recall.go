package pipeline

import (
	"context"
	"crypto/sha256"
	"math"
	"slices"

	"remora/memory/layer"
	"remora/memory/view"
	"remora/wire"
)

type recallKey struct {
	tenant, model string
	cell          Cell
}

// recalled is an eventual layer's block with the state at its recall.
type recalled struct {
	of     [sha256.Size]byte
	block  view.Block
	noRoom bool // for any of it
}

// preparation is the hooks that are called before a request is sent.
type preparation struct {
	*layerSet
	sizer  *Sizer
	system int // tokens of the system prompt, once Recall is called
}

// Recall gets the layers' blocks, each within its share of the budget: first the atomic layers, then the eventual ones, both in
// slot order. The blocks come in slot order. system is the cost of system messages and instructions, in tokens.
//
// A layer that exceeds its share is left out, and its state does not change. A layer without a share is called with a budget of
// 0: most return nothing; if an operator's rules return a block anyway, it may use the budget of the whole view, so that Fit
// decides. An eventual layer is called again if any replica changed its state, its append hook requests it, or its earlier text
// no longer fits. held lists layers whose earlier blocks are used: they are called only if their append hook requests it.
func (r *preparation) Recall(ctx context.Context, system int, held ...string) []view.Block {
	if r.Empty() {
		return nil
	}
	r.system = max(0, system)
	if !r.expectsBlocks(held) {
		return nil
	}

	shares := r.shares()
	for _, eventual := range []bool{false, true} {
		for _, s := range shares {
			if r.eventual(s.m) == eventual && s.m.asked && !s.m.silent {
				r.recall(ctx, s, s.m.turn)
			}
		}
	}
	return r.blocks()
}

// expectsBlocks determines the layers to call, and reports whether any may return a block.
func (r *preparation) expectsBlocks(held []string) bool {
	expects := false
	for _, m := range r.layers {
		if m.recall == nil || m.off {
			continue
		}
		quiet := m.quiet(m.turn)
		r.mu.Lock()
		m.block, m.asked, m.failed = view.Block{}, m.rerender || !slices.Contains(held, m.ID), false
		expects = expects || m.asked && !quiet
		r.mu.Unlock()
	}
	return expects
}

// eventual reports whether what a layer said before will do, if its state is the same.
func (r *preparation) eventual(m *runningLayer) bool { return m.Eventual && !r.p.o.AtomicOnly }

// OfView reports whether a layer must be called again after the view is chosen.
func (r *preparation) OfView() bool {
	return r.any(func(m *runningLayer) bool { return m.ofView && m.recall != nil })
}

// ViewOf describes the part of the conversation that the model sees.
type ViewOf struct {
	Has      func(content wire.Hash) bool // nil for nothing that is known
	Upstream bool                         // all of the session, which upstream keeps itself
	Cut      *layer.WindowCut             // what the window has cut off, nil for nothing
}

// RecallOfView calls those of the layers again that Recall has called and whose recall depends on the view, and returns the blocks
// of all layers.
func (r *preparation) RecallOfView(ctx context.Context, of ViewOf) []view.Block {
	for _, s := range r.shares() {
		if !s.m.ofView || !s.m.asked {
			continue
		}
		turn := *s.m.turn
		turn.InView, turn.Upstream, turn.Cut = of.Has, of.Upstream, of.Cut
		if turn.InView == nil {
			turn.InView = func(wire.Hash) bool { return false }
		}
		if s.m.quiet(&turn) {
			r.mu.Lock()
			s.m.block = view.Block{}
			r.mu.Unlock()
		} else {
			r.recall(ctx, s, &turn)
		}
	}
	return r.blocks()
}

// blocks returns what the layers have said, in slot order.
func (r *preparation) blocks() (said []view.Block) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.layers {
		if len(m.block.Texts) > 0 {
			said = append(said, m.block)
		}
	}
	return said
}

// Said lists all layers with a recall hook, in slot order, with their blocks from the last Recall.
func (r *preparation) Said() []view.Said {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]view.Said, 0, len(r.layers))
	for _, m := range r.layers {
		if m.recall != nil {
			said := view.Said{Block: m.block, Placement: m.Placement, Fresh: m.Fresh}
			said.Layer, said.Slot = m.ID, m.Slot
			said.Quiet = m.silent
			said.Held = m.off || !m.asked || m.failed
			list = append(list, said)
		}
	}
	return list
}

// LeftOut records the layers whose blocks the view had no room for. Call it before Store.
func (r *preparation) LeftOut(blocks []view.Block) {
	if len(blocks) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range blocks {
		for _, m := range r.layers {
			m.unshown = m.unshown || m.ID == b.Layer
		}
	}
}

// share is a layer's budget for recall.
type share struct {
	m      *runningLayer
	tokens int
}

// shares divides the budget among the layers with a recall hook.
func (r *preparation) shares() []share {
	in := allocation{Total: r.sizer.free(), System: float64(r.system)}
	in.Layers = make([]layer.Budget, 0, len(r.layers))
	shares := make([]share, 0, len(r.layers))
	for _, m := range r.layers {
		if !m.off && m.recall != nil {
			shares = append(shares, share{m: m})
			in.Layers = append(in.Layers, m.Budget)
		}
	}
	allowed, err := allocate(in)
	if err != nil {
		return nil // NaN: no layer gets anything
	}
	for i, tokens := range allowed {
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

// recall calls a layer, or finds what it has said of the same state.
func (r *preparation) recall(ctx context.Context, of share, turn *layer.Turn) {
	m, limit := of.m, of.tokens
	if limit == 0 {
		limit = r.sizer.Room()
	}
	if limit == 0 { // the view has room for nothing at all
		r.mu.Lock()
		m.asked = false // so that its earlier block is not taken for void
		r.mu.Unlock()
		return
	}
	key := recallKey{r.tenant, r.turn.Model, m.cell}
	cached := r.eventual(m) && m.cell.Key != "" && turn.InView == nil
	if cached && !m.rerender {
		s, _ := m.held.load()
		if old, ok := r.p.recalls.Find(key); ok && old.of == sha256.Sum256(s) && old.block.Tokens <= of.tokens {
			r.mu.Lock()
			m.block = old.block
			r.mu.Unlock()
			return
		}
	}
	got, err := update(ctx, m, layer.HookRecall, func(ctx context.Context, s layer.State) (recalled, layer.State, error) {
		rec, err := m.recall.Recall(ctx, turn, s, of.tokens)
		if err != nil {
			return recalled{}, s, err
		}
		next := unlessNil(rec.State, s)
		block, err := m.checked(rec, limit)
		return recalled{sha256.Sum256(next), block, rec.NoRoom && len(block.Texts) == 0}, next, err
	})
	r.mu.Lock()
	m.block, m.failed, m.report.NoRoom = got.block, err != nil, err == nil && got.noRoom
	if m.report.NoRoom && of.tokens == 0 && m.Budget.Max() > 0 { // no share: it only said that there is something to say
		m.asked = false
	}
	r.mu.Unlock()
	switch {
	case !cached || err != nil:
	case len(got.block.Texts) == 0:
		r.p.recalls.Drop(key)
	default:
		size := entrySize
		for _, text := range got.block.Texts {
			size += len(text)
		}
		r.p.recalls.Put(key, got, keptRecalls)
		r.p.recalls.Resize(key, size, r.p.keptBytes)
	}
}
