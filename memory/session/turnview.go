package session

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"remora/memory/recordcodec"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
)

// turnView rebuilds what a turn sent upstream: see Log.TurnView.
func turnView(ctx context.Context, stored transcript, turnID string) ([]wire.Item, error) {
	raw, err := stored.turn(ctx, turnID)
	if err != nil {
		return nil, err
	}
	var turn turnrecord.Record
	if err := json.Unmarshal(raw, &turn); err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, ErrCorrupt)
	}
	var prompt systemPromptRecord
	if turn.View.SystemPrompt != "" {
		hash, err := parseHash(turn.View.SystemPrompt)
		if err != nil {
			return nil, err
		}
		if prompt, err = stored.systemPrompt(ctx, hash); err != nil {
			return nil, err
		}
	}
	body, unsent, err := pick(ctx, stored, &turn)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, err)
	}
	fromLog := make([]bool, len(body)) // what is shortened below has other bytes
	for i, it := range body {
		fromLog[i] = len(it.Raw) > 0 && unsent[&it.Raw[0]]
	}
	for _, out := range turn.View.LeftOut {
		if out.At > 0 && out.At <= len(body) {
			body[out.At-1], _ = body[out.At-1].WithoutCalls(func(c wire.Call) bool { return c.ID == out.Call })
		}
	}
	view.ShortenResults(body, turn.View.ToolResult)
	for i, it := range body {
		if fromLog[i] && len(it.Raw) > 0 {
			unsent[&it.Raw[0]] = true
		}
	}
	blocks, err := blocksOf(ctx, stored, &turn)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, err)
	}
	return sentAs(&turn, prompt, body, unsent, blocks)
}

// sentAs returns a turn's view in the form in which it was sent. Changed instructions stand first. unsent marks the
// items, by the address of their bytes, that the client has not sent.
func sentAs(turn *turnrecord.Record, prompt systemPromptRecord, body []wire.Item, unsent map[*byte]bool, blocks []view.Block) ([]wire.Item, error) {
	first, err := prompt.parse()
	if err != nil {
		return nil, err
	}
	form := view.AsIs
	if turn.View.Messages != "" {
		if form, err = view.ParseForm(turn.View.Messages); err != nil {
			return nil, fmt.Errorf("turn %s: %w", turn.ID, err)
		}
	}
	d, err := dialects.Parse(turn.Dialect)
	if err != nil {
		return nil, err
	}
	m := view.Messages{
		Dialect: d, Instructions: prompt.Instructions, System: first, Items: body, Blocks: blocks,
	}
	if turn.View.Continues {
		m.Continue(turn.View.Carried)
	}
	if turn.View.Portable {
		m.MakePortable(func(it wire.Item) bool { return len(it.Raw) == 0 || !unsent[&it.Raw[0]] }, turn.View.NoCalls)
	}
	mend, err := view.ParseMend(turn.View.Mended)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turn.ID, err)
	}
	sent := m.As(form)
	sent.Items = mend.Apply(sent.Items)
	if text := wire.Text(sent.Instructions); text != "" {
		it, err := instruction(d, true, text)
		if err != nil {
			return nil, err
		}
		return append([]wire.Item{it}, sent.Items...), nil
	}
	return sent.Items, nil
}

// rulesOf are the rules of the dialect that a turn's record names.
func rulesOf(name string) *wire.Rules {
	d, _ := dialects.Parse(name) // an unknown one has rules as well
	return d.Rules()
}

// pick finds the items of a turn's view, from the last one backwards along the line that ends with the turn's input.
// unsent marks the items, by the address of their bytes, that the client has not sent.
func pick(ctx context.Context, stored transcript, turn *turnrecord.Record) (items []wire.Item, unsent map[*byte]bool, err error) {
	p, err := newPicker(turn)
	if err != nil || p.left == 0 {
		return nil, p.unsent, err
	}
	for at, err := range stored.backBy(ctx, turn.Tip, exportPage, exportPage) {
		if err == nil {
			err = p.take(at)
		}
		if err != nil {
			return nil, nil, err
		}
		if p.left == 0 {
			break
		}
	}
	if p.left > 0 {
		return nil, nil, fmt.Errorf("%d items of its view are not in the transcript", p.left)
	}
	slices.Reverse(p.found)
	return p.found, p.unsent, nil
}

// picker fills a view from its end.
type picker struct {
	turn   *turnrecord.Record
	unsent map[*byte]bool // by where an item's bytes are: the client has not sent it
	found  []wire.Item    // newest first
	left   int            // items still to be found

	spans []turnrecord.Span  // still to be found, as far as n and off do not say less of the last one
	n     int                // items on the chain, or those that are named by content, that are left of the last span
	off   recordcodec.Reader // of the last span: what is not on the chain
	gap   uint64             // how many on the chain stand behind the next of those
	at    *passedItem        // that was found last of the span's items on the chain, nil for none
	last  *passedItem        // that was read last

	// What was read of the line: a client's own summary stands before the history in its request and behind it in the
	// transcript, and results stand elsewhere in the view where upstream demands it.
	byContent map[[8]byte][]*passedItem
	byPrefix  map[[4]byte][]*passedItem // those that are not on the chain
	byChain   map[[8]byte]*passedItem
}

// passedItem is an item of the line that was read.
type passedItem struct {
	*storedItem
	before [8]byte // the beginning of the chain hash before it, once the item there was read
	known  bool    // it was
	taken  bool    // the view has it
}

