package limit

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

type clock struct{ now time.Time }

func (c *clock) read() time.Time         { return c.now }
func (c *clock) advance(d time.Duration) { c.now = c.now.Add(d) }

func alone(o Options) (*Limiter, *clock) {
	c := &clock{noon}
	return New(Config{Options: o, Now: c.read}), c
}

// named returns the names of tenants as Enter takes them.
func named(tenants ...string) func() []string { return func() []string { return tenants } }

// arrive lets a request in whose body is already there.
func arrive(l *Limiter, tenants ...string) (Ticket, error) {
	t, err := l.Enter(named(tenants...))
	if err == nil {
		err = t.Arrived()
	}
	return t, err
}

// enter asks count times and returns how many were let in, and the last refusal.
func enter(l *Limiter, tenant string, count int) (tickets []Ticket, last *Refusal) {
	for range count {
		t, err := arrive(l, tenant)
		if err != nil {
			last = nil
			errors.As(err, &last)
			continue
		}
		tickets = append(tickets, t)
	}
	return tickets, last
}

func idle(l *Limiter) (n int) {
	for t := l.idle.next; t != &l.idle; t = t.next {
		n++
	}
	return n
}

func TestRate(t *testing.T) {
	l, c := alone(Options{Tenant: Tenant{RequestsPerMinute: 120, Burst: 5}})
	f := func(when, tenant string, want int, wait time.Duration) {
		t.Helper()
		got, r := enter(l, tenant, want+3)
		if len(got) != want || r == nil || r.RetryAfter != wait {
			t.Fatalf("%s: %d, want %d; %+v, want %s", when, len(got), want, r, wait)
		}
	}
	f("a burst", "a", 5, 500*time.Millisecond)
	f("another tenant", "b", 5, 500*time.Millisecond)
	c.advance(200 * time.Millisecond)
	f("too early", "a", 0, 300*time.Millisecond)
	c.advance(300 * time.Millisecond)
	f("in time", "a", 1, 500*time.Millisecond)
	c.advance(time.Hour)
	f("after a pause", "a", 5, 500*time.Millisecond)
	c.advance(-time.Minute)
	f("the clock goes back", "a", 0, 500*time.Millisecond)
	c.advance(time.Minute)
	l.Configure(Options{Tenant: Tenant{RequestsPerMinute: 60}})
	c.advance(time.Hour)
	f("another rate", "a", 3, time.Second)

	_, r := enter(l, "a", 1)
	want := [][2]string{
		{"Retry-After", "1"},
		{"retry-after-ms", "1000"},
		{"x-ratelimit-limit-requests", "60"},
		{"x-ratelimit-remaining-requests", "0"},
		{"x-ratelimit-reset-requests", "1s"},
	}
	if diff := cmp.Diff(want, r.Headers()); diff != "" {
		t.Error(diff)
	}
	if r.Status() != 429 || r.Code() != "rate_limit_exceeded" || r.Error() != "limit of 60 is reached (limits.tenant.requests_per_minute)" {
		t.Error(r.Status(), r.Code(), r)
	}
}

func TestConcurrent(t *testing.T) {
	l, _ := alone(Options{Tenant: Tenant{Concurrent: 2}, Global: Global{Concurrent: 5}})
	a, r := enter(l, "a", 3)
	if len(a) != 2 || r.Limit != "limits.tenant.concurrent" || r.Status() != 429 {
		t.Fatal(len(a), r)
	}
	_, _ = enter(l, "b", 2)
	c, r := enter(l, "c", 2)
	if len(c) != 1 || r.Limit != "limits.global.concurrent" || r.Status() != 503 || r.Code() != "overloaded" {
		t.Fatal(len(c), r)
	}
	a[0].Leave()
	a[0].Leave() // once is enough
	c, r = enter(l, "c", 2)
	if len(c) != 1 || r.Limit != "limits.global.concurrent" {
		t.Error(len(c), r)
	}
	if l.running != 5 || len(l.tenants) != 3 {
		t.Errorf("%d are running, of %d tenants", l.running, len(l.tenants))
	}
}

