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

// share synchronises the buckets of this process with the other replicas, in the background.
//
// The store has one bucket for each tenant. Each process decides on a bucket of its own, which fills with the rate divided by
// the number of replicas that the tenant has used in the last seconds. At most ten times a second the process enters the
// requests that it has admitted, by compare-and-swap, and adopts its share of what is left for all. So a replica that gets most
// of the requests also gets most of the rate. While the store is away, the last known share applies.
//
// How exact that is: requests admitted beyond the rate are subtracted later, so in the long run the rate is exact, and over a
// minute all replicas together admit at most requests_per_minute + burst, as one would. Replicas that a tenant reaches in the
// same instant each admit a burst, and then make the tenant wait for it. Only a replica that is new to a tenant at the end of a
// minute of full use adds a burst to that minute. With the default burst, a twentieth of the rate, all that stays within 10 %.
// Up to 100 ms of requests are forgotten when a process ends.
type share struct {
	l    *Limiter
	wake chan struct{}
	stop context.CancelFunc
	done sync.WaitGroup

	queue []*tenant   // guarded by l.mu; each at most once
	clock cache.Clock // likewise: states have the store's time, since clocks of replicas differ
	away  bool        // the last call failed; used by the worker only
}

const (
	pace         = 100 * time.Millisecond // between two rounds
	storeTimeout = time.Second            // for one call of the store
	batchSize    = 64                     // tenants in one round trip
	conflicts    = 4                      // how often a round tries again
	present      = 5 * time.Second        // since its last word, a replica counts
	expiry       = 10 * time.Minute       // a tenant without requests is forgotten
	maxReplicas  = 64
	valueName    = "rate"
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

// run settles the queue in rounds.
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
				wait = storeTimeout // drop the other batches: their next requests queue them again
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

// round settles the buckets of some tenants, and tries again for those that another replica changed meanwhile. It reports
// whether the store can be used.
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
	return true // the next requests of those left queue them again
}

// settle enters the admitted requests, and returns the tenants that other replicas changed meanwhile.
func (s *share) settle(ctx context.Context, batch []*tenant) (again []*tenant, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	queries := make([]cache.Query, len(batch))
	for i, t := range batch {
		queries[i] = cache.Query{Group: group(t), Names: []string{valueName}}
	}
	found, err := s.l.c.Store.Read(ctx, queries)
	if err != nil {
		fault, _ := cache.FaultOf(err)
		if len(batch) > 1 && (ofKey(err) || fault == cache.FaultShard) {
			return s.settleEach(ctx, batch)
		}
		s.l.mu.Lock()
		defer s.l.mu.Unlock()
		for _, t := range batch {
			t.bucket.keep(&s.l.o.Tenant)
		}
		if ofKey(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read shared rates: %w", err)
	}
	writes, next, spent := make([]cache.Batch, len(batch)), make([]state, len(batch)), make([]float64, len(batch))
	s.l.mu.Lock()
	now := s.l.c.Now()
	for i, t := range batch {
		next[i], spent[i] = parse(found[i].Values[0]), t.bucket.spent
		next[i].enter(s.clock.At(now), &s.l.o.Tenant, spent[i], s.l.c.Replica)
		writes[i] = cache.Batch{
			Group: queries[i].Group, Expect: found[i].Version, TTL: expiry,
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
			s.clock.Hear(found[i].Version, outcomes[i].Version, now, s.l.c.Now())
			t.bucket.settle(now, next[i].tokens, spent[i], len(next[i].replicas))
		case errors.Is(e, cache.ErrConflict):
			again = append(again, t)
		default:
			// If it was written after all, the same requests are entered twice; that evens out within seconds.
			t.bucket.keep(&s.l.o.Tenant)
			if !ofKey(e) {
				err = fmt.Errorf("write shared rates: %w", e)
			}
		}
	}
	return again, err
}

// ofKey reports whether an error concerns only the tenants of the call: the rates of others can be shared.
func ofKey(err error) bool {
	fault, _ := cache.FaultOf(err)
	return fault == cache.FaultKey || fault == cache.FaultCorrupt
}

// settleEach settles tenants one by one, where the store fails for some of them. It fails if the store fails for all.
func (s *share) settleEach(ctx context.Context, batch []*tenant) (again []*tenant, err error) {
	failed := 0
	for _, t := range batch {
		changed, e := s.settle(ctx, []*tenant{t})
		if e != nil {
			failed, err = failed+1, e
		}
		again = append(again, changed...)
	}
	if failed < len(batch) {
		return again, nil
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

// enter advances a state to now and subtracts what a replica has admitted. A replica knows the store's clock only after its first commit,
// and then to within moments: a state that is later than now keeps its time, so that no time counts twice, unless it is so late that its
// writer's clock must have been wrong.
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
	// Replicas that a tenant reaches at once each admit a burst before they know of each other. That debt makes the tenant
	// wait for 15 seconds at most.
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

// parse reads a state. Anything invalid counts as an empty state.
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
