package transcript

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/memory/view"
	"remora/wire"
)

// Scope says whose memory a call uses. All strings may hold any bytes: callers control them.
type Scope struct {
	// Tenant is derived from the caller's credential, never from what the caller says.
	Tenant string
	// Session names the conversation; it is never empty.
	Session string
	// Resource is what several sessions share; without any, the session itself.
	Resource string
	// Execution is one agent run; empty means that it is derived from the round's user message.
	Execution string
	// Parent is the session that spawned this one, empty for none.
	Parent string
}

// sessionPrefix tells the groups of sessions from others of a tenant.
const sessionPrefix = "s:"

// Group is where the values of the session are.
func (s Scope) Group() cache.Group {
	return cache.Group{Owner: s.Tenant, Name: sessionPrefix + s.Session}
}

// History is how a call's items relate to the stored transcript.
type History uint8

// The values of X-History and of session.history.
const (
	// HistoryAuto recognises both habits: resending the history, and sending only what is new.
	HistoryAuto History = iota
	// HistoryClient takes what the client sends as the history.
	HistoryClient
	// HistoryServer always puts the transcript before what the client sends.
	HistoryServer
)

// Call is one request to be remembered.
type Call struct {
	Scope   Scope
	Request *wire.Request
	History History
	// Side says why the client itself calls this a side request ("compaction", "title", ...); empty for a turn.
	Side string
}

// isStateful tells that upstream itself holds what came before a request.
func isStateful(req *wire.Request) bool {
	for _, member := range []string{"previous_response_id", "conversation", "prompt"} {
		if v := req.Member(member); len(v) > 0 && string(v) != "null" && string(v) != `""` {
			return true
		}
	}
	return false
}

// Cut says how an answer ended before its end.
type Cut uint8

// Ways in which an answer ends.
const (
	CutNone     Cut = iota
	CutClient       // the client went away
	CutUpstream     // upstream broke off or stalled
)

// String is how a turn record spells the cut.
func (c Cut) String() string {
	switch c {
	case CutClient:
		return "client"
	case CutUpstream:
		return "upstream"
	default:
		return ""
	}
}

// Answer is what came back for a turn.
type Answer struct {
	// Reply holds the folded answer, or as much of it as came.
	Reply wire.Reply
	// HTTPStatus is upstream's status, 0 if there was no answer at all.
	HTTPStatus int
	Cut        Cut
}

func (a *Answer) status() string {
	switch {
	case a.HTTPStatus >= 400 || len(a.Reply.Error) > 0:
		return turnrecord.Failed
	case a.Cut != CutNone || !a.Reply.Complete:
		return turnrecord.Incomplete
	default:
		return turnrecord.Complete
	}
}

// Beside is what is read and written together with an entry, in the same round trips: values of the session and of
// other groups that the transcript itself knows nothing about. What it writes to the session is there exactly if the
// turn is.
type Beside interface {
	// Queries says what to read: names of values of the session's group, and queries of other groups.
	Queries() (names []string, others []cache.Query)
	// Loaded gets what was read, in the order of Queries; a value that is not stored is nil. It is called again
	// where the session had to be read again because another turn was faster.
	Loaded(ctx context.Context, values [][]byte, others []cache.Result)
	// Writes says what to write with the answer. Empty data means that the value is taken away.
	Writes() (values []cache.Put, others []cache.Batch)
	// Wrote is called when the session's part is written. version is the session's now, others what became of the
	// other batches of Writes.
	Wrote(version uint64, others []cache.Outcome)
}

// besides are the queries of b behind those of the session, whose names it extends.
func besides(b Beside, session cache.Query) []cache.Query {
	if b == nil {
		return []cache.Query{session}
	}
	names, others := b.Queries()
	session.Names = append(session.Names, names...)
	return append([]cache.Query{session}, others...)
}

// ErrNoTurn is returned where a session has no such turn.
var ErrNoTurn = errors.New("no such turn")

func isOpen(record []byte) bool {
	var r turnrecord.Record
	return json.Unmarshal(record, &r) == nil && r.Open
}

