package memory

import (
	"context"
	"fmt"
	"slices"

	"remora/memory/session"
	"remora/wire"
	"remora/wire/dialects"
)

// showReady adds ready turns to the view. It returns false if one of them is in the log by now, so that the session must be
// read again.
func (t *turnInfo) showReady(ctx context.Context, e *session.Entry) (whole bool, err error) {
	ready := slices.DeleteFunc(e.Order.Earlier(), func(p session.Pending) bool { return !p.Ready })
	if len(ready) == 0 {
		return true, nil
	}
	records, err := t.m.log.Records(ctx, t.call.Scope, ready)
	if err != nil {
		return false, err
	}
	list := make([]session.Ready, 0, len(records))
	for i, b := range records {
		if b == nil {
			return false, nil
		}
		said, err := itemsOf(b)
		if err != nil {
			return false, fmt.Errorf("turn %s: %w", ready[i].Turn, err)
		}
		said.Turn = ready[i].Turn
		list = append(list, said)
	}
	e.History.ShowReady(list)
	t.m.parked.add(t.call.Scope)
	return true, nil
}

// itemsOf returns the new items of a record's request, and the first choice of its answer.
func itemsOf(b []byte) (r session.Ready, err error) {
	rec, err := decodeSpooled(b)
	if err != nil {
		return r, err
	}
	for _, raw := range rec.NewItems {
		it, err := wire.ParseItem(dialects.ByCode(rec.Dialect), raw)
		if err != nil {
			return r, err
		}
		r.Items = append(r.Items, it)
	}
	r.Behind = rec.Replaces
	if rec.Answer == nil {
		return r, nil
	}
	a, err := rec.Answer.answer(dialects.ByCode(rec.Dialect))
	if err != nil || len(a.Reply.Choices) == 0 {
		return r, err
	}
	r.Made, r.Items = session.Origin{Provider: a.Provider, Model: a.Model}, append(r.Items, a.Reply.Choices[0]...)
	return r, nil
}
