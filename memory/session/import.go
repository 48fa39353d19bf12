package session

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// importChunk is how many values one commit of an import writes.
const importChunk = 1000

// importer collects the values to write.
type importer struct {
	log     *Log
	scope   Scope
	head    *head
	at      map[uint64]replyPosition      // of every item
	turns   map[string]*turnrecord.Record // by id
	named   map[string]uint64             // turns that items name, and the first of these
	prompts []wire.Hash
	blocks  []wire.Hash
	puts    []cache.Put
}

func (im *importer) put(name string, data []byte) {
	im.puts = append(im.puts, cache.Put{Name: name, Data: data, Lasting: true})
}

// read reads and writes a whole export: see Log.Import.
func (im *importer) read(ctx context.Context, r io.Reader) error {
	dec := json.NewDecoder(bufio.NewReader(r))
	for n := 1; ; n++ {
		var l ExportLine
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("import line %d: %w", n, err)
		}
		if err := im.line(l); err != nil {
			return fmt.Errorf("import line %d: %w", n, err)
		}
	}
	if err := im.whole(); err != nil {
		return fmt.Errorf("import: %w", err)
	}
	if err := im.clear(ctx); err != nil {
		return err
	}
	if err := im.list(ctx); err != nil { // first: an entry without a session is harmless
		return err
	}
	return im.write(ctx)
}

func (im *importer) line(l ExportLine) error {
	if (l.Session != nil) != (im.head == nil) {
		return errors.New("want the session in the first line, and in no other")
	}
	switch {
	case l.Session != nil:
		if l.Session.Version != exportVersion {
			return fmt.Errorf("remora_transcript: want version %d, have %d", exportVersion, l.Session.Version)
		}
		h, err := decodeHead(l.Session.State)
		if err != nil {
			return fmt.Errorf("state: %w", err)
		}
		if l.Session.Head != h.Pos.Seq || l.Session.Items != h.items() {
			return errors.New("head and items are not those of the state")
		}
		im.head = h
		h.Pending = nil // the records of turns that wait for others are not exported
		if b := l.Session.Amendments; b != nil {
			if _, err := decodeAmendments(b); err != nil {
				return fmt.Errorf("amendments: %w", err)
			}
			im.put(amendName, b)
		}
	case l.Item != nil:
		if err := im.item(l.Item); err != nil {
			return fmt.Errorf("item %d: %w", l.Item.Seq, err)
		}
	case l.SystemPrompt != nil:
		return im.systemPrompt(l.SystemPrompt)
	case l.Block != nil:
		return im.block(l.Block)
	case l.Turn != nil:
		return im.turn(l.Turn)
	default:
		return errors.New("neither session, item, turn, system_prompt nor block")
	}
	return nil
}