func newPicker(turn *turnrecord.Record) (*picker, error) {
	p := &picker{
		turn: turn, spans: turn.View.Items, unsent: make(map[*byte]bool),
		byContent: make(map[[8]byte][]*passedItem), byPrefix: make(map[[4]byte][]*passedItem), byChain: make(map[[8]byte]*passedItem),
	}
	for _, r := range p.spans {
		n := len(r.Is) / 8
		if r.N > 0 {
			off := recordcodec.Reader{Rest: r.Off}
			for n = r.N; len(off.Rest) > 0 && !off.Bad; n++ {
				off.Uvarint()
				off.Take(4)
			}
			if off.Bad {
				return p, ErrCorrupt
			}
		}
		if p.left += n; n < 0 || p.left < 0 || r.N > 0 && len(r.Is) > 0 {
			return p, ErrCorrupt
		}
	}
	p.beginSpan()
	return p, nil
}

// beginSpan turns to the last span that has items.
func (p *picker) beginSpan() {
	for len(p.spans) > 0 {
		r := p.spans[len(p.spans)-1]
		p.at, p.n, p.off = nil, len(r.Is)/8, recordcodec.Reader{}
		if r.N > 0 {
			p.n, p.off.Rest = r.N, r.Off
			p.readGap()
		}
		if p.n > 0 {
			return
		}
		p.spans = p.spans[:len(p.spans)-1]
	}
}

func (p *picker) readGap() {
	if len(p.off.Rest) > 0 {
		p.gap = p.off.Uvarint()
	}
}

// take is given the line's items, newest first.
func (p *picker) take(at *storedItem) error {
	if p.last != nil {
		p.last.before, p.last.known = [8]byte(at.Pos.Chain[:8]), true
	}
	p.last = &passedItem{storedItem: at}
	content := [8]byte(at.Content[:8])
	p.byContent[content] = append(p.byContent[content], p.last)
	if at.Flags&(flagOffChain|flagHidden) != 0 {
		prefix := [4]byte(content[:4])
		p.byPrefix[prefix] = append(p.byPrefix[prefix], p.last)
	} else {
		p.byChain[[8]byte(at.Pos.Chain[:8])] = p.last
	}
	for p.left > 0 {
		found, err := p.next()
		if found == nil || err != nil {
			return err
		}
	}
	return nil
}

// next returns the item before those that are found, nil if it was not read yet.
func (p *picker) next() (*passedItem, error) {
	r := &p.spans[len(p.spans)-1]
	if r.N > 0 && len(p.off.Rest) > 0 && p.gap == 0 {
		found := newest(p.byPrefix[[4]byte(p.off.Rest[:4])])
		if found == nil {
			return nil, nil
		}
		p.off.Take(4)
		p.readGap()
		return found, p.put(found)
	}

	var found *passedItem
	switch {
	case r.N == 0:
		found = newest(p.byContent[[8]byte(r.Is[8*(p.n-1):])])
	case p.at == nil:
		var end [8]byte
		if n, err := hex.Decode(end[:], []byte(r.End)); n != len(end) || err != nil {
			return nil, ErrCorrupt
		}
		found = p.byChain[end]
	case p.at.known:
		found = p.byChain[p.at.before]
	}
	if found == nil {
		return nil, nil
	}
	p.n--
	p.at = found
	if len(p.off.Rest) > 0 {
		p.gap--
	}
	return found, p.put(found)
}

// newest is the last of a list that the view does not have yet, nil if there is none.
func newest(list []*passedItem) *passedItem {
	for _, it := range slices.Backward(list) {
		if !it.taken {
			return it
		}
	}
	return nil
}

func (p *picker) put(at *passedItem) error {
	it, err := wire.ParseItem(at.Dialect, at.Raw)
	if err != nil {
		return err
	}
	if at.Flags&flagHidden != 0 {
		it = it.WithObjectArguments() // as the view had it (see adapter.adaptHidden)
	}
	at.taken = true
	p.left--
	p.found = append(p.found, it)
	if len(it.Raw) > 0 {
		p.unsent[&it.Raw[0]] = p.turn.View.Stored && at.Turn != p.turn.ID || at.Flags&flagHidden != 0
	}
	if p.n == 0 && len(p.off.Rest) == 0 {
		p.spans = p.spans[:len(p.spans)-1]
		p.beginSpan()
	}
	return nil
}

// blocksOf reads the blocks of a turn, one for each of their texts.
func blocksOf(ctx context.Context, stored transcript, turn *turnrecord.Record) ([]view.Block, error) {
	texts, err := stored.blocks(ctx, turn.Blocks)
	if err != nil {
		return nil, err
	}
	blocks := make([]view.Block, len(texts))
	for i, text := range texts {
		ref := turn.Blocks[i]
		if text == nil {
			return nil, fmt.Errorf("block of layer %q is not stored", ref.Layer)
		}
		blocks[i] = ref.Block
		blocks[i].Texts, blocks[i].Role = []string{string(text)}, wire.Developer
		if ref.System {
			blocks[i].Role = wire.System
		}
	}
	return blocks, nil
}

// instruction is a system or a developer message of the dialect.
func instruction(d wire.Dialect, system bool, text string) (wire.Item, error) {
	message := struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{"developer", text}
	if system {
		message.Role = "system"
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(message); err != nil {
		return wire.Item{}, fmt.Errorf("encode block: %w", err)
	}
	return wire.ParseItem(d, bytes.TrimSpace(raw.Bytes()))
}
