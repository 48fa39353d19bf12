package session

import (
	"encoding/json"
	"errors"
	"slices"

	"remora/cache"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Scope names the owner of the memory that a call uses. All strings may hold any bytes: callers control them.
type Scope struct {
	// Tenant is derived from the caller's credential, never from what the caller says.
	Tenant string
	// Session names the conversation; it is never empty.
	Session string
	// Resource groups several sessions; if empty, the session itself.
	Resource string
	// Execution is one agent run; empty means that it is derived from the run's user message.
	Execution string
	// Parent is the session that spawned this one, empty for none.
	Parent string
}

// sessionPrefix tells the groups of sessions from others of a tenant.
const sessionPrefix = "s:"

// Group returns the store's group that holds the values of the session.
func (s Scope) Group() cache.Group {
	return cache.Group{Owner: s.Tenant, Name: sessionPrefix + s.Session}
}

// History is how a call's items relate to the stored transcript.
type History uint8

// The values of X-History and of session.history.
const (
	// HistoryAuto recognises both habits: resending the history, and sending only new items.
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
	// Retry: the client says that it has sent the request before.
	Retry bool
	// Provider is where the request is to go; empty where that is not known.
	Provider string
	// Standing is the result of an earlier look at the session; Undecided if there was none.
	Standing Standing
}

// Aborted says who ended an answer before it was complete.
type Aborted uint8

// Ways in which an answer ends.
const (
	NotAborted        Aborted = iota
	AbortedByClient           // the client went away
	AbortedByUpstream         // upstream broke off or stalled
)

// String is how a turn record spells it.
func (c Aborted) String() string {
	switch c {
	case AbortedByClient:
		return "client"
	case AbortedByUpstream:
		return "upstream"
	default:
		return ""
	}
}

// Answer is the answer to a turn, or what came of it.
type Answer struct {
	// Reply holds the folded answer, or as much of it as came.
	Reply wire.Reply
	// HTTPStatus is upstream's status, 0 if there was no answer at all.
	HTTPStatus int
	Aborted    Aborted
	// Provider gave the answer, by this model; empty where that is not known.
	Provider, Model string
	// Later: upstream makes the answer in the background, and Reply has only its id. See [Log.Later].
	Later bool
}

// firstChoice returns the items of the choice that the conversation goes on with; none of an answer that is still to come.
func (a *Answer) firstChoice() []wire.Item {
	if a == nil || len(a.Reply.Choices) == 0 {
		return nil
	}
	return a.Reply.Choices[0]
}

// staysUnread reports whether the question of an answer without items stays in the conversation: the client got an answer that
// could not be read, or gets one later.
func (a *Answer) staysUnread() bool {
	return a != nil && (a.Later || a.Reply.Truncated && a.HTTPStatus < 300)
}

func (a *Answer) status() string {
	switch {
	case a.HTTPStatus >= 400 || len(a.Reply.Error) > 0:
		return turnrecord.Failed
	case a.Aborted != NotAborted || !a.Reply.Complete:
		return turnrecord.Incomplete
	default:
		return turnrecord.Complete
	}
}

// Want names values to read together with a session, in the same round trip, that do not belong to the transcript.
type Want struct {
	Names  []string      // of values of the session's group
	Others []cache.Query // of other groups
	// Steady: what Names name is written with answers alone, so that who wrote one knows it.
	Steady bool
}

// known reports whether who wrote the session last knows all of it.
func (w Want) known() bool { return len(w.Others) == 0 && (w.Steady || len(w.Names) == 0) }

// after returns the named values as they are once p is written, where values are those that were read.
func (w Want) after(values [][]byte, p Puts) [][]byte {
	for _, v := range p.Values {
		if i := slices.Index(w.Names, v.Name); i >= 0 && i < len(values) {
			values = slices.Clone(values)
			values[i] = v.Data
		}
	}
	return values
}

// Extra holds the values that a Want named, in its order; nil for one that is not stored.
type Extra struct {
	Values [][]byte
	Others []cache.Result
}

// Puts are written together with an answer. Their values of the session are stored exactly if the turn is.
type Puts struct {
	Values []cache.Put // of the session's group; one without data takes the value away
	Others []cache.Batch
}

// Done is the result of a commit.
type Done struct {
	Version uint64          // the session's now, 0 where the turn was there already
	Others  []cache.Outcome // of Puts.Others
}

// Reread is the error of a commit that found the session otherwise than the entry knew it, and has read it again: the commit
// is to be tried again, with Puts that fit what the session holds now.
type Reread struct{ Extra Extra }

func (*Reread) Error() string { return "the session has changed, and was read again" }

// ErrNoTurn is returned where a session has no such turn.
var ErrNoTurn = errors.New("no such turn")

func isOpen(record []byte) bool {
	var r turnrecord.Record
	return json.Unmarshal(record, &r) == nil && r.Open
}
