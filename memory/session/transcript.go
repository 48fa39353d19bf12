package session

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	"remora/cache"
	"remora/memory/media"
	"remora/memory/turnrecord"
	"remora/wire"
)

// transcript reads a stored session.
type transcript struct {
	store cache.Store
	group cache.Group
}

// read reads values of the session by their names, nil for those that are not stored. doing is for its error.
func (t transcript) read(ctx context.Context, doing string, names []string) ([][]byte, error) {
	results, err := t.store.Read(ctx, []cache.Query{{Group: t.group, Names: names}})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	return results[0].Values, nil
}

// head reads the session's version and head, with the head's bytes and other named values. It fails with ErrNoSession.
func (t transcript) head(ctx context.Context, others ...string) (st state, values [][]byte, err error) {
	results, err := t.store.Read(ctx, []cache.Query{{Group: t.group, Names: append([]string{headName}, others...)}})
	if err != nil {
		return st, nil, fmt.Errorf("read session: %w", err)
	}
	values = results[0].Values
	if values[0] == nil {
		return st, nil, ErrNoSession
	}
	st.version = results[0].Version
	st.head, err = decodeHead(values[0])
	return st, values, err
}

// items reads the stored items from seq first to seq last; nil for an item that was retracted (see turnCommit.retract).
func (t transcript) items(ctx context.Context, first, last uint64) ([]*storedItem, error) {
	return t.itemsAt(ctx, sequence(first, last))
}

// itemsWithoutMedia is items without their large strings, which are kept apart.
func (t transcript) itemsWithoutMedia(ctx context.Context, first, last uint64) ([]*storedItem, error) {
	return t.withoutMedia(ctx, sequence(first, last))
}

