// Package replicas tracks the processes that share a store. Each one announces by its [Heartbeat] that it lives, and the
// sessions for which it has turns that the others cannot see. [Peers] is its knowledge of the others. So turns wait for open
// turns of live processes, but not for those of dead ones.
package replicas

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/turnqueue"
	"remora/memory/turnrecord"
)

// Options configure the two.
type Options struct {
	Store cache.Store
	// Shared: other processes use the store. Otherwise nothing is written or read.
	Shared bool
	// Place is where this process runs; empty is unknown.
	Place string
	// Waiting are the turns that this process keeps on disk, nil for none.
	Waiting *turnqueue.Queue
	Log     *slog.Logger
	Now     func() time.Time
}

// New returns the heartbeat of this process, which Run begins, and its peers.
func New(o Options) (*Heartbeat, *Peers) {
	h := &Heartbeat{
		o: o, spoke: make(chan struct{}),
		turns: make(map[cache.Group]map[string]bool), adopted: make(map[uint64]time.Time),
	}
	for b := range h.posts {
		h.posts[b].kick = make(chan struct{}, 1)
	}
	if o.Shared {
		h.self = rand.Uint64() | 1 //nolint:gosec // unique, not secret
	}
	if o.Place != "" {
		sum := sha256.Sum256([]byte(o.Place))
		h.place = binary.BigEndian.Uint64(sum[:8])
	}
	h.peers = &Peers{o: o, heartbeat: h, others: make(map[uint64]*peer), kick: make(chan struct{}, 1)}
	return h, h.peers
}

// Heartbeat announces to the other processes that share a store that this one lives, and for which sessions it has turns that
// they cannot see. It writes a group of its own on each board.
type Heartbeat struct {
	o     Options
	peers *Peers
	self  uint64 // see Self
	place uint64 // Options.Place, hashed; 0 is unknown

	mu    sync.Mutex
	posts [boards]post
	clock cache.Clock
	// turns are turns that the others may not see, by session and id: true for running turns that began without the store,
	// false for those in the spool.
	turns   map[cache.Group]map[string]bool
	adopted map[uint64]time.Time // dead processes whose turns on disk this one has taken over; see removeAdopted
	spoke   chan struct{}        // closed and replaced after each beat
}

// post is the state of the announcements on one board.
type post struct {
	kick    chan struct{} // beats at once
	begun   bool          // see announceStart
	failing bool          // the last beat failed
	beats   uint64        // the number of begun beats
	said    uint64        // the last beat that succeeded
	version uint64        // of what it has written
}

// Beat is the interval of heartbeats.
const Beat = time.Second

// board is a place of the store where processes announce themselves. There are two, on different servers of a cluster: every process
// writes both and reads one of them, the other one if it fails. So the loss of a server concerns only the sessions that it holds.
type board int

const (
	boards = 2

	processName = "s"
	// processTTL is how long a process is taken to live after it has said so.
	processTTL = 15 * time.Second
	// leftTTL is how long the note is kept that a dead process has left turns on its disk.
	leftTTL = time.Minute
	// maxHeld is the number of sessions that a heartbeat lists.
	maxHeld = 1024
)

// Self names this process; it is 0 where no other one uses the store.
func (h *Heartbeat) Self() uint64 { return h.self }

// owner owns the groups of a board.
func (b board) owner() string {
	return [boards]string{cache.LowHalf + "processes", cache.HighHalf + "processes"}[b]
}

// process is the group of a process.
func (b board) process(id uint64) cache.Group {
	return cache.Group{Owner: b.owner(), Name: strconv.FormatUint(id, 16)}
}

// starts is written by each process that begins. It expires when all others have long looked for it.
func (b board) starts() cache.Group { return cache.Group{Owner: b.owner(), Name: "starts"} }

// other is the board to read if this one fails.
func (b board) other() board { return 1 - b }

// sessionKey is the key of a session in a heartbeat.
func sessionKey(g cache.Group) uint64 {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(g.Owner)) + ":" + g.Owner + g.Name))
	return binary.BigEndian.Uint64(sum[:8])
}

// Begin announces the process and looks for the others. Call it before the process serves its first request: the others would
// take an open turn of an unknown process for one that was left behind, and this one could not ask them what they hold. It gives up
// after a Beat, and Run tries again. Begin, Run and Stop are called only if the store is shared.
func (h *Heartbeat) Begin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, Beat)
	defer cancel()
	onBoards(func(b board) { h.beat(ctx, b) })
	if !h.isCutOff() {
		h.peers.poll(ctx)
	}
}

// Run sends a heartbeat each second, and new turns at once, until ctx ends. One board does not wait for the other: its server may hang.
func (h *Heartbeat) Run(ctx context.Context) {
	onBoards(func(b board) {
		beat := func(ctx context.Context) { h.beat(ctx, b) }
		EachBeat(ctx, h.posts[b].kick, beat, beat)
	})
}

