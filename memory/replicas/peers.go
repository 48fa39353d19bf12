package replicas

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/session"
	"remora/memory/turnrecord"
)

// Peers are the other processes that share a store, as far as they are known by their heartbeats. Open turns of one that has
// ended are not waited for. The heartbeat of a process that was killed stays in the store for a while: one that this process finds
// at its start, and that may have been its predecessor, counts as alive once it has spoken again, any other until it has been
// silent for silentPolls, or for replacedPolls if another speaks in its place.
type Peers struct {
	o         Options
	heartbeat *Heartbeat

	mu        sync.Mutex
	others    map[uint64]*peer
	polled    bool           // the others were looked for
	board     board          // is read
	newest    [boards]uint64 // the last known version of the group starts
	listed    [boards]uint64 // that before the others were looked for; if it is another one, a process has begun since
	recovered time.Time      // when this process's heartbeats succeeded again
	counted   time.Time      // the last poll that counts in peer.same

	kick chan struct{} // looks for others at once
}

// peer is one of them, as it was seen last.
type peer struct {
	version [boards]uint64    // of what it has announced, as far as it was read
	heard   int               // how often it has said something, up to heardAfter
	other   bool              // it is not this process's predecessor: it appeared later, or runs elsewhere
	place   uint64            // where it runs, 0 if that is unknown
	ended   bool              // another process has taken its place
	same    int               // polls in a row, a beat apart, that have found nothing new
	news    int               // as heard, since the store was back
	all     bool              // it holds turns of more sessions than it names
	holds   map[uint64]uint64 // by session, when the earliest of those turns began, in milliseconds
}

const (
	// silentPolls is the number of polls without news after which a process may be cut off from the store.
	silentPolls = 3
	// replacedPolls is the number of polls without news after which a process has ended if another one speaks in its place.
	replacedPolls = 2
	// heardAfter is the number of heartbeats after which a process that was there first counts as alive, and after an outage the
	// announcements of any as current: the first one may be old.
	heardAfter = 2
	// maxProcesses is the maximum number of processes that are read.
	maxProcesses = 64
)

// Run looks for the other processes each second, and at once after one has begun, until ctx ends. Begin has done so before.
func (p *Peers) Run(ctx context.Context) { EachBeat(ctx, p.kick, p.poll, p.poll) }

// poll looks for the other processes.
func (p *Peers) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*Beat)
	defer cancel()
	b := p.reads()
	err := p.pollOn(ctx, b)
	if cache.IsForeign(err) {
		p.heartbeat.startAgain(b)
	}
	if err != nil && p.leave(b, err) {
		p.turnTo(b.other())
		err = p.pollOn(ctx, b.other())
	}
	if err != nil {
		p.o.Log.Debug("other processes cannot be looked at", "error", err.Error())
	}
}

// reads returns the board that is read.
func (p *Peers) reads() board {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.board
}

// turnTo makes b the board that is read. What it says of processes that have begun may be news.
func (p *Peers) turnTo(b board) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.board = b
	p.pollAgain(b)
}

// leave reports whether what failed on a board may succeed on the other one. If the server of the board has failed, the other one is
// read from now on. If a key has, it may be another one than the board's: the next poll finds out.
func (p *Peers) leave(b board, err error) bool {
	switch fault, shards := cache.FaultOf(err); fault {
	case cache.FaultShard, cache.FaultTimeout:
		if !slices.Contains(shards, p.o.Store.Shard(b.starts())) {
			return false
		}
		p.turnTo(b.other())
		return true
	case cache.FaultKey:
		return true
	default:
		return false
	}
}

