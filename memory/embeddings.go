package memory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"remora/cache"
	"remora/memory/index"
	"remora/memory/pipeline"
)

// Embeddings let recall find what means the same in other words. A turn waits for one of them at most, that of its question;
// those of what was said are made after a turn and kept in the store, so that replicas share them. Without one, recall goes on
// by words.
type Embeddings struct {
	// Source is a model behind a provider. ID names it, with all that makes its vectors others: those of another ID are not
	// used. Layer is whose they are, in metrics.
	Source    EmbedderSource
	ID, Layer string
	// Table makes the vectors in this process instead, from words alone.
	Table func(text string) []float32
	// A statement whose cosine with the question is above Floor is scored higher, by Weight times what is above.
	Floor, Weight float32
	// Wait is how long a request waits for the vector of its question.
	Wait time.Duration
	// Observe is told of every call of the model. It may be nil.
	Observe func(ctx context.Context, e pipeline.Event)

	health     health
	dimensions atomic.Int32 // of the model, as far as it was seen; 0 is unknown
}

// EmbedderSource is an embedding model, before it is known on whose behalf it is asked.
type EmbedderSource interface {
	// Bind returns the model with the caller's credential, which it uses where it was configured with none.
	Bind(c Credential) Embedder
}

// Embedder turns texts into vectors, one for each, all of one length. Its errors quote neither texts nor credentials.
type Embedder interface {
	Embed(ctx context.Context, texts []string) ([][]float32, error)
	// Refused reports whether an error of Embed concerns this caller alone, as one about its credential does.
	Refused(err error) bool
}

// Bounds of embedding. What a turn leaves undone is done after the next.
const (
	maxEmbedders  = 8   // turns whose statements are embedded at a time, in this process
	maxEmbedItems = 512 // items, after one turn
	embedBatch    = 64  // texts in one request
	embedBytes    = 128 << 10
	embedWait     = 30 * time.Second // for one request, after a turn

	vectorsPrefix = "e:" // of groups, one for each session
	vectorsPage   = 500  // values that are read at a time
)

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

// vectorsGroup has the vectors of what was said in a session. It is a group beside the session's own, whose version says that
// there was a turn.
func vectorsGroup(tenant, session string) cache.Group {
	return cache.Group{Owner: tenant, Name: vectorsPrefix + session}
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
func (p *past) embed(ctx context.Context, e *Embeddings, c Credential, texts []string) ([]index.Vector, error) {
	begun := p.m.o.Now()
	if e.health.rests(begun) {
		return nil, errResting
	}
	one := e.Source.Bind(c)
	raw, err := one.Embed(ctx, texts)
	if err == nil && len(raw) != len(texts) {
		err = errors.New("it does not have a vector for each text")
	}
	if errors.Is(err, context.Canceled) {
		return nil, err // this process ends
	}

	now, class := p.m.o.Now(), pipeline.ClassNone
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
		p.m.o.Log.Warn("an embedding model does not answer; recall goes on by words", "layer", e.Layer, "error", err.Error())
	} else if news {
		p.m.o.Log.Info("an embedding model answers again", "layer", e.Layer)
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

// saw takes down how large the model's vectors are.
func (e *Embeddings) saw(vectors []index.Vector) {
	if len(vectors) > 0 {
		e.dimensions.Store(int32(len(vectors[0]))) //nolint:gosec // at most 4096
	}
}

// newest is how many statements of a resource may have vectors, which take half of what its index may.
func (p *past) newest(e *Embeddings) int {
	const usual, each = 1536, 32
	return p.limit / ownShare / 2 / (cmp.Or(int(e.dimensions.Load()), usual) + each)
}

// asked is a question whose vector is on its way.
type asked struct {
	question string
	done     chan struct{}
	vector   index.Vector // once done is closed; nil for none
}

// ask begins to ask for the vector of a question, unless that was asked for already. Nil is that there is no model.
func (t *pastOfTurn) ask(question string) *asked {
	e := t.embeddings
	if e == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked != nil && t.asked.question == question {
		return t.asked
	}
	a := &asked{question: question, done: make(chan struct{})}
	t.asked = a
	if e.Table != nil {
		a.vector = index.Quantise(e.Table(question))
		close(a.done)
		return a
	}
	t.past.m.work.Go(func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(t.past.m.life, e.Wait)
		defer cancel()
		if vectors, err := t.past.embed(ctx, e, t.credential, []string{question}); err == nil {
			a.vector = vectors[0]
		}
	})
	return a
}

// meaning waits for the vector of a question. It leaves half of the time that the context has for the search.
func (t *pastOfTurn) meaning(ctx context.Context, a *asked) (m index.Meaning) {
	if a == nil {
		return m
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2) //nolint:forbidigo // as the context's own clock
		defer cancel()
	}
	select {
	case <-a.done:
		return index.Meaning{Vector: a.vector, Floor: t.embeddings.Floor, Weight: t.embeddings.Weight}
	case <-ctx.Done():
		return m
	}
}

