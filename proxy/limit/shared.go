package limit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"remora/cache"
)

// Store is the part of [cache.Store] that rates are shared by.
type Store interface {
	Read(ctx context.Context, queries []cache.Query) ([]cache.Result, error)
	Commit(ctx context.Context, batches []cache.Batch) []cache.Outcome
}

// share keeps the buckets of one process in step with those of the others, off the path of any request.
//
// The store has one bucket for each tenant. A process decides on a bucket of its own, which fills with the rate divided
// by the number of replicas that the tenant has used in the last seconds. At most ten times a second it enters by
// compare-and-swap what it has let pass since, and takes over its part of what is left for all; so a replica that gets
// most of the requests also gets most of the rate. While the store is away, the last known part applies.
//
// How exact that is: what was let pass too much is owed and withheld later, so in the long run the rate is exact, and
// over a minute the sum of all replicas is at most requests_per_minute + burst, as for one. Replicas that a tenant comes
// to in the same instant each let a burst pass at once and have the tenant wait for it. Only a replica that is new to a
// tenant at the end of a minute of full use adds a burst to that minute. With the default burst of a twentieth, all that
// stays within 10 %. Up to 100 ms of requests are forgotten when a process ends.
type share struct {
	l    *Limiter
	wake chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup

	queue []*tenant // guarded by l.mu; each at most once
	away  bool      // the last call failed; used by the worker only
}

const (
	pace        = 100 * time.Millisecond // between two rounds
	patience    = time.Second            // for one call of the store
	batchSize   = 64                     // tenants in one round trip
	conflicts   = 4                      // how often a round tries again
	present     = 5 * time.Second        // since its last word, a replica counts
	kept        = 10 * time.Minute       // a tenant without requests is forgotten
	maxReplicas = 64
	valueName   = "rate"
)

func newShare(l *Limiter) *share {
	ctx, stop := context.WithCancel(context.Background())
	s := &share{l: l, wake: make(chan struct{}, 1), stop: stop}
	s.done.Go(func() { s.run(ctx) })
	return s
}

func (s *share) close() {
	s.stop()
	s.done.Wait()
}

// ask puts a tenant in the queue. The limiter is locked.
func (s *share) ask(t *tenant) {
	if t.bucket.asked {
		return
	}
	t.bucket.asked = true
	s.queue = append(s.queue, t)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run settles whatever has been asked for, in rounds.
func (s *share) run(ctx context.Context) {
	pause := time.NewTimer(0) //nolint:forbidigo // paces rounds, measures nothing
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		}
		wait := pace
		for _, batch := range s.take() {
			if !s.round(ctx, batch) {
				wait = patience // the others would wait in vain, and are asked for again by their next request
				break
			}
		}
		pause.Reset(wait)
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
	}
}

// take empties the queue, in batches.
func (s *share) take() [][]*tenant {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	var batches [][]*tenant
	for rest := s.queue; len(rest) > 0; {
		n := min(len(rest), batchSize)
		batches = append(batches, rest[:n:n])
		rest = rest[n:]
	}
	for _, t := range s.queue {
		t.bucket.asked = false
	}
	s.queue = nil
	return batches
}

// round settles the buckets of some tenants, again for those that another replica was quicker with. False means that
// the store can't be used.
func (s *share) round(ctx context.Context, batch []*tenant) bool {
	for range conflicts {
		var err error
		if batch, err = s.settle(ctx, batch); ctx.Err() != nil {
			return false
		}
		if away := err != nil; away != s.away {
			s.away = away
			if s.l.c.OnStore != nil {
				s.l.c.OnStore(err)
			}
		}
		if err != nil || len(batch) == 0 {
			return err == nil
		}
	}
	return true // what is left is asked for again by its next request
}

