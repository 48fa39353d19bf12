// Package past searches the messages of a resource's sessions, for layers that recall them: by words, and by meaning with an
// embedding model.
//
// A [Past] has an index for each resource. It is built from the store with the first search and updated before each search:
// changed sessions are read, and deleted ones are removed. So it needs no messages from other processes, and deleted data is
// never found. A [Turn] is the past for the layers of one turn.
package past

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"remora/cache"
	"remora/memory/index"
	"remora/memory/lru"
	"remora/memory/session"
)

// Past keeps the indexes of this process. It is safe for concurrent use.
type Past struct {
	o       Options
	life    context.Context //nolint:containedctx // of the work that no request waits for
	work    sync.WaitGroup
	indexes lru.Cache[key, *resource]
	slots   chan struct{} // one for each turn whose statements are being embedded
}

// Options configure a Past.
type Options struct {
	Sessions *session.Log
	Store    cache.Store   // of the vectors, the same as that of the sessions
	TTL      time.Duration // of sessions, 0 for ever
	Bytes    int           // of memory for all indexes; 0 is 256 MB
	Log      *slog.Logger
	Now      func() time.Time
}

type key struct{ tenant, resource, session string } // of a session only where it has no resource

// Limits of the data kept for recall.
const (
	defaultBytes = 256 << 20
	maxIndexes   = 100_000
	// ownShare is the part of all bytes that one resource may take; beyond it the oldest statements are left out.
	ownShare = 4
	// maxSessions is how many sessions of a resource are searched.
	maxSessions = 5000
	// readLimit is the time limit for updating an index. A request waits less: its layer's timeout.
	readLimit = 30 * time.Second
	// readAtOnce is how many sessions are read concurrently. After every readPage of them, messages beyond the limit are dropped.
	readAtOnce = 8
	readPage   = 64
	// maxPart is the length in bytes of a part of a message. If a message has more than maxParts parts, the
	// index has the first ones and the last lastParts.
	maxPart   = 700
	maxParts  = 12
	lastParts = 4
)

// resource has the index of one resource.
type resource struct {
	turn chan struct{} // held by the goroutine that updates the index

	mu   sync.Mutex
	ix   *index.Index
	read map[string]session.Reading

	model   string            // that made the vectors in the index; empty for none
	vectors map[string]uint64 // the versions at which they were read, by session
	embeds  atomic.Int32      // calls of EmbedSoon that are not done yet
}

// New returns the past of all sessions. Its work ends with life; see Wait.
func New(life context.Context, o Options) *Past {
	o.Bytes = cmp.Or(o.Bytes, defaultBytes)
	return &Past{o: o, life: life, slots: make(chan struct{}, maxEmbedders)}
}

// Wait waits for work that is under way, once its life has ended.
func (p *Past) Wait() { p.work.Wait() }

func keyOf(s session.Scope) key {
	if s.Resource == "" {
		return key{tenant: s.Tenant, session: s.Session}
	}
	return key{tenant: s.Tenant, resource: s.Resource}
}

// Forget drops the indexes that have something of a session or a resource.
func (p *Past) Forget(s session.Scope) {
	p.indexes.Drop(keyOf(s))
	p.indexes.Drop(key{tenant: s.Tenant, session: s.Session})
}

// find returns the index of a key, an empty one if there is none.
func (p *Past) find(k key) *resource {
	fresh := &resource{turn: make(chan struct{}, 1), ix: index.New(), read: map[string]session.Reading{}, vectors: map[string]uint64{}}
	return p.indexes.FindOrPut(k, fresh, maxIndexes)
}

