package proxy

import (
	"container/list"
	"sync"
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
	mu      sync.Mutex
	table   map[lessonKey]*list.Element // in the list of its tenant
	tenants map[string]*list.List       // of learnt, what was used last first; none is empty
}

type learnt struct {
	key    lessonKey
	lesson lesson
}

// none reports whether nothing is known about requests of a tenant: as mostly. Then these need not compute keys.
func (l *lessons) none(tenant string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tenants[tenant] == nil
}

// get returns a lesson, the zero value if there is none or it has expired.
func (l *lessons) get(key lessonKey, now time.Time) lesson {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, _ := l.find(key, now)
	return known
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
	if _, known := l.find(key, now); known {
		return false
	}
	l.put(key, lesson{}, now)
	return true
}

func (l *lessons) forget(key lessonKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop(key)
}

// find returns a lesson, which counts as used, false if there is none or it has expired. The caller holds mu.
func (l *lessons) find(key lessonKey, now time.Time) (lesson, bool) {
	e := l.table[key]
	if e == nil {
		return lesson{}, false
	}
	known, _ := e.Value.(learnt)
	if !now.Before(known.lesson.until) {
		l.drop(key)
		return lesson{}, false
	}
	l.tenants[key.tenant].MoveToFront(e)
	return known.lesson, true
}

// put writes a lesson. The caller holds mu.
func (l *lessons) put(key lessonKey, v lesson, now time.Time) {
	l.drop(key)
	if len(l.table) >= maxLessons {
		l.dropOldest()
	}
	if l.table == nil {
		l.table, l.tenants = make(map[lessonKey]*list.Element), make(map[string]*list.List)
	}
	if l.tenants[key.tenant] == nil {
		l.tenants[key.tenant] = list.New()
	}
	v.until = now.Add(lessonFor)
	l.table[key] = l.tenants[key.tenant].PushFront(learnt{key, v})
}

// dropOldest drops a lesson of the tenant that has the most. The caller holds mu.
func (l *lessons) dropOldest() {
	var most *list.List
	for _, of := range l.tenants {
		if most == nil || of.Len() > most.Len() {
			most = of
		}
	}
	oldest, _ := most.Back().Value.(learnt)
	l.drop(oldest.key)
}

// drop drops a lesson, if there is one. The caller holds mu.
func (l *lessons) drop(key lessonKey) {
	e := l.table[key]
	if e == nil {
		return
	}
	delete(l.table, key)
	of := l.tenants[key.tenant]
	if of.Remove(e); of.Len() == 0 {
		delete(l.tenants, key.tenant)
	}
}
