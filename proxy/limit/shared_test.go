package limit

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
)

// flaky is a store that takes its time, and can be switched off.
type flaky struct {
	cache.Store
	mu   sync.Mutex
	err  error
	hang bool

	reads bool // reading goes on all the same
}

func (f *flaky) set(err error, hang bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err, f.hang = err, hang
}

func (f *flaky) wait(ctx context.Context) error {
	f.mu.Lock()
	err, hang := f.err, f.hang
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(time.Millisecond)
	return err
}

func (f *flaky) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	if err := f.wait(ctx); err != nil && !f.reads {
		return nil, err
	}
	return f.Store.Read(ctx, q)
}

func (f *flaky) Commit(ctx context.Context, b []cache.Batch) []cache.Outcome {
	if err := f.wait(ctx); err != nil {
		out := make([]cache.Outcome, len(b))
		for i := range out {
			out[i].Err = err
		}
		return out
	}
	return f.Store.Commit(ctx, b)
}

// replicas are n limiters on one store, and when they let requests of one tenant pass.
type replicas struct {
	t      *testing.T
	store  *flaky
	list   []*Limiter
	passed []time.Time
	rpm    int
	notes  []error
}

// newReplicas makes n replicas. The clock of each is so far ahead of that of the one before.
func newReplicas(t *testing.T, n, rpm int, ahead time.Duration) *replicas {
	t.Helper()
	mem, err := stores.Open("memory:", cache.Options{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{t: t, store: &flaky{Store: mem}, rpm: rpm}
	var mu sync.Mutex
	for i := range n {
		r.list = append(r.list, New(Config{
			Options: Options{Tenant: Tenant{RequestsPerMinute: rpm}}, Store: r.store, Replica: uint64(i),
			Now: func() time.Time { return time.Now().Add(time.Duration(i) * ahead) },
			OnStore: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				r.notes = append(r.notes, err)
			},
		}))
	}
	return r
}

func (r *replicas) close() {
	for _, l := range r.list {
		l.Close()
	}
	_ = r.store.Close()
}

// load sends perSecond requests to each replica for a while.
func (r *replicas) load(d time.Duration, perSecond ...int) {
	const tick = 10 * time.Millisecond
	due := make([]float64, len(perSecond))
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(tick) {
		for i, n := range perSecond {
			for due[i] += float64(n) * tick.Seconds(); due[i] >= 1; due[i]-- {
				k, err := r.list[i].Enter(named("tenant"))
				if err != nil {
					continue
				}
				k.Leave()
				r.passed = append(r.passed, time.Now())
			}
		}
	}
}

// busiest is the largest number of requests in any minute.
func (r *replicas) busiest() int {
	most, first := 0, 0
	for i, at := range r.passed {
		for at.Sub(r.passed[first]) >= time.Minute {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func (r *replicas) since(from time.Time) int {
	n := 0
	for _, at := range r.passed {
		if !at.Before(from) {
			n++
		}
	}
	return n
}

// between checks a number of requests against parts of the limit.
func (r *replicas) between(what string, got int, least, most float64) {
	r.t.Helper()
	r.t.Logf("%s: %d of %d (%.1f %%)", what, got, r.rpm, 100*float64(got)/float64(r.rpm))
	if f := float64(got); f < least*float64(r.rpm) || f > most*float64(r.rpm) {
		r.t.Errorf("%s: %d, want from %v to %v of %d", what, got, least, most, r.rpm)
	}
}

// TestSharedRate checks that replicas together keep to the limit within 10 % over any minute, and that a tenant gets
// it whole, however its requests are spread.
func TestSharedRate(t *testing.T) {
	for name, tc := range map[string]struct {
		rpm   int
		loads [][]int // per minute: requests per second to each replica
	}{
		"evenly":                {1200, [][]int{{100, 100}, {100, 100}, {100, 100}}},
		"one gets nearly all":   {1200, [][]int{{190, 10}, {190, 10}, {190, 10}}},
		"one gets all":          {1200, [][]int{{100, 0}, {100, 0}, {100, 0}}},
		"the load moves":        {1200, [][]int{{100, 0}, {0, 100}, {100, 0}, {50, 50}}},
		"a little too much":     {1200, [][]int{{11, 11}, {11, 11}, {11, 11}}},
		"a new one at the end":  {1200, [][]int{{100, 0}, {100, 0}, {0, 100}}},
		"a low limit":           {100, [][]int{{10, 10}, {10, 10}, {10, 10}}},
		"five replicas":         {1200, [][]int{{30, 30, 30, 30, 30}, {30, 30, 30, 30, 30}, {150, 0, 0, 0, 0}}},
		"five, one after other": {1200, [][]int{{90, 0, 0, 0, 0}, {30, 30, 30, 0, 0}, {30, 30, 30, 30, 30}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, len(tc.loads[0]), tc.rpm, 0)
				defer r.close()
				for _, load := range tc.loads {
					from := time.Now()
					r.load(time.Minute, load...)
					r.between("a minute", r.since(from), 0.9, 1.1)
				}
				r.between("the busiest minute", r.busiest(), 0.9, 1.1)
			})
		})
	}
}

// TestClocksOfReplicas: replicas whose clocks differ share the limit, too.
func TestClocksOfReplicas(t *testing.T) {
	for _, ahead := range []time.Duration{3 * time.Second, 10 * time.Minute, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, 2, 1200, ahead)
				defer r.close()
				r.load(2*time.Second, 100, 100) // each adds a burst before it knows the store's clock
				for range 3 {
					from := time.Now()
					r.load(time.Minute, 100, 50)
					r.between("a minute", r.since(from), 0.9, 1.1)
				}
			})
		})
	}
}

