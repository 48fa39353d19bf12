package memory

import (
	"context"
	"io"

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
// leads and turns in the order of their first item.
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