// embedSoon makes the vectors of what the turn has added, and of what earlier turns have left undone, once nobody waits.
func (p *past) embedSoon(t *turnInfo) {
	e, s := t.shape.Embeddings, t.call.Scope
	if !e.stores() {
		return
	}
	one := p.find(p.key(s))
	if one.embeds.Add(1) > 1 {
		return // who is at it goes on with this
	}
	select {
	case p.embedders <- struct{}{}:
	default:
		one.embeds.Store(0)
		return
	}
	c := t.credential
	t.m.work.Go(func() {
		defer func() { <-p.embedders }()
		ctx, cancel := context.WithTimeout(t.m.life, settleLimit)
		defer cancel()
		for {
			n := one.embeds.Load()
			if err := p.embedNew(ctx, e, s, c); err != nil && !errors.Is(err, errResting) && ctx.Err() == nil {
				t.m.o.Log.Debug("what was said is not embedded yet", "turn", t.ID, "error", err.Error())
			}
			if ctx.Err() != nil {
				one.embeds.Store(0)
			}
			if ctx.Err() != nil || one.embeds.CompareAndSwap(n, 0) {
				return
			}
		}
	})
}

// embedNew makes the vectors that the sessions of a scope lack, the newest first.
func (p *past) embedNew(ctx context.Context, e *Embeddings, s Scope, c Credential) error {
	ix, err := p.update(ctx, e, s, true)
	if err != nil {
		return err
	}
	lacking := ix.Lacking("", p.newest(e), maxEmbedItems)
	for len(lacking) > 0 {
		texts, bytes, n := []string(nil), 0, 0
		for n < len(lacking) && (n == 0 || len(texts)+len(lacking[n].Texts) <= embedBatch && bytes < embedBytes) {
			for _, text := range lacking[n].Texts {
				texts = append(texts, text)
				bytes += len(text)
			}
			n++
		}
		vectors, err := func() ([]index.Vector, error) {
			ctx, cancel := context.WithTimeout(ctx, embedWait)
			defer cancel()
			return p.embed(ctx, e, c, texts)
		}()
		if err != nil {
			return err
		}
		if err := p.keep(ctx, e, s.Tenant, lacking[:n], vectors); err != nil {
			return err
		}
		lacking = lacking[n:]
	}
	_, err = p.update(ctx, e, s, true) // so that the next question need not read them
	return err
}

// keep stores the vectors of some items. Those of a session that was deleted meanwhile are removed again.
func (p *past) keep(ctx context.Context, e *Embeddings, tenant string, items []index.Lack, vectors []index.Vector) error {
	ctx, cancel := context.WithTimeout(ctx, flushWait)
	defer cancel()
	puts := map[string][]cache.Put{}
	for _, it := range items {
		n := len(it.Texts)
		puts[it.Session] = append(puts[it.Session], cache.Put{Name: vectorsName(it.Content), Data: encodeVectors(e.digest(), vectors[:n])})
		vectors = vectors[n:]
	}
	var names []string
	var batches []cache.Batch
	for name, list := range puts {
		names = append(names, name)
		batches = append(batches, cache.Batch{Group: vectorsGroup(tenant, name), Expect: cache.AnyVersion, TTL: p.m.o.SessionTTL, Puts: list})
	}
	for _, out := range p.m.store.Commit(ctx, batches) {
		if out.Err != nil {
			return fmt.Errorf("write vectors: %w", out.Err)
		}
	}

	versions, err := p.m.log.Versions(ctx, tenant, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if versions[i] == 0 {
			if err := p.m.store.Delete(ctx, vectorsGroup(tenant, name)); err != nil {
				return fmt.Errorf("delete vectors: %w", err)
			}
		}
	}
	return nil
}