func sequence(first, last uint64) []uint64 {
	seqs := make([]uint64, 0, last-first+1)
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// itemsAt reads stored items by their sequence numbers; nil for an item that was retracted.
func (t transcript) itemsAt(ctx context.Context, seqs []uint64) ([]*storedItem, error) {
	items, err := t.withoutMedia(ctx, seqs)
	if err != nil {
		return nil, err
	}
	return items, t.joinMedia(ctx, items)
}

func (t transcript) withoutMedia(ctx context.Context, seqs []uint64) ([]*storedItem, error) {
	names := make([]string, len(seqs))
	for i, seq := range seqs {
		names[i] = itemName(seq)
	}
	values, err := t.read(ctx, "read items", names)
	if err != nil {
		return nil, err
	}
	items := make([]*storedItem, len(names))
	for i, v := range values {
		if v == nil {
			continue
		}
		it, err := decodeItem(v)
		if err != nil {
			return nil, fmt.Errorf("item %d: %w", seqs[i], err)
		}
		items[i] = &it
	}
	return items, nil
}

// joinMedia inserts the large strings of items, which it reads in one round trip, if there are any. Items may be nil.
func (t transcript) joinMedia(ctx context.Context, items []*storedItem) error {
	var cuts []*storedItem
	for _, it := range items {
		if it != nil && it.Flags&flagCut != 0 {
			cuts = append(cuts, it)
		}
	}
	if len(cuts) == 0 {
		return nil
	}
	var names []string
	needs := make([]int, len(cuts))
	for i, it := range cuts {
		digests, err := media.Digests(it.Raw)
		if err != nil {
			return fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
		for _, d := range digests {
			names = append(names, mediaName(d))
		}
		needs[i] = len(digests)
	}
	values, err := t.read(ctx, "read media of items", names)
	if err != nil {
		return err
	}
	for i, it := range cuts {
		if it.Raw, err = media.Join(it.Raw, values[:needs[i]]); err != nil {
			return fmt.Errorf("item %d: %w: %w", it.Pos.Seq, ErrCorrupt, err)
		}
		it.Flags, values = it.Flags&^flagCut, values[needs[i]:]
	}
	return nil
}

// item reads one stored item.
func (t transcript) item(ctx context.Context, seq uint64) (*storedItem, error) {
	items, err := t.items(ctx, seq, seq)
	if err == nil && items[0] == nil {
		err = ErrCorrupt
	}
	if err != nil {
		return nil, fmt.Errorf("item %d: %w", seq, err)
	}
	return items[0], nil
}

// How many items one read of a line's end fetches at first, and at most: a line that is interleaved with others takes
// more reads than one.
const (
	pageItems    = 128
	maxPageItems = 4096
)

// back iterates a line of the transcript from the item next back to its beginning.
func (t transcript) back(ctx context.Context, next uint64) iter.Seq2[*storedItem, error] {
	return t.backBy(ctx, next, pageItems, maxPageItems)
}

// backBy is back, with how many items it reads at first and at most at once.
func (t transcript) backBy(ctx context.Context, next, page, most uint64) iter.Seq2[*storedItem, error] {
	return func(yield func(*storedItem, error) bool) {
		for items, err := range t.pagesBack(ctx, next, page, most) {
			if err == nil {
				err = t.joinMedia(ctx, items)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, at := range items {
				if !yield(at, nil) {
					return
				}
			}
		}
	}
}

// pagesBack iterates a line like backBy, by the items that one read finds, without their large strings.
func (t transcript) pagesBack(ctx context.Context, next, page, most uint64) iter.Seq2[[]*storedItem, error] {
	return func(yield func([]*storedItem, error) bool) {
		for ; next != 0; page = min(page*2, most) {
			first := next - min(next-1, page-1)
			stored, err := t.itemsWithoutMedia(ctx, first, next)
			if err != nil {
				yield(nil, err)
				return
			}
			var items []*storedItem // of the line
			for next >= first && err == nil {
				if at := stored[next-first]; at != nil && at.Parent < next {
					items, next = append(items, at), at.Parent
				} else {
					err = fmt.Errorf("item %d: %w", next, ErrCorrupt)
				}
			}
			if len(items) > 0 && !yield(items, nil) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// line reads the end of the line that ends at end, without side items and hidden items (see Amendments): the whole run in
// flight, at least want units before it, if there are as many, and the message that the first of them belong to, if it is not
// too far away.
func (t transcript) line(ctx context.Context, end position, want uint64) (*storedLine, error) {
	var l lineEnd
	for at, err := range t.back(ctx, end.Seq) {
		if err == nil {
			err = l.take(at)
		}
		if err != nil {
			return nil, err
		}
		if l.run && l.unitsBefore >= want && (l.message || l.unitsBefore >= 2*want) {
			break
		}
	}
	return l.line(end), nil
}

// isOn reports whether the line that ends at end has the item seq.
func (t transcript) isOn(ctx context.Context, end position, seq uint64) (bool, error) {
	for items, err := range t.pagesBack(ctx, end.Seq, pageItems, maxPageItems) {
		if err != nil {
			return false, err
		}
		if items[len(items)-1].Pos.Seq <= seq {
			return slices.ContainsFunc(items, func(it *storedItem) bool { return it.Pos.Seq == seq }), nil
		}
	}
	return seq == 0, nil
}

// lookup looks up the places of chain hashes in the index; nil for an unknown one.
func (t transcript) lookup(ctx context.Context, ends []position) ([]*linePosition, error) {
	names := make([]string, len(ends))
	for i, p := range ends {
		names[i] = chainName(p.Chain)
	}
	return t.index(ctx, names)
}

// index reads values of the session's indexes.
func (t transcript) index(ctx context.Context, names []string) ([]*linePosition, error) {
	values, err := t.read(ctx, "look up history", names)
	if err != nil {
		return nil, err
	}
	found := make([]*linePosition, len(names))
	for i, v := range values {
		if v == nil {
			continue
		}
		p, err := decodeLinePosition(v)
		if err != nil {
			return nil, err
		}
		found[i] = &p
	}
	return found, nil
}

// systemPrompt reads a version of the system prompt with the instructions; zero for one that is not stored.
func (t transcript) systemPrompt(ctx context.Context, hash wire.Hash) (r systemPromptRecord, err error) {
	values, err := t.read(ctx, "read system prompt", []string{systemPromptName(hash)})
	if err == nil && values[0] != nil && json.Unmarshal(values[0], &r) != nil {
		err = fmt.Errorf("read system prompt: %w", ErrCorrupt)
	}
	return r, err
}

// blocks reads the texts of blocks, nil where one is not stored.
func (t transcript) blocks(ctx context.Context, refs []turnrecord.BlockRef) ([][]byte, error) {
	if len(refs) == 0 {
		return nil, nil
	}
	names := make([]string, len(refs))
	for i, ref := range refs {
		h, err := parseHash(ref.Hash)
		if err != nil {
			return nil, err
		}
		names[i] = blockName(h)
	}
	return t.read(ctx, "read blocks", names)
}

// turn reads the record of a turn. It fails with ErrNoTurn.
func (t transcript) turn(ctx context.Context, id string) (json.RawMessage, error) {
	values, err := t.read(ctx, "read turn", []string{turnPrefix + id})
	if err != nil {
		return nil, err
	}
	if values[0] == nil {
		return nil, ErrNoTurn
	}
	return values[0], nil
}

// turns reads the records of turns a page at a time, nil for those that are not stored.
func (t transcript) turns(ctx context.Context, ids []string) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for page := range slices.Chunk(ids, exportPage) {
			names := make([]string, len(page))
			for i, id := range page {
				names[i] = turnPrefix + id
			}
			values, err := t.read(ctx, "read turns", names)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, v := range values {
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}

// parkedRecords reads the records of parked turns, nil for others and for turns that are in the log by now.
func (t transcript) parkedRecords(ctx context.Context, list []Pending) ([][]byte, error) {
	if len(list) == 0 {
		return nil, nil
	}
	names := make([]string, len(list))
	for i, p := range list {
		names[i] = journalPrefix + p.Turn
	}
	return t.read(ctx, "read parked turns", names)
}
