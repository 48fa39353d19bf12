package memory

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"

	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// Bounds of the cut part that layers get: the newest items.
const (
	maxLostItems = 2000
	maxLostBytes = 4 << 20 // as they are sent or stored
)

// windowCut is where the window has cut a conversation, and what layers may ask of that while they recall. It is worked out
// when a layer asks, and detached: the request's body may be used for another one once the turn is committed.
type windowCut struct {
	a     *assembly
	first wire.Item // that the window has kept
	start view.WindowStart
	view  []wire.Item // what is sent
	kept  []wire.Item // of the conversation in view
}

// newWindowCut returns where the window has cut the whole conversation, nil where it has not or no layer asks.
func newWindowCut(a *assembly) *windowCut {
	if a.v.Start == (view.WindowStart{}) || a.l == nil || !a.l.run.OfView() {
		return nil
	}
	return &windowCut{a: a, first: a.c.Items[a.v.From], start: a.v.Start}
}

// of returns the cut for layers. items are the items that the view was chosen from.
func (w *windowCut) of(l *lease, items []wire.Item, v *view.View) *layer.WindowCut {
	if w == nil {
		return nil
	}
	w.view, w.kept = v.Items, pipeline.Pick(items, v.Kept)
	return &layer.WindowCut{Place: during(l, w.name), Lost: during(l, w.readLost), Shown: during(l, w.readShown)}
}

// during returns read for the time of a lease.
func during[T any](l *lease, read func(context.Context) (T, error)) func(context.Context) (T, error) {
	return func(ctx context.Context) (told T, err error) {
		if !l.ask(func() { told, err = read(ctx) }) {
			err = layer.ErrCutOver
		}
		return told, err
	}
}

// name tells the cut from others of the session, those on other branches too.
func (w *windowCut) name(ctx context.Context) (string, error) {
	key := w.start.Key
	if key == (wire.Hash{}) { // a window by items needs none
		keys, err := w.a.itemKeys(ctx, w.a.all)
		if err != nil {
			return "", err
		}
		for i, it := range w.a.all {
			if wire.SameBytes(it.Raw, w.first.Raw) {
				key = keys[i]
			}
		}
	}
	return strconv.FormatUint(w.start.Units, 10) + "." + hex.EncodeToString(key[:]), nil
}

// readLost returns the newest part of the items that the view lacks, oldest item first.
func (w *windowCut) readLost(ctx context.Context) ([]wire.Item, error) {
	shown := wire.NewItemSet(w.kept)
	var lost []wire.Item
	room := maxLostBytes
	for _, it := range slices.Backward(w.a.all) {
		if shown.Has(it) {
			continue
		}
		if room -= len(it.Raw); room < 0 || len(lost) == maxLostItems {
			break
		}
		lost = append(lost, it)
	}
	slices.Reverse(lost)
	if room > 0 && len(lost) < maxLostItems {
		read, cancel := context.WithTimeout(ctx, w.a.t.m.o.ReadWait)
		defer cancel()
		earlier, err := w.a.entry.History.Before(read, uint64(max(0, w.a.offset)), maxLostItems-len(lost), room)
		if err != nil {
			return nil, err
		}
		lost = slices.Concat(earlier, lost)
	}
	return w.a.t.detach(w.a.withTargets(ctx, lost)), nil
}

// readShown returns the items of the view, with shortened results.
func (w *windowCut) readShown(ctx context.Context) ([]wire.Item, error) {
	items := slices.Clone(w.a.withTargets(ctx, w.view))
	view.ShortenResults(items, w.a.t.shape.ToolResult)
	return w.a.t.detach(append(items, w.a.t.instructions()...)), nil
}
