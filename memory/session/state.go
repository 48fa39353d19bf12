package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// state is a session as one round trip read it.
type state struct {
	version uint64
	head    *head                // never nil; not changed, since this process may keep it for the next turn
	refs    map[string]reference // what the request's item references stand for
	reply   *replyPosition       // the place after previous_response_id, if known
	turn    *turnrecord.Record   // of the turn asked for, nil if it was never written

	amendments Amendments
	carried    []wire.Item // items of the named response that upstream has not seen
	shown      shownBlocks // the latest blocks as of that response; nil if unknown
}

// noHead is the head of an unknown session.
var noHead = new(head) //nolint:gochecknoglobals // never changed

// noState is an unknown session.
func noState() state { return state{head: noHead} }

// maxRefs bounds how many values are read for one request: the references beyond are not looked up.
const maxRefs = 1024

// errIncomplete is the error for a session whose import has written some of its values, and not yet the last, the head.
var errIncomplete = errors.New("load session: its import is not complete: import it again, or delete it")

// load reads the request's session and turn, and the values of w, in one round trip.
func (t transcript) load(ctx context.Context, req *wire.Request, turnID string, w Want) (state, Extra, error) {
	st := noState()
	const usual = 6 // names
	names := make([]string, 0, usual)
	take := make([]func(v []byte) error, 0, usual) // the value of each name, if it is stored
	want := func(name string, f func(v []byte) error) { names, take = append(names, name), append(take, f) }

	want(headName, func(v []byte) (err error) {
		st.head, err = decodeHead(v)
		return err
	})
	want(turnPrefix+turnID, func(v []byte) error {
		if st.turn = new(turnrecord.Record); json.Unmarshal(v, st.turn) != nil {
			st.turn = new(turnrecord.Record) // one that makes no sense is written all the same
		}
		return nil
	})
	want(amendName, func(v []byte) (err error) {
		st.amendments, err = decodeAmendments(v)
		return err
	})
	if previous := req.Previous(); previous != "" {
		want(idName(replyPrefix, previous), func(v []byte) error {
			p, err := decode[replyPosition](v, "place of a response")
			st.reply = &p
			return err
		})
		want(idName(carryPrefix, previous), func(v []byte) (err error) {
			st.carried, err = decodeCarried(v)
			return err
		})
		want(idName(shownPrefix, previous), func(v []byte) (err error) {
			st.shown, err = decodeShownBlocks(v)
			return err
		})
	}
	for _, it := range req.Items() {
		if it.Kind != wire.Reference || len(names) >= maxRefs {
			continue
		}
		want(idName(idPrefix, it.ID), func(v []byte) error {
			ref, err := decode[reference](v, "reference")
			if st.refs == nil {
				st.refs = make(map[string]reference)
			}
			st.refs[it.ID] = ref
			return err
		})
	}

	session := cache.Query{Group: t.group, Names: append(names, w.Names...)}
	var before []cache.Query
	if w.First != nil {
		before = w.First()
	}
	results, err := t.store.Read(ctx, slices.Concat(before, []cache.Query{session}, w.Others))
	if err != nil {
		return state{}, Extra{}, fmt.Errorf("load session: %w", err)
	}
	first, results := results[:len(before)], results[len(before):]
	st.version = results[0].Version
	values := results[0].Values
	for i, f := range take {
		if values[i] == nil {
			continue
		}
		if err := f(values[i]); err != nil {
			return state{}, Extra{}, err
		}
	}
	if st.version != 0 && st.head == noHead {
		return state{}, Extra{}, errIncomplete
	}
	return st, Extra{First: first, Values: values[len(take):], Others: results[1:]}, nil
}

// continuesElsewhere reports whether a request continues an answer of this session that another provider gave: the one that it goes to
// does not have it.
func (st *state) continuesElsewhere(c *Call) bool {
	return st.reply != nil && c.elsewhere(st.reply.Provider) && !c.Request.InConversation() && !c.Request.Templated()
}
