package past

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/index"
	"remora/memory/pipeline"
)

// Embeddings let recall find statements that mean the same as a question in other words. A turn waits only for the vector of its
// question. The vectors of what was said are made after the turn and kept in the store, so that replicas share them. A question
// without a vector is searched for by its words.
type Embeddings struct {
	// Source returns a provider's model, with the caller's credential, which it uses if it is configured without one. It is nil
	// with a Table. ID names the model and all that changes its vectors: vectors of another ID are not used. Layer is the layer
	// that metrics name.
	Source    func(c pipeline.Credential) Embedder
	ID, Layer string
	// Table makes the vectors in this process instead, from words alone.
	Table func(text string) []float32
	// A statement whose cosine with the question is above Floor is scored higher, by Weight times what is above.
	Floor, Weight float32
	// Wait is how long a request waits for the vector of its question.
	Wait time.Duration
	// Observe is called after every call of the model. It may be nil.
	Observe func(ctx context.Context, e pipeline.Event)

	health     health
	dimensions atomic.Int32 // of the model's vectors; 0 before the first one
}

// Embedder turns texts into vectors, one for each, all of one length. Its errors quote neither texts nor credentials.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Refused reports whether an error of Embed concerns this caller alone, such as one about its credential.
	Refused(err error) bool
}

// hookEmbed is the name of the model's calls in metrics.
const hookEmbed = "embed"

// digest names the model in stored vectors.
func (e *Embeddings) digest() (d [8]byte) {
	sum := sha256.Sum256([]byte(e.ID))
	copy(d[:], sum[:])
	return d
}

// id is the model's name, empty for none.
func (e *Embeddings) id() string {
	if e == nil {
		return ""
	}
	return e.ID
}

// stores reports whether vectors are kept in the store.
func (e *Embeddings) stores() bool { return e != nil && e.Source != nil }

// saw records the dimensions of the model's vectors.
func (e *Embeddings) saw(vectors []index.Vector) {
	if len(vectors) > 0 {
		e.dimensions.Store(int32(len(vectors[0]))) //nolint:gosec // at most 4096
	}
}

// health remembers a model's failures, so that not every request asks a model that fails.
type health struct {
	mu     sync.Mutex
	failed int       // times in a row
	next   time.Time // when it is asked again
	told   time.Time // when the log last had a line about it
}

// errResting is returned in place of a call of a model that failed a short while ago.
var errResting = errors.New("it has failed and is left alone for a while")

// rests are how long a model is not asked after its first failure, the second in a row, and so on.
var rests = [...]time.Duration{0, time.Second, 5 * time.Second, 30 * time.Second}

func (h *health) rests(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.next)
}

// tellEvery is the least time between two lines of the log about a model that fails and recovers again and again.
const tellEvery = time.Minute

// note records how a call has ended, and reports whether the log should have it. refused: the model refuses this caller, and may
// serve others.
func (h *health) note(now time.Time, failed, refused bool) (news bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	news = failed != (h.failed > 0) && (h.told.IsZero() || now.Sub(h.told) >= tellEvery)
	if news {
		h.told = now
	}
	if !failed {
		h.failed, h.next = 0, time.Time{}
		return news
	}
	h.failed++
	if !refused {
		h.next = now.Add(rests[min(h.failed-1, len(rests)-1)])
	}
	return news
}

// embed asks the model for the vectors of some texts.
func (e *Embeddings) embed(ctx context.Context, o *Options, c pipeline.Credential, texts []string) ([]index.Vector, error) {
	begun := o.Now()
	if e.health.rests(begun) {
		return nil, errResting
	}
	one := e.Source(c)
	raw, err := one.Embed(ctx, texts)
	if err == nil && len(raw) != len(texts) {
		err = errors.New("it does not have a vector for each text")
	}
	if errors.Is(err, context.Canceled) {
		return nil, err // this process ends
	}

	now, class := o.Now(), pipeline.ClassNone
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		class = pipeline.ClassTimeout
	case err != nil:
		class = pipeline.ClassError
	}
	if e.Observe != nil {
		e.Observe(ctx, pipeline.Event{Layer: e.Layer, Hook: hookEmbed, Begun: begun, Duration: now.Sub(begun), Class: class})
	}
	if news := e.health.note(now, err != nil, err != nil && one.Refused(err)); news && err != nil {
		o.Log.Warn("an embedding model does not answer; recall goes on by words", "layer", e.Layer, "error", err.Error())
	} else if news {
		o.Log.Info("an embedding model answers again", "layer", e.Layer)
	}
	if err != nil {
		return nil, err
	}
	vectors := make([]index.Vector, len(raw))
	for i, v := range raw {
		vectors[i] = index.Quantise(v)
	}
	e.saw(vectors)
	return vectors, nil
}
