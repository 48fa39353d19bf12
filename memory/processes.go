package memory

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/session"
)

// processes tracks the processes that share a store. Each keeps a group there that shows that it is alive and for which
// sessions it holds turns that the others cannot see. Open turns of a process that has ended are not waited for.
type processes struct {
	m        *Memory
	self     uint64 // 0 where no other process uses the store
	kick     chan struct{}
	released chan struct{} // a turn has ended that others may have waited for
	work     sync.WaitGroup

	mu sync.Mutex
	// unsure are turns that the others may not see, by session and id: true for those under way, which began without the
	// store, and false for those in the spool.
	unsure    map[cache.Group]map[string]bool
	others    map[uint64]*process
	parked    map[cache.Group]Scope // sessions with turns of this process that wait for earlier ones
	ready     map[string]time.Time  // since when this process knows of turns that wait for earlier ones
	left      map[uint64]bool       // processes that have ended, of which this one has taken over the turns on disk
	polled    bool                  // the others were looked for
	failing   bool                  // this process could not say that it lives
	recovered time.Time             // when it could again
	begun     uint64                // how often it has begun to say what it holds
	said      uint64                // the last of those times at which the store took it
	spoke     chan struct{}         // closed, and made anew, after each time
}

// process is another one, as it was seen last.
type process struct {
	version uint64
	heard   int               // how often it has said something, up to heardAfter: what is found first may be of one that has ended
	same    int               // polls in a row that have found nothing new
	news    int               // as heard, since the store was back
	all     bool              // it holds turns of more sessions than it names
	holds   map[uint64]uint64 // by session, when the earliest of those turns began, in milliseconds
}

const (
	// processOwner owns the groups of processes, which are named after them.
	processOwner = "\x00processes"
	processName  = "s"
	// processTTL is how long a process is taken to live after it has said so, and processBeat how often it does.
	processTTL  = 15 * time.Second
	processBeat = time.Second
	// silentPolls is after how many polls without news a process may be cut off from the store.
	silentPolls = 3
	// heardAfter is how often another process has to say something until it is known to live, and after an outage until it is
	// known what it holds: the first time may be from before.
	heardAfter = 2
	// leftTTL is how long a process that has ended is known to have left turns on its disk.
	leftTTL = time.Minute
	// maxProcesses is how many of the others are looked at.
	maxProcesses = 64
	// maxHeld is how many sessions a process names.
	maxHeld = 1024
	// maxReady is of how many turns it is remembered since when they wait.
	maxReady = 4096
	// readyWait is how long a turn that was answered waits while no earlier one is written.
	readyWait = time.Minute
)

func newProcesses(m *Memory) *processes {
	p := &processes{
		m: m, kick: make(chan struct{}, 1), released: make(chan struct{}, 1),
		unsure: make(map[cache.Group]map[string]bool), others: make(map[uint64]*process), parked: make(map[cache.Group]Scope),
		ready: make(map[string]time.Time), left: make(map[uint64]bool), spoke: make(chan struct{}),
	}
	if m.o.Shared {
		p.self = rand.Uint64() | 1 //nolint:gosec // unique, not secret
	}
	return p
}

func processGroup(id uint64) cache.Group {
	return cache.Group{Owner: processOwner, Name: strconv.FormatUint(id, 16)}
}

// sessionKey names a session in the list of a process.
func sessionKey(g cache.Group) uint64 {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(g.Owner)) + ":" + g.Owner + g.Name))
	return binary.BigEndian.Uint64(sum[:8])
}

func (p *processes) start() {
	if p.self != 0 {
		p.work.Go(p.beats)
		p.work.Go(p.polls)
	}
}

// stop says that the process has ended, or that it has left turns on its disk.
func (p *processes) stop() {
	p.work.Wait()
	if p.self == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.m.o.CommitWait)
	defer cancel()
	p.gather(ctx)
	if len(p.held()) > 0 {
		p.say(ctx, leftTTL)
		return
	}
	if err := p.m.store.Delete(ctx, processGroup(p.self)); err != nil {
		p.m.o.Log.Debug("process is still listed", "error", err.Error())
	}
}

// beats says each second that the process lives, and at once what it holds.
func (p *processes) beats() {
	tick := time.NewTicker(processBeat) //nolint:forbidigo // wakes; no clock is read
	defer tick.Stop()
	for {
		p.beat(p.m.life)
		select {
		case <-p.m.life.Done():
			return
		case <-p.kick:
		case <-tick.C:
		}
	}
}

