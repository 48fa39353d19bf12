// Package lru implements a bounded cache that drops the least recently used values. Values do not expire by time, and are
// not shared between processes.
package lru

import "sync"

// Cache is an LRU cache, bounded by a number of values and, if Resize is called, by bytes. The bounds are arguments of
// the calls that may pass them, so that the zero Cache is ready for use. It is safe for concurrent use, and must not be
// copied after first use.
//
// The entries are in one slice and refer to each other by index, so that the garbage collector has nothing to follow if
// keys and values hold no pointers: the content hashes of items are more than 100,000.
type Cache[K comparable, V any] struct {
	mu      sync.Mutex
	byKey   map[K]int
	entries []entry[K, V] // a ring: the next of entries[0] was used last, its prev longest ago
	free    int           // the first of the entries not in use, which are chained by next; 0 if there is none
	bytes   int           // of all values, as far as Resize has said
}

type entry[K comparable, V any] struct {
	next, prev int
	bytes      int
	key        K
	value      V
}

// Find returns the value of key, false if there is none or it was dropped.
func (m *Cache[K, V]) Find(key K) (V, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.byKey[key]
	if !ok {
		var none V
		return none, false
	}
	m.use(i)
	return m.entries[i].value, true
}

// FindOrPut returns the value of key; without one, it puts fresh and returns that. most is as for Put.
func (m *Cache[K, V]) FindOrPut(key K, fresh V, most int) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.byKey[key]; ok {
		m.use(i)
		return m.entries[i].value
	}
	m.put(key, fresh, most)
	return fresh
}

// Put sets the value of key, which counts for no bytes until Resize. The cache then holds at most that many values, and
// always this one.
func (m *Cache[K, V]) Put(key K, v V, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(key, v, most)
}

// Resize sets the size in bytes of key's value, unless it was dropped, and drops others until all values together take
// at most that many. The value of key stays at any size.
func (m *Cache[K, V]) Resize(key K, bytes, most int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.byKey[key]
	if !ok {
		return
	}
	m.bytes += bytes - m.entries[i].bytes
	m.entries[i].bytes = bytes
	m.use(i)
	for m.bytes > most && m.entries[0].prev != i {
		m.drop(m.entries[0].prev)
	}
}

// Drop removes the value of key, if there is one.
func (m *Cache[K, V]) Drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i, ok := m.byKey[key]; ok {
		m.drop(i)
	}
}

func (m *Cache[K, V]) put(key K, v V, most int) {
	if m.byKey == nil {
		m.byKey = make(map[K]int)
		m.entries = make([]entry[K, V], 1)
	}

	if i, ok := m.byKey[key]; ok {
		m.drop(i)
	}
	for len(m.byKey) >= max(most, 1) {
		m.drop(m.entries[0].prev)
	}

	i := m.free
	if i == 0 {
		i = len(m.entries)
		m.entries = append(m.entries, entry[K, V]{})
	}
	m.free = m.entries[i].next
	m.entries[i] = entry[K, V]{key: key, value: v}
	m.byKey[key] = i
	m.link(i)
}

// use makes i the entry used last.
func (m *Cache[K, V]) use(i int) {
	if m.entries[0].next != i {
		m.unlink(i)
		m.link(i)
	}
}

func (m *Cache[K, V]) link(i int) {
	next := m.entries[0].next
	m.entries[i].prev, m.entries[i].next = 0, next
	m.entries[0].next, m.entries[next].prev = i, i
}

func (m *Cache[K, V]) unlink(i int) {
	prev, next := m.entries[i].prev, m.entries[i].next
	m.entries[prev].next, m.entries[next].prev = next, prev
}

func (m *Cache[K, V]) drop(i int) {
	m.unlink(i)
	delete(m.byKey, m.entries[i].key)
	m.bytes -= m.entries[i].bytes
	m.entries[i] = entry[K, V]{next: m.free}
	m.free = i
}
