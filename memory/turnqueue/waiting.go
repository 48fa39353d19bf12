package turnqueue

import (
	"slices"
	"sync"

	"remora/cache"
)

// Record identifies a record of a Queue: its group, its name, and when its turn began, in any unit.
type Record struct {
	Group cache.Group
	Name  string
	Began uint64
}

// Waiting tracks the groups that have records in a Queue, and the order in which a group's records came, which may
// differ from their present order. A nil Waiting is for no queue and is always empty.
type Waiting struct {
	queue *Queue

	mu      sync.Mutex
	records map[cache.Group][]Record // as they came
	adding  int                      // records that are counted, but may not be in the queue yet
	refused *Record                  // the last record, if it is about to be quarantined
}

// NewWaiting counts the records put into the queue, through Append and Found only, and taken from it.
func NewWaiting(queue *Queue) *Waiting {
	return &Waiting{queue: queue, records: make(map[cache.Group][]Record)}
}

// Append puts a record at the end of the queue. It is counted before anyone can see it there.
func (w *Waiting) Append(r Record, data []byte) error {
	w.mu.Lock()
	w.records[r.Group] = append(w.records[r.Group], r)
	w.mu.Unlock()
	err := w.put(data)
	if err != nil {
		w.Done(r)
	}
	return err
}

// MoveBack puts the record at the head of the queue, which is about to leave it, at the end. It counts as before.
func (w *Waiting) MoveBack(data []byte) error { return w.put(data) }

func (w *Waiting) put(data []byte) error {
	w.mu.Lock()
	w.adding++
	w.mu.Unlock()
	err := w.queue.Append(data)
	w.mu.Lock()
	w.adding--
	w.mu.Unlock()
	return err
}

// Found counts a record that another process has left in the queue, before records that began later: that process may
// have moved it.
func (w *Waiting) Found(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	records := w.records[r.Group]
	at := slices.IndexFunc(records, func(o Record) bool { return o.Began > r.Began })
	if at < 0 {
		at = len(records)
	}
	w.records[r.Group] = slices.Insert(records, at, r)
}

// First is the record of the group that came first, with no name for none.
func (w *Waiting) First(group cache.Group) Record {
	w.mu.Lock()
	defer w.mu.Unlock()
	if records := w.records[group]; len(records) > 0 {
		return records[0]
	}
	return Record{}
}

// Holds reports whether records of the group may wait.
func (w *Waiting) Holds(group cache.Group) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.records[group]) > 0
}

// Has reports whether a record of the group with a name waits.
func (w *Waiting) Has(group cache.Group, name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.records[group], func(r Record) bool { return r.Name == name })
}

// Any reports whether a record of a group for which f holds may wait.
func (w *Waiting) Any(f func(cache.Group) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for g := range w.records {
		if f(g) {
			return true
		}
	}
	return false
}

// Done counts the record at the head of the queue, which is about to leave it, as gone.
func (w *Waiting) Done(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uncount(r)
}

// Refused says of the record at the head of the queue that it is to be quarantined. It counts as gone when the next one is
// handed over, see Next, or the drain has ended well.
func (w *Waiting) Refused(r Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused = &r
}

// Next says that a record was handed over: the one before it has left the queue.
func (w *Waiting) Next() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next()
}

func (w *Waiting) next() {
	if w.refused != nil {
		w.uncount(*w.refused)
	}
	w.refused = nil
}

// Drained says that a drain has ended, with err.
func (w *Waiting) Drained(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		w.next()
	}
	w.refused = nil
	if n, _ := w.queue.Len(); n == 0 && w.adding == 0 {
		clear(w.records) // a record that was damaged after it was counted was quarantined, of a group that is not known
	}
}

// uncount takes a record away. The caller holds the lock.
func (w *Waiting) uncount(r Record) {
	records := w.records[r.Group]
	at := slices.IndexFunc(records, func(o Record) bool { return o.Name == r.Name })
	if at < 0 {
		return
	}
	if w.records[r.Group] = slices.Delete(records, at, at+1); len(records) == 1 {
		delete(w.records, r.Group)
	}
}
