package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"remora/cache"
	"remora/memory/index"
)

// vectors makes the vectors of what was said once turns have ended, keeps them in the store, and reads them into the indexes of
// past.
type vectors struct {
	m     *Memory
	past  *past
	slots chan struct{} // one for each turn whose statements are being embedded
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

// vectorsGroup has the vectors of what was said in a session. It is a group beside the session's own, whose version says that
// there was a turn.
func vectorsGroup(tenant, session string) cache.Group {
	return cache.Group{Owner: tenant, Name: vectorsPrefix + session}
}

// embedSoon makes the vectors of what the turn has added, and of what earlier turns have left undone, once nobody waits.
func (v *vectors) embedSoon(t *turnInfo) {
	e, s := t.shape.Embeddings, t.call.Scope
	if !e.stores() {
		return
	}
	one := v.past.find(v.past.key(s))
	if one.embeds.Add(1) > 1 {
		return // who is at it goes on with this
	}
	select {
	case v.slots <- struct{}{}:
	default:
		one.embeds.Store(0)
		return
	}
	c := t.credential
	v.m.work.Go(func() {
		defer func() { <-v.slots }()
		ctx, cancel := context.WithTimeout(v.m.life, settleLimit)
		defer cancel()
		for {
			n := one.embeds.Load()
			if err := v.embedNew(ctx, e, s, c); err != nil && !errors.Is(err, errResting) && ctx.Err() == nil {
				v.m.o.Log.Debug("what was said is not embedded yet", "turn", t.ID, "error", err.Error())
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
func (v *vectors) embedNew(ctx context.Context, e *Embeddings, s Scope, c Credential) error {
	ix, err := v.past.update(ctx, e, s, true)
	if err != nil {
		return err
	}
	lacking := ix.Lacking("", v.newest(e), maxEmbedItems)
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
			return e.embed(ctx, &v.m.o, c, texts)
		}()
		if err != nil {
			return err
		}
		if err := v.keep(ctx, e, s.Tenant, lacking[:n], vectors); err != nil {
			return err
		}
		lacking = lacking[n:]
	}
	_, err = v.past.update(ctx, e, s, true) // so that the next question need not read them
	return err
}

// keep stores the vectors of some items. Those of a session that was deleted meanwhile are removed again.
func (v *vectors) keep(ctx context.Context, e *Embeddings, tenant string, items []index.Lack, vectors []index.Vector) error {
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
		batches = append(batches, cache.Batch{Group: vectorsGroup(tenant, name), Expect: cache.AnyVersion, TTL: v.m.o.SessionTTL, Puts: list})
	}
	for _, out := range v.m.store.Commit(ctx, batches) {
		if out.Err != nil {
			return fmt.Errorf("write vectors: %w", out.Err)
		}
	}

	versions, err := v.m.log.Versions(ctx, tenant, names)
	if err != nil {
		return err
	}
	for i, name := range names {
		if versions[i] == 0 {
			if err := v.m.store.Delete(ctx, vectorsGroup(tenant, name)); err != nil {
				return fmt.Errorf("delete vectors: %w", err)
			}
		}
	}
	return nil
}

// newest is how many statements of a resource may have vectors, which take half of what its index may.
func (v *vectors) newest(e *Embeddings) int {
	const usual, each = 1536, 32
	return v.past.limit / ownShare / 2 / (cmp.Or(int(e.dimensions.Load()), usual) + each)
}

// attach gives statements the vectors that the store has for them. Its caller has one.turn, and read are the sessions whose
// statements are new in the index.
func (v *vectors) attach(ctx context.Context, e *Embeddings, one *pastIndex, tenant string, read map[string]bool) error {
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
		results, err := v.m.store.Read(ctx, queries)
		if err != nil {
			return fmt.Errorf("look for vectors: %w", err)
		}
		for i, name := range page {
			version := results[i].Version
			if version == 0 || version == one.vectors[name] && !read[name] {
				continue
			}
			if err := v.attachTo(ctx, e, one, tenant, name); err != nil {
				return err
			}
			one.vectors[name] = version
		}
	}
	return nil
}

// attachTo reads the vectors that a session lacks.
func (v *vectors) attachTo(ctx context.Context, e *Embeddings, one *pastIndex, tenant, name string) error {
	for page := range slices.Chunk(one.ix.Lacking(name, v.newest(e), maxPastItems), vectorsPage) {
		q := cache.Query{Group: vectorsGroup(tenant, name)}
		for _, it := range page {
			q.Names = append(q.Names, vectorsName(it.Content))
		}
		results, err := v.m.store.Read(ctx, []cache.Query{q})
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
