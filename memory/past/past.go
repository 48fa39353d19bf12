// Package past finds what was said in the sessions of a resource, for layers that recall it: by words, and by meaning where
// there is an embedding model.
//
// A [Past] keeps an index for each resource. It is made of the store when it is first asked for, and before each search it is
// brought up to date: sessions that have changed are read on, and those that are gone are taken out. So it needs no word from
// other processes, and what was deleted is never found. A [Turn] is the past as the layers of one turn see it.
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
	// ownShare is which part of all bytes one resource may take; then its oldest sessions are left out.
	ownShare = 4
	// maxSessions is how many sessions of a resource are searched.
	maxSessions = 5000
	// readLimit bounds bringing an index up to date. A request waits for less: its layer's time.
	readLimit = 30 * time.Second
	// readAtOnce is how many sessions are read at once, and readPage after how many it is seen to that they have room.
	readAtOnce = 8
	readPage   = 64
	// maxPart is how long a part of a message is in an index, in bytes, and maxParts how many parts of one are, the
	// first and lastParts of its end.
	maxPart   = 700
	maxParts  = 12
	lastParts = 4
)

// resource has the index of one resource.
type resource struct {
	turn chan struct{} // one brings it up to date at a time

	mu   sync.Mutex
	ix   *index.Index
	read map[string]session.Reading

	model   string            // whose vectors the index has, empty for none
	vectors map[string]uint64 // up to which versions they were read, by session
	embeds  atomic.Int32      // how often it was asked to make those that are lacking, since that was done
}

// New returns the past of all sessions. Its work ends with life; see Wait.
func New(life context.Context, o Options) *Past {
	o.Bytes = cmp.Or(o.Bytes, defaultBytes)
	return &Past{o: o, life: life, slots: make(chan struct{}, maxEmbedders)}
}

// Wait waits for work that is under way, once its life has ended.
func (p *Past) Wait() { p.work.Wait() }

func keyOf(s session.Scope) key {
	if s.Resource == "" || s.Resource == s.Session {
		return key{tenant: s.Tenant, session: s.Session}
	}
	return key{tenant: s.Tenant, resource: s.Resource}
}

// Forget drops the indexes that have something of a session or a resource.
func (p *Past) Forget(s session.Scope) {
	p.indexes.Drop(keyOf(s))
	p.indexes.Drop(key{tenant: s.Tenant, session: s.Session})
}

// find returns the index of a key, an empty one where there is none.
func (p *Past) find(k key) *resource {
	fresh := &resource{turn: make(chan struct{}, 1), ix: index.New(), read: map[string]session.Reading{}, vectors: map[string]uint64{}}
	return p.indexes.FindOrPut(k, fresh, maxIndexes)
}

// update brings the index of a scope up to date; own says whether with the scope's session too. Where the context ends before,
// the work goes on for the next request.
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

// change is a session that was read on.
type change struct {
	session string
	said    []session.Said
}

// refresh reads what has changed in the store; own says whether in the scope's session too. Only its caller, who has one.turn,
// changes the index.
func (p *Past) refresh(ctx context.Context, e *Embeddings, one *resource, s session.Scope, own bool) error {
	if one.ix.Bytes() > p.o.Bytes/ownShare || one.model != e.id() {
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
			read[name] = session.Reading{} // listed, and not there: it need not be looked for
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
	if !e.stores() {
		return nil
	}
	return p.attach(ctx, e, one, s.Tenant, fresh)
}

// notRead is the version of a session that is to be read whatever its version.
const notRead = math.MaxUint64

// stored returns the versions in the store of a resource's other sessions, 0 for one that is listed and not there. Those that
// are known are looked for while the list is read, so that this takes one round trip where no session is new.
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

// share is how many bytes one resource's words may take. Vectors take as much again.
func (p *Past) share(e *Embeddings) int {
	if e != nil {
		return p.o.Bytes / ownShare / 2
	}
	return p.o.Bytes / ownShare
}

// readOn reads what was said in some sessions since they were read before, some at once. Sessions of which other things are
// true now, or that are not there any more, become gone. What has no room is left out, the oldest first, while the rest is read:
// a resource may have far more than there is memory for.
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
				if errors.Is(err, session.ErrNoSession) || errors.Is(err, session.ErrCorrupt) { // what cannot be read is not told
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
		changes = newest(changes, share-one.ix.Bytes())
	}
	slices.SortFunc(changes, func(a, b change) int {
		return cmp.Or(a.said[0].Time.Compare(b.said[0].Time), strings.Compare(a.session, b.session))
	})
	return changes, read, nil
}

// newest returns those of some changes that an index has room for, in bytes, the newest first; one at least.
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

// An index needs about so many bytes for each of what was said, and for what stands beside it.
const (
	bytesPerByte   = 4
	statementBytes = 40
)

func (c *change) last() time.Time { return c.said[len(c.said)-1].Time }

// bytes is about how much memory the index needs. Its caller has one.turn.
func (one *resource) bytes() int {
	const each, session = 1024, 200
	return each + session*len(one.read) + one.ix.Bytes()
}

func (one *resource) put(ix *index.Index, read map[string]session.Reading) {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.ix, one.read = ix, read
}

// apply takes over what was read.
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
