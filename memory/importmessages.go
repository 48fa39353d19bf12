package memory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"remora/memory/session"
	"remora/memory/turnrecord"
	"remora/wire"
	"remora/wire/dialects"
)

// maxImported is the maximum number of messages in a turn of an import.
const maxImported = 1000

// messageLine is one line of a file of messages: it begins a session, or has one message of it.
type messageLine struct {
	Session  string          `json:"session"`
	Resource string          `json:"resource"`
	Message  json.RawMessage `json:"message"`
	Dialect  string          `json:"dialect"`
	Time     json.RawMessage `json:"time"`
}

// importedTurn is one turn to write: the messages up to an answer, and the answer.
type importedTurn struct {
	dialect wire.Dialect
	at      time.Time
	items   []json.RawMessage
	answer  int // of items, how many at the end are the answer
}

type importedSession struct {
	scope Scope
	turns []*importedTurn
}

// readMessages reads a file of messages. at is the time of messages before the first with a time.
func readMessages(s Scope, r io.Reader, at time.Time) ([]*importedSession, error) {
	dec := json.NewDecoder(r)
	dec.DisallowUnknownFields() // a misspelt time would be lost without a word
	var all []*importedSession
	named := map[string]bool{}
	begin := func(scope Scope) error {
		if scope.Session == "" {
			return errors.New("session: missing")
		}
		if named[scope.Session] {
			return errors.New("session: it is there already")
		}
		named[scope.Session] = true
		all = append(all, &importedSession{scope: scope})
		return nil
	}

	for n := 1; ; n++ {
		var l messageLine
		err := dec.Decode(&l)
		switch {
		case errors.Is(err, io.EOF) && len(all) == 0:
			return nil, errors.New("import: no message")
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
		case l.Message == nil:
			err = begin(Scope{Tenant: s.Tenant, Session: l.Session, Resource: l.Resource})
		default:
			if len(all) == 0 {
				if err = begin(s); err != nil {
					break
				}
			}
			if l.Time != nil && json.Unmarshal(l.Time, &at) != nil {
				err = errors.New(`time: want a text such as "2023-05-08T13:56:00Z" (RFC 3339)`)
				break
			}
			err = all[len(all)-1].add(cmp.Or(l.Dialect, dialects.Chat.String()), l.Message, at)
		}
		if err != nil {
			return nil, fmt.Errorf("import line %d: %w", n, err)
		}
	}
}

// add appends a message to its turn.
func (im *importedSession) add(dialect string, raw json.RawMessage, at time.Time) error {
	d, err := dialects.Parse(dialect)
	if err != nil {
		return err
	}
	it, err := wire.ParseItem(d, raw)
	switch {
	case err != nil:
		return err
	case it.Kind == wire.Other:
		return errors.New("message: want a message of Chat Completions or an item of Responses")
	case it.Kind == wire.Message && it.Role == wire.RoleOther:
		return errors.New("message.role: want system, developer, user, assistant or tool")
	}

	model := it.Role == wire.Assistant || it.Kind == wire.ToolCall || it.Kind == wire.Reasoning
	var t *importedTurn
	if len(im.turns) > 0 {
		t = im.turns[len(im.turns)-1]
	}
	if t == nil || t.dialect != d || len(t.items) == maxImported || t.answer > 0 && !model && !t.at.Equal(at) {
		t = &importedTurn{dialect: d, at: at}
		im.turns = append(im.turns, t)
	}
	t.items = append(t.items, raw)
	if t.answer++; !model {
		t.answer = 0
	}
	return nil
}

// write writes the session, and removes it if a write after the first fails. The first may find a session that exists, and its
// error may hide that.
func (im *importedSession) write(ctx context.Context, to *Transcripts) error {
	for i, t := range im.turns {
		err := t.write(ctx, to.log, im.scope, i == 0)
		if err != nil && i == 0 {
			return err
		}
		if err != nil {
			return errors.Join(err, to.store.Delete(context.WithoutCancel(ctx), im.scope.Group()))
		}
	}
	return nil
}

func (t *importedTurn) write(ctx context.Context, log *session.Log, s Scope, first bool) error {
	answer := min(t.answer, len(t.items)-1) // a request has an item
	asked := t.items[:len(t.items)-answer]
	req, err := wire.Parse(t.dialect, t.body(asked))
	if err != nil {
		return err
	}
	e, _, err := log.Enter(ctx, turnrecord.NewID(t.at), t.at, session.Call{Scope: s, Request: req, History: HistoryServer}, session.Want{})
	if err != nil {
		return err
	}
	if first && !e.First() {
		return ErrSessionExists
	}

	// Without an answer the question stays in the conversation, as after one that could not be read.
	a := Answer{HTTPStatus: 200, Reply: wire.Reply{Truncated: true}}
	if answer > 0 {
		var items []wire.Item
		for _, raw := range t.items[len(asked):] {
			it, err := wire.ParseItem(t.dialect, raw)
			if err != nil {
				return err
			}
			items = append(items, it)
		}
		a.Reply = wire.Reply{Choices: [][]wire.Item{items}, Complete: true}
	}
	for {
		_, changed, err := e.Commit(ctx, &a, session.Puts{})
		if changed == nil {
			return err
		}
		if first { // a client has begun the session meanwhile
			return ErrSessionExists
		}
	}
}

// body is a request with these items.
func (t *importedTurn) body(items []json.RawMessage) []byte {
	b := []byte(`{"` + t.dialect.Rules().List + `":[`)
	for i, raw := range items {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, raw...)
	}
	return append(b, "]}"...)
}
