package memory

import (
	"context"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/transcript"
	"remora/wire"
)

// Call is one request to be remembered.
type Call struct {
	Scope   Scope
	Request *wire.Request
	History History
	// Side says why the client itself calls this a side request ("compaction", "title", ...); empty for a turn.
	Side string
	// Unkept is a request without a session, or one that its client wants to have passed through. Nothing is read or kept of
	// it, and its view is what the client sent: Begin only lets layers judge the answer (see Guards).
	Unkept bool
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

// Summary is what X-Memory tells about a turn. It is complete before the request is forwarded. Everything is counted as
// the window counts: a Chat message with calls is one for its text, if it has any, and one for each call.
type Summary struct {
	Status Status
	// Items is how much the conversation holds for this call, with the leading system items; Sent is how much of it
	// went upstream. Items is Sent, Windowed and Orphans together.
	Items, Sent int
	// Windowed and Orphans count what the window and the orphan repair left out.
	Windowed, Orphans int
	// Side tells that the request was kept as a side line.
	Side bool
	// Saved is about how many tokens of the conversation were left out or shortened, as far as it was at hand.
	Saved int
	// Recalled is what layers have put into the view, in tokens. Skipped names those that failed, each with the hook in
	// which it did, as "id:recall".
	Recalled int
	Skipped  []string
}

// Turn is one remembered request and its answer. The exchange that owns it calls Forwarded once the request is on
// its way and Commit exactly once, whatever happened; when that has returned, nothing of the request is used any more.
// Its methods are safe to call from different goroutines.
type Turn struct {
	// ID is unique and sorts by time.
	ID string
	// View is what to send upstream in place of the request's items.
	View []wire.Item
	// Tools are definitions of tools to offer beside the client's own.
	Tools [][]byte
	// Summary is complete when Begin returns.
	Summary Summary

	m          *Memory
	shape      *Shape          // as it was when the turn began
	base       context.Context //nolint:containedctx // what is done for the turn belongs to its request, but is not cut off with it
	call       transcript.Call
	started    time.Time
	credential Credential
	unkept     bool
	layers     *layered // nil without layers; for side requests, unkept ones, and while the store is down, they only judge

	mu    sync.Mutex
	entry *transcript.Entry
	open  atomic.Bool // forwarded, and not committed yet; it becomes false under mu
}

// patience is a context that ends at a time of the real clock, or with the one it is made of. Its timer is set when
// somebody waits for its end for the first time: most turns are over before anybody has to.
type patience struct {
	context.Context //nolint:containedctx // it is one itself
	until           time.Time

	mu    sync.Mutex
	timed context.Context //nolint:containedctx // the same, with a timer; nil before that
	stop  context.CancelFunc
}

// within is a context that ends after d. Its end must be called, as a CancelFunc.
func within(ctx context.Context, d time.Duration) *patience {
	until := time.Now().Add(d) //nolint:forbidigo // context.WithTimeout has no other clock either
	if earlier, ok := ctx.Deadline(); ok && earlier.Before(until) {
		until = earlier
	}
	return &patience{Context: ctx, until: until}
}

// end stops the timer, if there is one.
func (p *patience) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		p.stop()
	}
}

// wait sets the timer.
func (p *patience) wait() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timed == nil {
		p.timed, p.stop = context.WithDeadline(p.Context, p.until)
	}
	return p.timed
}

// present is the context with the timer if that is set, or the one that this is made of.
func (p *patience) present() (ctx context.Context, timed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timed == nil {
		return p.Context, false
	}
	return p.timed, true
}

// Deadline implements [context.Context].
func (p *patience) Deadline() (time.Time, bool) { return p.until, true }

// Done implements [context.Context].
func (p *patience) Done() <-chan struct{} { return p.wait().Done() }

// Err implements [context.Context].
func (p *patience) Err() error {
	ctx, timed := p.present()
	if err := ctx.Err(); err != nil || timed {
		return err
	}
	if time.Now().Before(p.until) { //nolint:forbidigo // as in within
		return nil
	}
	return context.DeadlineExceeded
}

// Value implements [context.Context].
func (p *patience) Value(key any) any {
	ctx, _ := p.present()
	return ctx.Value(key)
}

// crockford spells turn ids so that they sort as they were made and hold nothing that is easily misread.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// timeOfTurn is when a turn began, of which the id is known.
func timeOfTurn(id string) (time.Time, bool) {
	b, err := crockford.DecodeString(id)
	if err != nil || len(b) != 16 {
		return time.Time{}, false
	}
	return time.UnixMilli(int64(binary.BigEndian.Uint64(b[:8]) >> 16)), true
}

// newTurnID makes an id of 26 characters: the time in milliseconds and 80 random bits, as in a ULID.
func newTurnID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|rand.Uint64()>>48) //nolint:gosec // unique, not secret
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())                                 //nolint:gosec // unique, not secret
	var id [26]byte
	crockford.Encode(id[:], b[:])
	return string(id[:])
}

// resume makes the turn, and the answer if it had come, of a record, with which kept is to be written.
func (m *Memory) resume(rec *spooled, kept map[string][]byte) (*Turn, *Answer, error) {
	req, err := wire.Parse(rec.Dialect, rec.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("read spooled request of turn %s: %w", rec.Turn, err)
	}
	t := &Turn{
		shape: m.shape.Load(), base: context.Background(),
		ID: rec.Turn, m: m, started: rec.Time,
		call: transcript.Call{Scope: rec.scope(), Request: req, History: rec.History, Side: string(rec.Side)},
	}
	t.Summary.Status = StatusDegraded
	var beside transcript.Beside
	if len(kept) > 0 {
		beside = &replayed{t, kept}
	}
	if t.entry, err = m.log.Resumed(t.ID, t.started, t.call, rec.View, rec.Notes, beside); err != nil {
		return nil, nil, fmt.Errorf("read spooled notes of turn %s: %w", rec.Turn, err)
	}
	if rec.Answer == nil {
		return t, nil, nil
	}
	a, err := rec.Answer.answer(rec.Dialect)
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
