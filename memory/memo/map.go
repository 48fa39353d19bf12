// Package memo remembers what a process has seen or worked out before, so that it need not be read or worked out
// again. All of it is bounded, and may be forgotten at any time.
package memo

import "sync"

// Map is a map that forgets: what was not asked for since its younger half began goes when that is full. The zero Map
// is empty. It is safe for concurrent use, and must not be copied after its first.
type Map[K comparable, V any] struct {
	mu         sync.Mutex
	young, old map[K]V
}

// Find returns what was remembered of key last, false if that is nothing or forgotten.
func (m *Map[K, V]) Find(key K) (v V, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok = m.young[key]; ok {
		return v, true
	}
	if v, ok = m.old[key]; ok {
		m.young[key] = v // one or a few more than its size
		delete(m.old, key)
	}
	return v, ok
}

// Put remembers v; size is how many values a half holds.
func (m *Map[K, V]) Put(key K, v V, size int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.young) >= size || m.young == nil {
		m.old, m.young = m.young, make(map[K]V)
	}
	m.young[key] = v
}

// Drop forgets key.
func (m *Map[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.young, key)
	delete(m.old, key)
}