// polls looks each second for the others, and writes what waited for them.
func (p *processes) polls() {
	tick := time.NewTicker(processBeat) //nolint:forbidigo // wakes; no clock is read
	defer tick.Stop()
	for {
		p.poll(p.m.life)
		p.gather(p.m.life)
		for looked := false; !looked; {
			select {
			case <-p.m.life.Done():
				return
			case <-p.released:
				p.gather(p.m.life)
			case <-tick.C:
				looked = true
			}
		}
	}
}

// release has the turns of a session written at once that waited for one which has ended.
func (p *processes) release(s Scope) {
	p.park(s)
	select {
	case p.released <- struct{}{}:
	default:
	}
}

// changed has the others told at once of what this process holds now.
func (p *processes) changed() {
	if p.self == 0 {
		return
	}
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// hide notes that the others may not see a turn of the session.
func (p *processes) hide(g cache.Group, turn string, underWay bool) {
	if p.self == 0 {
		return
	}
	p.mu.Lock()
	if p.unsure[g] == nil {
		p.unsure[g] = make(map[string]bool)
	}
	p.unsure[g][turn] = underWay
	p.mu.Unlock()
	p.changed()
}

// inherit notes that the turns of a process that has ended, on the disk that it has left, are this one's now.
func (p *processes) inherit(owner uint64) {
	if p.self == 0 || owner == 0 || owner == p.self {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left[owner] = true
}

// disown takes back what processes that have ended said they hold, once this one has said so in their place.
func (p *processes) disown(ctx context.Context) {
	p.mu.Lock()
	left := maps.Clone(p.left)
	p.mu.Unlock()
	for owner := range left {
		if err := p.m.store.Delete(ctx, processGroup(owner)); err != nil {
			p.m.o.Log.Debug("a process that has ended is still listed", "error", err.Error())
			continue
		}
		p.mu.Lock()
		delete(p.left, owner)
		delete(p.others, owner)
		p.mu.Unlock()
	}
}

// tell waits until the others can see what this process holds now, while the store takes that and for as long as ctx allows.
func (p *processes) tell(ctx context.Context) {
	if !p.hasOthers() {
		return
	}
	p.mu.Lock()
	next := p.begun + 1
	p.mu.Unlock()
	p.changed()
	for {
		p.mu.Lock()
		spoke, done := p.spoke, p.failing || p.said >= next
		p.mu.Unlock()
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

// show ends what hide began: the turn is in the store.
func (p *processes) show(g cache.Group, turn string) {
	if p.self == 0 {
		return
	}
	p.mu.Lock()
	_, known := p.unsure[g][turn]
	if delete(p.unsure[g], turn); len(p.unsure[g]) == 0 {
		delete(p.unsure, g)
	}
	p.mu.Unlock()
	if known {
		p.changed()
	}
}

// settled ends the time in which a turn is under way: it is in the store, or in the spool.
func (p *processes) settled(g cache.Group, turn string) {
	p.mu.Lock()
	underWay := p.unsure[g][turn]
	p.mu.Unlock()
	if underWay {
		p.show(g, turn)
	}
}

// held are the sessions of which the others may not see all turns, with when the earliest of these began.
func (p *processes) held() map[uint64]uint64 {
	held := make(map[uint64]uint64)
	p.mu.Lock()
	defer p.mu.Unlock()
	for g, turns := range p.unsure {
		waits := p.m.spool.waiting.Holds(g)
		for turn, underWay := range turns {
			if !underWay && !waits {
				delete(turns, turn) // its record was lost
				continue
			}
			key, began := sessionKey(g), beganAt(turn)
			if first, ok := held[key]; !ok || began < first {
				held[key] = began
			}
		}
		if len(turns) == 0 {
			delete(p.unsure, g)
		}
		if len(held) > maxHeld {
			break
		}
	}
	return held
}

// beganAt is when a turn began, in milliseconds.
func beganAt(turn string) uint64 {
	at, _ := timeOfTurn(turn)
	return uint64(max(0, at.UnixMilli()))
}

// unready reports whether the others may not have said yet what they hold, so that turns of the spool have to wait.
func (p *processes) unready() bool {
	if p.self == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.polled || p.settling() && len(p.others) > 0
}

// holdEarlier reports whether another process holds a turn that belongs before this one and is not stored.
func (p *processes) holdEarlier(ctx context.Context, t *turnWriter) bool {
	ids := p.known()
	if len(ids) == 0 {
		return false
	}
	if _, err := p.look(ctx, ids, false); err != nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hold(sessionKey(t.call.Scope.Group()), beganAt(t.ID), t.late)
}

// hold reports whether others hold turns of a session; with earlier, only those count that began before a time. The caller
// holds the lock.
func (p *processes) hold(key, began uint64, earlier bool) bool {
	if p.settling() && len(p.others) > 0 {
		return true
	}
	for _, o := range p.others {
		first, holds := o.holds[key]
		if o.all || holds && (!earlier || first < began) {
			return true
		}
	}
	return false
}

// holding is which turns of a session processes hold that are not stored.
type holding struct {
	any   bool   // they may hold some of which nothing is known
	first uint64 // when the earliest began that one of them holds, this one included, 0 for none
}

// before reports whether a turn is held that began before a time.
func (h holding) before(began uint64) bool { return h.any || h.first != 0 && h.first < began }

// holding asks the others for what they hold of a session.
func (p *processes) holding(ctx context.Context, key uint64) (h holding, err error) {
	h.first = p.held()[key]
	ids := p.known()
	if len(ids) == 0 {
		return h, nil
	}
	results, err := p.m.store.Read(ctx, queriesOf(ids))
	if err != nil {
		return h, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found(ids, results, false)
	h.any = p.settling()
	for _, o := range p.others {
		h.any = h.any || o.all
		if began, holds := o.holds[key]; holds && (h.first == 0 || began < h.first) {
			h.first = began
		}
	}
	return h, nil
}

// silent reports whether another process may be cut off from the store. The caller holds the lock.
func (p *processes) silent() bool {
	for _, o := range p.others {
		if o.lives() && o.same >= silentPolls {
			return true
		}
	}
	return false
}

// lives reports whether the process is known to be there, and not only what it has left.
func (o *process) lives() bool { return o.heard >= heardAfter }

// hasOthers reports whether other processes were seen last.
func (p *processes) hasOthers() bool {
	if p.self == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.others) > 0
}

// known are the processes that were seen last.
func (p *processes) known() []uint64 {
	if p.self == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := make([]uint64, 0, len(p.others))
	for id := range p.others {
		ids = append(ids, id)
	}
	return ids
}

// withOwners returns the known processes and the owners of open turns, without this process.
func (p *processes) withOwners(turns []session.Pending) []uint64 {
	ids := p.known()
	for _, t := range turns {
		if !t.Ready && t.Owner != p.self && !slices.Contains(ids, t.Owner) {
			ids = append(ids, t.Owner)
		}
	}
	return ids
}

// beat says that the process lives, and what it holds.
func (p *processes) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*processBeat)
	defer cancel()
	p.mu.Lock()
	p.begun++
	now := p.begun
	p.mu.Unlock()
	ok := p.say(ctx, processTTL)
	if ok {
		p.disown(ctx)
	}
	if ok && p.cutOff() {
		p.poll(ctx) // others may have begun meanwhile
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if ok {
		p.said = now
	}
	if ok && p.failing {
		p.recovered = p.m.o.Now()
		for _, o := range p.others {
			o.news, o.same = 0, 0
		}
	}
	p.failing = !ok
	close(p.spoke)
	p.spoke = make(chan struct{})
}

func (p *processes) say(ctx context.Context, ttl time.Duration) bool {
	held := p.held()
	value := []byte{0}
	if len(held) > maxHeld {
		value[0], held = 1, nil
	}
	for key, began := range held {
		value = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(value, key), began)
	}
	out := p.m.store.Commit(ctx, []cache.Batch{{
		Group: processGroup(p.self), Expect: cache.AnyVersion, TTL: ttl, Listed: true, Puts: []cache.Put{{Name: processName, Data: value}},
	}})
	if err := out[0].Err; err != nil {
		p.m.o.Log.Debug("other processes are not told of this one", "error", err.Error())
	}
	return out[0].Err == nil
}

// poll looks for the other processes.
func (p *processes) poll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*processBeat)
	defer cancel()
	found := make(map[uint64]bool)
	for after := ""; ; {
		names, next, err := p.m.store.List(ctx, processOwner, after, maxProcesses)
		if err != nil {
			return
		}
		for _, name := range names {
			id, err := strconv.ParseUint(name, 16, 64)
			if err == nil && id != p.self && len(found) < maxProcesses {
				found[id] = true
			}
		}
		if after = next; next == "" {
			break
		}
	}
	ids := make([]uint64, 0, len(found))
	for id := range found {
		ids = append(ids, id)
	}
	p.mu.Lock()
	if !p.settling() {
		for id := range p.others {
			if !found[id] {
				delete(p.others, id)
			}
		}
	}
	p.mu.Unlock()
	if _, err := p.look(ctx, ids, true); err != nil {
		p.m.o.Log.Debug("other processes cannot be looked at", "error", err.Error())
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.polled = true
}

// cutOff reports whether the process could not say the last time that it lives.
func (p *processes) cutOff() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failing
}