// pollOn looks for the other processes on a board.
func (p *Peers) pollOn(ctx context.Context, b board) error {
	p.mu.Lock()
	newest := p.newest[b]
	p.mu.Unlock()
	found := make(map[uint64]bool)
	for after := ""; ; {
		names, next, err := p.o.Store.List(ctx, b.owner(), after, maxProcesses)
		if err != nil {
			return err //nolint:wrapcheck // only leave and the log see it
		}
		for _, name := range names {
			id, err := strconv.ParseUint(name, 16, 64)
			if err == nil && id != p.heartbeat.self && len(found) < maxProcesses {
				found[id] = true
			}
		}
		if after = next; next == "" {
			break
		}
	}
	p.mu.Lock()
	if !p.unsettled() {
		maps.DeleteFunc(p.others, func(id uint64, _ *peer) bool { return !found[id] })
	}
	p.mu.Unlock()
	q := inquiryOf(b, slices.Collect(maps.Keys(found)))
	results, err := p.o.Store.Read(ctx, q.Queries)
	if err != nil {
		return err //nolint:wrapcheck // only leave and the log see it
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.o.Now()
	counts := now.Sub(p.counted) > Beat/2 // polls that were asked for may follow each other at once
	if counts {
		p.counted = now
	}
	p.update(q, results, counts)
	p.polled, p.listed[b] = true, newest
	p.pollAgain(b)
	return nil
}

// noteOwnStart records the version of the group starts that this process has written. It looks for others next.
func (p *Peers) noteOwnStart(b board, version uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest[b] = version
}

// pollAgain looks for the others at once if one has begun since. The caller holds the lock.
func (p *Peers) pollAgain(b board) {
	if p.newest[b] == p.listed[b] {
		return
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// read reads the groups of other processes, and returns those that have ended, or may have ended before this one knew
// of them.
func (p *Peers) read(ctx context.Context, ids []uint64) (ended []uint64, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	q := inquiryOf(p.reads(), ids)
	results, err := p.o.Store.Read(ctx, q.Queries)
	if err != nil {
		var ok bool
		if q, ok = p.Instead(q, err); ok {
			results, err = p.o.Store.Read(ctx, q.Queries)
		}
	}
	if err != nil {
		return nil, err //nolint:wrapcheck // of the store
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.update(q, results, false), nil
}

// update records what an inquiry has found, and returns the processes that have ended, or may have. counts: no news for a process
// means that it was silent for a beat. The caller holds the lock.
func (p *Peers) update(q Inquiry, results []cache.Result, counts bool) (ended []uint64) {
	if begun := results[0].Version; begun != 0 && begun != p.newest[q.board] {
		p.newest[q.board] = begun
		p.pollAgain(q.board)
	}
	for i, r := range results[1:] {
		id, value := q.ids[i], r.Values[0]
		if r.Version == 0 || len(value) == 0 {
			if !p.unsettled() {
				delete(p.others, id)
				ended = append(ended, id)
			}
			continue
		}
		o := p.others[id]
		if o == nil {
			place := placeOf(value)
			o = &peer{place: place, other: p.polled || p.heartbeat.isElsewhere(place)}
			p.others[id] = o
		}
		before := o.version[q.board]
		o.version[q.board] = r.Version
		switch {
		case before == 0 && o.heard > 0: // on the other board
		case before != r.Version:
			o.same, o.heard, o.news = 0, min(o.heard+1, heardAfter), min(o.news+1, heardAfter)
		case counts:
			o.same++
		}
		o.ended = o.same >= replacedPolls && p.hasSuccessor(o)
		if !o.lives() {
			ended = append(ended, id) // one that is restarted must not wait for answers that its predecessor had under way
		}
		o.all, o.holds = value[0] == 1, make(map[uint64]uint64, len(value)/16)
		for at := 1; at+16 <= len(value); at += 16 {
			o.holds[binary.BigEndian.Uint64(value[at:])] = binary.BigEndian.Uint64(value[at+8:])
		}
	}
	return ended
}

// hasSuccessor reports whether a process that is silent has another one in its place that is not. The caller holds the lock.
func (p *Peers) hasSuccessor(o *peer) bool {
	for _, s := range p.others {
		if o.place != 0 && s != o && s.place == o.place && s.same == 0 && s.heard >= heardAfter {
			return true
		}
	}
	return false
}

// Inquiry asks other processes, by one board, which turns they hold. Its queries are for [session.Want].First.
type Inquiry struct {
	Queries []cache.Query
	board   board
	ids     []uint64
}

// inquiryOf asks for processes, and first whether others have begun.
func inquiryOf(b board, ids []uint64) Inquiry {
	queries := make([]cache.Query, 1, 1+len(ids))
	queries[0] = cache.Query{Group: b.starts()}
	for _, id := range ids {
		queries = append(queries, cache.Query{Group: b.process(id), Names: []string{processName}})
	}
	return Inquiry{queries, b, ids}
}

// Inquire returns an inquiry of the processes that were seen last. It has no queries if the store cannot be shared.
func (p *Peers) Inquire() Inquiry {
	if p.heartbeat.self == 0 {
		return Inquiry{}
	}
	return inquiryOf(p.reads(), p.ids())
}

// Instead returns the inquiry to make after one whose read has failed. ok is false if it would fail, too.
func (p *Peers) Instead(q Inquiry, err error) (other Inquiry, ok bool) {
	if len(q.Queries) == 0 || !p.leave(q.board, err) {
		return q, false
	}
	return inquiryOf(q.board.other(), q.ids), true
}

// MayHold takes the results of an inquiry and reports whether others may hold turns of a session.
func (p *Peers) MayHold(g cache.Group, q Inquiry, results []cache.Result) bool {
	if len(results) == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.update(q, results, false)
	return p.mayBeCutOff() || p.held(sessionKey(g)).some()
}

// Any reports whether there are other processes, as far as is known.
func (p *Peers) Any() bool {
	if p.heartbeat.self == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.polled || len(p.others) > 0
}

// ids are the processes that were seen last.
func (p *Peers) ids() []uint64 {
	if p.heartbeat.self == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.others))
}

// unsettled reports whether the store was down so recently that not all others have announced their turns. The caller holds the
// lock.
func (p *Peers) unsettled() bool {
	if p.heartbeat.isCutOff() {
		return true
	}
	if p.recovered.IsZero() || p.o.Now().After(p.recovered.Add(processTTL)) {
		return false
	}
	for _, o := range p.others {
		if o.news < heardAfter && (o.lives() || o.same < silentPolls) {
			return true
		}
	}
	return false
}

// storeIsBack records that heartbeats of this process succeed again.
func (p *Peers) storeIsBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recovered = p.o.Now()
	for _, o := range p.others {
		o.news, o.same = 0, 0
	}
}

// forget removes a dead process whose turns this one has taken over.
func (p *Peers) forget(id uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.others, id)
}

