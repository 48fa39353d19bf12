package proxy

import (
	"math"
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
	used    uint64 // the time of its last use, as lessons.uses counts it
}

// lessonKey identifies a lesson: see outgoing.lessonKey.
type lessonKey struct {
	tenant string
	rest   [16]byte
}

const (
	// maxLessons bounds the table, which callers can fill: a key has the model that they name.
	maxLessons = 4096
	// lessonFor is how long a lesson is valid: models and upstreams change.
	lessonFor = time.Hour
)

// lessons is the table of what refusals have shown. When it is full, the tenant that has the most lessons loses the one that it has
// not used for the longest time: a single tenant may fill the table, but takes nothing from those with fewer. It is safe for
// concurrent use.
type lessons struct {
	mu    sync.Mutex
	table map[lessonKey]*lesson
	uses  uint64
	any   atomic.Bool // something was ever learnt
}

// none reports whether the table was never written to. Then requests need not compute keys.
func (l *lessons) none() bool { return !l.any.Load() }

// get returns a lesson, the zero value if there is none or it has expired.
func (l *lessons) get(key lessonKey, now time.Time) lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known := l.valid(key, now); known != nil {
		return *known
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
	if l.valid(key, now) != nil {
		return false
	}
	l.put(key, lesson{}, now)
	return true
}

// valid returns a lesson that is used now, nil if there is none or it has expired. The caller holds mu.
func (l *lessons) valid(key lessonKey, now time.Time) *lesson {
	known := l.table[key]
	if known == nil || !now.Before(known.until) {
		return nil
	}
	l.uses++
	known.used = l.uses
	return known
}

// put writes a lesson. The caller holds mu.
func (l *lessons) put(key lessonKey, v lesson, now time.Time) {
	if l.table[key] == nil && len(l.table) >= maxLessons {
		l.makeRoom(now)
	}
	if l.table == nil {
		l.table = make(map[lessonKey]*lesson)
	}
	l.any.Store(true)
	l.uses++
	v.until, v.used = now.Add(lessonFor), l.uses
	l.table[key] = &v
}

// makeRoom drops what has expired, or else a lesson of the tenant that has the most. It looks at the whole table, which takes less
// time than the request that was refused. The caller holds mu.
func (l *lessons) makeRoom(now time.Time) {
	counts := make(map[string]int)
	most := ""
	for key, known := range l.table {
		if !now.Before(known.until) {
			delete(l.table, key)
			continue
		}
		if counts[key.tenant]++; counts[key.tenant] > counts[most] {
			most = key.tenant
		}
	}
	if len(l.table) < maxLessons {
		return
	}

	var oldest lessonKey
	least := uint64(math.MaxUint64)
	for key, known := range l.table {
		if key.tenant == most && known.used < least {
			oldest, least = key, known.used
		}
	}
	delete(l.table, oldest)
}

func (l *lessons) forget(key lessonKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.table, key)
}
