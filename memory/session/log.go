// Package session stores the transcripts of sessions.
//
// A transcript is a log of items. Each item is linked to the one before it by a chain hash over all of its
// predecessors, like commits in git. The head names the end of the conversation; an edit or a regeneration becomes a
// branch, and nothing is overwritten. A record of each turn lists the items sent upstream, and why.
//
// [Log] reads and writes the transcripts of all sessions. [Log.Enter] reads a session and finds the place of a request in it
// (placement.go, merge.go): usually the request's history ends at the head, and only the items after it are new. It returns an
// [Entry], which is one turn. [HistoryReader.Conversation] is the history that a view is chosen from, and [Entry.Commit] writes
// input, answer and record in one batch (commit.go). A turn that was overtaken reads the session again (reread.go).
// Concurrent turns of several processes keep their order (order.go).
// [Log.Walk], Export and Import read and write whole sessions.
//
// The package chooses no view, calls no layer and does no retries; package memory does.
package session

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"time"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Log keeps the transcripts of all sessions in a store. It is safe for concurrent use.
type Log struct {
	store  cache.Store
	ttl    time.Duration
	hashes *hashCache
	offers offers
	recent recent
	large  LargeTurns
	// Index finds the sessions of a resource.
	Index ResourceIndex
	// Owner is the id of this process among those that use the store; 0 if it is the only one. Set it before the log is used.
	Owner uint64
	// Strict reads every session before placing a request, even a cached one, so that a store that is down is noticed. Set it
	// before the log is used.
	Strict bool
}

// New makes a log over a store. ttl is how long a session is kept after its last turn; 0 is forever.
func New(store cache.Store, ttl time.Duration) *Log {
	return &Log{
		store: store, ttl: ttl, hashes: newHashCache(), offers: offers{seed: maphash.MakeSeed()},
		large: NewLargeTurns(), Index: ResourceIndex{store: store, ttl: ttl},
	}
}

// transcript reads a session.
func (log *Log) transcript(s Scope) transcript { return transcript{log.store, s.Group()} }

// Response finds an answer by its id. It is zero for an unknown id.
func (log *Log) Response(ctx context.Context, tenant, id string) (Response, error) {
	results, err := log.store.Read(ctx, []cache.Query{{Group: ResponseGroup(tenant, id), Names: []string{sessionName, lastName, lateName, atName}}})
	if err != nil {
		return Response{}, fmt.Errorf("find response: %w", err)
	}
	v := results[0].Values
	return Response{Session: string(v[0]), Last: string(v[1]), Later: string(v[2]), Provider: string(v[3])}, nil
}

// Later stores an answer that upstream made in the background, when a client has fetched it. The answer is appended to its
// question, or to the end of the conversation if that has continued after the question. Later does nothing if the turn does not
// wait for this answer, or if upstream still works on it.
func (log *Log) Later(ctx context.Context, s Scope, turn, id string, a *Answer) error {
	if !a.Reply.Complete || a.Reply.ID != id {
		return nil
	}
	late := lateAnswer{log: log, transcript: log.transcript(s), scope: s, turn: turn, answer: a}
	for {
		done, err := late.commit(ctx)
		if done || err != nil {
			return err
		}
	}
}

// Latest completes a scope with resource, execution and parent of the session's latest answered turn. It fails with
// ErrNoSession.
func (log *Log) Latest(ctx context.Context, s Scope) (Scope, error) {
	stored := log.transcript(s)
	st, _, err := stored.head(ctx)
	if err != nil {
		return s, err
	}
	raw, err := stored.turn(ctx, st.head.LastTurn)
	if errors.Is(err, ErrNoTurn) {
		return s, nil // there is no answer yet
	}
	var turn turnrecord.Record
	if err == nil && json.Unmarshal(raw, &turn) != nil {
		err = fmt.Errorf("turn %s: %w", st.head.LastTurn, ErrCorrupt)
	}
	if turn.Resource != "" {
		s.Resource = turn.Resource
	}
	s.Execution, s.Parent = turn.Execution, turn.ParentID
	return s, err
}

// End reads the end of a session's line without hidden items: at least the given number of units, if it has them. name is a
// value to read with it. It fails with ErrNoSession.
func (log *Log) End(ctx context.Context, s Scope, units uint64, name string) (Ending, error) {
	stored := log.transcript(s)
	st, values, err := stored.head(ctx, name)
	if err != nil {
		return Ending{}, err
	}
	line, err := stored.line(ctx, st.head.Pos, units)
	if err != nil {
		return Ending{}, err
	}
	return newEnding(line, values[1]), nil
}

// Pending returns the turns of a session that are not in the log, in order, and the records of parked turns, nil for others.
func (log *Log) Pending(ctx context.Context, s Scope) (list []Pending, records [][]byte, err error) {
	stored := log.transcript(s)
	st, _, err := stored.head(ctx)
	if errors.Is(err, ErrNoSession) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	records, err = stored.parkedRecords(ctx, st.head.Pending)
	return st.head.Pending, records, err
}

