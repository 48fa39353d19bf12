package transcript

import (
	"remora/cache"
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

// sessionPrefix tells the groups of sessions from others of a tenant.
const sessionPrefix = "s:"

// Group is where the values of the session are.
func (s Scope) Group() cache.Group {
	return cache.Group{Owner: s.Tenant, Name: sessionPrefix + s.Session}
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
