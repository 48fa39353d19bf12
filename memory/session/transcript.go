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

// maxNames is how many values are read at once, so that a long request does not block the store for others.
const maxNames = 4096

// read reads values of the session by their names, nil for those that are not stored. doing is for its error.
func (t transcript) read(ctx context.Context, doing string, names []string) (values [][]byte, err error) {
	for some := range slices.Chunk(names, maxNames) {
		results, err := t.store.Read(ctx, []cache.Query{{Group: t.group, Names: some}})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		if values == nil {
			values = results[0].Values
		} else {
			values = append(values, results[0].Values...)
		}
	}
	return values, nil
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

// sequence returns the sequence numbers from first to last.
func sequence(first, last uint64) []uint64 {
	seqs := make([]uint64, 0, last-first+1)
	for seq := first; seq <= last; seq++ {
		seqs = append(seqs, seq)
	}
	return seqs
}

// items reads stored items by their sequence numbers; nil for an item that was retracted (see turnCommit.retract).
func (t transcript) items(ctx context.Context, seqs ...uint64) ([]*storedItem, error) {
	items, err := t.withoutMedia(ctx, seqs)
	if err != nil {
		return nil, err
	}
	return items, t.joinMedia(ctx, items)
}

// withoutMedia is items without their large strings, which are kept apart.
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
	items, err := t.items(ctx, seq)
	if err == nil && items[0] == nil {
		err = ErrCorrupt
	}
	if err != nil {
		return nil, fmt.Errorf("item %d: %w", seq, err)
	}
	return items[0], nil
}

// mediaAtOnce is how many items get their large strings at once: those of a whole page may take more memory than there is.
const mediaAtOnce = 8

// withMedia iterates items that were read without their large strings. It inserts these, which it reads for a few items at a time,
// and takes the items out of the slice.
func (t transcript) withMedia(ctx context.Context, items []*storedItem) iter.Seq2[*storedItem, error] {
	return func(yield func(*storedItem, error) bool) {
		for few := range slices.Chunk(items, mediaAtOnce) {
			if err := t.joinMedia(ctx, few); err != nil {
				yield(nil, err)
				return
			}
			for i, it := range few {
				if few[i] = nil; !yield(it, nil) {
					return
				}
			}
		}
	}
}

// How many items one read of a line's end fetches at first, and at most: a line that is interleaved with others takes
// more reads than one.
const (
	pageItems    = 128
	maxPageItems = 4096
)

// back iterates a line of the transcript from the item next back to its beginning.
func (t transcript) back(ctx context.Context, next uint64) iter.Seq2[*storedItem, error] {
	return func(yield func(*storedItem, error) bool) {
		for items, err := range t.pagesBack(ctx, next) {
			if err != nil {
				yield(nil, err)
				return
			}
			for at, err := range t.withMedia(ctx, items) {
				if !yield(at, err) || err != nil {
					return
				}
			}
		}
	}
}

// pagesBack iterates a line like back, by the items that one read finds, without their large strings.
func (t transcript) pagesBack(ctx context.Context, next uint64) iter.Seq2[[]*storedItem, error] {
	return func(yield func([]*storedItem, error) bool) {
		for page := uint64(pageItems); next != 0; page = min(page*2, maxPageItems) {
			first := next - min(next-1, page-1)
			stored, err := t.withoutMedia(ctx, sequence(first, next))
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
	for items, err := range t.pagesBack(ctx, end.Seq) {
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
		p, err := decode[linePosition](v, "place")
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