// Records reads the records of parked turns, nil for others and for turns that are in the log now.
func (log *Log) Records(ctx context.Context, s Scope, list []Pending) ([][]byte, error) {
	return log.transcript(s).parkedRecords(ctx, list)
}

// SetAside removes a turn from those that are not in the log, so that no other turn waits for it: a parked one whose record makes
// no sense, which is kept under another name, or an open one whose answer was lost, without a record. Its error is cache.ErrConflict
// if the session has changed: it may be tried again.
func (log *Log) SetAside(ctx context.Context, s Scope, turn string, record []byte) error {
	stored := log.transcript(s)
	st, _, err := stored.head(ctx)
	if err != nil {
		return err
	}
	h := st.head.clone(0)
	h.Pending.remove(turn)
	log.recent.drop(stored.group)
	puts := []cache.Put{{Name: headName, Data: h.encode()}}
	if record != nil {
		puts = append(puts, cache.Put{Name: asidePrefix + turn, Data: record})
	}
	return log.store.Commit(ctx, []cache.Batch{{
		Group: stored.group, Expect: st.version, TTL: log.ttl, Deletes: []string{journalPrefix + turn}, Puts: puts,
	}})[0].Err
}

// Versions returns the versions of sessions in the store, 0 for one that is not stored. They change with every turn.
func (log *Log) Versions(ctx context.Context, tenant string, sessions []string) ([]uint64, error) {
	versions := make([]uint64, 0, len(sessions))
	for page := range slices.Chunk(sessions, exportPage) {
		queries := make([]cache.Query, len(page))
		for i, name := range page {
			queries[i].Group = Scope{Tenant: tenant, Session: name}.Group()
		}
		results, err := log.store.Read(ctx, queries)
		if err != nil {
			return nil, fmt.Errorf("look for sessions: %w", err)
		}
		for _, r := range results {
			versions = append(versions, r.Version)
		}
	}
	return versions, nil
}

// SaidSince returns the messages of users and models since an earlier reading: on the conversation, and on lines that share
// nothing with it. An unanswered question of a disconnected client counts until something else follows in its place. Messages
// that an edit or a regeneration has replaced, and those for another resource, are left out. It fails with ErrNoSession.
func (log *Log) SaidSince(ctx context.Context, s Scope, before Reading) (News, error) {
	r := newsReader{transcript: log.transcript(s), resource: s.Resource}
	return r.since(ctx, before)
}

// Sessions pages through the names of a tenant's sessions, in no particular order. An empty after starts; an empty
// next ends.
func (log *Log) Sessions(ctx context.Context, tenant, after string, limit int) (names []string, next string, err error) {
	groups, next, err := log.store.List(ctx, tenant, after, limit)
	if err != nil {
		return nil, "", fmt.Errorf("list sessions: %w", err)
	}
	for _, g := range groups {
		if name, ok := strings.CutPrefix(g, sessionPrefix); ok {
			names = append(names, name)
		}
	}
	return names, next, nil
}

// TurnRecord returns the record of a turn as one line of JSON. It fails with ErrNoTurn.
func (log *Log) TurnRecord(ctx context.Context, s Scope, turnID string) (json.RawMessage, error) {
	return log.transcript(s).turn(ctx, turnID)
}

// TurnView rebuilds the items that a turn sent upstream: the system prompt, blocks, the chosen part of the conversation,
// blocks. Items have their stored bytes, which may be another client's spelling of the same content; a reference is shown as
// its target.
func (log *Log) TurnView(ctx context.Context, s Scope, turnID string) ([]wire.Item, error) {
	return turnView(ctx, log.transcript(s), turnID)
}

// Export writes the whole transcript of a session, all branches, as JSON Lines (see ExportLine).
func (log *Log) Export(ctx context.Context, s Scope, w io.Writer) error {
	out := bufio.NewWriter(w)
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	if err := log.Walk(ctx, s, func(l ExportLine) error { return enc.Encode(l) }); err != nil {
		return err
	}
	return out.Flush()
}

// Walk calls f for every line of a session's export, in order: the session, its items by sequence number, turns by
// their first item, and then turns that stored no items, in the order in which they were written.
func (log *Log) Walk(ctx context.Context, s Scope, f func(ExportLine) error) error {
	x := exporter{transcript: log.transcript(s), emit: f, seen: make(map[string]bool)}
	return x.walk(ctx)
}

// Import writes an exported transcript into a new session. It recomputes every item's hashes, which must equal those of the
// export, and all items that the session's line and the turns refer to must exist. The session appears completely or not at
// all: nothing is written before the whole file has been read.
func (log *Log) Import(ctx context.Context, s Scope, r io.Reader) error {
	im := importer{log: log, scope: s, at: map[uint64]replyPosition{}, turns: map[string]*turnrecord.Record{}, named: map[string]uint64{}}
	return im.read(ctx, r)
}