// attach gives statements the vectors that the store has for them. Its caller has one.turn, and read are the sessions whose
// statements are new in the index.
func (p *past) attach(ctx context.Context, e *Embeddings, one *pastIndex, tenant string, read map[string]bool) error {
	var names []string
	for name := range one.read {
		names = append(names, name)
	}
	slices.Sort(names)
	for page := range slices.Chunk(names, vectorsPage) {
		queries := make([]cache.Query, len(page))
		for i, name := range page {
			queries[i].Group = vectorsGroup(tenant, name)
		}
		results, err := p.m.store.Read(ctx, queries)
		if err != nil {
			return fmt.Errorf("look for vectors: %w", err)
		}
		for i, name := range page {
			version := results[i].Version
			if version == 0 || version == one.vectors[name] && !read[name] {
				continue
			}
			if err := p.attachTo(ctx, e, one, tenant, name); err != nil {
				return err
			}
			one.vectors[name] = version
		}
	}
	return nil
}

// attachTo reads the vectors that a session lacks.
func (p *past) attachTo(ctx context.Context, e *Embeddings, one *pastIndex, tenant, name string) error {
	for page := range slices.Chunk(one.ix.Lacking(name, p.newest(e), maxPastItems), vectorsPage) {
		q := cache.Query{Group: vectorsGroup(tenant, name)}
		for _, it := range page {
			q.Names = append(q.Names, vectorsName(it.Content))
		}
		results, err := p.m.store.Read(ctx, []cache.Query{q})
		if err != nil {
			return fmt.Errorf("read vectors: %w", err)
		}
		for i, raw := range results[0].Values {
			if vectors := decodeVectors(e.digest(), raw); len(vectors) == len(page[i].Texts) {
				e.saw(vectors)
				one.ix.SetVectors(page[i].First, vectors)
			}
		}
	}
	return nil
}

// maxPastItems is more than a session has in an index.
const maxPastItems = 1 << 20

func vectorsName(content [16]byte) string { return hex.EncodeToString(content[:]) }

// encodeVectors is the form in which the vectors of an item's parts are stored: what model they are of, how many they are, and
// the bytes of each.
func encodeVectors(model [8]byte, vectors []index.Vector) []byte {
	dimensions := 0
	if len(vectors) > 0 {
		dimensions = len(vectors[0])
	}
	out := make([]byte, 0, len(model)+1+2+len(vectors)*dimensions)
	out = append(out, model[:]...)
	out = append(out, byte(len(vectors))) //nolint:gosec // at most maxStatementParts
	out = binary.LittleEndian.AppendUint16(out, uint16(dimensions))
	for _, v := range vectors {
		for _, x := range v {
			out = append(out, byte(x)) //nolint:gosec // its bits
		}
	}
	return out
}

// decodeVectors reads what encodeVectors has written; nil for what is of another model, or no vectors.
func decodeVectors(model [8]byte, raw []byte) []index.Vector {
	const head = 8 + 1 + 2
	if len(raw) < head || [8]byte(raw) != model {
		return nil
	}
	parts, dimensions := int(raw[8]), int(binary.LittleEndian.Uint16(raw[9:]))
	if raw = raw[head:]; len(raw) != parts*dimensions {
		return nil
	}
	vectors := make([]index.Vector, parts)
	for i := range vectors {
		vectors[i] = make(index.Vector, dimensions)
		for j, x := range raw[i*dimensions : (i+1)*dimensions] {
			vectors[i][j] = int8(x) //nolint:gosec // its bits
		}
	}
	return vectors
}