func (im *importer) item(l *ExportedItem) error {
	if _, used := im.at[l.Seq]; used || l.Seq == 0 || l.Seq >= im.head.NextSeq {
		return fmt.Errorf("seq: want a number from 1 to %d that no other item has", im.head.items())
	}
	it, err := l.Item()
	if err != nil {
		return err
	}
	parent, ok := im.at[l.Parent]
	if !ok && l.Parent != 0 {
		return fmt.Errorf("parent %d has not been imported", l.Parent)
	}
	meaning := it.Meaning()
	stored := storedItem{Parent: l.Parent, Content: meaning.Content, Line: l.Line, Dialect: it.Dialect, Turn: l.Turn, Raw: it.Raw, Made: newOrigin(l.Provider, l.Model, l.Kept)}
	for flag, set := range l.flags() {
		if *set {
			stored.Flags |= flag
		}
	}
	if it.Kind == wire.Reference {
		// Its content hash is that of the referenced item, which this store does not have.
		if stored.Content, err = parseHash(l.Content); err != nil {
			return err
		}
		meaning = wire.Meaning{Content: stored.Content}
	}
	stored.Pos = parent.Pos.after(mark{Meaning: meaning, onChain: !l.Off, units: l.Units - parent.Pos.Units}).stored(l.Seq, it, stored.Flags)
	if want, err := parseHash(l.Chain); err != nil || want != stored.Pos.Chain {
		return fmt.Errorf("chain hash is not %q: the item or one before it was changed", l.Chain)
	}
	here := linePosition{Pos: stored.Pos, Line: l.Line, Side: l.Side}
	im.at[l.Seq] = replyPosition{here, stored.Made.Provider}
	im.named[l.Turn] = cmp.Or(im.named[l.Turn], l.Seq)
	for _, p := range stored.cut() {
		im.put(mediaName(p.Digest), p.Encode())
	}
	im.put(itemName(l.Seq), stored.encode())
	if l.Hidden {
		// Later items follow it: see turnCommit.storeHidden.
		im.put(chainName(stored.Pos.Chain), here.encode())
		return nil
	}
	if !l.Off {
		at := here.encode()
		im.put(chainName(stored.Pos.Chain), at)
		if landmark(it) {
			im.put(textName(stored.Content), at)
		}
	}
	if name, data, ok := referenceOf(it, l.Seq, stored.Made.Provider); ok {
		im.put(name, data)
	}
	return nil
}

func (im *importer) systemPrompt(l *ExportedPrompt) error {
	hash, err := parseHash(l.Hash)
	if err != nil {
		return err
	}
	if slices.Contains(im.prompts, hash) {
		return fmt.Errorf("system_prompt %s is there already", l.Hash)
	}
	im.prompts = append(im.prompts, hash)
	im.put(systemPromptName(hash), l.Record)
	return nil
}

func (im *importer) block(l *ExportedBlock) error {
	hash, err := parseHash(l.Hash)
	if err != nil {
		return err
	}
	if hash != blockHash(string(l.Text)) {
		return fmt.Errorf("block %s: its text was changed", l.Hash)
	}
	im.blocks = append(im.blocks, hash)
	im.put(blockName(hash), l.Text)
	return nil
}

func (im *importer) turn(record json.RawMessage) error {
	var t turnrecord.Record
	if err := json.Unmarshal(record, &t); err != nil || t.ID == "" {
		return errors.New("turn has no id")
	}
	if im.turns[t.ID] != nil {
		return fmt.Errorf("turn %s is there already", t.ID)
	}
	im.turns[t.ID] = &t
	im.put(turnPrefix+t.ID, record)
	im.claim(&t)
	if t.ResponseID != "" && rulesOf(t.Dialect).Previous != "" && len(t.Output) > 0 && len(t.Output[0]) > 0 {
		end := im.at[t.Output[0][len(t.Output[0])-1]]
		end.Side = t.Side != ""
		im.put(idName(replyPrefix, t.ResponseID), encode(&end))
	}
	return nil
}

// claim indexes the place before a turn's items for their line if they begin it: see plan.claims.
func (im *importer) claim(t *turnrecord.Record) {
	at, own := im.at[t.Parent], slices.Concat(append([][]uint64{t.Input}, t.Output...)...)
	if t.Parent == 0 || t.Alone || t.Side != "" || len(own) == 0 || im.at[own[0]].Line == at.Line {
		return
	}
	im.put(chainName(at.Pos.Chain), (&linePosition{Pos: at.Pos, Line: im.at[own[0]].Line}).encode())
}

