package memory

import (
	"encoding/base32"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

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

// Status is how well memory served a turn.
type Status uint8

// Statuses of a turn, spelled in X-Memory as their String.
const (
	StatusOK Status = iota
	// StatusDegraded: the store failed; the call was forwarded all the same.
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

// Turn is one remembered request and its answer. The exchange that owns it calls Forwarded once the request is on
// its way and Commit exactly once, whatever happened; when that has returned, nothing of the request is used any more.
// Its methods are safe to call from different goroutines.
type Turn struct {
	// ID is unique and sorts by time.
	ID string
	// View is what to send upstream in place of the request's items.
	View []wire.Item
	// Summary is complete when Begin returns.
	Summary Summary

	m       *Memory
	call    Call
	started time.Time

	late   bool // it waited in the spool: the head may have moved on since
	loaded bool // state was read from the store
	opened bool // the session did not exist when the view was built
	state  state
	in     *incoming
	plan   plan
	view   viewRecord
	atHead bool // the new items go behind the present head
	// in.items[from:] is what the ring gains by this turn, behind ringKept of its present entries.
	from, ringKept int
	seqs           []uint64 // sequence numbers of in.items, as far as this turn stored them
	known          map[wire.Hash]place

	parent    uint64 // sequence number before the first new item
	mu        sync.Mutex
	timer     *time.Timer
	journaled journaled
	answered  [][]mark // of the answer's items, per choice; nil until they are needed
}

// journaled is a turn's input that was written before its answer.
type journaled struct {
	names  []string // of its values; none if it was not written
	behind uint64   // the item that it was written behind
	end    position
	seqs   []uint64 // of its items
}

// settle takes over where the turn stands in the transcript.
func (t *Turn) settle(st state, in *incoming, p plan) {
	t.state, t.in, t.plan, t.loaded = st, in, p, true
	t.seqs, t.parent = make([]uint64, len(in.items)), p.parent.Seq
	t.atHead = p.parent.Seq == st.head.Pos.Seq && p.parent.Chain == st.head.Pos.Chain
	t.from, t.ringKept = 0, 0
	if t.atHead {
		t.from, t.ringKept = p.fresh, len(st.head.Ring)
		return
	}
	for i, e := range st.head.Ring {
		if e.Seq == p.parent.Seq && e.Seq != 0 {
			t.from, t.ringKept = p.fresh, i+1
		}
	}
}

// crockford spells turn ids so that they sort as they were made and hold nothing that is easily misread.
var crockford = base32.NewEncoding("0123456789ABCDEFGHJKMNPQRSTVWXYZ").WithPadding(base32.NoPadding)

// newTurnID makes an id of 26 characters: the time in milliseconds and 80 random bits, as in a ULID.
func newTurnID(now time.Time) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(now.UnixMilli())<<16|rand.Uint64()>>48) //nolint:gosec // unique, not secret
	binary.BigEndian.PutUint64(b[8:], rand.Uint64())                                 //nolint:gosec // unique, not secret
	return crockford.EncodeToString(b[:])
}