// AreCutOff reports whether this process, or maybe another one, is cut off from the store: no moment later will tell what it holds.
func (p *Peers) AreCutOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.heartbeat.isCutOff() || p.mayBeCutOff()
}

// mayBeCutOff reports whether another process may be cut off from the store. The caller holds the lock.
func (p *Peers) mayBeCutOff() bool {
	for _, o := range p.others {
		if o.lives() && o.same >= silentPolls {
			return true
		}
	}
	return false
}

// lives reports whether the process may be alive, and not only its remains in the store.
func (o *peer) lives() bool {
	return !o.ended && (o.heard >= heardAfter || o.other && o.same < silentPolls)
}

// AreUnknown reports whether others may not have announced their turns yet, so that turns of the spool must wait.
func (p *Peers) AreUnknown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.areUnknown()
}

// AreOutOfReach reports whether others are unknown for as long as this process cannot announce its own turns.
func (p *Peers) AreOutOfReach() bool { return p.heartbeat.isCutOff() && p.AreUnknown() }

// areUnknown is AreUnknown for a caller that holds the lock.
func (p *Peers) areUnknown() bool {
	return p.heartbeat.self != 0 && (!p.polled || p.newest[p.board] != p.listed[p.board] || len(p.others) > 0 && p.unsettled())
}

// Look reads what the other processes hold, for MayHoldEarlier.
func (p *Peers) Look(ctx context.Context) error {
	_, err := p.read(ctx, p.ids())
	return err
}

// MayHoldEarlier reports whether another process, when this one looked last, held a turn of a session that began before one and is
// not stored.
func (p *Peers) MayHoldEarlier(g cache.Group, turn string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held(sessionKey(g)).Before(turn)
}

// MayHoldAny reports whether another process holds a turn of a session that is not stored.
func (p *Peers) MayHoldAny(ctx context.Context, g cache.Group) bool {
	if p.Look(ctx) != nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held(sessionKey(g)).some()
}

// Holding is which turns of a session processes hold that are not stored.
type Holding struct {
	any   bool   // there may be unknown ones
	first uint64 // the beginning of the earliest, 0 for none
}

// some reports whether a turn is held.
func (h Holding) some() bool { return h.any || h.first != 0 }

// Before reports whether a turn is held that began before another.
func (h Holding) Before(turn string) bool {
	began := turnrecord.BeganAt(turn)
	return h.any || h.first != 0 && h.first < began
}

// and adds a turn that began at a time, 0 for none.
func (h *Holding) and(began uint64) {
	if began != 0 && (h.first == 0 || began < h.first) {
		h.first = began
	}
}

// held returns the others' unstored turns of a session, as last read. The caller holds the lock.
func (p *Peers) held(key uint64) (h Holding) {
	h.any = p.areUnknown()
	for _, o := range p.others {
		if o.ended {
			continue // its successor has what was on its disk
		}
		h.any = h.any || o.all
		h.and(o.holds[key])
	}
	return h
}

// Holding reads the others' unstored turns of a session, and adds those of this process.
func (p *Peers) Holding(ctx context.Context, g cache.Group) (h Holding, err error) {
	if err := p.Look(ctx); err != nil {
		return h, err
	}
	p.mu.Lock()
	h = p.held(sessionKey(g))
	p.mu.Unlock()
	h.and(p.heartbeat.firstHeld(g))
	return h, nil
}

// MayHaveMore reports whether open turns of other processes belong before an entry. It lets the entry know which processes have
// ended.
func (p *Peers) MayHaveMore(ctx context.Context, e *session.Entry) bool {
	ended, err := p.Ended(ctx, e.Order.Earlier())
	if err != nil {
		return true
	}
	e.Order.Ended(ended...)
	return slices.ContainsFunc(e.Order.Earlier(), func(o session.Pending) bool { return !o.Parked })
}

// Ended reads which of the processes have ended, or may have, that had turns open.
func (p *Peers) Ended(ctx context.Context, turns []session.Pending) ([]uint64, error) {
	var owners []uint64
	for _, t := range turns {
		if !t.Parked && t.Owner != p.heartbeat.self && !slices.Contains(owners, t.Owner) {
			owners = append(owners, t.Owner)
		}
	}
	return p.read(ctx, owners)
}
