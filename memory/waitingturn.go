package memory

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"remora/memory/session"
	"remora/memory/turnqueue"
	"remora/memory/turnrecord"
	"remora/wire"
)

// waitingTurn is the record of a turn that is not in the log yet: the request and its answer, to be merged when it is written. It is
// in the spool or, if the turn waits for an earlier one of another process, in the session. Values chosen by callers and
// upstream are []byte: a JSON string would replace all invalid UTF-8 by one character.
type waitingTurn struct {
	Tenant    []byte              `json:"tenant"`
	Session   []byte              `json:"session"`
	Resource  []byte              `json:"resource,omitempty"`
	Execution []byte              `json:"execution,omitempty"`
	Parent    []byte              `json:"parent,omitempty"`
	Turn      string              `json:"turn"`
	Owner     uint64              `json:"owner,omitempty"` // the process that serves it, where others share the store
	Time      time.Time           `json:"time"`
	Began     time.Time           `json:"began"`   // turnInfo.began
	Dialect   uint8               `json:"dialect"` // its code
	History   History             `json:"history"`
	Retry     bool                `json:"retry,omitempty"`
	Resends   bool                `json:"resends,omitempty"`
	Side      []byte              `json:"side,omitempty"`
	Standing  uint8               `json:"standing,omitempty"`
	Rule      string              `json:"rule,omitempty"`
	Provider  string              `json:"provider,omitempty"` // that the request was for
	Body      []byte              `json:"-"`                  // after the JSON, since it may be large
	View      turnrecord.View     `json:"view"`
	Notes     *session.SavedNotes `json:"notes,omitempty"`
	Values    map[string][]byte   `json:"kept,omitempty"`    // of the session, by name
	Answer    *waitingAnswer      `json:"answer,omitempty"`  // nil: still to come when this was written
	Unread    bool                `json:"unread,omitempty"`  // the store could not be read when the turn began
	Partial   bool                `json:"partial,omitempty"` // its view may lack earlier turns
	// NewItems are the new items of a turn that waits for an earlier one: other views show them meanwhile.
	NewItems [][]byte `json:"said,omitempty"`
	// Replaces is the item after which they stand, 0 for the last: see session.Entry.Replaces.
	Replaces uint64 `json:"replaces,omitempty"`
	// Tombstones are those of turnInfo.
	Tombstones []uint64 `json:"tombstones,omitempty"`
}

func (r *waitingTurn) scope() Scope {
	return Scope{
		Tenant: string(r.Tenant), Session: string(r.Session), Resource: string(r.Resource),
		Execution: string(r.Execution), Parent: string(r.Parent),
	}
}

// nameOfRecord returns a record's name: a turn may have one for its input and one for the whole turn.
func nameOfRecord(turn string, answered bool) string {
	if !answered {
		return turn + " input"
	}
	return turn
}

// waits identifies the record while it is in the spool.
func (r *waitingTurn) waits() turnqueue.Record {
	return turnqueue.Record{Group: r.scope().Group(), Name: nameOfRecord(r.Turn, r.Answer != nil), Began: turnrecord.BeganAt(r.Turn)}
}

// newWaitingTurn returns the record of a turn that is not in the transcript, and the evictions seen with it.
func newWaitingTurn(w *turnWriter, a *Answer) (rec *waitingTurn, seen []byte) {
	sc, req, found := w.call.Scope, w.call.Request, w.entry.Found()
	rec = &waitingTurn{
		Tenant: []byte(sc.Tenant), Session: []byte(sc.Session), Resource: []byte(sc.Resource),
		Execution: []byte(sc.Execution), Parent: []byte(sc.Parent),
		Turn: w.ID, Owner: w.m.heartbeat.Self(), Time: w.started, Began: w.began,
		Dialect: req.Dialect.Code(), Provider: w.call.Provider, Body: req.Body,
		History: w.entry.SpoolMode(), Retry: w.call.Retry, Resends: w.call.Resends, Side: []byte(w.call.Side), Standing: uint8(found.Standing), Rule: found.Rule,
		View: w.entry.View.Save(), Notes: w.entry.Notes.Save(), Unread: w.entry.Unread() && !w.entry.Order.Resumed && !w.backlog,
		Partial: w.entry.Order.Partial, Tombstones: w.tombstones,
	}
	if a == nil {
		return rec, nil
	}

	rec.Answer, rec.Values = newWaitingAnswer(a), w.values
	if w.states != nil {
		rec.Values, seen = w.states.values.spooled()
	}
	return rec, seen
}

