package limit

import (
	"math"
	"time"
)

// bucket is this process's share of a tenant's rate. It is a token bucket that fills with the rate divided by the number of
// replicas that the tenant uses.
type bucket struct {
	tokens float64
	at     time.Time // the time at which tokens was computed

	// The fields below are used with a store only.

	replicas int     // how many share the rate, this one included; at least 1
	spent    float64 // requests admitted and not yet entered in the store
	asked    bool    // it is in the queue of share
}

func newBucket(now time.Time, o *Tenant) bucket {
	return bucket{tokens: o.burst(), at: now, replicas: 1}
}

// take admits a request.
func (b *bucket) take() {
	b.tokens--
	b.spent++
}

// wait returns the time until a request would be admitted.
func (b *bucket) wait(now time.Time, o *Tenant) time.Duration {
	b.fill(now, o)
	if b.tokens >= 1 {
		return 0
	}
	missing := (1 - b.tokens) / b.rate(o)
	return time.Duration(min(math.Ceil(missing*1000), 60_000)) * time.Millisecond
}

func (b *bucket) rate(o *Tenant) float64 { return o.rate() / float64(b.replicas) }

// most is the size of the bucket, at least one request: a smaller one would never admit any.
func (b *bucket) most(o *Tenant) float64 { return max(o.burst()/float64(b.replicas), 1) }

func (b *bucket) fill(now time.Time, o *Tenant) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens += d.Seconds() * b.rate(o)
		b.at = now
	}
	b.tokens = min(b.tokens, b.most(o))
}

// keep is called when the store could not be reached. This process keeps to its share of the rate meanwhile, so no more than a
// burst has to be entered later.
func (b *bucket) keep(o *Tenant) { b.spent = min(b.spent, b.most(o)) }

// settle adopts the shared state: the tokens left for all replicas, after spent of this one were entered, and the number of
// replicas.
func (b *bucket) settle(now time.Time, left, spent float64, replicas int) {
	b.spent -= spent
	b.replicas = max(replicas, 1)
	b.tokens = left/float64(b.replicas) - b.spent
	b.at = now
}
