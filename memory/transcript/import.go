package transcript

import (
	"bufio"
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

// Import writes a transcript that Export made into a session that does not exist yet. Every item's hashes are worked
// out again and must be those of the export. The session appears whole or not at all.
func (log *Log) Import(ctx context.Context, s Scope, r io.Reader) error {
	im := importer{log: log, scope: s, at: map[uint64]position{}}
	dec := json.NewDecoder(bufio.NewReader(r))
	for n := 1; ; n++ {
		var l Line
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return im.finish(ctx)
		} else if err != nil {
			return fmt.Errorf("import line %d: %w", n, err)
		}
		if err := im.line(ctx, l); err != nil {
			return fmt.Errorf("import line %d: %w", n, err)
		}
	}
}

// importer collects values and writes them in chunks; the head comes last, and without it there is no session.
type importer struct {
	log     *Log
	scope   Scope
	head    []byte
	at      map[uint64]position // of every item
	blocks  []wire.Hash
	puts    []cache.Put
	version uint64
}

func (im *importer) line(ctx context.Context, l Line) error {
	switch {
	case l.Session != nil:
		if l.Session.Version != exportVersion {
			return fmt.Errorf("remora_transcript: want version %d, have %d", exportVersion, l.Session.Version)
		}
		if _, err := decodeHead(l.Session.State); err != nil {
			return fmt.Errorf("state: %w", err)
		}
		im.head = l.Session.State
		if b := l.Session.Amendments; b != nil {
			if _, err := decodeAmendments(b); err != nil {
				return fmt.Errorf("amendments: %w", err)
			}
			im.puts = append(im.puts, cache.Put{Name: amendName, Data: b})
		}
	case l.Item != nil:
		if err := im.item(l.Item); err != nil {
			return fmt.Errorf("item %d: %w", l.Item.Seq, err)
		}
	case l.Lead != nil:
		return im.lead(l.Lead)
	case l.Block != nil:
		if err := im.block(l.Block); err != nil {
			return err
		}
	case l.Turn != nil:
		if err := im.turn(l.Turn); err != nil {
			return err
		}
	default:
		return errors.New("neither session, item, turn, lead nor block")
	}
	if len(im.puts) >= importChunk {
		return im.flush(ctx)
	}
	return nil
}

func (im *importer) item(l *ItemLine) error {
	d, err := wire.ParseDialect(l.Dialect)
	if err != nil {
		return err
	}
	it, err := wire.ParseItem(d, l.Bytes())
	if err != nil {
		return err
	}
	parent, ok := im.at[l.Parent]
	if !ok && l.Parent != 0 {
		return fmt.Errorf("parent %d has not been imported", l.Parent)
	}
	stored := storedItem{Parent: l.Parent, Content: it.ContentHash(), Dialect: d, Turn: l.Turn, Raw: it.Raw, Flags: l.flags()}
	if it.Kind == wire.Reference {
		// Its content is that of what it stands for, which only the exporting store could tell.
		if stored.Content, err = parseHash(l.Content); err != nil {
			return err
		}
	}
	stored.Pos = parent.after(mark{content: stored.Content, onChain: !l.Off, units: l.Units - parent.Units})
	stored.Pos.Seq = l.Seq
	if want, err := parseHash(l.Chain); err != nil || want != stored.Pos.Chain {
		return fmt.Errorf("chain hash is not %q: the item or one before it was changed", l.Chain)
	}
	im.at[l.Seq] = stored.Pos
	im.puts = stored.cut(im.puts)
	im.puts = append(im.puts, cache.Put{Name: itemName(l.Seq), Data: stored.encode()})
	if l.Hidden {
		// What follows stands behind it: see draft.storeHidden.
		im.puts = append(im.puts, cache.Put{Name: chainName(stored.Pos.Chain), Data: place{Pos: stored.Pos, Side: l.Side}.encode()})
		return nil
	}
	if !l.Off {
		at := place{Pos: stored.Pos, Side: l.Side}.encode()
		im.puts = append(im.puts, cache.Put{Name: chainName(stored.Pos.Chain), Data: at})
		if landmark(it) {
			im.puts = append(im.puts, cache.Put{Name: textName(stored.Content), Data: at})
		}
	}
	if name, data, ok := referenceOf(it); ok {
		im.puts = append(im.puts, cache.Put{Name: name, Data: data})
	}
	return nil
}

func (l *ItemLine) flags() byte {
	var flags byte
	for _, f := range []struct {
		set  bool
		flag byte
	}{{l.Off, flagOffChain}, {l.Aside, flagAside}, {l.Partial, flagPartial}, {l.Side, flagSide}, {l.Hidden, flagHidden}} {
		if f.set {
			flags |= f.flag
		}
	}
	return flags
}

func (im *importer) lead(l *LeadLine) error {
	hash, err := parseHash(l.Hash)
	if err != nil {
		return err
	}
	im.puts = append(im.puts, cache.Put{Name: leadPrefix + string(hash[:]), Data: l.Record})
	return nil
}

func (im *importer) block(l *BlockLine) error {
	hash, err := parseHash(l.Hash)
	if err != nil {
		return err
	}
	if hash != blockHash(string(l.Text)) {
		return fmt.Errorf("block %s: its text was changed", l.Hash)
	}
	im.blocks = append(im.blocks, hash)
	im.puts = append(im.puts, cache.Put{Name: blockName(hash), Data: l.Text})
	return nil
}

func (im *importer) turn(record json.RawMessage) error {
	var t turnrecord.Record
	if err := json.Unmarshal(record, &t); err != nil || t.ID == "" {
		return errors.New("turn has no id")
	}
	im.puts = append(im.puts, cache.Put{Name: turnPrefix + t.ID, Data: record})
	if t.ResponseID != "" && t.Dialect == wire.Responses.String() && len(t.Output) > 0 && len(t.Output[0]) > 0 {
		end := im.at[t.Output[0][len(t.Output[0])-1]]
		im.puts = append(im.puts, cache.Put{Name: idName(replyPrefix, t.ResponseID), Data: place{Pos: end, Side: t.Side != ""}.encode()})
	}
	return nil
}

// finish writes the head: from now on the session exists.
func (im *importer) finish(ctx context.Context) error {
	if im.head == nil {
		return errors.New("import: no session line")
	}
	h, err := decodeHead(im.head)
	if err != nil {
		return err
	}
	// A block that the head knows but the export lacks has to be written by the next turn that has it.
	if kept := slices.DeleteFunc(h.Blocks, func(b wire.Hash) bool { return !slices.Contains(im.blocks, b) }); len(kept) != len(h.Blocks) {
		h.Blocks = kept
		im.head = h.encode()
	}
	im.puts = append(im.puts, cache.Put{Name: headName, Data: im.head})
	return im.flush(ctx)
}

func (im *importer) flush(ctx context.Context) error {
	out := im.log.store.Commit(ctx, []cache.Batch{{
		Group: im.scope.Group(), Expect: im.version, Puts: im.puts, TTL: im.log.ttl, Listed: im.version == 0,
	}})[0]
	if errors.Is(out.Err, cache.ErrConflict) {
		return ErrSessionExists
	}
	im.puts, im.version = nil, out.Version
	return out.Err
}
