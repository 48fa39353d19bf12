package session

import (
	"context"
	"fmt"
	"slices"

	"remora/cache"
	"remora/memory/view"
	"remora/wire"
)

// storedLine is the end of a line of the transcript, oldest item first, as its clients know it.
type storedLine struct {
	want    uint64 // units that were asked for
	items   []wire.Item
	chain   []wire.Hash // behind each item
	made    []Origin    // of each item
	turns   []string    // of each item
	skipped int         // units of the line that stand before items
}

func (l *storedLine) add(it wire.Item, behind wire.Hash, made Origin, turn string) {
	l.items, l.chain = append(l.items, it), append(l.chain, behind)
	l.made, l.turns = append(l.made, made), append(l.turns, turn)
}

// line reads the end of the line that ends at end, without side items and hidden items (see Amendments): all of the
// run in flight, at least want units before it, if there are as many, and the message that the first of them belong
// to if that is not too far away.
func (log *Log) line(ctx context.Context, s Scope, end position, want uint64) (*storedLine, error) {
	var l lineEnd
	for at, err := range log.back(ctx, s, end.Seq) {
		if err == nil {
			err = l.take(at)
		}
		if err != nil {
			return nil, err
		}
		if l.run && l.before >= want && (l.message || l.before >= 2*want) {
			break
		}
	}
	slices.Reverse(l.items)
	slices.Reverse(l.chain)
	slices.Reverse(l.made)
	slices.Reverse(l.turns)
	l.want, l.skipped = want, unitsBetween(position{Units: l.units}, end)
	return &l.storedLine, nil
}

// lineEnd collects the items of a line from its end backwards.
type lineEnd struct {
	storedLine // newest first

	units uint64
	run   bool // a user message is among the items: that which began the run, or the one before it
	// before is how many units stand before that message: a window is chosen by what there was when the run began.
	before uint64
	// message: the oldest item is a user message. A view that begins in a tool loop is given the message before it.
	message bool
}

func (l *lineEnd) take(at *storedItem) error {
	if at.Flags&(flagSummary|flagHidden) != 0 {
		return nil
	}
	it, err := wire.ParseItem(at.Dialect, at.Raw)
	if err != nil {
		return fmt.Errorf("item %d: %w", at.Pos.Seq, err)
	}
	l.add(it, at.Pos.Chain, at.Made, at.Turn)
	l.units += view.Units(it)
	if l.run {
		l.before += view.Units(it)
	}
	l.message = it.Kind == wire.Message && it.Role == wire.User
	l.run = l.run || l.message
	return nil
}

// Ending is the end of a session's line.
type Ending struct {
	Items []wire.Item
	Keys  []wire.Hash // of the items, as HistoryReader.ItemKeys gives them
	Value []byte      // what the session keeps under the name that was asked for
}

// End reads the end of a session's line as its client knows it: at least so many units, where it has them. name is of a
// value that is read with it.
func (log *Log) End(ctx context.Context, s Scope, units uint64, name string) (Ending, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName, name}}})
	if err != nil {
		return Ending{}, fmt.Errorf("read session: %w", err)
	}
	if results[0].Values[0] == nil {
		return Ending{}, ErrNoSession
	}
	h, err := decodeHead(results[0].Values[0])
	if err != nil {
		return Ending{}, err
	}
	line, err := log.line(ctx, s, h.Pos, units)
	if err != nil {
		return Ending{}, err
	}

	keys := make([]wire.Hash, len(line.items))
	var last, at wire.Hash // the newest place on the chain, and the key before
	for i, it := range line.items {
		if behind := line.chain[i]; behind == last {
			at = wire.Chain(at, it.ContentHash())
		} else {
			last, at = behind, behind
		}
		keys[i] = at
	}
	return Ending{line.items, keys, results[0].Values[1]}, nil
}
