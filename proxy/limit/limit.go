// Package limit is rate limiting: requests per minute and concurrent requests of each tenant, and concurrent requests and
// buffered bytes of the process. The proxy calls [Limiter.Enter] before it reads a body.
//
// No call blocks. Replicas with a common store share the rate of a tenant, but each request is decided on what this process
// knows; shared.go says how exact that is.
package limit

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options are the section "limits" of the configuration. 0 means no limit unless a field says otherwise. Without any limit
// nothing is counted.
type Options struct {
	Tenant Tenant `mapstructure:"tenant"`
	Global Global `mapstructure:"global"`
}

// Tenant bounds each tenant; a caller beyond it gets 429.
type Tenant struct {
	// RequestsPerMinute is shared by all replicas on one store.
	RequestsPerMinute int `mapstructure:"requests_per_minute"`
	// Burst is how many requests may come at once after a pause. 0 means three seconds' worth of the rate, at least 1.
	Burst int `mapstructure:"burst"`
	// Concurrent is how many requests may be under way at once, in this process.
	Concurrent int `mapstructure:"concurrent"`
}

// Global bounds all callers of this process together; a request beyond it gets 503.
type Global struct {
	// Concurrent is how many requests may be under way at once, from the arrival of their bodies.
	Concurrent int `mapstructure:"concurrent"`
	// BodyBytes is how many bytes of request bodies and answers may be buffered at once. 0 is no limit.
	BodyBytes int64 `mapstructure:"body_bytes"`
}

// Validate returns all problems, joined, each under its path below path ("limits"). BodyBytes must have room for a body of
// maxBody bytes, the largest that the server accepts.
func (o *Options) Validate(path string, maxBody int64) error {
	var problems []error
	for _, n := range []struct {
		key   string
		value int64
	}{
		{"tenant.requests_per_minute", int64(o.Tenant.RequestsPerMinute)},
		{"tenant.burst", int64(o.Tenant.Burst)},
		{"tenant.concurrent", int64(o.Tenant.Concurrent)},
		{"global.concurrent", int64(o.Global.Concurrent)},
		{"global.body_bytes", o.Global.BodyBytes},
	} {
		if n.value < 0 {
			problems = append(problems, fmt.Errorf("%s.%s: must not be negative, is %d", path, n.key, n.value))
		}
	}
	if o.Tenant.Burst > 0 && o.Tenant.RequestsPerMinute == 0 {
		problems = append(problems, fmt.Errorf("%s.tenant.burst: has no meaning without requests_per_minute", path))
	}
	if b := o.Global.BodyBytes; b > 0 && b < maxBody {
		problems = append(problems, fmt.Errorf("%s.global.body_bytes: must not be less than server.max_body (%d), is %d", path, maxBody, b))
	}
	return errors.Join(problems...)
}

// rate of a tenant, in requests per second.
func (t *Tenant) rate() float64 { return float64(t.RequestsPerMinute) / 60 }

func (t *Tenant) burst() float64 {
	if t.Burst > 0 {
		return float64(t.Burst)
	}
	return max(float64(t.RequestsPerMinute)/20, 1)
}

func (t *Tenant) on() bool { return t.RequestsPerMinute > 0 || t.Concurrent > 0 }

// maxTenants is how many tenants are remembered. A new one replaces the one that has been idle longest, which has its whole burst
// again when it returns. The limits of Global are not affected.
const maxTenants = 1 << 16

// Config configures a Limiter.
type Config struct {
	Options Options
	// Store shares rates among replicas; nil for a single process.
	Store Store
	// Replica is the id of this process among those on the same store.
	Replica uint64
	// Now is the clock.
	Now func() time.Time
	// OnStore, if set, is called with the error when the store can't be used, and with nil when it can be again. It must
	// not block.
	OnStore func(err error)
}

// Limiter decides on requests. It is safe for concurrent use.
type Limiter struct {
	c      Config
	most   int         // tenants
	active atomic.Bool // some limit is set
	byName atomic.Bool // limits of tenants are set

	mu      sync.Mutex
	o       Options
	running int    // requests whose body is here
	bytes   int64  // that tickets hold
	coming  Ticket // ring of those whose body is still to come; coming.next is the one that has brought nothing for longest
	tenants map[string]*tenant
	idle    tenant // ring of those with nothing under way; idle.next is the one that has been idle longest

	share *share // nil without a store
}