// onBoards calls do for all boards at once, and waits for the calls.
func onBoards(do func(board)) {
	var wg sync.WaitGroup
	for b := range board(boards) {
		wg.Go(func() { do(b) })
	}
	wg.Wait()
}

// EachBeat calls beat each second, and woken when wake says so, until ctx ends.
func EachBeat(ctx context.Context, wake <-chan struct{}, woken, beat func(context.Context)) {
	tick := time.NewTicker(Beat) //nolint:forbidigo // wakes; no clock is read
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
			woken(ctx)
		case <-tick.C:
			beat(ctx)
		}
	}
}

// Stop announces that the process has ended, or that it has left turns on its disk. Run must have returned.
func (h *Heartbeat) Stop(ctx context.Context) {
	if len(h.heldSessions()) > 0 {
		onBoards(func(b board) { h.announce(ctx, b, leftTTL) })
		return
	}
	if err := h.removeProcess(ctx, h.self); err != nil {
		h.o.Log.Debug("process is still listed", "error", err.Error())
	}
}

// removeProcess removes a process from all boards.
func (h *Heartbeat) removeProcess(ctx context.Context, id uint64) error {
	var errs []error
	for b := range board(boards) {
		errs = append(errs, h.o.Store.Delete(ctx, b.process(id)))
	}
	return errors.Join(errs...)
}

// beat writes the process's turns on a board.
func (h *Heartbeat) beat(ctx context.Context, b board) {
	ctx, cancel := context.WithTimeout(ctx, 2*Beat)
	defer cancel()
	h.mu.Lock()
	h.posts[b].beats++
	now := h.posts[b].beats
	h.mu.Unlock()
	ok := h.announce(ctx, b, processTTL) && h.announceStart(ctx, b)
	if ok {
		h.removeAdopted(ctx)
	}
	if ok && h.isCutOff() {
		h.peers.poll(ctx) // others may have begun meanwhile
		h.peers.storeIsBack()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.posts[b]
	if ok {
		p.said = now
	}
	p.failing, p.begun = !ok, ok
	close(h.spoke)
	h.spoke = make(chan struct{})
}

// isCutOff reports whether the last heartbeat failed on all boards.
func (h *Heartbeat) isCutOff() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.posts {
		if !p.failing {
			return false
		}
	}
	return true
}

func (h *Heartbeat) announce(ctx context.Context, b board, ttl time.Duration) bool {
	held := h.heldSessions()
	value := []byte{0}
	if len(held) > maxHeld {
		value[0], held = 1, nil
	}
	for key, began := range held {
		value = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(value, key), began)
	}
	value = binary.BigEndian.AppendUint64(value, h.place)
	sent := h.o.Now()
	version, ok := h.write(ctx, cache.Batch{
		Group: b.process(h.self), Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: processName, Data: value}},
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if ok && b == 0 { // in a cluster, the clocks of its servers differ
		h.clock.Hear(h.posts[b].version, version, sent, h.o.Now())
		h.posts[b].version = version
	}
	return ok
}

// StoreTime returns what the store's clock says at a moment of this process's clock, or that moment where the store has not answered
// yet, or is not shared.
func (h *Heartbeat) StoreTime(now time.Time) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.clock.At(now)
}

// write writes a group of a board. It replaces what another program has put there, since nothing else does.
func (h *Heartbeat) write(ctx context.Context, b cache.Batch) (version uint64, ok bool) {
	out := h.o.Store.Commit(ctx, []cache.Batch{b})[0]
	if cache.IsForeign(out.Err) && h.o.Store.Delete(ctx, b.Group) == nil {
		out = h.o.Store.Commit(ctx, []cache.Batch{b})[0]
	}
	if err := out.Err; err != nil {
		h.o.Log.Debug("other processes are not told of this one", "error", err.Error())
	}
	return out.Version, out.Err == nil
}

// startAgain has the next beat write the group starts of a board, which cannot be read.
func (h *Heartbeat) startAgain(b board) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.posts[b].begun = false
}

// announceStart tells the others on a board, once, that there is a process which they have not seen, or have forgotten since it was cut
// off: they look for others each second, which is too late for its first turns.
func (h *Heartbeat) announceStart(ctx context.Context, b board) bool {
	h.mu.Lock()
	begun := h.posts[b].begun
	h.mu.Unlock()
	if begun {
		return true
	}
	version, ok := h.write(ctx, cache.Batch{
		Group: b.starts(), Expect: cache.AnyVersion, TTL: processTTL, Puts: []cache.Put{{Name: processName, Data: []byte{}}},
	})
	if ok {
		h.peers.noteOwnStart(b, version)
	}
	return ok
}