// whole returns an error for the first item or turn that the session refers to and the file lacks.
func (im *importer) whole() error {
	h := im.head
	if h == nil {
		return errors.New("no session line")
	}
	for turn, seq := range im.named {
		if im.turns[turn] == nil {
			return fmt.Errorf("turn %s of item %d is missing: the file is not whole", turn, seq)
		}
	}
	// An input that was retracted during the export may be one of the other ends.
	h.Tails = slices.DeleteFunc(h.Tails, func(t tail) bool { return im.at[t.Pos.Seq].Pos.Seq == 0 })
	ends := append([]position{h.Pos}, h.Begun...)
	for _, t := range h.Tails {
		ends = append(ends, t.Pos)
	}
	for _, end := range ends {
		if at, ok := im.at[end.Seq]; end.Seq != 0 && (!ok || at.Pos != end) {
			return fmt.Errorf("item %d, which the session names, is missing or another: the file is not whole", end.Seq)
		}
	}
	for _, e := range h.Ring {
		if _, ok := im.at[e.Seq]; !ok && e.Seq != 0 {
			return fmt.Errorf("item %d, which the session names, is missing: the file is not whole", e.Seq)
		}
	}
	last := []string{h.LastTurn, h.LastEmpty}
	for _, t := range im.turns {
		last = append(last, t.Before)
		for _, seqs := range append([][]uint64{t.Input}, t.Output...) {
			for _, seq := range seqs {
				if _, ok := im.at[seq]; !ok {
					return fmt.Errorf("item %d of turn %s is missing: the file is not whole", seq, t.ID)
				}
			}
		}
	}
	for _, id := range last {
		if id != "" && im.turns[id] == nil {
			return fmt.Errorf("turn %s is missing: the file is not whole", id)
		}
	}
	return nil
}

// list adds the session to the indexes of its turns' resources.
func (im *importer) list(ctx context.Context) error {
	var batches []cache.Batch
	listed := map[string]bool{"": true}
	for _, t := range im.turns {
		if !listed[t.Resource] {
			listed[t.Resource] = true
			s := im.scope
			s.Resource = t.Resource
			batches = append(batches, im.log.Index.entries(s)...)
		}
	}
	if len(batches) == 0 {
		return nil
	}
	for _, out := range im.log.store.Commit(ctx, batches) {
		if out.Err != nil {
			return fmt.Errorf("list the session at its resource: %w", out.Err)
		}
	}
	return nil
}

// write stores the collected values. The head is written last: until then there is no session. If a write fails, the values
// written so far are deleted.
func (im *importer) write(ctx context.Context) error {
	// If the export lacks a block of the head's list, the next turn with it must write it.
	im.head.Blocks = slices.DeleteFunc(im.head.Blocks, func(b wire.Hash) bool { return !slices.Contains(im.blocks, b) })
	puts := append(im.puts, cache.Put{Name: headName, Data: im.head.encode()})
	version := uint64(0)
	for len(puts) > 0 {
		n := min(len(puts), importChunk)
		out := im.log.store.Commit(ctx, []cache.Batch{{
			Group: im.scope.Group(), Expect: version, Puts: puts[:n], TTL: im.log.ttl, Listed: n == len(puts),
		}})[0]
		switch {
		case errors.Is(out.Err, cache.ErrConflict):
			return ErrSessionExists
		case out.Err != nil && version == 0:
			return out.Err // it may be stored, and be all
		case out.Err != nil:
			return errors.Join(out.Err, im.log.store.Delete(context.WithoutCancel(ctx), im.scope.Group()))
		}
		puts, version = puts[n:], out.Version
	}
	return nil
}

// clear deletes the values of an import that broke off.
func (im *importer) clear(ctx context.Context) error {
	group := im.scope.Group()
	results, err := im.log.store.Read(ctx, []cache.Query{{Group: group, Names: []string{headName}}})
	switch {
	case err != nil:
		return fmt.Errorf("look for the session: %w", err)
	case results[0].Values[0] != nil:
		return ErrSessionExists
	case results[0].Version == 0:
		return nil
	}
	// If the import has not broken off, its next write meets a conflict.
	out := im.log.store.Commit(ctx, []cache.Batch{{Group: group, Expect: results[0].Version, TTL: im.log.ttl}})[0]
	if out.Err != nil {
		return out.Err
	}
	return im.log.store.Delete(ctx, group)
}