// record describes the turn as it stands.
func (e *Entry) record(d *draft, a *Answer) turnrecord.Record {
	r := turnrecord.Record{
		ID: e.id, Time: e.started.UTC(), Status: turnrecord.Incomplete, Open: a == nil, Relation: string(e.plan.relation), Model: e.call.Request.Text("model"),
		Dialect: e.call.Request.Dialect.String(), Side: e.call.Side, Degraded: e.degraded,
		Parent: e.parent, Tip: d.input.Seq, Output: d.output, Execution: e.Execution(), ParentID: e.call.Scope.Parent,
		View: e.view, Hidden: d.hiddenSeqs(), Blocks: d.blocks, Layers: e.layers,
	}
	if e.call.Scope.Resource != e.call.Scope.Session {
		r.Resource = e.call.Scope.Resource
	}
	if e.plan.side && r.Side == "" {
		r.Side = "unrelated"
	}
	d.chainBare(&r)
	r.Lead = e.in.leadText
	if r.Input = d.added; len(r.Input) == 0 {
		r.Input = e.journaled.seqs
	}
	if a == nil {
		return r
	}
	r.HTTPStatus, r.Cut, r.ResponseID, r.Finish = a.HTTPStatus, a.Cut.String(), a.Reply.ID, a.Reply.Finish
	if json.Valid(a.Reply.Usage) {
		r.Usage = a.Reply.Usage
	}
	r.Status = a.status()
	return r
}

// chainBare makes a turn that has stored no item the first of the chain that leads to such turns, unless it is in that
// chain. Nothing is lost where the turn was its last and is not known to be: there is no turn behind it.
func (d *draft) chainBare(r *turnrecord.Record) {
	e := d.e
	r.Before = e.before
	stored := d.head.NextSeq > max(e.state.head.NextSeq, 1) || len(e.journaled.names) > 0 && !d.retracted
	if !stored && e.before == "" && d.head.Bare != e.id {
		r.Before, d.head.Bare = d.head.Bare, e.id
	}
}

// TurnRecord is what is kept of a turn, as JSON in one line; ErrNoTurn where that is nothing.
func (log *Log) TurnRecord(ctx context.Context, s Scope, turnID string) (json.RawMessage, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{turnPrefix + turnID}}})
	if err != nil {
		return nil, fmt.Errorf("read turn: %w", err)
	}
	if results[0].Values[0] == nil {
		return nil, ErrNoTurn
	}
	return results[0].Values[0], nil
}

// Latest completes a scope by what its session's latest answered turn said of resource, execution and parent. It fails
// with ErrNoSession.
func (log *Log) Latest(ctx context.Context, s Scope) (Scope, error) {
	if s.Resource == "" {
		s.Resource = s.Session
	}
	results, err := log.store.Read(ctx, []cache.Query{{Group: s.Group(), Names: []string{headName}}})
	if err != nil {
		return s, fmt.Errorf("read session: %w", err)
	}
	if results[0].Values[0] == nil {
		return s, ErrNoSession
	}
	h, err := decodeHead(results[0].Values[0])
	if err != nil {
		return s, err
	}
	raw, err := log.TurnRecord(ctx, s, h.LastTurn)
	if errors.Is(err, ErrNoTurn) {
		return s, nil // nothing was answered yet
	}
	var turn turnrecord.Record
	if err == nil && json.Unmarshal(raw, &turn) != nil {
		err = fmt.Errorf("turn %s: %w", h.LastTurn, ErrCorrupt)
	}
	if turn.Resource != "" {
		s.Resource = turn.Resource
	}
	s.Execution, s.Parent = turn.Execution, turn.ParentID
	return s, err
}

// TurnView puts together again what a turn sent upstream in place of the client's items: the leading items and the
// blocks behind them, what was chosen from the conversation, and the blocks behind that. Items have the bytes that they were stored with, which may be another client's
// spelling of the same content; a reference is shown as what it stood for.
func (log *Log) TurnView(ctx context.Context, s Scope, turnID string) ([]wire.Item, error) {
	raw, err := log.TurnRecord(ctx, s, turnID)
	if err != nil {
		return nil, err
	}
	var turn turnrecord.Record
	if err := json.Unmarshal(raw, &turn); err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, ErrCorrupt)
	}
	var lead []wire.Item
	if turn.View.Lead != "" {
		hash, err := parseHash(turn.View.Lead)
		if err != nil {
			return nil, err
		}
		if lead, err = log.lead(ctx, s, hash); err != nil {
			return nil, err
		}
	}
	body, err := log.pick(ctx, s, &turn)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, err)
	}
	for _, out := range turn.View.LeftOut {
		if out.At > 0 && out.At <= len(body) {
			body[out.At-1], _ = body[out.At-1].WithoutCalls(func(i int) bool { return body[out.At-1].Calls[i].ID == out.Call })
		}
	}
	view.ShortenResults(body, turn.View.ToolResult)
	blocks, err := log.showBlocks(ctx, s, &turn)
	if err != nil {
		return nil, fmt.Errorf("turn %s: %w", turnID, err)
	}
	return blocks.Around(lead, body), nil
}

