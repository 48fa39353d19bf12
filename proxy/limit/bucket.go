package limit

import (
	"math"
	"time"
)

// bucket is this process's part of a tenant's rate: it fills with the rate divided by the replicas that the tenant is
// known to use. Alone, it is an ordinary token bucket.
type bucket struct {
	tokens float64
	at     time.Time // when tokens was right

	// What follows matters with a store only.
	replicas int     // how many share the rate, this one included; at least 1
	spent    float64 // requests that the store has not been told of
	asked    bool    // it is in the queue of share
}

func newBucket(now time.Time, o *Tenant) bucket {
	return bucket{tokens: o.burst(), at: now, replicas: 1}
}

// take lets a request pass, or says when one will be.
func (b *bucket) take(now time.Time, o *Tenant) (wait time.Duration) {
	b.fill(now, o)
	if b.tokens >= 1 {
		b.tokens--
		b.spent++
		return 0
	}
	missing := (1 - b.tokens) / b.rate(o)
	return time.Duration(min(math.Ceil(missing*1000), 60_000)) * time.Millisecond
}

func (b *bucket) rate(o *Tenant) float64 { return o.rate() / float64(b.replicas) }

// most is how much the bucket holds. A part of less than one request would never let one pass.
func (b *bucket) most(o *Tenant) float64 { return max(o.burst()/float64(b.replicas), 1) }

func (b *bucket) fill(now time.Time, o *Tenant) {
	if d := now.Sub(b.at); d > 0 {
		b.tokens += d.Seconds() * b.rate(o)
		b.at = now
	}
	b.tokens = min(b.tokens, b.most(o))
}

// keep is called when the store could not be told. What passes meanwhile keeps to this process's part of the rate, so
// that of a long time nothing is owed but a burst.
func (b *bucket) keep(o *Tenant) { b.spent = min(b.spent, b.most(o)) }

// settle takes over what the replicas have agreed on: how much is left for all, after spent of this one were
// entered, and how many they are.
func (b *bucket) settle(now time.Time, left, spent float64, replicas int) {
	b.spent -= spent
	b.replicas = max(replicas, 1)
	b.tokens = left/float64(b.replicas) - b.spent
	b.at = now
}