// TestStoreIsAway checks that each of two replicas goes on with its half while the store fails or hangs, that none of
// it waits, and that both agree again afterwards.
func TestStoreIsAway(t *testing.T) {
	for name, c := range map[string]struct{ hang, reads bool }{"it fails": {}, "it hangs": {hang: true}, "it cannot be written": {reads: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReplicas(t, 2, 1200, 0)
				defer r.close()
				r.store.reads = c.reads
				r.load(time.Minute, 50, 50)
				r.store.set(errors.New("away"), c.hang)
				from := time.Now()
				r.load(5*time.Minute, 50, 50)
				r.between("5 minutes without the store", r.since(from), 0.95*5, 1.05*5)
				r.store.set(nil, false)
				from = time.Now()
				r.load(2*time.Minute, 90, 10)
				r.between("the 2 minutes after", r.since(from), 0.95*2, 1.06*2)
				r.between("the busiest minute", r.busiest(), 0.9, 1.1)
				r.load(11*time.Second, 0, 0)
				synctest.Wait()
				if n := len(r.notes); n != 4 || r.notes[0] == nil || r.notes[n-1] != nil {
					t.Errorf("OnStore: %v", r.notes)
				}
			})
		})
	}
}

// TestNeverTheStore checks that a process that has never reached the store applies the whole limit by itself.
func TestNeverTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, 1, 600, 0)
		defer r.close()
		r.store.set(nil, true)
		r.load(time.Minute, 50)
		r.between("a minute", len(r.passed), 1, 1.06)
	})
}

func TestTenantsShareRoundTrips(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplicas(t, 2, 60, 0)
		defer r.close()
		count := 0
		for i := range 2000 {
			for _, l := range r.list {
				if k, err := l.Enter(named(string(binary.BigEndian.AppendUint16(nil, uint16(i))))); err == nil {
					k.Leave()
					count++
				}
			}
		}
		begun := time.Now()
		for _, l := range r.list {
			for {
				l.mu.Lock()
				left := 0.0
				for _, n := range l.tenants {
					left += n.bucket.spent
				}
				l.mu.Unlock()
				if left == 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		if d := time.Since(begun); count != 4000 || d > time.Second {
			t.Errorf("%d requests were settled in %s", count, d)
		}
	})
}