// settling reports whether the store was away so shortly ago that not all others have said what they hold. The caller holds the
// lock.
func (p *processes) settling() bool {
	if p.failing {
		return true
	}
	if p.recovered.IsZero() || p.m.o.Now().After(p.recovered.Add(processTTL)) {
		return false
	}
	for _, o := range p.others {
		if o.news < heardAfter && (o.lives() || o.same < silentPolls) {
			return true
		}
	}
	return false
}

// look reads the groups of other processes, and returns those that have ended, or may have ended before this one knew
// of them.
func (p *processes) look(ctx context.Context, ids []uint64, poll bool) (ended []uint64, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	results, err := p.m.store.Read(ctx, queriesOf(ids))
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.found(ids, results, poll), nil
}

func queriesOf(ids []uint64) []cache.Query {
	queries := make([]cache.Query, len(ids))
	for i, id := range ids {
		queries[i] = cache.Query{Group: processGroup(id), Names: []string{processName}}
	}
	return queries
}

// peers is for session.Log.Peers.
func (p *processes) peers(s Scope) (queries []cache.Query, found func([]cache.Result) bool) {
	ids := p.known()
	if len(ids) == 0 {
		return nil, nil
	}
	return queriesOf(ids), func(results []cache.Result) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.found(ids, results, false)
		return p.silent() || p.hold(sessionKey(s.Group()), 0, false)
	}
}