// encode returns the record: a line of JSON, and after it the body as it is.
func (r *waitingTurn) encode() ([]byte, error) {
	head, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode turn: %w", err)
	}
	return slices.Concat(head, []byte{'\n'}, r.Body), nil
}

// decodeWaitingTurn reads a record, with which it shares the memory of the body. It fails where the record names no session or no turn.
func decodeWaitingTurn(b []byte) (*waitingTurn, error) {
	var rec waitingTurn
	head, body, _ := bytes.Cut(b, []byte{'\n'})
	if err := json.Unmarshal(head, &rec); err != nil {
		return nil, fmt.Errorf("read record of a turn: %w", err)
	}
	rec.Body = body
	if len(rec.Session) == 0 || rec.Turn == "" {
		return nil, errors.New("read record of a turn: it names no session or no turn")
	}
	return &rec, nil
}

type waitingAnswer struct {
	Choices    [][][]byte `json:"choices,omitempty"`
	ID         []byte     `json:"id,omitempty"`
	Model      []byte     `json:"model,omitempty"`
	Finish     []byte     `json:"finish,omitempty"`
	Usage      []byte     `json:"usage,omitempty"`
	Error      []byte     `json:"error,omitempty"`
	Complete   bool       `json:"complete,omitempty"`
	Truncated  bool       `json:"truncated,omitempty"`
	HTTPStatus int        `json:"http_status"`
	Cut        Aborted    `json:"cut,omitempty"`
	Provider   string     `json:"provider,omitempty"`
	AskedFor   []byte     `json:"asked_for,omitempty"` // the model, where it is another than the request's
	Later      bool       `json:"later,omitempty"`     // upstream makes it in the background
}

func newWaitingAnswer(a *Answer) *waitingAnswer {
	r := &waitingAnswer{
		ID: []byte(a.Reply.ID), Model: []byte(a.Reply.Model), Finish: []byte(a.Reply.Finish),
		Usage: a.Reply.Usage, Error: a.Reply.Error, Complete: a.Reply.Complete, Truncated: a.Reply.Truncated, HTTPStatus: a.HTTPStatus, Cut: a.Aborted,
		Provider: a.Provider, AskedFor: []byte(a.Model), Later: a.Later,
	}
	for _, items := range a.Reply.Choices {
		raws := make([][]byte, len(items))
		for i, it := range items {
			raws[i] = it.Raw
		}
		r.Choices = append(r.Choices, raws)
	}
	return r
}

func (r *waitingAnswer) answer(d wire.Dialect) (*Answer, error) {
	a := &Answer{HTTPStatus: r.HTTPStatus, Aborted: r.Cut, Provider: r.Provider, Model: string(r.AskedFor), Later: r.Later, Reply: wire.Reply{
		ID: string(r.ID), Model: string(r.Model), Finish: string(r.Finish),
		Usage: r.Usage, Used: wire.ParseUsage(r.Usage), Error: r.Error, Complete: r.Complete, Truncated: r.Truncated,
	}}
	for _, raws := range r.Choices {
		items := make([]wire.Item, len(raws))
		for i, raw := range raws {
			it, err := wire.ParseItem(d, raw)
			if err != nil {
				return nil, fmt.Errorf("read recorded answer: %w", err)
			}
			items[i] = it
		}
		a.Reply.Choices = append(a.Reply.Choices, items)
	}
	return a, nil
}
