package proxy

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/view"
)

// What a lesson is about.
const (
	aboutRoles    = "roles"    // per dialect: a chat template sees all requests alike
	aboutTools    = "tools"    // also per response format, and whether the client offers tools
	aboutContext  = "context"  // per model
	aboutCalls    = "calls"    // per dialect: a server sees all calls alike
	aboutItems    = "items"    // per session, as each has its own items
	aboutOrder    = "order"    // as for tools
	aboutFailures = "failures" // as for tools
)

// lesson is what refusals have shown about one key. Only the fields that belong to the key are set.
type lesson struct {
	shape   view.Shape // the change that helped
	tokens  int        // of history that upstream takes at most
	failed  int        // corrective tries that did not help
	further bool       // the last of them met another refusal
	until   time.Time
}

// lesson returns what is known about the provider and the model of the attempt.
func (a *attempt) lesson(about string) lesson {
	if a.s.lessons.none() {
		return lesson{}
	}
	return a.s.lessons.get(a.lessonKey(about), a.s.now())
}

// learn writes down a lesson about the provider and the model of the attempt.
func (a *attempt) learn(about string, l lesson) { a.s.lessons.set(a.lessonKey(about), l, a.s.now()) }

// lessonKey identifies a lesson: what it is about, the tenant, the provider and the model. Tenants are kept apart, since
// upstream may allow them different things.
func (a *attempt) lessonKey(about string) lessonKey {
	parts := []string{about, a.req.tenant(), a.provider.Name(), a.provider.Upstream().Addr, a.modelName()}
	switch about {
	case aboutRoles, aboutCalls:
		parts = append(parts, a.req.dialect.String())
	case aboutItems:
		parts = append(parts, a.req.head.id.session)
	case aboutTools, aboutOrder, aboutFailures:
		format := "text"
		if a.req.wantsJSON() {
			format = "json"
		}
		parts = append(parts, a.req.dialect.String(), format, fmt.Sprint(len(a.req.parsed.Tools()) > 0))
	}
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return lessonKey(sum[:len(lessonKey{})])
}

type lessonKey [16]byte

const (
	// maxLessons bounds the table, which callers can fill. When it is full of valid lessons, it is cleared.
	maxLessons = 4096
	// lessonFor is how long a lesson is valid: models and upstreams change.
	lessonFor = time.Hour
)

// lessons is the table of what refusals have shown. It is safe for concurrent use.
type lessons struct {
	mu    sync.Mutex
	table map[lessonKey]lesson
	any   atomic.Bool // something was ever learnt
}

// none reports whether the table was never written to. Then requests need not compute keys.
func (l *lessons) none() bool { return !l.any.Load() }

// get returns a lesson, the zero value if there is none or it has expired.
func (l *lessons) get(key lessonKey, now time.Time) lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.table[key]; ok && now.Before(known.until) {
		return known
	}
	return lesson{}
}

func (l *lessons) set(key lessonKey, v lesson, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(key, v, now)
}

// once reports whether this is the first call for the key within lessonFor.
func (l *lessons) once(key lessonKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.table[key].until) {
		return false
	}
	l.put(key, lesson{}, now)
	return true
}

// put writes a lesson. The caller holds mu.
func (l *lessons) put(key lessonKey, v lesson, now time.Time) {
	if _, known := l.table[key]; !known && len(l.table) >= maxLessons {
		for k, old := range l.table {
			if !now.Before(old.until) {
				delete(l.table, k)
			}
		}
		if len(l.table) >= maxLessons {
			clear(l.table)
		}
	}
	if l.table == nil {
		l.table = make(map[lessonKey]lesson)
	}
	l.any.Store(true)
	v.until = now.Add(lessonFor)
	l.table[key] = v
}

func (l *lessons) forget(key lessonKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.table, key)
}