// found records the groups of processes, and returns the processes that have ended, or may have. The caller holds the
// lock.
func (p *processes) found(ids []uint64, results []cache.Result, poll bool) (ended []uint64) {
	for i, r := range results {
		id, value := ids[i], r.Values[0]
		if r.Version == 0 || len(value) == 0 {
			if !p.settling() {
				delete(p.others, id)
				ended = append(ended, id)
			}
			continue
		}
		o := p.others[id]
		if o == nil {
			o = &process{}
			p.others[id] = o
		}
		switch {
		case o.version != r.Version:
			o.version, o.same, o.heard, o.news = r.Version, 0, min(o.heard+1, heardAfter), min(o.news+1, heardAfter)
		case poll:
			o.same++
		}
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

// behind reports whether other processes may have turns of a session that are not stored, or not to be seen yet: what they say
// was read before the session. It lets the entry know which processes have ended.
func (p *processes) behind(ctx context.Context, e *session.Entry) bool {
	ended, unknown := p.owners(e.Order.Earlier())
	more, err := p.look(ctx, unknown, false)
	if err != nil {
		return true
	}
	e.Order.Ended(append(ended, more...)...)
	return e.Order.HeldElsewhere() || slices.ContainsFunc(e.Order.Earlier(), func(o session.Pending) bool { return !o.Ready })
}

// owners returns the owners of open turns that may have ended, and the unknown ones.
func (p *processes) owners(turns []session.Pending) (ended, unknown []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, t := range turns {
		o := p.others[t.Owner]
		switch {
		case t.Ready || t.Owner == p.self:
		case o == nil:
			unknown = append(unknown, t.Owner)
		case !o.lives():
			ended = append(ended, t.Owner)
		}
	}
	return ended, unknown
}

// lapse lets the entry know which of the processes have ended that had earlier turns open, and reports whether there are any.
func (p *processes) lapse(ctx context.Context, e *session.Entry) bool {
	ended, err := p.look(ctx, p.withOwners(e.Order.Earlier()), false)
	if err != nil {
		return false
	}
	e.Order.Ended(ended...)
	return len(ended) > 0
}