// update updates the index of a scope, with the scope's session if own is set. If the context ends before, the work continues
// for the next request.
func (p *Past) update(ctx context.Context, e *Embeddings, s session.Scope, own bool) (*index.Index, error) {
	k := keyOf(s)
	one := p.find(k)
	select {
	case one.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	done := make(chan error, 1)
	p.work.Go(func() { //nolint:contextcheck // outlives the request
		defer func() { <-one.turn }()
		ctx, cancel := context.WithTimeout(p.life, readLimit)
		defer cancel()
		err := p.refresh(ctx, e, one, s, own)
		p.indexes.Resize(k, one.bytes(), p.o.Bytes)
		done <- err
	})
	select {
	case err := <-done:
		one.mu.Lock()
		defer one.mu.Unlock()
		return one.ix, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// change has what was said in a session since the last reading.
type change struct {
	session string
	said    []session.Said
}

// refresh reads the changes in the store, with the scope's session if own is set. Only its caller, who has one.turn, changes
// the index.
func (p *Past) refresh(ctx context.Context, e *Embeddings, one *resource, s session.Scope, own bool) error {
	if one.model != e.id() {
		one.put(index.New(), map[string]session.Reading{})
		one.model, one.vectors = e.id(), map[string]uint64{}
	}
	stored, err := p.stored(ctx, one, s)
	if err != nil {
		return err
	}
	if own {
		stored[s.Session] = notRead
	} else {
		delete(stored, s.Session)
	}

	var stale []string
	for name, version := range stored {
		if version != 0 && one.read[name].Version != version {
			stale = append(stale, name)
		}
	}
	gone := map[string]bool{}
	for name, r := range one.read {
		if stored[name] == 0 && r.Version != 0 && (own || name != s.Session) {
			gone[name] = true
		}
	}
	changes, read, err := p.readOn(ctx, one, s, stale, gone, p.share(e))
	if err != nil {
		return err
	}
	for name, version := range stored {
		if version == 0 {
			read[name] = session.Reading{} // it is listed but does not exist: do not look for it again
		}
	}
	fresh := map[string]bool{}
	for _, c := range changes {
		fresh[c.session] = true
	}
	for name := range gone {
		delete(one.vectors, name)
	}
	one.apply(e, changes, read, gone)
	if e.stores() {
		err = p.attach(ctx, e, one, s.Tenant, fresh)
	}
	p.trim(one)
	return err
}

// trim drops the oldest statements of an index that takes more than its share. It frees a quarter of the share: an index that is
// cut to the share alone is beyond it again after a turn. The sessions count as read, so that nothing is read again for it.
func (p *Past) trim(one *resource) {
	if most := p.o.Bytes / ownShare; one.ix.Bytes() > most {
		one.put(one.ix.Newest(most/4*3), one.read)
	}
}

// notRead is the version of a session that must be read in any case.
const notRead = math.MaxUint64

// stored returns the stored versions of a resource's other sessions, 0 for a listed session that does not exist. Known sessions
// are looked up while the list is read, so that this takes one round trip if no session is new.
func (p *Past) stored(ctx context.Context, one *resource, s session.Scope) (map[string]uint64, error) {
	stored := map[string]uint64{}
	if keyOf(s).resource == "" {
		return stored, nil
	}
	var names []string
	var versions []uint64
	known := slices.Sorted(maps.Keys(one.read))
	both, reads := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		names, err = p.sessions(reads, s)
		return err
	})
	both.Go(func() (err error) {
		versions, err = p.o.Sessions.Versions(reads, s.Tenant, known)
		return err
	})
	if err := both.Wait(); err != nil {
		return nil, err
	}

	var unknown []string
	for _, name := range names {
		if i, found := slices.BinarySearch(known, name); found {
			stored[name] = versions[i]
		} else if name != s.Session {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return stored, nil
	}
	versions, err := p.o.Sessions.Versions(ctx, s.Tenant, unknown)
	if err != nil {
		return nil, err
	}
	for i, name := range unknown {
		stored[name] = versions[i]
	}
	return stored, nil
}

// sessions returns the sessions that are listed as a resource's.
func (p *Past) sessions(ctx context.Context, s session.Scope) ([]string, error) {
	var names []string
	for page, err := range p.o.Sessions.Index.Sessions(ctx, s.Tenant, s.Resource) {
		if err != nil {
			return nil, err
		}
		if names = append(names, page...); len(names) >= maxSessions {
			break
		}
	}
	return names, nil
}

// share returns the bytes that the words of a resource may take. Vectors may take the same again.
func (p *Past) share(e *Embeddings) int {
	if e != nil {
		return p.o.Bytes / ownShare / 2
	}
	return p.o.Bytes / ownShare
}

// readOn reads the new messages of some sessions, several concurrently. Sessions that were rewritten or deleted become gone.
// Messages beyond the limit are dropped while reading, the oldest first: a resource may have far more than fits into memory.
func (p *Past) readOn(ctx context.Context, one *resource, s session.Scope, stale []string, gone map[string]bool, share int) ([]change, map[string]session.Reading, error) {
	var changes []change
	read := map[string]session.Reading{}
	for page := range slices.Chunk(stale, readPage) {
		news := make([]session.News, len(page))
		unreadable := make([]bool, len(page))
		all, reads := errgroup.WithContext(ctx)
		all.SetLimit(readAtOnce)
		for i, name := range page {
			all.Go(func() (err error) {
				news[i], err = p.o.Sessions.SaidSince(reads, session.Scope{Tenant: s.Tenant, Session: name, Resource: s.Resource}, one.read[name])
				if errors.Is(err, session.ErrNoSession) || errors.Is(err, session.ErrCorrupt) { // unreadable sessions are skipped
					unreadable[i], err = true, nil
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return nil, nil, err
		}

		for i, name := range page {
			if before := one.read[name].Version != 0; before && (unreadable[i] || news[i].Whole) {
				gone[name] = true
			}
			if unreadable[i] {
				continue
			}
			read[name] = news[i].Now
			if len(news[i].Said) > 0 {
				changes = append(changes, change{name, news[i].Said})
			}
		}
		changes = newest(changes, share)
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(a.said[0].Time.Compare(b.said[0].Time), strings.Compare(a.session, b.session))
	})
	return changes, read, nil
}

// newest returns the changes that fit an index of a size in bytes, the newest first; at least one.
func newest(changes []change, room int) []change {
	slices.SortFunc(changes, func(a, b change) int { return b.last().Compare(a.last()) })
	for i, c := range changes {
		for _, it := range c.said {
			room -= bytesPerByte * (len(it.Text) + statementBytes)
		}
		if room < 0 && i > 0 {
			clear(changes[i:]) // so that they are not kept in memory
			return changes[:i]
		}
	}
	return changes
}

// What an index needs for a statement: about bytesPerByte for each byte of its text, and of statementBytes more.
const (
	bytesPerByte   = 4
	statementBytes = 40
)

func (c *change) last() time.Time { return c.said[len(c.said)-1].Time }

// bytes estimates the memory of the index. Its caller has one.turn.
func (one *resource) bytes() int {
	const each, session = 1024, 200
	return each + session*len(one.read) + one.ix.Bytes()
}

func (one *resource) put(ix *index.Index, read map[string]session.Reading) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.ix, one.read = ix, read
}

// apply adds the changes to the index.
func (one *resource) apply(e *Embeddings, changes []change, read map[string]session.Reading, gone map[string]bool) {
	ix := one.ix
	if len(gone) > 0 {
		ix = ix.Without(func(name string) bool { return gone[name] })
	}
	for _, c := range changes {
		for _, it := range c.said {
			add(ix, e, c.session, it)
		}
	}
	for name, r := range one.read {
		if _, again := read[name]; !again && !gone[name] {
			read[name] = r
		}
	}
	one.put(ix, read)
}
