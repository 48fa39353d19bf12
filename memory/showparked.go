package memory

import (
	"context"
	"fmt"
	"slices"

	"remora/memory/session"
	"remora/wire"
	"remora/wire/dialects"
)

// showParked adds parked turns to the view. It returns false if one of them is in the log by now, so that the session must be
// read again.
func (t *turnInfo) showParked(ctx context.Context, e *session.Entry) (whole bool, err error) {
	parked := slices.DeleteFunc(e.Order.Earlier(), func(p session.Pending) bool { return !p.Parked })
	if len(parked) == 0 {
		return true, nil
	}
	records, err := t.m.log.Records(ctx, t.call.Scope, parked)
	if err != nil {
		return false, err
	}
	list := make([]session.Parked, 0, len(records))
	for i, b := range records {
		if b == nil {
			return false, nil
		}
		said, err := itemsOf(b)
		if err != nil {
			return false, fmt.Errorf("turn %s: %w", parked[i].Turn, err)
		}
		said.Turn = parked[i].Turn
		list = append(list, said)
	}
	e.History.ShowParked(list)
	t.m.parked.add(t.call.Scope)
	return true, nil
}

// itemsOf returns the new items of a record's request, and the first choice of its answer.
func itemsOf(b []byte) (r session.Parked, err error) {
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
	r.After = rec.Replaces
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
