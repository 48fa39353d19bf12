package proxy

import (
	"sync"
	"sync/atomic"
	"time"

	"remora/memory/view"
)

// lesson is what refusals have shown about one key. Only the fields that belong to the key are set.
type lesson struct {
	shape   view.Shape   // the change that helped
	tokens  int          // of a request that upstream takes at most
	tried   []view.Shape // corrective tries that did not help, each once; never modified
	further bool         // the last of them met another refusal
	until   time.Time
}

// lessonKey identifies a lesson: see outgoing.lessonKey.
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
