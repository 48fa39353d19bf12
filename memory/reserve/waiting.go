package reserve

import (
	"sync"

	"remora/cache"
)

// Waiting tells for which groups a Spool holds records. Those of an earlier process, which come before all others, may be
// anybody's, so they count for all groups. Nil is for no spool, in which nothing waits.
type Waiting struct {
	spool *Spool

	mu      sync.Mutex
	own     map[cache.Group]int // records that this process put there, and their number
	all     int
	earlier int          // records of an earlier process, at most
	adding  int          // records that are counted, but may not be in the spool yet
	refused *cache.Group // whose the last record was, if it is of this process and about to be set aside
}

// Count begins to count what is put into the spool, through Append only, and taken from it.
func Count(spool *Spool) *Waiting {
	n, _ := spool.Len()
	return &Waiting{spool: spool, own: make(map[cache.Group]int), earlier: n}
}

// Append puts a record of a group at the end of the spool. It is counted before anybody can see it there.
func (w *Waiting) Append(group cache.Group, rec []byte) error {
	w.mu.Lock()
	w.adding++
	w.own[group]++
	w.all++
	w.mu.Unlock()
	err := w.spool.Append(rec)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.adding--
	if err != nil {
		w.uncount(group)
	}
	return err
}

// Holds tells whether records of the group may wait.
func (w *Waiting) Holds(group cache.Group) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.earlier > 0 || w.own[group] > 0
}

// Done counts the record at the head of the spool, which is about to leave it, as gone.
func (w *Waiting) Done(group cache.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.settle()
	if w.earlier > 0 {
		w.earlier--
		return
	}
	w.uncount(group)
}

// Refused says of the record at the head of the spool that it is to be set aside. It counts as gone when the next one is
// handed over, see Next, or the drain has ended well.
func (w *Waiting) Refused(group cache.Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settle(); w.earlier == 0 {
		w.refused = &group
	}
}

// Next says that a record was handed over: the one before it has left the spool.
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
	w.settle()
	if n, _ := w.spool.Len(); n == 0 && w.adding == 0 {
		// A record that could not even be decoded was counted for a group that nobody knows.
		clear(w.own)
		w.all, w.earlier = 0, 0
	}
}

// settle takes away what of an earlier process was set aside before anybody here saw it. The caller holds the lock.
func (w *Waiting) settle() {
	n, _ := w.spool.Len()
	w.earlier = min(w.earlier, max(0, n-w.all+w.adding))
}

// uncount takes a record of the group away. The caller holds the lock.
func (w *Waiting) uncount(group cache.Group) {
	if w.own[group] == 0 {
		return
	}
	w.all--
	if w.own[group]--; w.own[group] == 0 {
		delete(w.own, group)
	}
}
