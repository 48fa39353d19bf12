package memory

import (
	"context"
	"fmt"
	"io"
	"time"

	"remora/cache"
	"remora/memory/session"
	"remora/wire"
)

// Transcripts reads and imports the sessions that are stored.
type Transcripts struct {
	store  cache.Store
	log    *session.Log
	parked *parkedTurns // which are written before a session is read
	now    func() time.Time
}

// Export writes the whole transcript of a session, all branches, as JSON Lines (see ExportLine).
func (t *Transcripts) Export(ctx context.Context, s Scope, w io.Writer) error {
	t.parked.writeFirst(ctx, s)
	return t.log.Export(ctx, s, w)
}

// Import writes an exported transcript into a new session. It recomputes every item's hashes, which must be those of
// the export. The session appears whole or not at all.
func (t *Transcripts) Import(ctx context.Context, s Scope, r io.Reader) error {
	return t.log.Import(ctx, s, r)
}

// Walk calls f for every line of a session's export, in order: the session, its items by sequence number, turns by
// their first item, and then turns that stored no items. A system prompt and a block come before the first turn that used them.
func (t *Transcripts) Walk(ctx context.Context, s Scope, f func(ExportLine) error) error {
	t.parked.writeFirst(ctx, s)
	return t.log.Walk(ctx, s, f)
}

// ImportMessages writes conversations that another program recorded into new sessions, and returns the number of
// sessions. The file is JSON Lines: {"message": M, "time": T} is a message of Chat Completions or an item of Responses
// ("dialect": "responses"), and its time (RFC 3339; by default the time of the line before, and now for the first).
// Messages up to the end of an answer, and those that follow at the same time, are one turn with that time. {"session":
// "ID", "resource": "ID"} begins a session; messages before any such line belong to s. The whole file is read before
// anything is written, and a session that cannot be written to its end is removed; those before it stay. A session without
// messages is not written. Layers do not see the messages.
func (t *Transcripts) ImportMessages(ctx context.Context, s Scope, r io.Reader) (sessions int, err error) {
	all, err := readMessages(s, r, t.now())
	if err != nil {
		return 0, err
	}
	for _, im := range all {
		if len(im.turns) == 0 {
			continue
		}
		if err := im.write(ctx, t); err != nil {
			return sessions, fmt.Errorf("session %q: %w", im.scope.Session, err)
		}
		sessions++
	}
	return sessions, nil
}

// Sessions pages through the names of a tenant's sessions, in no particular order. An empty after starts; an empty
// next ends.
func (t *Transcripts) Sessions(ctx context.Context, tenant, after string, limit int) (names []string, next string, err error) {
	return t.log.Sessions(ctx, tenant, after, limit)
}

// TurnRecord returns the record of a turn as one line of JSON: how its view was chosen, what each part of it cost, and what
// layers did. It fails with ErrNoTurn.
func (t *Transcripts) TurnRecord(ctx context.Context, s Scope, turnID string) ([]byte, error) {
	return t.log.TurnRecord(ctx, s, turnID)
}

// TurnView rebuilds what a turn sent upstream in place of the client's items: the system prompt, then what
// was chosen from the conversation. Items have the bytes that they were stored with, which may be another client's
// spelling of the same content; a reference is shown as what it stood for.
func (t *Transcripts) TurnView(ctx context.Context, s Scope, turnID string) ([]wire.Item, error) {
	return t.log.TurnView(ctx, s, turnID)
}
