package memory

import (
	"context"
	"errors"
	"fmt"
	"io"

	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/transcript"
	"remora/wire"
)

// Of the types of other packages, those that callers of a Memory meet.
type (
	// Scope says whose memory a call uses.
	Scope = transcript.Scope
	// History is how a call's items relate to the stored transcript.
	History = transcript.History
	// Cut says how an answer ended before its end.
	Cut = transcript.Cut
	// Answer is what came back for a turn.
	Answer = transcript.Answer
	// Line is one line of an exported transcript.
	Line = transcript.Line
	// SessionLine opens an export.
	SessionLine = transcript.SessionLine
	// ItemLine is one stored item.
	ItemLine = transcript.ItemLine
	// BlockLine is a text that layers put into views.
	BlockLine = transcript.BlockLine
	// Credential is what layers may use to ask their models on the caller's behalf.
	Credential = pipeline.Credential
	// LayerError refuses a call: a layer that is configured so could not begin.
	LayerError = pipeline.InitError
	// LeadLine is one version of the instructions and leading system items.
	LeadLine = transcript.LeadLine
)

// The values of X-History and of session.history.
const (
	HistoryAuto   = transcript.HistoryAuto
	HistoryClient = transcript.HistoryClient
	HistoryServer = transcript.HistoryServer
)

// Ways in which an answer ends.
const (
	CutNone     = transcript.CutNone
	CutClient   = transcript.CutClient
	CutUpstream = transcript.CutUpstream
)

// Errors of reading and importing transcripts.
var (
	ErrNoSession     = transcript.ErrNoSession
	ErrSessionExists = transcript.ErrSessionExists
	ErrNoTurn        = transcript.ErrNoTurn
)

// SessionOf finds the session in which a response was given, for requests that name nothing but that response; ""
// if it is not known.
func (m *Memory) SessionOf(ctx context.Context, tenant, responseID string) (string, error) {
	if err := m.available(); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, m.o.ReadWait)
	defer cancel()
	session, err := m.log.SessionOf(ctx, tenant, responseID)
	if err != nil {
		m.failed(err)
	}
	return session, err
}

// Export writes the whole transcript of a session, all branches, as JSON Lines (see Line).
func (m *Memory) Export(ctx context.Context, s Scope, w io.Writer) error {
	return m.log.Export(ctx, s, w)
}

// Import writes a transcript that Export made into a session that does not exist yet. Every item's hashes are worked
// out again and must be those of the export. The session appears whole or not at all.
func (m *Memory) Import(ctx context.Context, s Scope, r io.Reader) error {
	return m.log.Import(ctx, s, r)
}

// Walk calls f for every line of a session's export, in their order: the session, its items by sequence number, then
// leads and turns in the order of their first item, and turns that stored none last.
func (m *Memory) Walk(ctx context.Context, s Scope, f func(Line) error) error {
	return m.log.Walk(ctx, s, f)
}

// Sessions pages through the names of a tenant's sessions, in no particular order. An empty after starts; an empty
// next ends.
func (m *Memory) Sessions(ctx context.Context, tenant, after string, limit int) (names []string, next string, err error) {
	return m.log.Sessions(ctx, tenant, after, limit)
}

// TurnRecord is what is kept of a turn, as JSON in one line: how its view was chosen, what each part of it cost, and how
// layers fared.
func (m *Memory) TurnRecord(ctx context.Context, s Scope, turnID string) ([]byte, error) {
	return m.log.TurnRecord(ctx, s, turnID)
}

// TurnView puts together again what a turn sent upstream in place of the client's items: the leading items, then what
// was chosen from the conversation. Items have the bytes that they were stored with, which may be another client's
// spelling of the same content; a reference is shown as what it stood for.
func (m *Memory) TurnView(ctx context.Context, s Scope, turnID string) ([]wire.Item, error) {
	return m.log.TurnView(ctx, s, turnID)
}

// Delete removes all that is stored of a session, after its layers have been told. What layers keep for its resource
// and its tenant stays. A session that expires (SessionTTL) is removed by the store, which tells nobody: layers are not
// told of that.
func (m *Memory) Delete(ctx context.Context, s Scope) error {
	t, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	t.layers.run.Dispose(ctx)
	if err := m.store.Delete(ctx, s.Group()); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	return nil
}

// ErrStatesNotWritten is returned by Complete where layers were told, but what they made of it could not be stored.
var ErrStatesNotWritten = errors.New("states of layers could not be written")

// Complete ends what a session works on, for an agent or an operator who knows that it is over: layers are told of the
// end of its latest execution and, where the session was spawned by another, those of its parent take over what it has
// learnt. It does the same as an answer without tool calls, and may be called again. It fails with ErrNoSession.
func (m *Memory) Complete(ctx context.Context, s Scope, success bool) error {
	t, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	l := t.layers
	end := layer.Outcome{Success: success, Execution: l.turn.Execution, Thread: l.turn.Thread}
	l.run.Complete(ctx, end)
	if !t.flush(ctx, l.states) {
		return ErrStatesNotWritten
	}
	if t.call.Scope.Parent != "" {
		t.giveBack(ctx, end)
	}
	return nil
}

// visit begins the layers of a session without a request. What the caller does not know of its resource, execution and
// parent is that of its latest turn.
func (m *Memory) visit(ctx context.Context, s Scope) (*Turn, error) {
	s, err := m.log.Latest(ctx, s)
	if err != nil {
		return nil, err
	}
	t := &Turn{ID: newTurnID(m.o.Now()), m: m, shape: m.shape.Load(), base: ctx, started: m.o.Now()}
	t.call.Scope = s
	lt := t.layerTurn()
	st := t.newStates(s, &lt, "")
	if st != nil {
		if err := st.refresh(ctx); err != nil {
			return nil, err
		}
	}
	run, err := t.shape.Layers.Begin(ctx, s.Tenant, lt, st.known(), t.credential)
	if err != nil {
		return nil, err
	}
	if st != nil {
		st.run = run
	}
	t.layers = &layered{states: st, run: run, turn: lt}
	return t, nil
}
