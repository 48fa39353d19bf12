package session

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
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
		fromLog[i] = unsent.Has(it)
	}
	for _, out := range turn.View.LeftOut {
		if out.At > 0 && out.At <= len(body) {
			body[out.At-1], _ = body[out.At-1].WithoutCalls(func(c wire.Call) bool { return c.ID == out.Call })
		}
	}
	view.ShortenResults(body, turn.View.ToolResult)
	for i, it := range body {
		if fromLog[i] {
			unsent.Add(it)
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
func sentAs(turn *turnrecord.Record, prompt systemPromptRecord, body []wire.Item, unsent wire.ItemSet, blocks []view.Block) ([]wire.Item, error) {
	first, err := prompt.parse()
	if err != nil {
		return nil, err
	}
	shape, err := shapeOf(&turn.View)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turn.ID, err)
	}
	d, err := dialects.Parse(turn.Dialect)
	if err != nil {
		return nil, err
	}
	m := view.Messages{
		Dialect: d, Instructions: prompt.Instructions, System: first, Items: body, Blocks: blocks,
		Own: func(it wire.Item) bool { return !unsent.Has(it) },
	}
	if turn.View.Continues {
		m.Continue(turn.View.Carried)
	}
	sent := m.In(shape)
	if text := wire.Text(sent.Instructions); text != "" {
		return append([]wire.Item{wire.NewMessage(d, wire.System, text)}, sent.Items...), nil
	}
	return sent.Items, nil
}

// rulesOf are the rules of the dialect that a turn's record names.
func rulesOf(name string) *wire.Rules {
	d, _ := dialects.Parse(name) // an unknown one has rules as well
	return d.Rules()
}

// pick finds the items of a turn's view, from the last one backwards, on the line that ends with the turn's input. unsent
// marks the items, by the address of their bytes, that the client has not sent.
func pick(ctx context.Context, stored transcript, turn *turnrecord.Record) (items []wire.Item, unsent wire.ItemSet, err error) {
	next, stop := iter.Pull2(stored.back(ctx, turn.Tip))
	defer stop()
	p := picker{turn: turn, next: next, unsent: make(wire.ItemSet), data: make(wire.ItemSet)}
	for _, span := range slices.Backward(turn.View.Items) {
		switch {
		case span.N < 0, span.N > 0 && len(span.Is) > 0:
			err = ErrCorrupt
		case span.N > 0:
			err = p.run(span)
		default:
			err = p.literals(span.Is)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	p.dataAsText()
	slices.Reverse(p.items)
	return p.items, p.unsent, nil
}

// dataAsText puts data that models gave as calls into the form that the view had (see adapter.data): it never has other calls
// without a result.
func (p *picker) dataAsText() {
	answered := make(map[string]bool)
	for i, it := range p.items { // newest first
		switch {
		case it.Kind == wire.ToolResult:
			answered[it.Answers().Key()] = true
		case it.HasCalls():
			if unanswered(it, answered) && p.data.Has(it) {
				p.items[i] = it.CallsAsText()
				p.unsent.Add(p.items[i])
			}
		}
	}
}

// picker fills a view from its end with the newest matching item that is not in the view yet: a client's own summary precedes
// the history in its request and follows it in the transcript, and results may have been moved.
type picker struct {
	turn   *turnrecord.Record
	next   func() (*storedItem, error, bool) // of the line, newest first
	read   []passedItem                      // the items read so far
	items  []wire.Item                       // the items found, newest first
	unsent wire.ItemSet                      // that the client has not sent
	data   wire.ItemSet                      // likewise, with calls that their request demanded
}

// passedItem is an item of the line that was read.
type passedItem struct {
	*storedItem
	taken bool // the view has it
}

// onChain reports whether the item is a link of the chain.
func (at *passedItem) onChain() bool { return at.Flags&(flagOffChain|flagHidden) == 0 }

// literals takes items by prefixes of their content hashes.
func (p *picker) literals(is []byte) error {
	const size = 8
	for n := len(is) / size; n > 0; n-- {
		_, err := p.take(0, func(at *passedItem) bool { return !at.taken && bytes.Equal(at.Content[:size], is[size*(n-1):size*n]) })
		if err != nil {
			return err
		}
	}
	return nil
}

// run takes consecutive items of the line.
func (p *picker) run(span turnrecord.Span) error {
	end, err := hex.DecodeString(span.End)
	if err != nil || len(end) == 0 {
		return ErrCorrupt
	}
	link := func(at *passedItem) bool { return at.onChain() && bytes.HasPrefix(at.Pos.Chain[:], end) }
	from, off := 0, recordcodec.NewReader(span.Off)
	for left := uint64(max(0, span.N)); ; {
		item, last := offChainItem{gap: left}, len(off.Data) == 0
		if !last {
			item.fields(&off)
		}
		if off.Bad || item.gap > left {
			return ErrCorrupt
		}
		for range item.gap {
			at, err := p.take(from, link)
			if err != nil {
				return err
			}
			from, link = at+1, (*passedItem).onChain
		}
		if last {
			return nil
		}
		left -= item.gap
		if _, err := p.take(0, func(at *passedItem) bool {
			return !at.taken && !at.onChain() && bytes.HasPrefix(at.Content[:], item.content[:])
		}); err != nil {
			return err
		}
	}
}

// take puts the newest matching item into the view, from an index of read on, and returns its index. It reads the line as far
// as needed.
func (p *picker) take(from int, fits func(*passedItem) bool) (int, error) {
	i := from
	for ; ; i++ {
		switch ok, err := p.has(i); {
		case err != nil:
			return 0, err
		case !ok:
			return 0, errors.New("an item of its view is not in the transcript")
		}
		if fits(&p.read[i]) {
			break
		}
	}

	at := &p.read[i]
	it, err := wire.ParseItem(at.Dialect, at.Raw)
	if err != nil {
		return 0, err
	}
	if at.Flags&flagHidden != 0 {
		it = it.WithObjectArguments() // as the view had it (see adapter.adaptHidden)
	}
	at.taken = true
	unsent := p.turn.View.Stored && at.Turn != p.turn.ID || at.Flags&flagHidden != 0
	if unsent {
		if it, err = p.asSent(it, i); err != nil {
			return 0, err
		}
		at = &p.read[i]
	}
	p.items = append(p.items, it)
	if unsent {
		p.unsent.Add(it)
		if at.Flags&flagData != 0 {
			p.data.Add(it)
		}
	}
	return i, nil
}

// has reports whether the line has an item at an index of read. It reads the line so far.
func (p *picker) has(i int) (bool, error) {
	for i >= len(p.read) {
		at, err, ok := p.next()
		if err != nil || !ok {
			return false, err
		}
		p.read = append(p.read, passedItem{storedItem: at})
	}
	return true, nil
}

// asSent returns an item of the transcript in the form that the proxy sends back to the provider and model that made it (see
// adapter.adaptLine). It is at index i of read.
func (p *picker) asSent(it wire.Item, i int) (wire.Item, error) {
	hidden := p.read[i].Flags&flagHidden != 0
	if back, ok := sentBack(it, func(wire.Audio) bool { return true }); ok {
		it = back
	}
	for i++; !hidden; i++ {
		switch ok, err := p.has(i); {
		case err != nil || !ok:
			return it, err
		case p.read[i].Flags&(flagSummary|flagHidden) != 0:
			continue
		}
		before, err := wire.ParseItem(p.read[i].Dialect, p.read[i].Raw)
		return withoutReasoning(it, before), err
	}
	return it, nil
}

// blocksOf reads the blocks of a turn, one per text.
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
