package memory

import (
	"remora/memory/past"
	"remora/memory/pipeline"
	"remora/memory/session"
	"remora/memory/turnrecord"
)

// Types of other packages that callers of a Memory use.
type (
	// Scope names the owner of the memory that a call uses.
	Scope = session.Scope
	// History is how a call's items relate to the stored transcript.
	History = session.History
	// Aborted says who ended an answer before it was complete.
	Aborted = session.Aborted
	// Answer is the answer to a turn, complete or not.
	Answer = session.Answer
	// ExportLine is one line of an exported transcript.
	ExportLine = session.ExportLine
	// ExportedItem is one stored item.
	ExportedItem = session.ExportedItem
	// Response says where an answer was given, by the id that its client has.
	Response = session.Response
	// Credential is the caller's API key, with which layers may ask their models.
	Credential = pipeline.Credential
	// Embeddings let layers that search the past find statements with the same meaning in other words.
	Embeddings = past.Embeddings
	// Embedder turns texts into vectors.
	Embedder = past.Embedder
	// LayerError is returned by Begin if init failed of a layer with on_init_error "throw".
	LayerError = pipeline.InitError
)

// The values of X-History and of session.history.
const (
	HistoryAuto   = session.HistoryAuto
	HistoryClient = session.HistoryClient
	HistoryServer = session.HistoryServer
)

// Ways in which an answer ends.
const (
	NotAborted        = session.NotAborted
	AbortedByClient   = session.AbortedByClient
	AbortedByUpstream = session.AbortedByUpstream
)

// RecordVersion is the format in which sessions are stored.
const RecordVersion = session.RecordVersion

// TurnComplete is the status in the record of a turn whose answer is whole.
const TurnComplete = turnrecord.Complete

// Errors of reading and importing transcripts.
var (
	ErrNoSession     = session.ErrNoSession
	ErrSessionExists = session.ErrSessionExists
	ErrNoTurn        = session.ErrNoTurn
)
