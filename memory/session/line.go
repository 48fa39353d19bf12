package session

import (
	"fmt"
	"slices"

	"remora/wire"
)

// storedLine is the end of a line of the transcript, oldest item first, without hidden items.
type storedLine struct {
	items   []wire.Item
	as      []*storedItem // their stored forms
	skipped int           // units of the line before items
}

func (l *storedLine) add(it wire.Item, as *storedItem) {
	l.items, l.as = append(l.items, it), append(l.as, as)
}

// first returns the sequence number of the oldest item, 0 without items.
func (l *storedLine) first() uint64 {
	if len(l.as) == 0 {
		return 0
	}
	return l.as[0].Pos.Seq
}

// addCompaction puts the line's last compaction before its end. The items between the two are skipped.
func (l *storedLine) addCompaction(as *storedItem, err error) error {
	if err != nil {
		return err
	}
	it, err := wire.ParseItem(as.Dialect, as.Raw)
	if err != nil {
		return fmt.Errorf("item %d: %w", as.Pos.Seq, err)
	}
	l.items, l.as = slices.Insert(l.items, 0, it), slices.Insert(l.as, 0, as)
	l.skipped -= len(it.Parts)
	return nil
}

// fromCompaction returns the line from its last compaction on, which replaces everything before it; nothing, if the request
// itself has one. A provider that cannot read a compaction gets the whole line without it.
func (l *storedLine) fromCompaction(request []wire.Item) *storedLine {
	isCompaction := func(it wire.Item) bool { return it.Kind == wire.Compaction }
	from := len(l.items)
	if !slices.ContainsFunc(request, isCompaction) {
		for from--; from > 0 && !isCompaction(l.items[from]); from-- {
		}
	}
	if from <= 0 {
		return l
	}
	out := &storedLine{skipped: l.skipped, items: l.items[from:], as: l.as[from:]}
	for _, it := range l.items[:from] {
		out.skipped += len(it.Parts)
	}
	return out
}

// lineEnd collects the items of a line from its end backwards.
type lineEnd struct {
	storedLine // newest first

	units uint64
	run   bool // a user message is among the items: that which began the run, or the one before it
	// unitsBefore is how many units stand before that message: a window is chosen by what there was when the run began.
	unitsBefore uint64
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
	l.add(it, at)
	l.units += uint64(len(it.Parts))
	if l.run {
		l.unitsBefore += uint64(len(it.Parts))
	}
	l.message = it.Role == wire.User
	l.run = l.run || l.message
	return nil
}

// line returns the items, oldest first, of the line that ends at end.
func (l *lineEnd) line(end position) *storedLine {
	slices.Reverse(l.items)
	slices.Reverse(l.as)
	l.skipped = unitsBetween(position{Units: l.units}, end)
	return &l.storedLine
}

// Ending is the end of a session's line.
type Ending struct {
	Items []wire.Item
	Keys  []wire.Hash // of the items, as HistoryReader.ItemKeys gives them
	Value []byte      // the session value that was asked for
}

func newEnding(l *storedLine, value []byte) Ending {
	keys := itemKeys(l.items, func(i int) (wire.Hash, bool) { return l.as[i].Pos.Chain, true }, wire.Item.ContentHash)
	return Ending{l.items, keys, value}
}

// itemKeys returns the keys of items that HistoryReader.ItemKeys describes. chainAt returns the chain hash up to item i, false if it is
// not known, and content the content hash of an item.
func itemKeys(items []wire.Item, chainAt func(i int) (wire.Hash, bool), content func(wire.Item) wire.Hash) []wire.Hash {
	keys := make([]wire.Hash, len(items))
	var last, at wire.Hash // the newest place on the chain, and the key before
	for i, it := range items {
		h, ok := chainAt(i)
		switch {
		case h == nowhere:
			last, at = wire.Hash{}, wire.Hash{}
			continue
		case !ok || h == last:
			at = wire.Chain(at, content(it))
		default:
			last, at = h, h
		}
		keys[i] = at
	}
	return keys
}
