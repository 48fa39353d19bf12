package view

import (
	"cmp"
	"iter"
	"math"
	"slices"

	"remora/wire"
)

// Block is a layer's recalled text in one turn: the same value from the layer's recall, through the budget and its
// place in the view, to the record of the turn.
type Block struct {
	Layer  string `json:"layer"` // id
	Slot   int    `json:"slot"`
	Tokens int    `json:"tokens"` // of Texts
	Place
	Texts []string `json:"texts,omitempty"` // one message each
	// Role is the role of the messages, system or developer, set once the view is chosen.
	Role wire.Role `json:"role,omitempty"`
	// Update: it replaces an earlier block of its layer, which still stands in the view.
	Update bool `json:"-"`
}

// Place is where a block stands in a view. The zero Place is before the history; the others are made by [AfterUser], [End]
// and [Inside]. The fields are the stored form.
type Place struct {
	Live   bool `json:"live,omitempty"` // in or after the history
	Run    bool `json:"run,omitempty"`
	Inside bool `json:"inside,omitempty"`
	At     int  `json:"at,omitempty"`
}

// AfterUser is directly after the user message that began the run.
func AfterUser() Place { return Place{Live: true, Run: true} }

// End is after the history.
func End() Place { return Place{Live: true} }

// Inside is in the history, after a number of units of the conversation, or, once the view is chosen, of items of its history.
func Inside(at int) Place { return Place{Live: true, Inside: true, At: at} }

// messageTokens is the overhead of a message in tokens, as in package tokens.
const messageTokens = 4

// Cost returns what a block costs in a view, in tokens.
func (b *Block) Cost() int { return b.Tokens + messageTokens*len(b.Texts) }

// size returns how many bytes of text a block has.
func (b Block) size() int {
	n := 0
	for _, text := range b.Texts {
		n += len(text)
	}
	return n
}

// placed are blocks as messages, by their place in a view.
type placed struct {
	anchored []wire.Item // before the history
	run      []wire.Item // directly after the user message that began the run
	inside   []inside    // where it was first sent
	live     []wire.Item // at the end
}

// inside is a message within the history, after a number of its items.
type inside struct {
	after int
	item  wire.Item
}

// place makes messages of blocks.
func place(d wire.Dialect, blocks []Block) (p placed) {
	for i := range blocks {
		b := &blocks[i]
		for _, text := range b.Texts {
			it := wire.NewMessage(d, b.Role, text)
			switch {
			case b.Inside:
				p.inside = append(p.inside, inside{b.At, it})
			case b.Run:
				p.run = append(p.run, it)
			case b.Live:
				p.live = append(p.live, it)
			default:
				p.anchored = append(p.anchored, it)
			}
		}
	}
	return p
}

// around puts blocks into a view. Without a user message, the blocks of the run stand at its end. A run's blocks stay the same
// while the model calls tools, as do the items before and after them, so all of them can be cached.
func (p *placed) around(system, items []wire.Item) []wire.Item {
	out := make([]wire.Item, 0, len(system)+len(p.anchored)+len(p.run)+len(p.inside)+len(items)+len(p.live))
	out = append(append(out, system...), p.anchored...)
	for piece := range p.pieces(items) {
		out = append(out, piece...)
	}
	return append(out, p.live...)
}

// pieces splits a history at the places of blocks, and yields both in order: pieces of the history, and blocks, which are
// marked.
func (p *placed) pieces(items []wire.Item) iter.Seq2[[]wire.Item, bool] {
	run := math.MaxInt // at the end, also if that is directly after the user message
	if begun := lastAsked(items) + 1; 0 < begun && begun < len(items) {
		run = begun
	}
	blocks := slices.Clone(p.inside)
	for _, it := range p.run {
		blocks = append(blocks, inside{run, it})
	}
	slices.SortStableFunc(blocks, func(a, b inside) int { return cmp.Compare(a.after, b.after) })

	return func(yield func(piece []wire.Item, block bool) bool) {
		from := 0
		for _, b := range blocks {
			at := min(max(b.after, 0), len(items))
			if from < at && !yield(items[from:at], false) || !yield([]wire.Item{b.item}, true) {
				return
			}
			from = at
		}
		if from < len(items) {
			yield(items[from:], false)
		}
	}
}
