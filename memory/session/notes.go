package session

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// Notes say what layers did in a turn. They are written with it.
type Notes struct {
	Hidden []Hidden               `json:"hidden,omitempty"`
	Blocks []view.Block           `json:"blocks,omitempty"`
	Layers []turnrecord.LayerNote `json:"layers,omitempty"`
	Carry  [][]byte               `json:"carry,omitempty"` // see Entry.Carry
	Last   string                 `json:"last,omitempty"`  // see Entry.EndsAs
}

// Hidden is an Amendment that a turn makes. It says where it stands by counting, since a turn that another one
// overtook may find its place anew.
type Hidden struct {
	// Behind is the number of visible items before it: items of the request, without the leading ones, and then of the
	// answer's first choice. Only behind new items of the request, and at the end of the known ones, is it written to
	// the log; before that it is only shown in views.
	Behind   int           `json:"behind"`
	Replaces bool          `json:"replaces,omitempty"` // the last of those visible items is not shown to the model
	Items    [][]byte      `json:"items"`
	Dialect  dialects.Code `json:"dialect"`
	Seen     []wire.Hash   `json:"seen,omitempty"` // see Amendment
	// Led: the items led to the answer (tools that a layer ran, an answer that was refused). Another answer to the same
	// request is not given them.
	Led bool `json:"led,omitempty"`
}

// hiddenItem is a Hidden on its way into the log.
type hiddenItem struct {
	Hidden
	parsed []wire.Item
	seqs   []uint64 // where it was written by a commit that succeeded; empty if it was not yet
}

// Amend adds items that the model sees and the client does not. Call it before the Commit that writes them; items added
// before Conversation are part of that. If an item does not parse, Amend returns an error and adds nothing.
func (e *Entry) Amend(list ...Hidden) error {
	var added []hiddenItem
	for i, h := range list {
		it := hiddenItem{Hidden: h}
		if len(h.Items) > maxAmendItems || len(h.Seen) > maxAmendItems || h.Behind < 0 || h.Behind == 0 && h.Replaces {
			return fmt.Errorf("amendment %d: behind %d, with %d items, is none that can be kept", i, h.Behind, len(h.Items))
		}
		for n, raw := range h.Items {
			parsed, err := wire.ParseItem(h.Dialect.Dialect(), raw)
			if err != nil {
				return fmt.Errorf("amendment %d: item %d: %w", i, n, err)
			}
			it.parsed = append(it.parsed, parsed)
		}
		added = append(added, it)
	}
	e.hidden = append(e.hidden, added...)
	return nil
}

// Blocks notes what layers put into the view, in the order of the view. It replaces what was noted before.
func (e *Entry) Blocks(blocks ...view.Block) { e.blocks = blocks }

// PrefixReason records why the view begins a new prefix version, "" if it does not. Call it before Viewed.
func (e *Entry) PrefixReason(reason string) { e.prefixReason = reason }

// Shaped notes in which form the view is sent, whether the stored items in it are portable, and how many of the client's items that changes. It is called after Viewed,
// and replaces what was noted before.
func (e *Entry) Shaped(f view.Form, portable bool, repaired int) {
	e.view.Messages, e.view.Portable = "", portable
	if f != view.AsIs {
		e.view.Messages = f.String()
	}
	e.view.Repaired += repaired - e.shaped
	e.shaped = repaired
}

// Cost notes what the view cost. It is called after Viewed.
func (e *Entry) Cost(t turnrecord.Tokens) { e.view.Tokens = &t }

// Layers notes how the layers fared, in slot order. It replaces what was noted before.
func (e *Entry) Layers(layers ...turnrecord.LayerNote) { e.layers = layers }

