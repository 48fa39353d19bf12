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

// maxRefs bounds how many references of one request are looked up.
const maxRefs = 1024

// errIncomplete is the error for a session whose import has written some of its values, and not yet the last, the head.
var errIncomplete = errors.New("load session: its import is not complete: import it again, or delete it")

// load reads the request's session and turn, and the values of w, in one round trip.
func (t transcript) load(ctx context.Context, req *wire.Request, turnID string, w Want) (state, Extra, error) {
	names := []string{headName, turnPrefix + turnID, amendName}
	previous := req.Previous()
	if previous != "" {
		names = append(names, idName(replyPrefix, previous), idName(carryPrefix, previous), idName(shownPrefix, previous))
	}
	named := len(names)
	var ids []string
	for _, it := range req.Items() {
		if it.Kind == wire.Reference && len(ids) < maxRefs {
			ids = append(ids, it.ID)
			names = append(names, idName(idPrefix, it.ID))
		}
	}
	own := len(names)
	session := cache.Query{Group: t.group, Names: append(names, w.Names...)}
	results, err := t.store.Read(ctx, slices.Concat(w.First, []cache.Query{session}, w.Others))
	if err != nil {
		return state{}, Extra{}, fmt.Errorf("load session: %w", err)
	}
	first, results := results[:len(w.First)], results[len(w.First):]
	r := results[0]
	extra := Extra{First: first, Values: r.Values[own:], Others: results[1:]}
	st := state{version: r.Version}
	if err := st.decode(r.Values[:named]); err != nil {
		return state{}, Extra{}, err
	}
	if st.version != 0 && st.head == noHead {
		return state{}, Extra{}, errIncomplete
	}
	return st, extra, st.decodeRefs(ids, r.Values[named:own])
}

// decode reads the values that load asks for, which come before those of references.
func (st *state) decode(values [][]byte) (err error) {
	if st.head = noHead; values[0] != nil {
		if st.head, err = decodeHead(values[0]); err != nil {
			return err
		}
	}
	if v := values[1]; v != nil {
		st.turn = new(turnrecord.Record)
		if json.Unmarshal(v, st.turn) != nil {
			st.turn = new(turnrecord.Record) // one that makes no sense is written all the same
		}
	}
	if v := values[2]; v != nil {
		if st.amendments, err = decodeAmendments(v); err != nil {
			return err
		}
	}
	if len(values) < 6 {
		return nil // the request names no response
	}
	if v := values[3]; v != nil {
		p, err := decode[replyPosition](v, "place of a response")
		if err != nil {
			return err
		}
		st.reply = &p
	}
	if v := values[4]; v != nil {
		if st.carried, err = decodeCarried(v); err != nil {
			return err
		}
	}
	if v := values[5]; v != nil {
		st.shown, err = decodeShownBlocks(v)
	}
	return err
}

// continuesElsewhere reports whether a request continues an answer of this session that another provider gave: the one that it goes to
// does not have it.
func (st *state) continuesElsewhere(c *Call) bool {
	return st.reply != nil && c.elsewhere(st.reply.Provider) && !c.Request.InConversation() && !c.Request.Templated()
}

func (st *state) decodeRefs(ids []string, values [][]byte) error {
	if len(ids) > 0 {
		st.refs = make(map[string]reference, len(ids))
	}
	for i, id := range ids {
		if values[i] == nil {
			continue
		}
		ref, err := decode[reference](values[i], "reference")
		if err != nil {
			return err
		}
		st.refs[id] = ref
	}
	return nil
}
