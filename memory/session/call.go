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
	// Tenant is derived from the caller's credential, never from other input.
	Tenant string
	// Session names the conversation; it is never empty.
	Session string
	// Resource groups several sessions; if empty, the session has none, and shares nothing.
	Resource string
	// Execution is one agent run; empty means that it is derived from the run's user message.
	Execution string
	// Parent is the session that spawned this one, empty for none.
	Parent string
}

// sessionPrefix distinguishes the groups of sessions from others of a tenant.
const sessionPrefix = "s:"

// Group returns the store's group that holds the values of the session.
func (s Scope) Group() cache.Group {
	return cache.Group{Owner: s.Tenant, Name: sessionPrefix + s.Session}
}

// History is how a call's items relate to the stored transcript.
type History uint8

// The values of X-History and of session.history.
const (
	// HistoryAuto recognises both kinds of clients: those that resend the history, and those that send only new items.
	HistoryAuto History = iota
	// HistoryClient takes what the client sends as the history.
	HistoryClient
	// HistoryServer always puts the transcript before the client's items.
	HistoryServer
)

// Call is one request to be remembered.
type Call struct {
	Scope   Scope
	Request *wire.Request
	History History
	// Side is the client's own name for a side request ("compaction", "title", ...); empty for a turn.
	Side string
	// Retry: the client says that it has sent the request before.
	Retry bool
	// Resends: the client is one that always resends its history.
	Resends bool
	// Provider is the target of the request; empty if unknown.
	Provider string
	// Found is the result of an earlier placement; zero if there was none.
	Found Found
}

// elsewhere reports whether a provider is known to be another than the one that the request goes to.
func (c *Call) elsewhere(provider string) bool {
	return provider != "" && c.Provider != "" && provider != originName(c.Provider)
}

// Found is the result of a placement.
type Found struct {
	Standing Standing
	Rule     string // that placed the request: see turnrecord.Record
}

// Aborted says who ended an answer before it was complete.
type Aborted uint8

// Ways in which an answer ends.
const (
	NotAborted        Aborted = iota
	AbortedByClient           // the client went away
	AbortedByUpstream         // upstream broke off or stalled
)

// String returns the name in turn records.
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

// Answer is the answer to a turn, complete or not.
type Answer struct {
	// Reply holds the parsed answer, or the part of it that arrived.
	Reply wire.Reply
	// HTTPStatus is upstream's status, 0 if there was no answer at all.
	HTTPStatus int
	Aborted    Aborted
	// Provider and Model gave the answer; empty if unknown.
	Provider, Model string
	// Later: upstream makes the answer in the background, and Reply has only its id. See [Log.Later].
	Later bool
}

// firstChoice returns the items of the first choice, which continues the conversation; none if there is no answer yet.
func (a *Answer) firstChoice() []wire.Item {
	if a == nil || len(a.Reply.Choices) == 0 {
		return nil
	}
	return a.Reply.Choices[0]
}

// staysUnread reports whether the question stays in the conversation although its answer has no items: the client got an
// unreadable answer, or gets one later.
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

// describe tells a turn's record how the answer ended.
func (a *Answer) describe(r *turnrecord.Record) {
	r.Status, r.Later, r.HTTPStatus, r.Finish = a.status(), a.Later, a.HTTPStatus, a.Reply.Finish
	if u := a.Reply.Usage; wire.Valid(u) && (hasNoEscapes(u) || json.Valid(u)) {
		r.Usage = u
	}
}

// hasNoEscapes reports whether JSON has neither escapes nor control characters, which wire.Valid does not look for.
func hasNoEscapes(raw []byte) bool {
	for _, c := range raw {
		if c < ' ' || c == '\\' {
			return false
		}
	}
	return true
}

// Want names values to read together with a session, in the same round trip, that do not belong to the transcript.
type Want struct {
	// First returns what is read before the session: a turn that another process commits between the two reads appears in the session,
	// and in the other order it would be missed. It is not called where the session is not read, since this process knows it, and not
	// when a commit reads the session anew.
	First  func() []cache.Query
	Names  []string      // of values of the session's group
	Others []cache.Query // of other groups
	// Steady: the values of Names are written only with answers, so the process that wrote the last answer knows them.
	Steady bool
}

// known reports whether the last writer of the session knows all values.
func (w Want) known() bool { return len(w.Others) == 0 && (w.Steady || len(w.Names) == 0) }

// after returns the named values after p is written. values are those that were read.
func (w Want) after(values [][]byte, p Puts) [][]byte {
	for _, v := range p.Values {
		if i := slices.Index(w.Names, v.Name); i >= 0 && i < len(values) {
			values = slices.Clone(values)
			values[i] = v.Data
		}
	}
	return values
}

// Extra holds the values of a Want, in its order; nil for a value that is not stored.
type Extra struct {
	First  []cache.Result // nil if the session was not read, since this process knows it
	Values [][]byte
	Others []cache.Result
}

// Puts are written together with an answer. Values of the session are stored atomically with the turn.
type Puts struct {
	Values []cache.Put // of the session's group; one without data deletes the value
	Others []cache.Batch
}

// Done is the result of a commit.
type Done struct {
	Version uint64          // the session's new version, 0 if the turn was already stored
	Others  []cache.Outcome // of Puts.Others
	Missed  []cache.Batch   // by which the session is found, and which could not be written: write them again
	Err     error           // of the first of Missed
}

// ErrNoTurn is returned if a session has no such turn.
var ErrNoTurn = errors.New("no such turn")