// settle enters what has been spent, and returns the tenants that were changed by others meanwhile.
func (s *share) settle(ctx context.Context, batch []*tenant) (again []*tenant, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	queries := make([]cache.Query, len(batch))
	for i, t := range batch {
		queries[i] = cache.Query{Group: group(t), Names: []string{valueName}}
	}
	found, err := s.l.c.Store.Read(ctx, queries)
	if err != nil {
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		for _, t := range batch {
			t.bucket.keep(&s.l.o.Tenant)
		}
		return nil, fmt.Errorf("read shared rates: %w", err)
	}
	writes, next, spent := make([]cache.Batch, len(batch)), make([]state, len(batch)), make([]float64, len(batch))
	s.l.mu.Lock()
	now := s.l.c.Now()
	for i, t := range batch {
		next[i], spent[i] = parse(found[i].Values[0]), t.bucket.spent
		next[i].enter(now, &s.l.o.Tenant, spent[i], s.l.c.Replica)
		writes[i] = cache.Batch{
			Group: queries[i].Group, Expect: found[i].Version, TTL: kept,
			Puts: []cache.Put{{Name: valueName, Data: next[i].encode()}},
		}
	}
	s.l.mu.Unlock()
	outcomes := s.l.c.Store.Commit(ctx, writes)
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	for i, t := range batch {
		switch e := outcomes[i].Err; {
		case e == nil:
			t.bucket.settle(now, next[i].tokens, spent[i], len(next[i].replicas))
		case errors.Is(e, cache.ErrConflict):
			again = append(again, t)
		default:
			// If it was written after all, the same requests are entered twice; the next seconds make up for it.
			t.bucket.keep(&s.l.o.Tenant)
			err = fmt.Errorf("write shared rates: %w", e)
		}
	}
	return again, err
}

func group(t *tenant) cache.Group { return cache.Group{Owner: t.name, Name: "limit"} }

// state is the bucket that all replicas share.
type state struct {
	tokens   float64
	at       int64 // Unix nanoseconds
	replicas []replica
}

type replica struct {
	id   uint64
	seen int64 // Unix nanoseconds
}

// enter brings a state up to now, less what a replica has spent. Clocks of replicas may differ: a later moment than now
// stands, so that no time is counted twice, unless it is so late that its writer's clock was wrong.
func (s *state) enter(now time.Time, o *Tenant, spent float64, id uint64) {
	at, most := now.UnixNano(), o.burst()
	switch {
	case s.at == 0:
		s.tokens, s.at = most, at
	case s.at < at:
		s.tokens += time.Duration(at-s.at).Seconds() * o.rate()
		s.at = at
	case time.Duration(s.at-at) > present:
		s.at = at
	}
	// Many replicas that a tenant comes to at once each let a burst pass before they know of each other. What they owe
	// is not held against it for longer than 15 seconds.
	s.tokens = max(min(s.tokens-spent, most), -max(most, float64(o.RequestsPerMinute)/4))
	others := s.replicas[:0]
	for _, r := range s.replicas {
		if age := time.Duration(at - r.seen); r.id != id && age < present && age > -present && len(others) < maxReplicas-1 {
			others = append(others, r)
		}
	}
	s.replicas = append(others, replica{id, at})
}

const (
	stateVersion = 1
	stateHead    = 1 + 8 + 8
	replicaSize  = 8 + 8
)

func (s *state) encode() []byte {
	b := append(make([]byte, 0, stateHead+len(s.replicas)*replicaSize), stateVersion)
	b = binary.BigEndian.AppendUint64(b, math.Float64bits(s.tokens))
	b = binary.BigEndian.AppendUint64(b, uint64(s.at)) //nolint:gosec // G115: the same bits come back
	for _, r := range s.replicas {
		b = binary.BigEndian.AppendUint64(b, r.id)
		b = binary.BigEndian.AppendUint64(b, uint64(r.seen)) //nolint:gosec // G115: as above
	}
	return b
}

// parse reads a state. What is not one counts as none.
func parse(b []byte) state {
	rest := len(b) - stateHead
	if rest < 0 || b[0] != stateVersion || rest%replicaSize != 0 || rest > maxReplicas*replicaSize {
		return state{}
	}
	s := state{
		tokens: math.Float64frombits(binary.BigEndian.Uint64(b[1:])),
		at:     int64(binary.BigEndian.Uint64(b[9:])), //nolint:gosec // G115: bits of an int64
	}
	if math.IsNaN(s.tokens) || math.IsInf(s.tokens, 0) || s.at <= 0 {
		return state{}
	}
	for b = b[stateHead:]; len(b) > 0; b = b[replicaSize:] {
		s.replicas = append(s.replicas, replica{binary.BigEndian.Uint64(b), int64(binary.BigEndian.Uint64(b[8:]))}) //nolint:gosec // G115: as above
	}
	return s
}
