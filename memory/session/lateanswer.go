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

// lateAnswer is an answer that upstream made in the background.
type lateAnswer struct {
	log *Log
	transcript
	scope  Scope
	turn   string
	answer *Answer
}

// commit is one attempt to store the answer; it returns false if another turn was written meanwhile.
func (l *lateAnswer) commit(ctx context.Context) (done bool, err error) {
	st, values, err := l.head(ctx, turnPrefix+l.turn)
	if errors.Is(err, ErrNoSession) || err == nil && values[1] == nil {
		return true, nil // it was deleted
	}
	if err != nil {
		return false, err
	}
	var r turnrecord.Record
	if err := json.Unmarshal(values[1], &r); err != nil {
		return false, fmt.Errorf("turn %s: %w", l.turn, ErrCorrupt)
	}
	if !r.Later || r.ResponseID != l.answer.Reply.ID {
		return true, nil
	}

	c, err := l.prepare(ctx, st, &r)
	if err != nil {
		return false, err
	}
	out := l.store.Commit(ctx, []cache.Batch{{Group: l.group, Expect: st.version, TTL: l.log.ttl, Puts: c.take(len(c.puts))}})[0]
	l.log.recent.drop(l.group)
	if errors.Is(out.Err, cache.ErrConflict) {
		return false, nil
	}
	if out.Err != nil {
		return true, out.Err
	}
	// Only now: otherwise no later fetch would store the answer. If this fails, the next one finds that it is stored.
	l.store.Commit(ctx, []cache.Batch{{
		Group: ResponseGroup(l.scope.Tenant, l.answer.Reply.ID), Expect: cache.AnyVersion, TTL: l.log.ttl,
		Puts: []cache.Put{{Name: sessionName, Data: []byte(l.scope.Session)}}, Deletes: []string{lateName},
	}})
	return true, nil
}

// prepare returns the commit of the answer, with its turn's record.
func (l *lateAnswer) prepare(ctx context.Context, st state, r *turnrecord.Record) (*turnCommit, error) {
	a := l.answer
	dialect, err := dialects.Parse(r.Dialect)
	if err != nil {
		return nil, err
	}
	at, line := st.head.Pos, st.head.Line
	standing := InConversation
	apart := r.Side != "" || r.Alone
	if !apart {
		on, err := l.isOn(ctx, at, r.Tip)
		if err != nil {
			return nil, err
		}
		apart = !on // the question was edited, or the history replaced
	}
	if apart {
		question, err := l.item(ctx, r.Tip)
		if err != nil {
			return nil, err
		}
		at, line = question.Pos, question.Line
		if standing = Alone; r.Side != "" {
			standing = Side
		}
	}
	e := l.log.newEntry(r.ID, r.Time, Call{Scope: l.scope, Request: &wire.Request{Dialect: dialect}, Side: r.Side})
	e.state, e.loaded, e.in = st, true, &incoming{hashes: l.log.hashes}
	if r.SystemPrompt != "" {
		if e.in.systemPrompt, err = parseHash(r.SystemPrompt); err != nil {
			return nil, fmt.Errorf("turn %s: system_prompt: %w", r.ID, ErrCorrupt)
		}
	}
	e.plan = plan{match: match{parent: at, line: line}, standing: standing}
	c := &turnCommit{e: e, answer: a.firstChoice(), version: st.version, input: at}
	c.itemWriter = itemWriter{
		head: st.head.clone(len(c.answer)), turn: r.ID, line: line, side: standing == Side,
	}
	c.hidden.of = &e.Notes.hidden
	// Upstream stores background answers: they could not be fetched otherwise.
	c.made = newOrigin(a.Provider, cmp.Or(a.Model, r.Model), a.status() == turnrecord.Complete)
	end := c.storeAnswer(a)
	if standing == InConversation {
		c.head.Pos, c.head.Answered = end, true
		for i, it := range c.answer {
			c.head.remember(it, e.answer[0][i], c.output[0][i])
		}
	} else {
		extended := c.head.Tails.drop(at.Seq)
		c.leaveTail(end, &extended)
	}

	r.Output = c.output
	a.describe(r)
	c.put(turnPrefix+r.ID, r.AppendTo(nil))
	c.put(headName, c.head.encode())
	return c, nil
}