// Notes returns the arguments of Amend, Blocks, Layers, Carry and EndsAs, to resume the entry with; nil if there are
// none.
func (e *Entry) Notes() *Notes {
	if len(e.hidden) == 0 && len(e.blocks) == 0 && len(e.layers) == 0 && len(e.carry) == 0 && e.last == "" {
		return nil
	}
	n := &Notes{Blocks: e.blocks, Layers: e.layers, Last: e.last}
	for _, it := range e.carry {
		n.Carry = append(n.Carry, it.Raw)
	}
	for _, h := range e.hidden {
		n.Hidden = append(n.Hidden, h.Hidden)
	}
	return n
}

// resumeNotes takes over the notes of a turn that could not be committed at its time.
func (e *Entry) resumeNotes(n *Notes) error {
	if n == nil {
		return nil
	}
	e.blocks, e.layers, e.last = n.Blocks, n.Layers, n.Last
	for i, raw := range n.Carry {
		it, err := wire.ParseItem(e.call.Request.Dialect, raw)
		if err != nil {
			return fmt.Errorf("item %d of what the response carries: %w", i, err)
		}
		e.carry = append(e.carry, it)
	}
	return e.Amend(n.Hidden...)
}

// nowhere is the chain hash of items whose place in the conversation is unknown.
var nowhere = wire.Hash{0: 0xff, 15: 0xff}

// chain returns the chain hash behind each of the request's items, as they stand in the conversation. stored is the
// line before the request's place, for a client that trimmed its history; items that are not found there are nowhere.
func (e *Entry) chain(stored []wire.Hash) []wire.Hash {
	p := e.place
	out := make([]wire.Hash, len(e.in.items))
	at := p.parent
	for i := p.fresh; i < len(out); i++ {
		at = at.after(e.in.marks[i])
		out[i] = at.Chain
	}
	if p.relation != relTrim {
		for i := range min(p.fresh, len(out)) {
			out[i] = e.in.ends[i].Chain
		}
		return out
	}
	for i := range p.fresh {
		out[i] = nowhere
	}
	here := p.parent.Chain
	for i := p.fresh - 1; i >= p.summary; i-- {
		if out[i] = here; !e.in.marks[i].onChain {
			continue
		}
		for len(stored) > 0 && stored[len(stored)-1] == here {
			stored = stored[:len(stored)-1]
		}
		var before wire.Hash
		if len(stored) > 0 {
			before = stored[len(stored)-1]
		}
		if wire.Chain(before, e.in.marks[i].content) != here {
			break // the line does not reach that far back
		}
		here = before
	}
	return out
}