// placeOf returns where the process of a heartbeat runs, 0 if that is unknown.
func placeOf(value []byte) uint64 {
	at := len(value) - 8
	if at%16 != 1 { // of a version that does not tell its place
		return 0
	}
	return binary.BigEndian.Uint64(value[at:])
}

// isElsewhere reports whether a place is another one than that of this process, as far as both are known.
func (h *Heartbeat) isElsewhere(place uint64) bool {
	return h.place != 0 && place != 0 && place != h.place
}

// BeatNow announces the present turns of this process at once.
func (h *Heartbeat) BeatNow() {
	if h.self == 0 {
		return
	}
	for b := range h.posts {
		select {
		case h.posts[b].kick <- struct{}{}:
		default:
		}
	}
}

// AwaitBeat waits until the others can see the present turns of this process on all boards that do not fail, or until ctx ends.
func (h *Heartbeat) AwaitBeat(ctx context.Context) {
	if !h.peers.Any() {
		return
	}
	var next [boards]uint64
	h.mu.Lock()
	for b, p := range h.posts {
		next[b] = p.beats + 1
	}
	h.mu.Unlock()
	h.BeatNow()
	for {
		h.mu.Lock()
		spoke, done := h.spoke, true
		for b, p := range h.posts {
			done = done && (p.failing || p.said >= next[b])
		}
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-spoke:
		case <-ctx.Done():
			return
		}
	}
}

// AddTurn notes a turn of a session that the others may not see.
func (h *Heartbeat) AddTurn(g cache.Group, turn string, underWay bool) {
	if h.self == 0 {
		return
	}
	h.mu.Lock()
	if h.turns[g] == nil {
		h.turns[g] = make(map[string]bool)
	}
	h.turns[g][turn] = underWay
	h.mu.Unlock()
	h.BeatNow()
}

// EndTurn ends the time in which a turn is under way: it is in the store, or in the spool.
func (h *Heartbeat) EndTurn(g cache.Group, turn string) {
	h.mu.Lock()
	underWay := h.turns[g][turn]
	h.mu.Unlock()
	if underWay {
		h.RemoveTurn(g, turn)
	}
}

// RemoveTurn removes a turn that AddTurn added: it is in the store.
func (h *Heartbeat) RemoveTurn(g cache.Group, turn string) {
	if h.self == 0 {
		return
	}
	h.mu.Lock()
	_, known := h.turns[g][turn]
	if delete(h.turns[g], turn); len(h.turns[g]) == 0 {
		delete(h.turns, g)
	}
	h.mu.Unlock()
	if known {
		h.BeatNow()
	}
}

// heldSessions returns the sessions with turns that the others may not see, each with the beginning of the earliest. It ends where
// there are more than a heartbeat lists.
func (h *Heartbeat) heldSessions() map[uint64]uint64 {
	held := make(map[uint64]uint64)
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := range h.turns {
		if first := h.firstOf(g); first != 0 {
			held[sessionKey(g)] = first
		}
		if len(held) > maxHeld {
			break
		}
	}
	return held
}

// firstHeld returns when the earliest turn of a session began that the others may not see, 0 for none.
func (h *Heartbeat) firstHeld(g cache.Group) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.firstOf(g)
}

// firstOf is firstHeld for a caller that holds the lock. It removes the turns whose records were lost.
func (h *Heartbeat) firstOf(g cache.Group) uint64 {
	turns, waits, first := h.turns[g], h.o.Waiting.Holds(g), ""
	for turn, underWay := range turns {
		switch {
		case !underWay && !waits:
			delete(turns, turn)
		case first == "" || turn < first: // ids begin with the time
			first = turn
		}
	}
	if len(turns) == 0 {
		delete(h.turns, g)
	}
	return turnrecord.BeganAt(first)
}

// Adopt notes that the turns of a process that has ended, on the disk that it has left, are this one's now.
func (h *Heartbeat) Adopt(owner uint64) {
	if h.self == 0 || owner == 0 || owner == h.self {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.adopted[owner] = time.Time{}
}

// removeAdopted removes the heartbeats of dead processes once this one has announced their turns for so long that the others know
// of it: until they have looked for new processes, they rely on what the dead ones have said.
func (h *Heartbeat) removeAdopted(ctx context.Context) {
	now := h.o.Now()
	var known []uint64
	h.mu.Lock()
	for owner, announced := range h.adopted {
		switch {
		case announced.IsZero():
			h.adopted[owner] = now
		case now.Sub(announced) >= 2*Beat:
			known = append(known, owner)
		}
	}
	h.mu.Unlock()
	for _, owner := range known {
		if err := h.removeProcess(ctx, owner); err != nil {
			h.o.Log.Debug("a process that has ended is still listed", "error", err.Error())
			continue
		}
		h.mu.Lock()
		delete(h.adopted, owner)
		h.mu.Unlock()
		h.peers.forget(owner)
	}
}
