package memory

import (
	"cmp"
	"log/slog"
	"time"

	"remora/memory/past"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
)

// What to do with a call when the store cannot be read.
const (
	OnStoreErrorOpen   = "open"
	OnStoreErrorClosed = "closed"
)

// Options configure a Memory. The zero value of a duration means its default.
type Options struct {
	// CommitWait is how long the end of an answer may wait for its commit (store.commit_wait).
	CommitWait time.Duration
	// ReadWait is how long a request may wait for its session to be read (store.read_wait).
	ReadWait time.Duration
	// OpenDelay is how long upstream may take before the input is written separately (store.open_delay).
	OpenDelay time.Duration
	// SessionTTL is how long a session is kept after its last turn; 0 is forever.
	SessionTTL time.Duration
	// RetryDelay is how long a failed store is not used, and how often the spool retries meanwhile.
	RetryDelay time.Duration
	// Shared: other processes use the store, too. Running turns are then listed in it, so that any process can serve a
	// session's next request.
	Shared bool
	// Place is where the process runs, such as its host and address. Another process in the same place has ended. Empty is unknown.
	Place string
	// IndexBytes bounds the memory of all indexes that layers search; 0 is 256 MB.
	IndexBytes int
	// OnStoreError is "open" (forward without memory) or "closed" (refuse).
	OnStoreError string
	// Shape configures views.
	Shape
	// Lost is called with the number of turns that neither the store nor the spool took. It may be nil.
	Lost func(turns int)
	// Log receives one line per failure, never content. Now is the clock.
	Log *slog.Logger
	Now func() time.Time
}

// Shape configures views. It can be replaced at any time: running turns keep theirs.
type Shape struct {
	// Window is the history window, nil for none.
	Window *view.Window
	// Layers contribute to views; nil for none.
	Layers *pipeline.Pipeline
	// Summarize replaces history beyond the budget by a summary (policy overflow: summarize). It needs Layers. OverflowModel
	// makes it; without one it consists of excerpts.
	Summarize     bool
	OverflowModel pipeline.ModelSource
	// Embeddings let layers search the past by meaning, too; nil for words only.
	Embeddings *past.Embeddings
	// ToolResult is the maximum number of tokens of a tool result, 0 for no limit (see view.ShortenResult).
	ToolResult int
	// PromptCache keeps the beginning of views unchanged for the provider's prompt cache; with nil, layers' blocks may change
	// it with every request.
	PromptCache *view.PromptCache
	// Context returns the context length of a model in tokens, 0 if unknown; it may be nil. Price counts an item's tokens for a
	// model, at most tokens.AtMost; windows by tokens need it.
	Context func(model string) int
	Price   func(model string, it wire.Item) int
}

func (o *Options) defaults() {
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.CommitWait, 250 * time.Millisecond},
		{&o.ReadWait, 250 * time.Millisecond},
		{&o.OpenDelay, 20 * time.Millisecond},
		{&o.RetryDelay, 500 * time.Millisecond},
	} {
		*d.value = cmp.Or(*d.value, d.def)
	}
	o.OnStoreError = cmp.Or(o.OnStoreError, OnStoreErrorOpen)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default clock of a library that takes one
	}
}