// amendments returns the amendments of this turn, at their places in the conversation. answer is nil while it is
// pending.
func (e *Entry) amendments(answer []mark, made Origin) Amendments {
	if len(e.hidden) == 0 {
		return nil
	}
	chain, n := e.chain(nil), len(e.in.items)
	end := e.place.parent.Chain
	if n > 0 {
		end = chain[n-1]
	}
	at := func(behind int) wire.Hash {
		switch {
		case behind == 0 && e.place.fresh == 0:
			return e.place.parent.Chain
		case behind == 0:
			return e.in.base.Chain
		case behind <= n:
			return chain[behind-1]
		}
		pos := position{Chain: end}
		for _, m := range answer[:min(behind-n, len(answer))] {
			pos = pos.after(m)
		}
		return pos.Chain
	}
	var list Amendments
	for _, h := range e.hidden {
		if h.Behind > n+len(answer) {
			continue // its place is in an answer that has not come
		}
		a := Amendment{At: at(h.Behind), Replaces: h.Replaces, Items: h.Items, Dialect: h.Dialect.Dialect(), Seen: h.Seen, Made: made}
		for i := max(h.Behind-n, 0); h.Led && i < len(answer) && a.Next == (wire.Hash{}); i++ {
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

// storeAside writes what the client itself has put before the history that it trimmed, and returns the position behind it.
// What it has put there before is not written again: agents that blank the results of old calls go a little further every time.
func (d *draft) storeAside(at position) position {
	var sum wire.Hash
	known := 0
	for i, m := range d.e.in.marks[:d.e.plan.summary] {
		if sum = wire.Chain(sum, m.content); sum == d.head.Summary {
			known = i + 1
		}
	}
	d.head.Summary = sum
	for i := known; i < d.e.plan.summary; i++ {
		at = d.storeInputItem(at, i, flagSummary|flagOffChain)
	}
	return at
}

// storeHidden writes the items hidden behind so many visible ones, unless the log has them already, and returns the
// position behind them. If the visible item is this turn's own, the chain continues from that position, so that later
// items stand behind the hidden ones too.
func (d *draft) storeHidden(at position, behind int, own bool) position {
	var last position // behind what is shown whatever follows
	for i := range d.e.hidden {
		h := &d.e.hidden[i]
		if h.Behind != behind || len(h.seqs) > 0 && !d.retracted {
			continue
		}
		if d.hidden == nil {
			d.hidden = make(map[int][]uint64)
		}
		for _, it := range h.parsed {
			at = d.store(at, it, mark{content: d.e.in.hashes.content(it)}, flagHidden, d.hiddenMade())
			d.hidden[i] = append(d.hidden[i], at.Seq)
		}
		if !h.Led {
			last = at
		}
	}
	if own && last.Seq != 0 {
		d.putPlace(last)
	}
	return at
}

// amend writes the session's amendments if the turn changes them.
func (d *draft) amend() {
	e := d.e
	if len(e.hidden) == 0 {
		return
	}
	var answer []mark
	if !d.open && len(e.answered) > 0 {
		answer = e.answered[0]
	}
	d.amended = e.amendments(answer, d.hiddenMade())
	same := func(a, b Amendment) bool { return a.equal(&b) && a.Made == b.Made }
	if e.amendWritten && !d.retracted && slices.EqualFunc(d.amended, e.amended, same) {
		return
	}
	d.amends = true
	d.all = e.state.amendments.replace(e.amended, d.amended)
	d.puts = append(d.puts, cache.Put{Name: amendName, Data: d.all.encode()})
}

// hiddenMade is the origin of hidden items: their answers were complete, even if the last one was not.
func (d *draft) hiddenMade() Origin {
	made := d.made
	made.Kept = d.e.target().Kept
	return made
}

// noted takes over what a commit has written of the notes.
func (e *Entry) noted(d *draft) {
	for i, seqs := range d.hidden {
		e.hidden[i].seqs = seqs
	}
	if d.amends {
		e.state.amendments, e.amended, e.amendWritten = d.all, d.amended, true
	}
}

// hiddenSeqs are the sequence numbers of all hidden items of the turn.
func (d *draft) hiddenSeqs() []uint64 {
	var seqs []uint64
	for i := range d.e.hidden {
		now, ok := d.hidden[i]
		if !ok {
			now = d.e.hidden[i].seqs
		}
		seqs = append(seqs, now...)
	}
	return seqs
}

func blockHash(text string) wire.Hash {
	sum := sha256.Sum256([]byte(text))
	return wire.Hash(sum[:16])
}

func blockName(h wire.Hash) string { return blockPrefix + string(h[:]) }

// putBlocks writes the texts of the turn's blocks that are not stored already.
func (d *draft) putBlocks() {
	if len(d.e.blocks) == 0 {
		return
	}
	h := d.head
	h.Blocks = slices.Clone(h.Blocks)
	for _, b := range d.e.blocks {
		for i, text := range b.Texts {
			d.putBlock(b, i, blockHash(text))
		}
	}
	h.Blocks = h.Blocks[max(0, len(h.Blocks)-maxBlocks):]
}

// putBlock writes one text of a block, and notes where it stood.
func (d *draft) putBlock(b view.Block, i int, sum wire.Hash) {
	ref := turnrecord.BlockRef{Block: b, System: b.Role == wire.System, Hash: hex.EncodeToString(sum[:])}
	if ref.Texts, ref.Role = nil, wire.RoleNone; i > 0 {
		ref.Tokens = 0 // what all texts cost stands with the first one
	}
	d.blocks = append(d.blocks, ref)

	h := d.head
	if at := slices.Index(h.Blocks, sum); at >= 0 {
		h.Blocks = append(slices.Delete(h.Blocks, at, at+1), sum)
		return
	}
	d.puts = append(d.puts, cache.Put{Name: blockName(sum), Data: []byte(b.Texts[i])})
	h.Blocks = append(h.Blocks, sum)
}

// withoutEchoes leaves out of a request what layers have put into earlier views of the session: a client that repeats it,
// because it read a view somewhere, has not said it.
func (h *head) withoutEchoes(items []wire.Item) []wire.Item {
	if len(h.Blocks) == 0 {
		return items
	}
	isEcho := func(it wire.Item) bool {
		said := it.Kind == wire.Message && (it.Role == wire.System || it.Role == wire.Developer)
		return said && slices.Contains(h.Blocks, blockHash(it.Text()))
	}
	if !slices.ContainsFunc(items, isEcho) {
		return items
	}
	return slices.DeleteFunc(slices.Clone(items), isEcho)
}

// shownBlocks are the latest blocks of each layer in a conversation that upstream keeps: upstream still has them, and they
// need not be sent again. They are stored with a response, since a client may go on from any.
type shownBlocks []shownBlock

type shownBlock struct{ layer, texts wire.Hash }

// maxShownBlocks bounds the layers of shownBlocks.
const maxShownBlocks = 256

// Shown reports whether these texts are the layer's latest in the conversation that the request continues. If the
// request names no known response, everything in the latest views counts.
func (e *Entry) Shown(layer string, texts []string) bool {
	if e.state.shown != nil {
		return slices.Contains(e.state.shown, shownBlock{blockHash(layer), textsHash(texts)})
	}
	return !slices.ContainsFunc(texts, func(text string) bool { return !slices.Contains(e.state.head.Blocks, blockHash(text)) })
}

// textsHash tells lists of texts apart.
func textsHash(texts []string) wire.Hash {
	var all []byte
	for _, text := range texts {
		sum := blockHash(text)
		all = append(all, sum[:]...)
	}
	return blockHash(string(all))
}

// shownBlocks returns the latest blocks as of the turn's own response; false if no layer of the session has ever had one.
func (e *Entry) shownBlocks() (shownBlocks, bool) {
	all := shownBlocks{}
	if e.in.stateful || e.in.unresolved() {
		all = slices.Clone(e.state.shown)
	}
	byLayer := make(map[string][]string)
	var order []string
	for _, b := range e.blocks {
		if !slices.Contains(order, b.Layer) && len(b.Texts) > 0 {
			order = append(order, b.Layer)
		}
		byLayer[b.Layer] = append(byLayer[b.Layer], b.Texts...)
	}
	for _, id := range order {
		name := blockHash(id)
		all = slices.DeleteFunc(all, func(t shownBlock) bool { return t.layer == name })
		all = append(all, shownBlock{name, textsHash(byLayer[id])})
	}
	return all[max(0, len(all)-maxShownBlocks):], len(all) > 0 || len(e.state.head.Blocks) > 0
}

func (t shownBlocks) encode() []byte {
	b := []byte{recordVersion}
	for _, one := range t {
		b = append(append(b, one.layer[:]...), one.texts[:]...)
	}
	return b
}

func decodeShownBlocks(b []byte) (shownBlocks, error) {
	const size = 2 * len(wire.Hash{})
	if len(b) == 0 || b[0] != recordVersion || len(b[1:])%size != 0 || len(b[1:]) > maxShownBlocks*size {
		return nil, ErrCorrupt
	}
	t := shownBlocks{}
	for one := range slices.Chunk(b[1:], size) {
		t = append(t, shownBlock{wire.Hash(one[:size/2]), wire.Hash(one[size/2:])})
	}
	return t, nil
}
