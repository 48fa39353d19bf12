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

// Embeddings let recall find what means the same in other words. A turn waits for one of them at most, that of its question;
// those of what was said are made after a turn and kept in the store, so that replicas share them. Without one, recall goes on
// by words.
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
	dimensions atomic.Int32 // of the model, as far as it was seen; 0 is unknown
}

// Embedder turns texts into vectors, one for each, all of one length. Its errors quote neither texts nor credentials.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Refused reports whether an error of Embed concerns this caller alone, such as one about its credential.
	Refused(err error) bool
}

// hookEmbed is what metrics call the model's calls.
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

// saw takes down how large the model's vectors are.
func (e *Embeddings) saw(vectors []index.Vector) {
	if len(vectors) > 0 {
		e.dimensions.Store(int32(len(vectors[0]))) //nolint:gosec // at most 4096
	}
}

// health keeps a model that fails from being asked for each request.
type health struct {
	mu     sync.Mutex
	failed int // times in a row
	next   time.Time
	told   time.Time // of how it is, in the log
}

// errResting is returned while a model that has failed is left alone.
var errResting = errors.New("it has failed and is left alone for a while")

// rests are how long a model is left alone that has failed so many times in a row.
var rests = [...]time.Duration{0, time.Second, 5 * time.Second, 30 * time.Second}

func (h *health) rests(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.next)
}

// tellEvery bounds what a model that comes and goes makes the log hold.
const tellEvery = time.Minute

// note takes down how a call has ended, and reports whether that is news for the log. A refused one says nothing of others.
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
