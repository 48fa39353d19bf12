package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
	"remora/wire/dialects"
)

// lateName, in a response's group, names the turn whose answer upstream is still making in the background.
const lateName = "later"

// Later stores an answer that upstream made in the background, once a client has fetched it. Its question was in the
// conversation from the beginning, and the answer goes behind it, or behind what was said meanwhile. For a turn that waits for
// no answer, or not for this one, there is nothing to do; so it is while upstream still works on it.
func (log *Log) Later(ctx context.Context, s Scope, turn, id string, a *Answer) error {
	if !a.Reply.Complete || a.Reply.ID != id {
		return nil
	}
	for {
		done, err := log.later(ctx, s, turn, a)
		if done || err != nil {
			return err
		}
	}
}

// later is one attempt of Later; it reports false where another turn was written meanwhile.
func (log *Log) later(ctx context.Context, s Scope, turn string, a *Answer) (done bool, err error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName, turnPrefix + turn}}})
	if err != nil {
		return false, fmt.Errorf("read session: %w", err)
	}
	st := state{version: results[0].Version, turn: results[0].Values[1]}
	if results[0].Values[0] == nil || st.turn == nil {
		return true, nil // it was deleted
	}
	if st.head, err = decodeHead(results[0].Values[0]); err != nil {
		return false, err
	}
	var r turnrecord.Record
	if err := json.Unmarshal(st.turn, &r); err != nil {
		return false, fmt.Errorf("turn %s: %w", turn, ErrCorrupt)
	}
	if !r.Later || r.ResponseID != a.Reply.ID {
		return true, nil
	}
	d, err := log.draftLater(ctx, s, st, &r, a)
	if err != nil {
		return false, err
	}
	out := log.store.Commit(ctx, []cache.Batch{
		{Group: s.Group(), Expect: st.version, TTL: log.ttl, Puts: d.puts},
		{
			Group: ResponseGroup(s.Tenant, a.Reply.ID), Expect: cache.AnyVersion, TTL: log.ttl,
			Puts: []cache.Put{{Name: sessionName, Data: []byte(s.Session)}}, Deletes: []string{lateName},
		},
	})[0]
	d.release()
	log.recent.drop(s)
	if errors.Is(out.Err, cache.ErrConflict) {
		return false, nil
	}
	return true, out.Err
}

// draftLater returns the draft of an answer that was made in the background, with its turn's record.
func (log *Log) draftLater(ctx context.Context, s Scope, st state, r *turnrecord.Record, a *Answer) (*draft, error) {
	dialect, err := dialects.Parse(r.Dialect)
	if err != nil {
		return nil, err
	}
	at := st.head.Pos
	standing := InConversation
	if r.Side != "" || r.Alone {
		if at, err = log.positionOf(ctx, s, r.Tip); err != nil {
			return nil, err
		}
		if standing = Alone; r.Side != "" {
			standing = Side
		}
	}
	e := log.newEntry(r.ID, r.Time, Call{Scope: s, Request: &wire.Request{Dialect: dialect}, Side: r.Side})
	e.state, e.loaded, e.in = st, true, &incoming{hashes: log.hashes}
	e.plan = plan{standing: standing, parent: at, line: st.head.Line}
	d := &draft{e: e, head: st.head.clone(answerItems(a)), writeBuffer: newWriteBuffer(), version: st.version, line: st.head.Line, input: at}
	d.hidden.of = &e.Notes.hidden
	// What is made in the background is kept by upstream: it could not be fetched otherwise.
	d.made = newOrigin(a.Provider, cmp.Or(a.Model, r.Model), a.status() == turnrecord.Complete)
	end := d.storeAnswer(a)
	var answer []wire.Item
	if len(a.Reply.Choices) > 0 {
		answer = a.Reply.Choices[0]
	}
	if standing == InConversation {
		d.head.Pos, d.head.Answered = end, true
		for i, it := range answer {
			d.head.remember(it, e.answer.choices[0][i], d.output[0][i])
		}
	} else {
		extended := d.head.dropTail(at.Seq)
		d.leaveTail(end, &extended, answer)
	}

	r.Later, r.Output, r.Status = false, d.output, a.status()
	r.HTTPStatus, r.Finish = a.HTTPStatus, a.Reply.Finish
	if json.Valid(a.Reply.Usage) {
		r.Usage = a.Reply.Usage
	}
	d.puts = append(d.puts,
		cache.Put{Name: turnPrefix + r.ID, Data: r.AppendTo(nil)}, cache.Put{Name: headName, Data: d.head.encode()})
	return d, nil
}

// positionOf is the place behind a stored item.
func (log *Log) positionOf(ctx context.Context, s Scope, seq uint64) (position, error) {
	items, err := log.items(ctx, s, seq, seq)
	if err != nil {
		return position{}, err
	}
	if items[0] == nil {
		return position{}, fmt.Errorf("item %d: %w", seq, ErrCorrupt)
	}
	return items[0].Pos, nil
}
