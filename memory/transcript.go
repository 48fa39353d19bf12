package memory

import (
	"context"
	"errors"
	"io"

	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/wire"
)

// Types of other packages that callers of a Memory use.
type (
	// Scope names the owner of the memory that a call uses.
	Scope = session.Scope
	// History is how a call's items relate to the stored transcript.
	History = session.History
	// Aborted says who ended an answer before it was complete.
	Aborted = session.Aborted
	// Answer is the answer to a turn, or what came of it.
	Answer = session.Answer
	// Line is one line of an exported transcript.
	Line = session.Line
	// ItemLine is one stored item.
	ItemLine = session.ItemLine
	// Response says where an answer was given, by the id that its client has.
	Response = session.Response
	// Credential is the caller's API key, with which layers may ask their models.
	Credential = pipeline.Credential
	// LayerError is returned by Begin when the init of a layer failed whose on_init_error is "throw".
	LayerError = pipeline.InitError
)

// The values of X-History and of session.history.
const (
	HistoryAuto   = session.HistoryAuto
	HistoryClient = session.HistoryClient
	HistoryServer = session.HistoryServer
)

// Ways in which an answer ends.
const (
	NotAborted        = session.NotAborted
	AbortedByClient   = session.AbortedByClient
	AbortedByUpstream = session.AbortedByUpstream
)

// Errors of reading and importing transcripts.
var (
	ErrNoSession     = session.ErrNoSession
	ErrSessionExists = session.ErrSessionExists
	ErrNoTurn        = session.ErrNoTurn
)

// Response finds an answer by the id that its client has. It is zero for an unknown id.
func (m *Memory) Response(ctx context.Context, tenant, id string) (Response, error) {
	if err := m.availableAt(session.ResponseGroup(tenant, id)); err != nil {
		return Response{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.ReadWait)
	defer cancel()
	r, err := m.log.Response(ctx, tenant, id)
	if err != nil {
		m.failed(err)
	}
	return r, err
}

// Late is a turn whose answer upstream makes in the background.
type Late struct {
	m     *Memory
	scope Scope
	turn  string
	id    string // of the answer
}

// Late returns the turn of an answer that a client fetches by its id, nil if no turn waits for it. known is the result
// of Response for the answer.
func (m *Memory) Late(tenant, id string, known Response) *Late {
	if known.Later == "" {
		return nil
	}
	return &Late{m, Scope{Tenant: tenant, Session: known.Session, Resource: known.Session}, known.Later, id}
}

// ID returns the turn's id.
func (l *Late) ID() string { return l.turn }

// Forwarded does nothing: the turn's input is in the transcript.
func (*Late) Forwarded() {}

// Commit puts the answer into the transcript if it has ended. Where the store does not take it the next request for it does.
func (l *Late) Commit(a Answer) {
	if a.HTTPStatus >= 300 || !a.Reply.Complete || l.m.availableAt(l.scope.Group()) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.m.o.CommitWait)
	defer cancel()
	held, err := l.m.lock(ctx, l.scope)
	if err == nil {
		err = l.m.log.Later(ctx, l.scope, l.turn, l.id, &a)
		<-held
	}
	if err != nil {
		l.m.failed(err)
		l.m.o.Log.Warn("an answer that was made in the background is not in the transcript until it is fetched again", "turn", l.turn, "error", err.Error())
	}
}

// Export writes the whole transcript of a session, all branches, as JSON Lines (see Line).
func (m *Memory) Export(ctx context.Context, s Scope, w io.Writer) error {
	m.gatherFirst(ctx, s)
	return m.log.Export(ctx, s, w)
}

// Import writes an exported transcript into a new session. It recomputes every item's hashes, which must be those of
// the export. The session appears whole or not at all.
func (m *Memory) Import(ctx context.Context, s Scope, r io.Reader) error {
	return m.log.Import(ctx, s, r)
}

// Walk calls f for every line of a session's export, in their order: the session, its items by sequence number, then
// leads and turns in the order of their first item, and turns that stored none last.
func (m *Memory) Walk(ctx context.Context, s Scope, f func(Line) error) error {
	m.gatherFirst(ctx, s)
	return m.log.Walk(ctx, s, f)
}

// Sessions pages through the names of a tenant's sessions, in no particular order. An empty after starts; an empty
// next ends.
func (m *Memory) Sessions(ctx context.Context, tenant, after string, limit int) (names []string, next string, err error) {
	return m.log.Sessions(ctx, tenant, after, limit)
}

// TurnRecord returns the record of a turn as one line of JSON: how its view was chosen, what each part of it cost, and what
// layers did. It fails with ErrNoTurn.
func (m *Memory) TurnRecord(ctx context.Context, s Scope, turnID string) ([]byte, error) {
	return m.log.TurnRecord(ctx, s, turnID)
}

// TurnView rebuilds what a turn sent upstream in place of the client's items: the leading items, then what
// was chosen from the conversation. Items have the bytes that they were stored with, which may be another client's
// spelling of the same content; a reference is shown as what it stood for.
func (m *Memory) TurnView(ctx context.Context, s Scope, turnID string) ([]wire.Item, error) {
	return m.log.TurnView(ctx, s, turnID)
}

// ErrStatesNotWritten is returned by Complete where layers were called but their new states could not be stored.
var ErrStatesNotWritten = errors.New("states of layers could not be written")

// Complete ends the work of a session, for an agent or an operator who knows that it is over: layers are notified of
// the end of its latest run, and if another session spawned it, that session's layers merge its states. A layer's tool
// by which the model ends its work does the same. It may be called again. It fails with ErrNoSession.
func (m *Memory) Complete(ctx context.Context, s Scope, success bool) error {
	r, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	end := layer.Outcome{Result: layer.Failure, Execution: r.turn.Execution, Thread: r.turn.Thread}
	if success {
		end.Result = layer.Success
	}
	handed := func(context.Context) {}
	if r.run.Concludes() {
		end.Unseen, handed = r.unseen(ctx)
	}
	r.run.Complete(ctx, end)
	if !r.flush(ctx) {
		return ErrStatesNotWritten
	}
	handed(ctx)
	if r.call.Scope.Parent != "" {
		r.giveBack(ctx, end)
	}
	return nil
}

// visit begins the layers of a session without a request. A resource, execution or parent that the caller does not name
// is taken from the session's latest turn.
func (m *Memory) visit(ctx context.Context, s Scope) (*layerRun, error) {
	s, err := m.log.Latest(ctx, s)
	if err != nil {
		return nil, err
	}
	t := m.infoWithoutRequest(ctx, s)
	lt := t.layerTurn()
	return beginLayers(ctx, t, &lt, newStates(t, s, &lt, ""))
}