// pick finds the items of a turn's view by the leading bytes of their content hashes, from the last one backwards along
// the line that ends with the turn's input.
func (log *Log) pick(ctx context.Context, s Scope, turn *turnrecord.Record) ([]wire.Item, error) {
	wanted := turn.View.Items
	p := picker{
		wanted: wanted, found: make([]wire.Item, len(wanted)/8), left: len(wanted) / 8,
		passed: make(map[[8]byte][]*storedItem), regrouped: turn.View.Stored && turn.Dialect == wire.Chat.String(),
	}
	if p.left == 0 {
		return p.found, nil
	}
	for at, err := range log.backBy(ctx, s, turn.Tip, exportPage, exportPage) {
		if err == nil {
			err = p.take(at)
		}
		if err != nil {
			return nil, err
		}
		if p.left == 0 {
			break
		}
	}
	if err := p.turnBack(); err != nil {
		return nil, err
	}
	if p.left > 0 {
		return nil, fmt.Errorf("%d items of its view are not in the transcript", p.left)
	}
	return p.found, nil
}

// picker fills a view from its end.
type picker struct {
	wanted []byte // 8 bytes an item
	found  []wire.Item
	left   int // items still to be found
	// passed are the items of the line behind the place that it was read to which the view did not have there, newest
	// first: a client's own summary stands before the history in its request and behind it in the transcript, and
	// regroup takes results forward to their calls.
	passed    map[[8]byte][]*storedItem
	regrouped bool
}

func (p *picker) next() [8]byte { return [8]byte(p.wanted[(p.left-1)*8:]) }

// take is given the line's items, newest first.
func (p *picker) take(at *storedItem) error {
	content := [8]byte(at.Content[:8])
	if content == p.next() {
		return p.put(at)
	}
	p.passed[content] = append(p.passed[content], at)
	if p.regrouped {
		return p.turnBack()
	}
	return nil
}

// turnBack takes items that were passed, for as long as the view goes on with one.
func (p *picker) turnBack() error {
	for p.left > 0 {
		content := p.next()
		queue := p.passed[content]
		if len(queue) == 0 {
			return nil
		}
		p.passed[content] = queue[:len(queue)-1]
		if err := p.put(queue[len(queue)-1]); err != nil {
			return err
		}
	}
	return nil
}

func (p *picker) put(at *storedItem) error {
	it, err := wire.ParseItem(at.Dialect, at.Raw)
	p.left--
	p.found[p.left] = it
	return err
}

// showBlocks makes the messages that a turn's blocks were.
func (log *Log) showBlocks(ctx context.Context, s Scope, turn *turnrecord.Record) (blocks view.Blocks, err error) {
	texts, err := log.readBlocks(ctx, s, turn.Blocks)
	if err != nil || len(texts) == 0 {
		return blocks, err
	}
	d, err := wire.ParseDialect(turn.Dialect)
	if err != nil {
		return blocks, err
	}
	for i, text := range texts {
		if text == nil {
			return blocks, fmt.Errorf("block of layer %q is not stored", turn.Blocks[i].Layer)
		}
		it, err := instruction(d, turn.Blocks[i].System, string(text))
		if err != nil {
			return blocks, err
		}
		switch ref := turn.Blocks[i]; {
		case ref.Round:
			blocks.Round = append(blocks.Round, it)
		case ref.Live:
			blocks.Live = append(blocks.Live, it)
		default:
			blocks.Anchored = append(blocks.Anchored, it)
		}
	}
	return blocks, nil
}

// instruction is a system or a developer message of the dialect, in the bytes that layer.NewText gave it when it was sent.
func instruction(d wire.Dialect, system bool, text string) (wire.Item, error) { //nolint:revive // which of two roles
	message := struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}{"developer", text}
	if system {
		message.Role = "system"
	}
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(message); err != nil {
		return wire.Item{}, fmt.Errorf("encode block: %w", err)
	}
	return wire.ParseItem(d, bytes.TrimSpace(raw.Bytes()))
}