// TestEnter is about clocks that differ and about what other versions may have written.
func TestEnter(t *testing.T) {
	o := &Tenant{RequestsPerMinute: 60, Burst: 10}
	f := func(name string, s state, spent, want float64, wantAt time.Time, members int) {
		t.Helper()
		s.enter(noon, o, spent, 7)
		if math.Abs(s.tokens-want) > 1e-6 || s.at != wantAt.UnixNano() || len(s.replicas) != members {
			t.Errorf("%s: %+v", name, s)
		}
	}
	ago := func(d time.Duration) int64 { return noon.Add(-d).UnixNano() }
	f("new", state{}, 3, 7, noon, 1)
	f("it flows in", state{tokens: 1, at: ago(4 * time.Second)}, 3, 2, noon, 1)
	f("no further than the burst", state{tokens: 5, at: ago(time.Hour)}, 3600, 5, noon, 1)
	f("it overflows", state{tokens: 5, at: ago(time.Hour)}, 1, 10, noon, 1)
	f("owed", state{tokens: -10, at: ago(0)}, 100, -15, noon, 1)
	f("a clock that is ahead", state{tokens: 5, at: ago(-2 * time.Second)}, 1, 4, noon.Add(2*time.Second), 1)
	f("a clock that is wrong", state{tokens: 5, at: ago(-time.Hour)}, 1, 4, noon, 1)
	f("replicas", state{tokens: 5, at: ago(0), replicas: []replica{
		{7, ago(time.Second)}, {8, ago(4 * time.Second)}, {9, ago(6 * time.Second)}, {10, ago(-time.Hour)}, {11, math.MinInt64},
	}}, 0, 5, noon, 2)
	many := state{tokens: 5, at: ago(0)}
	for i := range 100 {
		many.replicas = append(many.replicas, replica{uint64(100 + i), ago(0)})
	}
	f("too many replicas", many, 0, 5, noon, maxReplicas)
}

func FuzzParse(f *testing.F) {
	whole := (&state{tokens: -1.5, at: 5, replicas: []replica{{1, 2}, {3, 4}}}).encode()
	f.Add(whole)
	f.Add(append(slices.Clip(whole), 0))
	f.Add(append([]byte{stateVersion + 1}, whole[1:]...))
	f.Add((&state{tokens: math.NaN(), at: 5}).encode())
	f.Add((&state{tokens: 1, at: 5, replicas: make([]replica, maxReplicas+1)}).encode())
	f.Add([]byte{1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := parse(b)
		if math.IsNaN(s.tokens) || s.at < 0 || len(s.replicas) > maxReplicas {
			t.Fatalf("%x was read as %+v", b, s)
		}
		if s.at != 0 && !bytes.Equal(s.encode(), b) {
			t.Fatalf("%x came back as %x", b, s.encode())
		}
		s.enter(noon, &Tenant{RequestsPerMinute: 60}, 1, 7)
		if !(s.tokens <= 3 && s.tokens >= -15) || len(s.replicas) > maxReplicas || parse(s.encode()).at != s.at {
			t.Fatalf("%+v", s)
		}
	})
}

// poisoned is a store that cannot read one tenant.
type poisoned struct {
	cache.Store
	tenant string
}

func (p poisoned) Read(ctx context.Context, q []cache.Query) ([]cache.Result, error) {
	for _, one := range q {
		if one.Group.Owner == p.tenant {
			return nil, &cache.Error{Fault: cache.FaultKey, Err: errors.New("WRONGTYPE")}
		}
	}
	return p.Store.Read(ctx, q)
}

// TestTroubleOfOneTenant: what the store cannot read of one tenant does not keep the others' rates from being shared.
func TestTroubleOfOneTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem, err := stores.Open("memory:", cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var notes []error
		l := New(Config{
			Options: Options{Tenant: Tenant{RequestsPerMinute: 60}}, Now: time.Now, Store: poisoned{mem, "bad"},
			OnStore: func(err error) { notes = append(notes, err) },
		})
		for i := range 60 {
			// In one batch, and in batches of their own.
			for _, tenant := range [][]string{{"bad", "good"}, {"bad"}, {"good"}}[i%3] {
				if k, err := l.Enter(named(tenant)); err == nil {
					k.Leave()
				}
			}
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got, err := mem.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "good", Name: "limit"}, Names: []string{valueName}}})
		if err != nil || got[0].Values[0] == nil {
			t.Errorf("the rate of a tenant that can be read is not shared: %v", err)
		}
		for _, note := range notes {
			if note != nil {
				t.Errorf("the log says that no rates are shared: %v", note)
			}
		}
		l.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	})
}