// TestSlowBodies: a request counts for all callers once its body is there, for its tenant before.
func TestSlowBodies(t *testing.T) {
	l, _ := alone(Options{Tenant: Tenant{Concurrent: 2}, Global: Global{Concurrent: 1}})
	enterOne := func() Ticket {
		k, err := l.Enter(named("a"))
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	slow, quick := enterOne(), enterOne()
	if quick.Arrived() != nil || slow.Arrived() == nil {
		t.Error("not the one whose body is there runs")
	}
	if _, r := enter(l, "a", 1); r == nil {
		t.Error("a third one of the tenant runs")
	}
	quick.Leave()
	if err := slow.Arrived(); err != nil || l.running != 1 {
		t.Errorf("%v, %d are running", err, l.running)
	}
	slow.Leave()
	gone := enterOne()
	gone.Leave() // its client has gone
	if l.running != 0 || idle(l) != len(l.tenants) {
		t.Errorf("%d are running, %d idle", l.running, idle(l))
	}
}

// TestSeveralTenants: a request that counts for several tenants needs room at each, and takes nothing if one has none.
func TestSeveralTenants(t *testing.T) {
	l, _ := alone(Options{Tenant: Tenant{RequestsPerMinute: 1, Burst: 2, Concurrent: 2}})
	passes := func(tenants ...string) bool {
		k, err := l.Enter(named(tenants...))
		k.Leave()
		return err == nil
	}
	got := []bool{passes("a", "b"), passes("a", "c"), passes("a", "d"), passes("d", "a"), passes("d"), passes("d"), passes("d"), passes("b"), passes("b")}
	if diff := cmp.Diff([]bool{true, true, false, false, true, true, false, true, false}, got); diff != "" {
		t.Error(diff)
	}
	if l.running != 0 || idle(l) != len(l.tenants) {
		t.Errorf("%d are running, %d idle", l.running, idle(l))
	}
}

func TestBodies(t *testing.T) {
	l, _ := alone(Options{Global: Global{BodyBytes: 100}})
	tickets, _ := enter(l, "a", 2)
	a, b := &tickets[0], &tickets[1]
	if err := errors.Join(a.Hold(40), a.Hold(20), b.Hold(40)); err != nil {
		t.Fatal(err)
	}
	err := b.Hold(1)
	var r *Refusal
	if !errors.As(err, &r) || r.Limit != "limits.global.body_bytes" || r.Status() != 503 {
		t.Fatal(err)
	}
	a.Free()
	if err := b.Hold(60); err != nil {
		t.Error(err)
	}
	b.Leave()
	a.Leave()
	if l.bytes != 0 || l.running != 0 {
		t.Errorf("%d bytes are held, %d are running", l.bytes, l.running)
	}
}

// upload is a body that comes. It counts how often it was given up.
type upload struct{ given int }

func (u *upload) GiveUp() { u.given++ }

// TestTheSlowestBodyMakesRoom: where the room is full, the bodies whose clients have sent nothing for longest are given up, one after
// the other, and none that has just brought something or is complete.
func TestTheSlowestBodyMakesRoom(t *testing.T) {
	l, c := alone(Options{Global: Global{BodyBytes: 100}})
	tickets := make([]Ticket, 5)
	uploads := make([]upload, len(tickets))
	for i := range tickets {
		var err error
		if tickets[i], err = l.Enter(nil); err != nil {
			t.Fatal(err)
		}
		if i < 4 {
			tickets[i].Await(&uploads[i])
			err = tickets[i].Hold(25)
		}
		if err != nil {
			t.Fatal(err)
		}
		c.advance(slowBody / 10)
	}
	hungry := &tickets[4]
	hold := func(when string, n int64, fits bool, want ...int) {
		t.Helper()
		err := hungry.Hold(n)
		var given []int
		for _, u := range uploads {
			given = append(given, u.given)
		}
		if diff := cmp.Diff(append(want, 0), given); diff != "" || (err == nil) != fits {
			t.Errorf("%s: %v, %s", when, err, diff)
		}
	}
	hold("all are quick", 25, false, 0, 0, 0, 0)
	c.advance(slowBody / 10 * 6) // the first two are slow now
	hold("more than there can ever be", 101, false, 0, 0, 0, 0)
	tickets[0].Await(&uploads[0]) // something has come
	hold("the first has gone on", 25, true, 0, 1, 0, 0)
	hold("the others are quick", 25, false, 0, 1, 0, 0)
	c.advance(slowBody)
	tickets[2].Complete()
	hold("two are slow", 50, true, 1, 1, 0, 1)
	hold("one is complete", 1, false, 1, 1, 0, 1)
	hungry.Await(&uploads[4])
	c.advance(slowBody)
	hold("it is itself the slowest", 1, false, 1, 1, 0, 1)
	for i := range tickets {
		tickets[i].Leave()
	}
	if l.bytes != 0 || l.coming.next != &l.coming {
		t.Errorf("%d bytes are held, and bodies are awaited: %t", l.bytes, l.coming.next != &l.coming)
	}
}

func TestOff(t *testing.T) {
	l, _ := alone(Options{})
	got, _ := enter(l, "a", 1000)
	if err := got[0].Hold(1 << 40); err != nil || len(got) != 1000 || len(l.tenants) != 0 {
		t.Error(err, len(got))
	}
	got[0].Leave()
	a := named("a")
	if n := testing.AllocsPerRun(100, func() {
		k, _ := l.Enter(a)
		k.Leave()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestTable: for any sequence of requests by any tenants, the table and the requests under way stay bounded.
func TestTable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := &clock{noon}
		l := New(Config{
			Options: Options{Tenant: Tenant{RequestsPerMinute: 600, Burst: 2, Concurrent: 2}, Global: Global{Concurrent: 6}}, Now: c.read,
		})
		l.most = 4
		var inside []Ticket
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(inside) > 0 && rapid.Bool().Draw(t, "leave") {
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "who")
				inside[i].Leave()
				inside = append(inside[:i], inside[i+1:]...)
				continue
			}
			tenants := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-t]`), 1, 3, rapid.ID).Draw(t, "tenants")
			k, err := arrive(l, tenants...)
			if err == nil {
				inside = append(inside, k)
			}
			c.advance(time.Duration(rapid.IntRange(0, 100).Draw(t, "ms")) * time.Millisecond)
			if l.running != len(inside) || l.running > 6 || len(l.tenants) > 4 || idle(l) > len(l.tenants) {
				t.Fatalf("%d inside: %d are running, of %d tenants", len(inside), l.running, len(l.tenants))
			}
			// With 4 tenants inside there is no room for a fifth.
			var r *Refusal
			if errors.As(err, &r) && r.Limit == globalTenants && idle(l) >= len(tenants) {
				t.Fatal("a tenant that does nothing keeps another out")
			}
		}
		for i := range inside {
			inside[i].Leave()
		}
		if l.running != 0 || idle(l) != len(l.tenants) {
			t.Fatalf("%d are running, %d of %d tenants idle", l.running, idle(l), len(l.tenants))
		}
	})
}

func TestForgetsWhoWasAwayLongest(t *testing.T) {
	c := &clock{noon}
	l := New(Config{Options: Options{Tenant: Tenant{RequestsPerMinute: 1}}, Now: c.read})
	l.most = 2
	passes := func(tenant string) bool {
		got, _ := enter(l, tenant, 1)
		for i := range got {
			got[i].Leave()
		}
		return len(got) == 1
	}
	var got []bool
	for tenant := range strings.FieldsSeq("a b a b c b a") {
		got = append(got, passes(tenant))
	}
	// c takes the place of a, so b is remembered, and a starts anew.
	if diff := cmp.Diff([]bool{true, true, false, false, true, false, true}, got); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	o := Options{Tenant: Tenant{-1, -2, -3}, Global: Global{-4, 10}}
	want := `limits.tenant.requests_per_minute: must not be negative, is -1
limits.tenant.burst: must not be negative, is -2
limits.tenant.concurrent: must not be negative, is -3
limits.global.concurrent: must not be negative, is -4
limits.global.body_bytes: must not be less than server.max_body (11), is 10`
	if diff := cmp.Diff(want, o.Validate("limits", 11).Error()); diff != "" {
		t.Error(diff)
	}
	if err := (&Options{Tenant: Tenant{Burst: 1}}).Validate("limits", 1); err == nil || !strings.Contains(err.Error(), "limits.tenant.burst: ") {
		t.Error(err)
	}
	for _, o := range []Options{{}, {Global: Global{BodyBytes: 1}}} {
		if err := o.Validate("limits", 1); err != nil {
			t.Error(err)
		}
	}
}

func BenchmarkEnter(b *testing.B) {
	l := New(Config{
		Options: Options{Tenant: Tenant{RequestsPerMinute: 1 << 30, Concurrent: 100}, Global: Global{Concurrent: 100}},
		Now:     time.Now,
	})
	b.ReportAllocs()
	for b.Loop() {
		k, err := l.Enter(named("a"))
		if err != nil {
			b.Fatal(err)
		}
		k.Leave()
	}
}
