package memory

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"remora/memory/past"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// turnLayers is the layers' part of one turn.
type turnLayers struct {
	layerRun
	guard  bool       // they only judge the answer
	past   *past.Turn // the value of turn.Past, nil for none
	rounds rounds

	blocks     []view.Block
	passedOver int // units of the conversation that layers' hooks have not chosen
	evictions  evictions

	overflow *turnrecord.LayerNote // the result of the summary, nil if none was made
	fitted   pipeline.Fitted       // the view, cut to the budget
	unfit    []string              // ids of layers whose blocks did not fit
}

// append passes the request's new items to layers. The model sees their replacements from now on.
func (l *turnLayers) append(ctx context.Context, e *session.Entry) error {
	if l.run.Empty() {
		return nil
	}
	input := l.rounds.input
	items := l.run.Append(ctx, input)
	if len(items) == 0 && len(input) > 0 {
		l.m.o.Log.Warn("layers would leave nothing of what the client sent; it is sent as it came", "turn", l.ID, "items", len(input))
		return nil
	}
	first := l.rounds.visible - len(input)
	return e.Notes.Amend(amendments(input, items, first, l.call.Request.Dialect)...)
}

// amendments returns the hidden items that turn one list of new items into another. before is the number of visible
// items before the list.
func amendments(was, is []wire.Item, before int, d wire.Dialect) []session.Hidden {
	changed := make([]session.Hidden, len(was)+1) // [i] is after the first i items
	next := 0
	for _, it := range is {
		at := slices.IndexFunc(was[next:], func(w wire.Item) bool { return wire.SameBytes(w.Raw, it.Raw) })
		if at < 0 {
			changed[next].Items = append(changed[next].Items, it.Raw)
			continue
		}
		for ; at > 0; at-- { // the items between were replaced, and the replacements are there
			next++
			changed[next].Replaces = true
		}
		next++
	}
	for next < len(was) {
		next++
		changed[next].Replaces = true
	}
	var list []session.Hidden
	for i, h := range changed {
		if h.After, h.Dialect = before+i, d.Code(); h.Replaces || len(h.Items) > 0 {
			list = append(list, h)
		}
	}
	return list
}

// tools are the definitions of the layers' functions, as the dialect spells them.
func (l *turnLayers) tools() [][]byte {
	if l.run.Empty() {
		return nil
	}
	r := l.call.Request
	if n, _ := strconv.Atoi(cmp.Or(r.Text("n"), "1")); n > 1 || r.Text("tool_choice") == "none" {
		return nil // of several answers none could be continued
	}
	if r.InConversation() {
		return nil // upstream would keep each call there
	}
	if r.OffersFunctions() {
		return nil // upstream takes no tools beside them
	}
	return l.run.Definitions(r.Dialect)
}

// noRoom is recorded for a layer whose block did not fit into the view, or whose share of the tokens was too small for any of
// its text.
const noRoom = "no_room"

// withoutRoom lists these layers.
func (l *turnLayers) withoutRoom(reports []pipeline.Report) (ids []string) {
	for i := range l.fitted.Dropped {
		ids = append(ids, l.fitted.Dropped[i].Layer)
	}
	for _, r := range reports {
		told := func(b view.Block) bool { return b.Layer == r.ID } // an earlier block that is still shown
		if r.NoRoom && r.Failed == "" && !slices.Contains(ids, r.ID) && !slices.ContainsFunc(l.blocks, told) {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// account records the cost of the view, without counting tokens. definitions are those of the layers' tools.
func (l *turnLayers) account(e *session.Entry, definitions [][]byte, system, history []wire.Item) {
	if l.guard || l.run.Empty() && !l.run.Limited() {
		return
	}
	cost := turnrecord.Tokens{System: l.fitted.SystemTokens, History: l.fitted.HistoryTokens, Tools: l.toolTokens(definitions)}
	if cost.System+cost.History == 0 {
		cost.System, cost.History, cost.Estimated = tokensOf(bytesOf(system)+len(l.call.Request.Instructions())), estimate(e.Resolved(history)), true
	}
	for i := range l.blocks {
		cost.Layers += l.blocks[i].Tokens
	}
	cost.Total = cost.System + cost.Tools + cost.History + cost.Layers
	e.View.Cost(cost)
}

// note adds the layers' results to the turn record.
func (l *turnLayers) note(e *session.Entry) {
	reports := l.run.Report()
	notes := make([]turnrecord.LayerNote, 0, len(reports))
	for _, r := range reports {
		n := turnrecord.LayerNote{ID: r.ID, Name: r.Name, Ms: r.Time.Milliseconds(), Notes: r.Notes}
		if r.Failed != "" {
			n.Error = r.Failed + ": " + string(r.Class)
		}
		notes = append(notes, l.priced(n))
	}
	if l.overflow != nil {
		notes = append(notes, l.priced(*l.overflow))
	}
	e.Notes.Layers = notes
}

// priced adds to a note what the layer has of the view, or that it had no room there.
func (l *turnLayers) priced(n turnrecord.LayerNote) turnrecord.LayerNote {
	for i := range l.blocks {
		if b := &l.blocks[i]; b.Layer == n.ID {
			n.Tokens, n.Items = n.Tokens+b.Tokens, n.Items+len(b.Texts)
		}
	}
	if n.Error == "" && slices.Contains(l.unfit, n.ID) {
		n.Error = noRoom
	}
	return n
}
