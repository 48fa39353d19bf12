package past

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/index"
	"remora/memory/pipeline"
	"remora/memory/session"
)

// Bounds of embedding. Unfinished work continues after the next turn.
const (
	maxEmbedders  = 8   // turns whose statements are embedded at a time, in this process
	maxEmbedItems = 512 // items, after one turn
	embedBatch    = 64  // texts in one request
	embedBytes    = 128 << 10
	embedWait     = 30 * time.Second // for one request, after a turn
	embedLimit    = 2 * time.Minute  // for all of a turn
	keepWait      = 5 * time.Second  // for storing the vectors of one request

	vectorsPrefix = "e:" // of groups, one for each session
	vectorsPage   = 500  // values that are read at a time
)

// VectorsGroup is the group with the vectors of what was said in a session. It is not the session's own group, since a new
// version of that means a new turn.
func VectorsGroup(tenant, session string) cache.Group {
	return cache.Group{Owner: tenant, Name: vectorsPrefix + session}
}

// EmbedSoon begins to make and store the vectors of what a turn has added to a session, and those that earlier turns have not
// made. It does not wait for them. turn is the id of the turn, for the log.
func (p *Past) EmbedSoon(e *Embeddings, s session.Scope, c pipeline.Credential, turn string) {
	if !e.stores() {
		return
	}
	one := p.find(keyOf(s))
	if one.embeds.Add(1) > 1 {
		return // the running goroutine continues with this
	}
	select {
	case p.slots <- struct{}{}:
	default:
		one.embeds.Store(0)
		return
	}
	p.work.Go(func() {
		defer func() { <-p.slots }()
		ctx, cancel := context.WithTimeout(p.life, embedLimit)
		defer cancel()
		for {
			n := one.embeds.Load()
			if err := p.embedNew(ctx, e, s, c); err != nil && !errors.Is(err, errResting) && ctx.Err() == nil {
				p.o.Log.Debug("what was said is not embedded yet", "turn", turn, "error", err.Error())
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
func (p *Past) embedNew(ctx context.Context, e *Embeddings, s session.Scope, c pipeline.Credential) error {
	ix, err := p.update(ctx, e, s, true)
	if err != nil {
		return err
	}
	rest := ix.Unembedded("", p.newestVectors(e), maxEmbedItems)
	for len(rest) > 0 {
		texts, bytes, n := []string(nil), 0, 0
		for n < len(rest) && (n == 0 || len(texts)+len(rest[n].Texts) <= embedBatch && bytes < embedBytes) {
			for _, text := range rest[n].Texts {
				texts = append(texts, text)
				bytes += len(text)
			}
			n++
		}
		vectors, err := func() ([]index.Vector, error) {
			ctx, cancel := context.WithTimeout(ctx, embedWait)
			defer cancel()
			return e.embed(ctx, &p.o, c, texts)
		}()
		if err != nil {
			return err
		}
		if err := p.keep(ctx, e, s.Tenant, rest[:n], vectors); err != nil {
			return err
		}
		rest = rest[n:]
	}
	_, err = p.update(ctx, e, s, true) // so that the next question need not read them
	return err
}

// keep stores the vectors of some items. Those of a session that was deleted meanwhile are removed again.
func (p *Past) keep(ctx context.Context, e *Embeddings, tenant string, items []index.Unembedded, vectors []index.Vector) error {
	ctx, cancel := context.WithTimeout(ctx, keepWait)
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
		batches = append(batches, cache.Batch{Group: VectorsGroup(tenant, name), Expect: cache.AnyVersion, TTL: p.o.TTL, Puts: list})
	}
	for _, out := range p.o.Store.Commit(ctx, batches) {
		if out.Err != nil {
			return fmt.Errorf("write vectors: %w", out.Err)
		}
	}

	versions, err := p.o.Sessions.Versions(ctx, tenant, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if versions[i] == 0 {
			if err := p.o.Store.Delete(ctx, VectorsGroup(tenant, name)); err != nil {
				return fmt.Errorf("delete vectors: %w", err)
			}
		}
	}
	return nil
}

// newestVectors is how many statements of a resource may have vectors, the newest ones: vectors may take half of the index.
func (p *Past) newestVectors(e *Embeddings) int {
	const usual, each = 1536, 32
	return p.o.Bytes / ownShare / 2 / (cmp.Or(int(e.dimensions.Load()), usual) + each)
}

// attach gives statements the vectors that the store has for them. Its caller has one.turn, and read are the sessions whose
// statements are new in the index.
func (p *Past) attach(ctx context.Context, e *Embeddings, one *resource, tenant string, read map[string]bool) error {
	for page := range slices.Chunk(slices.Sorted(maps.Keys(one.read)), vectorsPage) {
		queries := make([]cache.Query, len(page))
		for i, name := range page {
			queries[i].Group = VectorsGroup(tenant, name)
		}
		results, err := p.o.Store.Read(ctx, queries)
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

// attachTo gives the statements of one session their vectors.
func (p *Past) attachTo(ctx context.Context, e *Embeddings, one *resource, tenant, name string) error {
	for page := range slices.Chunk(one.ix.Unembedded(name, p.newestVectors(e), maxItems), vectorsPage) {
		q := cache.Query{Group: VectorsGroup(tenant, name)}
		for _, it := range page {
			q.Names = append(q.Names, vectorsName(it.Content))
		}
		results, err := p.o.Store.Read(ctx, []cache.Query{q})
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

// maxItems is more items than a session has in an index.
const maxItems = 1 << 20

func vectorsName(content [16]byte) string { return hex.EncodeToString(content[:]) }

// encodeVectors returns the stored form of the vectors of an item's parts: the model, the number of vectors, their dimensions, and
// the bytes of each.
func encodeVectors(model [8]byte, vectors []index.Vector) []byte {
	dimensions := 0
	if len(vectors) > 0 {
		dimensions = len(vectors[0])
	}
	out := make([]byte, 0, len(model)+1+2+len(vectors)*dimensions)
	out = append(out, model[:]...)
	out = append(out, byte(len(vectors))) //nolint:gosec // at most maxParts
	out = binary.LittleEndian.AppendUint16(out, uint16(dimensions))
	for _, v := range vectors {
		for _, x := range v {
			out = append(out, byte(x)) //nolint:gosec // its bits
		}
	}
	return out
}

// decodeVectors reads the form of encodeVectors. It returns nil for vectors of another model, and for invalid bytes.
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
