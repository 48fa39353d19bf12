package pipeline

import (
	"container/list"
	"sync"
)

// lru keeps the values used last, within a number and a size. It is safe for concurrent use.
type lru[K comparable, V any] struct {
	mu       sync.Mutex
	byKey    map[K]*list.Element
	order    *list.List // of *entry[K, V], the newest use first
	size     int
	maxCount int
	maxSize  int
}

type entry[K comparable, V any] struct {
	key   K
	value V
	size  int
}

// entrySize is what an entry costs beside its value, in bytes, roughly.
const entrySize = 256

func newLRU[K comparable, V any](maxCount, maxSize int) *lru[K, V] {
	return &lru[K, V]{byKey: make(map[K]*list.Element), order: list.New(), maxCount: maxCount, maxSize: maxSize}
}

func (l *lru[K, V]) get(key K) (V, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	el, ok := l.byKey[key]
	if !ok {
		var none V
		return none, false
	}
	l.order.MoveToFront(el)
	return el.Value.(*entry[K, V]).value, true
}

// getOrPut returns the value of key, which becomes fresh if there is none.
func (l *lru[K, V]) getOrPut(key K, fresh V) V {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[key]; ok {
		l.order.MoveToFront(el)
		return el.Value.(*entry[K, V]).value
	}
	l.add(key, fresh, entrySize)
	return fresh
}

// put replaces the value of key. size is in bytes.
func (l *lru[K, V]) put(key K, value V, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[key]; ok {
		l.drop(el)
	}
	l.add(key, value, entrySize+size)
}

// resize says how large a value has become, if it is still kept.
func (l *lru[K, V]) resize(key K, size int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[key]; ok {
		e := el.Value.(*entry[K, V])
		l.size += entrySize + size - e.size
		e.size = entrySize + size
		l.order.MoveToFront(el)
		l.trim()
	}
}

func (l *lru[K, V]) remove(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if el, ok := l.byKey[key]; ok {
		l.drop(el)
	}
}

func (l *lru[K, V]) add(key K, value V, size int) {
	l.byKey[key] = l.order.PushFront(&entry[K, V]{key, value, size})
	l.size += size
	l.trim()
}

func (l *lru[K, V]) trim() {
	for l.order.Len() > l.maxCount || l.size > l.maxSize && l.order.Len() > 1 {
		l.drop(l.order.Back())
	}
}

func (l *lru[K, V]) drop(el *list.Element) {
	e := l.order.Remove(el).(*entry[K, V])
	l.size -= e.size
	delete(l.byKey, e.key)
}
