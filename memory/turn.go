package memory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/session"
	"remora/memory/view"
	"remora/wire"
)

// Call is one request to be remembered.
type Call struct {
	Scope   Scope
	Request *wire.Request
	History History
	// Side says why the client itself calls this a side request ("compaction", "title", ...); empty for a turn.
	Side string
	// Provider is where the request is to go.
	Provider string
	// Unkept is a request without a session, or one that its client wants passed through. Nothing is read or stored for
	// it, and its view is the client's items: Begin only lets layers judge the answer (see Guards).
	Unkept bool
	// Lasting: the memory of the request's body is never reused, so that what outlives the turn need not be copied from
	// there.
	Lasting bool
	// Credential is the caller's, for models of layers that have none of their own. It is never stored.
	Credential Credential
}

// Status is how well memory served a turn.
type Status uint8

// Statuses of a turn, spelled in X-Memory as their String.
const (
	StatusOK Status = iota
	// StatusDegraded: the store or a layer failed; the call was forwarded all the same. A layer is in Summary.Skipped.
	StatusDegraded
)

// String is the status as X-Memory spells it.
func (s Status) String() string {
	if s == StatusDegraded {
		return "degraded"
	}
	return "ok"
}

// Summary is the content of X-Memory for a turn. It is complete before the request is forwarded. Everything is counted as
// the window counts: a Chat message with calls is one for its text, if it has any, and one for each call.
type Summary struct {
	Status Status
	// Items is how much the conversation holds for this call, with the leading system items; Sent is how much of it
	// went upstream. Items is Sent, Windowed and Orphans together.
	Items, Sent int
	// Windowed and Orphans count what the window and the orphan repair left out.
	Windowed, Orphans int
	// Repaired counts what the client itself sent and upstream could not have accepted, and which was therefore changed or
	// left out. Whatever repairs a request adds to it.
	Repaired int
	// Side reports that the request is about the conversation and not of it, such as one for a title: layers had no part.
	Side bool
	// Saved is about how many tokens of the conversation were left out or shortened, as far as it was at hand.
	Saved int
	// Recalled is the cost of layers' blocks in the view, in tokens. Skipped names the layers that failed, each with
	// the hook, as "id:recall".
	Recalled int
	Skipped  []string
}

// Turn is one request with memory, and its answer. The exchange that owns it calls Forwarded once the request is on its
// way and Commit exactly once in any case; after that, nothing of the request is used any more. Its methods are safe to
// call from different goroutines.
type Turn struct {
	// ID is unique and sorts by time.
	ID string
	// View is the list of items to send upstream in place of the request's.
	View []wire.Item
	// Tools are definitions of tools to offer beside the client's own.
	Tools [][]byte
	// Previous is the previous_response_id to send, "" for the client's own.
	Previous string
	// Summary is complete when Begin returns.
	Summary Summary

	m          *Memory
	shape      *Shape          // as it was when the turn began
	base       context.Context //nolint:containedctx // what is done for the turn belongs to its request, but is not cut off with it
	call       session.Call
	lasting    bool // see Call
	started    time.Time
	credential Credential
	unkept     bool
	hidden     *hiddenCalls // of the view; nil for none
	layers     *layered     // nil without layers; for side requests, unkept ones, and while the store is down, they only judge

	messages view.Messages  // what View is made of
	onward   *view.Messages // what the request is made of with which the model goes on, nil before that
	repaired int            // of Summary.Repaired, what is so in every form of the view
	bare     bool           // the view was sent without hidden calls last
	portable bool           // its stored items were sent in the form that any provider takes last

	mu    sync.Mutex
	entry *session.Entry
	open  atomic.Bool // forwarded, and not committed yet; it becomes false under mu

	kept   map[string][]byte // session values of a turn that is resumed from its record
	states *states           // what is read and written with the session; nil for nothing
	parked bool              // its record waits for an earlier turn of another process
	misses bool              // an earlier turn that may have been answered is not in the view
	late   bool              // it is resumed from its record

	opening *time.Timer // after which its input is written; nil before upstream is at work
	renewal *time.Timer // of a session that expires, nil for none
}

// crockford spells turn ids so that they sort as they were made and hold nothing that is easily misread.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// turnIDSize is the length of a turn id: 26 characters of 5 bits, of which the first two bits of all are 0.
const turnIDSize = 26

// timeOfTurn is when a turn began, of which the id is known.
func timeOfTurn(id string) (time.Time, bool) {
	if len(id) != turnIDSize {
		return time.Time{}, false
	}
	var ms int64
	for i := range id {
		digit := strings.IndexByte(crockford, id[i])
		if digit < 0 {
			return time.Time{}, false
		}
		if i < 10 {
			ms = ms<<5 | int64(digit)
		}
	}
	return time.UnixMilli(ms), ms < 1<<48
}

// newTurnID makes a ULID: 48 bits of the time in milliseconds and 80 random ones (https://github.com/ulid/spec).
func newTurnID(now time.Time) string {
	high := uint64(now.UnixMilli())<<16 | rand.Uint64()>>48 //nolint:gosec // unique, not secret
	low := rand.Uint64()                                    //nolint:gosec // unique, not secret
	var id [turnIDSize]byte
	for i := turnIDSize - 1; i >= 0; i-- {
		id[i] = crockford[low&31]
		high, low = high>>5, high<<59|low>>5
	}
	return string(id[:])
}

// resume makes the turn, and the answer if it had come, of a record, with which kept is to be written.
func (m *Memory) resume(rec *spooled, kept map[string][]byte) (*Turn, *Answer, error) {
	req, err := wire.Parse(rec.Dialect.Dialect(), rec.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read spooled request of turn %s: %w", rec.Turn, err)
	}
	t := &Turn{
		shape: m.shape.Load(), base: context.Background(),
		ID: rec.Turn, m: m, started: rec.Time, kept: kept, late: true,
		call: session.Call{Scope: rec.scope(), Request: req, History: rec.History, Side: string(rec.Side), Standing: session.Standing(rec.Standing), Provider: rec.Provider},
	}
	t.Summary.Status = StatusDegraded
	if t.entry, err = m.log.Resumed(t.ID, t.started, t.call, rec.View, rec.Notes); err != nil {
		return nil, nil, fmt.Errorf("read spooled notes of turn %s: %w", rec.Turn, err)
	}
	if rec.Answer == nil {
		if rec.Owner != m.processes.self {
			t.entry.Abandoned()
		}
		return t, nil, nil
	}
	a, err := rec.Answer.answer(rec.Dialect.Dialect())
	return t, a, err
}

// unavailableError is ErrUnavailable with its reason, and with when the store is asked again.
type unavailableError struct {
	cause error
	after time.Duration
}

func (e *unavailableError) Error() string             { return ErrUnavailable.Error() + ": " + e.cause.Error() }
func (e *unavailableError) Unwrap() []error           { return []error{ErrUnavailable, e.cause} }
func (e *unavailableError) RetryAfter() time.Duration { return e.after }