// tenant is the state of one tenant, guarded by Limiter.mu.
type tenant struct {
	name       string
	running    int
	next, prev *tenant // in Limiter.idle; nil while something is under way
	bucket     bucket
}

// join appends a tenant to the ring of idle ones.
func (l *Limiter) join(t *tenant) {
	t.prev, t.next = l.idle.prev, &l.idle
	t.prev.next, t.next.prev = t, t
}

// part removes a tenant from the ring, if it is there.
func (t *tenant) part() {
	if t.next != nil {
		t.prev.next, t.next.prev = t.next, t.prev
		t.next, t.prev = nil, nil
	}
}

// New makes a Limiter. With a store, Close must be called.
func New(c Config) *Limiter {
	l := &Limiter{c: c, most: maxTenants, tenants: map[string]*tenant{}}
	l.idle.next, l.idle.prev = &l.idle, &l.idle
	l.coming.next, l.coming.prev = &l.coming, &l.coming
	l.Configure(c.Options)
	if c.Store != nil {
		l.share = newShare(l)
	}
	return l
}

// Close stops sharing rates. Requests are still decided, on what this process knows.
func (l *Limiter) Close() {
	if l.share != nil {
		l.share.close()
	}
}

// Configure changes the limits; requests under way stay counted.
func (l *Limiter) Configure(o Options) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.o = o
	l.active.Store(o != Options{})
	l.byName.Store(o.Tenant.on())
}

// CountsTenants reports whether tenants have limits.
func (l *Limiter) CountsTenants() bool { return l.byName.Load() }

// Enter admits a request, or returns a *[Refusal]. It calls tenants for the names that the request counts for, each once, only if
// tenants have limits; all of them must have room. Call [Ticket.Leave] when an admitted request ends.
func (l *Limiter) Enter(tenants func() []string) (Ticket, error) {
	if !l.active.Load() {
		return Ticket{}, nil
	}
	var names []string
	if l.CountsTenants() {
		names = tenants()
	}
	now := l.c.Now()

	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.full(); err != nil {
		return Ticket{}, err
	}
	admitted := Ticket{limiter: l}
	for _, name := range names {
		t := l.tenant(name, now)
		if t == nil {
			l.release(admitted.tenants)
			return Ticket{}, &Refusal{Limit: globalTenants, Max: int64(l.most), Global: true, RetryAfter: shortly}
		}
		if r := l.check(t, now); r != nil {
			l.release(admitted.tenants)
			return Ticket{}, r
		}
		t.running++
		t.part()
		admitted.tenants = append(admitted.tenants, t)
	}
	if l.o.Tenant.RequestsPerMinute > 0 {
		for _, t := range admitted.tenants {
			t.bucket.take() // not before all have room: a refused request takes nothing
		}
	}
	return admitted, nil
}

// full returns a *[Refusal] if all callers together have as many requests under way as they may. The caller holds mu.
func (l *Limiter) full() error {
	if n := l.o.Global.Concurrent; n > 0 && l.running >= n {
		return &Refusal{Limit: globalConcurrent, Max: int64(n), Global: true, RetryAfter: shortly}
	}
	return nil
}

// release ends a request of these tenants. The caller holds mu.
func (l *Limiter) release(tenants []*tenant) {
	for _, t := range tenants {
		if t.running--; t.running == 0 {
			l.join(t)
		}
	}
}

// check applies a tenant's limits.
func (l *Limiter) check(t *tenant, now time.Time) *Refusal {
	o := &l.o.Tenant
	if o.Concurrent > 0 && t.running >= o.Concurrent {
		return &Refusal{Limit: tenantConcurrent, Max: int64(o.Concurrent), RetryAfter: shortly}
	}
	if o.RequestsPerMinute <= 0 {
		return nil
	}
	wait := t.bucket.wait(now, o)
	if l.share != nil {
		l.share.ask(t)
	}
	if wait > 0 {
		return &Refusal{Limit: tenantRate, Max: int64(o.RequestsPerMinute), RetryAfter: wait}
	}
	return nil
}

