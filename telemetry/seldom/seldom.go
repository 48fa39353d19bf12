// Package seldom keeps lines that could fill the log to one in a while.
package seldom

import (
	"sync"
	"time"
)

// Lines limits lines of the log, by kind. The zero value has logged none. Callers have few kinds: none is ever forgotten.
type Lines struct {
	mu    sync.Mutex
	kinds map[string]kind // guarded by mu
}

// kind is one kind of line: when it was logged last, and how often it was not since.
type kind struct {
	last     time.Time
	unlogged int
}

// Due reports whether a line of a kind may be logged again, and how many were not since the last.
func (l *Lines) Due(name string, now time.Time, every time.Duration) (unlogged int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k, logged := l.kinds[name]
	if logged && now.Sub(k.last) < every {
		k.unlogged++
		l.kinds[name] = k
		return 0, false
	}
	if l.kinds == nil {
		l.kinds = make(map[string]kind)
	}
	l.kinds[name] = kind{last: now}
	return k.unlogged, true
}