// tenant returns the state of a tenant, a new one if need be. It returns nil if the table is full of tenants with requests
// under way.
func (l *Limiter) tenant(name string, now time.Time) *tenant {
	if t := l.tenants[name]; t != nil {
		if t.next != nil {
			t.part()
			l.join(t)
		}
		return t
	}
	if len(l.tenants) >= l.most {
		old := l.idle.next
		if old == &l.idle {
			return nil
		}
		old.part()
		delete(l.tenants, old.name)
	}
	t := &tenant{name: name, bucket: newBucket(now, &l.o.Tenant)}
	l.join(t)
	l.tenants[name] = t
	return t
}

// Ticket is a request that was admitted. The zero value counts nothing. It is for one goroutine, and not copied between Await and
// Complete.
type Ticket struct {
	limiter *Limiter
	tenants []*tenant
	arrived bool // it counts in running

	// Guarded by Limiter.mu.

	bytes      int64
	body       Body      // in Limiter.coming
	since      time.Time // when the client got its time for the next part of it
	next, prev *Ticket   // in Limiter.coming, nil while it is not there
}

// Body is the body of a request while it comes.
type Body interface {
	// GiveUp ends the reading of the body, whose bytes no longer count. It is called from any goroutine, and must not block.
	GiveUp()
}

// slowBody is how long a client may take for a part of its body, when others need the room.
const slowBody = time.Second

// Await is called when the client of a body gets its time for the next part: before the first, and whenever one has come. A body that
// then takes longer than others is given up for their bytes: see Hold.
func (t *Ticket) Await(b Body) {
	l := t.limiter
	if l == nil {
		return
	}
	now := l.c.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	t.forget()
	t.body, t.since = b, now
	t.prev, t.next = l.coming.prev, &l.coming
	t.prev.next, t.next.prev = t, t
}

// Complete says that no more of the body is to come. The body is not given up after it returns.
func (t *Ticket) Complete() {
	l := t.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.forget()
}

// forget removes the ticket from the ring of those whose body is to come, if it is there. The caller holds Limiter.mu.
func (t *Ticket) forget() {
	if t.next != nil {
		t.prev.next, t.next.prev = t.next, t.prev
		t.next, t.prev, t.body = nil, nil, nil
	}
}

// Arrived counts a request whose body is here towards Global.Concurrent, or returns a *[Refusal]. Until then it does not count: a few
// clients that send their bodies slowly would fill it.
func (t *Ticket) Arrived() error {
	l := t.limiter
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.full(); err != nil {
		return err
	}
	t.arrived = true
	l.running++
	return nil
}

// Hold counts n more bytes for the request's body or its answer, before they are read. Where there is no room, it gives up the bodies
// that are slowest to come. It returns a *[Refusal] if that does not suffice.
func (t *Ticket) Hold(n int64) error {
	l := t.limiter
	if l == nil || n <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.o.Global.BodyBytes
	if limit <= 0 {
		return nil
	}
	for l.bytes+n > limit {
		if t.bytes+n > limit || !l.giveUpSlowest(t) {
			return &Refusal{Limit: globalBytes, Max: limit, Global: true, RetryAfter: shortly}
		}
	}
	l.bytes += n
	t.bytes += n
	return nil
}

// giveUpSlowest gives up the body that has brought nothing for longest, unless that is not long or it is the body of t. It reports
// whether it did. The caller holds mu.
func (l *Limiter) giveUpSlowest(t *Ticket) bool {
	slowest := l.coming.next
	if slowest == &l.coming || slowest == t || l.c.Now().Sub(slowest.since) < slowBody {
		return false
	}
	slowest.free()
	slowest.body.GiveUp()
	slowest.forget()
	return true
}

// Free returns the bytes, for a request that goes on without its body.
func (t *Ticket) Free() {
	l := t.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.free()
}

// free returns the bytes. The caller holds Limiter.mu.
func (t *Ticket) free() {
	t.limiter.bytes -= t.bytes
	t.bytes = 0
}

// Leave ends the request. Calling it again does nothing.
func (t *Ticket) Leave() {
	l := t.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	t.forget()
	t.free()
	if t.arrived {
		l.running--
	}
	l.release(t.tenants)
	*t = Ticket{}
}
