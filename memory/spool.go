package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/reserve"
	"remora/memory/session"
	"remora/memory/turnrecord"
	"remora/wire"
	"remora/wire/dialects"
)

// Spool is a durable local queue: see spool.Queue.
type Spool = reserve.Disk

// errNoSpool says that there is no spool to fall back to.
var errNoSpool = errors.New("no spool is configured")

// spooler keeps turns on local disk while the store can't take them, and writes them there, in their order, when it
// answers again. A session with turns in the spool is not touched directly until they are written.
type spooler struct {
	m     *Memory
	disk  *reserve.Spool // nil for none
	wake  chan struct{}
	ended sync.WaitGroup

	waiting *reserve.Waiting // for which sessions there are records in the spool

	mu      sync.Mutex
	broken  string        // why the spool's directory cannot be used, "" where it can
	drained chan struct{} // closed, and made anew, after each attempt to empty the spool

	// told is the record of evictions that layers have seen, by spooled turn. It is not in the spooled records, since
	// it holds only if this process lives to write the states of those layers after them (see Turn.afterOutage).
	told map[string][]byte

	// Of the worker alone: the last trouble with the spool itself, "" for none; the record at the head of the spool that the
	// store was too slow for, and how often it was; and the sessions that had others go first for that.
	trouble string
	slow    string
	tries   int
	slowed  map[cache.Group]bool
	// In this drain: the turns whose records came up, and the records that were moved behind all others.
	met    map[string]bool
	behind map[string]bool
}

const (
	// spoolTries is how often a record may fail on its own account before those behind it go first.
	spoolTries = 3
	// spoolRest is how long a turn that began without the store rests in the spool, where other processes may have earlier
	// ones of the session: they have to say so first.
	spoolRest = 2 * processBeat
	// spoolMiBWait is the time that a replay may take per MiB of the record, on top of ten times Options.CommitWait.
	spoolMiBWait = time.Second
)

func newSpooler(ctx context.Context, m *Memory, disk Spool) *spooler {
	s := &spooler{
		m: m, wake: make(chan struct{}, 1), drained: make(chan struct{}),
		told: make(map[string][]byte), slowed: make(map[cache.Group]bool), met: make(map[string]bool), behind: make(map[string]bool),
	}
	if disk == nil {
		return s
	}
	s.disk = reserve.Over(disk, m.o.Log)
	s.waiting = reserve.Count(s.disk)
	s.adopt()
	if n, _ := disk.Len(); n > 0 {
		s.kick()
	}
	s.ended.Add(1)
	go s.run(ctx)
	return s
}

var (
	errFresh   = errors.New("other processes have to say first what they hold")
	errFollows = errors.New("an earlier turn of the session has to be written first")
)

// stop ends the worker; spooled turns stay there for the next process.
func (s *spooler) stop() {
	s.ended.Wait()
	s.disk.Close(s.m.o.Lost)
}

func (s *spooler) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run empties the spool whenever there is something in it and the store answers.
func (s *spooler) run(ctx context.Context) {
	defer s.ended.Done()
	retry := time.NewTimer(s.m.o.RetryDelay) //nolint:forbidigo // wakes this worker; no clock is read
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-retry.C:
		}
		_ = s.disk.Settle() // told of when it began to fail
		s.adopt()
		if n, _ := s.disk.Len(); n > 0 {
			s.drain(ctx)
		}
		retry.Reset(s.m.o.RetryDelay)
	}
}

// adopt takes over the turns of processes that have died, and counts them by session: these sessions wait until the
// turns are written.
func (s *spooler) adopt() {
	found, err := s.disk.Adopt(func(rec []byte) {
		if r, ok := readLabel(rec); ok {
			s.waiting.Found(reserve.Record{Group: r.scope.Group(), Name: nameOfRecord(r.turn, r.answered), Began: beganAt(r.turn)})
			s.m.processes.hide(r.scope.Group(), r.turn, false)
			s.m.processes.inherit(r.owner)
		}
	})

	log := s.m.o.Log
	if found.Records > 0 {
		log.Info("turns of a process that has ended wait in the spool", "turns", found.Records, "bytes", found.Bytes)
	}
	if found.Cut > 0 {
		log.Warn("turns whose writing to the spool was cut off are dropped; no client has seen their end", "turns", found.Cut, "bytes", found.CutBytes)
	}
	if len(found.Foreign) > 0 {
		log.Warn("the spool's directory holds files that are not the spool's; they are left alone", "files", found.Foreign)
	}
	if found.Remade {
		log.Error("the spool's directory was deleted while it is in use; it is made again, with the turns that this process still had")
	}

	trouble := ""
	if err != nil && !errors.Is(err, cache.ErrClosed) {
		trouble = err.Error()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if trouble != "" && trouble != s.broken {
		log.Error("the spool's directory cannot be used; turns are kept in memory while the store is away", "error", trouble)
	}
	s.broken = trouble
}

// SpoolTrouble is why the spool's directory cannot be used, "" where it can. Then turns are kept in memory while the store is
// away.
func (m *Memory) SpoolTrouble() string {
	m.spool.mu.Lock()
	defer m.spool.mu.Unlock()
	return m.spool.broken
}

// label identifies a record's session and turn.
type label struct {
	scope    Scope
	turn     string
	owner    uint64 // the process that served the turn
	answered bool
}

// readLabel reads a record's label, without the rest of it. It reports false where the record names no session or no turn.
func readLabel(rec []byte) (l label, ok bool) {
	for p := range wire.Parts(rec) {
		var text []byte
		switch string(p.Name) {
		case "tenant", "session":
			if json.Unmarshal(p.Value, &text) != nil {
				return label{}, false
			}
		case "turn":
			l.turn = wire.Text(p.Value)
		case "owner":
			if json.Unmarshal(p.Value, &l.owner) != nil {
				return label{}, false
			}
		case "answer":
			l.answered = true
		}
		switch string(p.Name) {
		case "tenant":
			l.scope.Tenant = string(text)
		case "session":
			l.scope.Session = string(text)
		}
	}
	return l, l.scope.Session != "" && l.turn != ""
}

// drain writes spooled turns into the store until it refuses one.
func (s *spooler) drain(ctx context.Context) {
	if s.m.processes.unready() {
		return // the others have to say first what they hold, for the order of a session's turns
	}
	clear(s.met)
	clear(s.behind)
	store := s.m.heard(s.ping(ctx))
	err := store
	if err == nil {
		err = s.disk.Drain(ctx, func(rec []byte) error {
			store = s.replay(ctx, rec)
			return store
		})
	}
	if ctx.Err() == nil {
		s.tellTrouble(err, store)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting.Drained(err)
	close(s.drained)
	s.drained = make(chan struct{})
	s.m.processes.changed()
}

// tellTrouble logs that the spool could not be emptied, once per fault of its own. store is the store's last error,
// which is logged elsewhere.
func (s *spooler) tellTrouble(err, store error) {
	switch {
	case err == nil:
		s.trouble = ""
	case errors.Is(err, store): // the very same
		s.m.o.Log.Debug("spool waits for the store", "error", err.Error())
	case s.trouble != err.Error():
		s.trouble = err.Error()
		s.m.o.Log.Warn("spool cannot be emptied", "error", s.trouble)
	}
}

func (s *spooler) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.m.o.RetryDelay)
	defer cancel()
	return s.m.store.Ping(ctx)
}

// holds reports whether turns of the session wait in the spool.
func (s *spooler) holds(scope Scope) bool { return s.waiting.Holds(scope.Group()) }

// outlast waits until no turn of the session is in the spool any more, however long the store is down.
func (s *spooler) outlast(ctx context.Context, scope Scope) error {
	return s.await(ctx, scope, func() error { return nil })
}

// settle waits until no turn of the session is in the spool any more, so that a client reads its writes as soon as
// the store is back. It wakes the worker once: a record that the store does not take is not tried without a pause.
func (s *spooler) settle(ctx context.Context, scope Scope) error {
	woken := false
	return s.await(ctx, scope, func() error {
		if err := s.m.available(scope); err != nil {
			return err
		}
		if !woken {
			s.kick()
		}
		woken = true
		return nil
	})
}

// await waits until no turn of the session is in the spool any more. An error of ready, which is called before each wait,
// ends it.
func (s *spooler) await(ctx context.Context, scope Scope, ready func() error) error {
	for {
		s.mu.Lock()
		waits, drained := s.holds(scope), s.drained
		s.mu.Unlock()
		if !waits {
			return nil
		}
		if err := ready(); err != nil {
			return err
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return errLeftAlone
		}
	}
}

// spooled is a turn on local disk: the request and what came back, to be merged when it is replayed. What callers and
// upstream choose is []byte: a JSON string would turn bytes that are not UTF-8 into one and the same character.
type spooled struct {
	Tenant    []byte              `json:"tenant"`
	Session   []byte              `json:"session"`
	Resource  []byte              `json:"resource,omitempty"`
	Execution []byte              `json:"execution,omitempty"`
	Parent    []byte              `json:"parent,omitempty"`
	Turn      string              `json:"turn"`
	Owner     uint64              `json:"owner,omitempty"` // the process that serves it, where others share the store
	Time      time.Time           `json:"time"`
	Dialect   dialects.Code       `json:"dialect"`
	History   History             `json:"history"`
	Side      []byte              `json:"side,omitempty"`
	Standing  uint8               `json:"standing,omitempty"`
	Provider  string              `json:"provider,omitempty"` // that the request was for
	Body      []byte              `json:"body"`
	View      turnrecord.View     `json:"view"`
	Notes     *session.SavedNotes `json:"notes,omitempty"`
	Kept      map[string][]byte   `json:"kept,omitempty"`   // of the session, by name
	Answer    *spooledReply       `json:"answer,omitempty"` // nil: still to come when this was written
	Unread    bool                `json:"unread,omitempty"` // the session could not be read when the turn began
	// Said are the new items of a turn that waits for an earlier one: other views show them meanwhile.
	Said [][]byte `json:"said,omitempty"`
}

func (r *spooled) scope() Scope {
	return Scope{
		Tenant: string(r.Tenant), Session: string(r.Session), Resource: string(r.Resource),
		Execution: string(r.Execution), Parent: string(r.Parent),
	}
}

// nameOfRecord tells records apart: a turn may have one of its input and one of all of it.
func nameOfRecord(turn string, answered bool) string {
	if !answered {
		return turn + " input"
	}
	return turn
}

// waits identifies the record while it is in the spool.
func (r *spooled) waits() reserve.Record {
	return reserve.Record{Group: r.scope().Group(), Name: nameOfRecord(r.Turn, r.Answer != nil), Began: beganAt(r.Turn)}
}

type spooledReply struct {
	Choices    [][][]byte `json:"choices,omitempty"`
	ID         []byte     `json:"id,omitempty"`
	Model      []byte     `json:"model,omitempty"`
	Finish     []byte     `json:"finish,omitempty"`
	Usage      []byte     `json:"usage,omitempty"`
	Error      []byte     `json:"error,omitempty"`
	Complete   bool       `json:"complete,omitempty"`
	HTTPStatus int        `json:"http_status"`
	Cut        Aborted    `json:"cut,omitempty"`
	Provider   string     `json:"provider,omitempty"`
	AskedFor   []byte     `json:"asked_for,omitempty"` // the model, where it is another than the request's
	Later      bool       `json:"later,omitempty"`     // upstream makes it in the background
}

// add puts a turn into the spool; it is on disk when add returns.
func (s *spooler) add(t *turnWriter, a *Answer) error {
	if s.disk == nil {
		return errNoSpool
	}
	sc := t.call.Scope
	rec, told := newSpooled(t, a)
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode turn: %w", err)
	}
	s.tell(t.ID, told)
	if err := s.waiting.Append(rec.waits(), b); err != nil {
		s.tell(t.ID, nil)
		return fmt.Errorf("spool turn: %w", err)
	}
	s.m.processes.hide(sc.Group(), t.ID, false)
	return nil
}

// newSpooled returns the spooled record of a turn that is not in the transcript, and the evictions seen with it.
func newSpooled(t *turnWriter, a *Answer) (rec *spooled, told []byte) {
	sc := t.call.Scope
	rec = &spooled{
		Tenant: []byte(sc.Tenant), Session: []byte(sc.Session), Resource: []byte(sc.Resource),
		Execution: []byte(sc.Execution), Parent: []byte(sc.Parent),
		Turn: t.ID, Owner: t.m.processes.self, Time: t.started, Dialect: dialects.CodeOf(t.call.Request.Dialect),
		History: t.entry.SpoolMode(), Side: []byte(t.call.Side), Standing: uint8(t.entry.StandingFound()), Provider: t.call.Provider, Body: t.call.Request.Body, View: t.entry.View.Save(), Notes: t.entry.Notes.Save(),
	}
	rec.Unread = t.entry.Unread() && !t.late
	if a != nil {
		rec.Answer, rec.Kept = newSpooledReply(a), t.values
		if t.states != nil {
			rec.Kept, told = t.states.kept.spooled()
		}
	}
	return rec, told
}

func newSpooledReply(a *Answer) *spooledReply {
	r := &spooledReply{
		ID: []byte(a.Reply.ID), Model: []byte(a.Reply.Model), Finish: []byte(a.Reply.Finish),
		Usage: a.Reply.Usage, Error: a.Reply.Error, Complete: a.Reply.Complete, HTTPStatus: a.HTTPStatus, Cut: a.Aborted, Provider: a.Provider, AskedFor: []byte(a.Model), Later: a.Later,
	}
	for _, items := range a.Reply.Choices {
		raws := make([][]byte, len(items))
		for i, it := range items {
			raws[i] = it.Raw
		}
		r.Choices = append(r.Choices, raws)
	}
	return r
}

func (r *spooledReply) answer(d wire.Dialect) (*Answer, error) {
	a := &Answer{HTTPStatus: r.HTTPStatus, Aborted: r.Cut, Provider: r.Provider, Model: string(r.AskedFor), Later: r.Later, Reply: wire.Reply{
		ID: string(r.ID), Model: string(r.Model), Finish: string(r.Finish),
		Usage: r.Usage, Error: r.Error, Complete: r.Complete,
	}}
	for _, raws := range r.Choices {
		items := make([]wire.Item, len(raws))
		for i, raw := range raws {
			it, err := wire.ParseItem(d, raw)
			if err != nil {
				return nil, fmt.Errorf("read spooled answer: %w", err)
			}
			items[i] = it
		}
		a.Reply.Choices = append(a.Reply.Choices, items)
	}
	return a, nil
}

// replay writes one spooled turn into the store. If the record or its session cannot be read, the error wraps
// cache.ErrUnreadable, and the disk quarantines the record. A record for which the store is too slow goes behind the
// others. Neither delays the records after it.
func (s *spooler) replay(ctx context.Context, b []byte) error {
	s.waiting.Next()
	rec, err := decodeSpooled(b)
	if err != nil {
		s.waiting.Refused(reserve.Record{}) // of no session
		return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	at := rec.waits()
	group := at.Group
	t, a, err := s.m.resume(rec, s.kept(rec))
	if err != nil {
		s.waiting.Refused(at)
		return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	s.met[at.Name] = true
	if s.m.isAway(group) {
		return s.passOver(at, b, errLeftAlone)
	}
	if rec.Unread && s.m.o.Now().Sub(rec.Time) < spoolRest && s.m.processes.hasOthers() {
		return errFresh
	}
	if s.follows(at) {
		if s.behind[at.Name] {
			return errFollows // all others have had their turn
		}
		// Where there is no room to move it, a turn out of its order is better than a spool that nothing ever leaves.
		if s.moveBack(at, b) == nil {
			return nil
		}
	}
	wait := 10*s.m.o.CommitWait + spoolMiBWait*time.Duration(len(b))/(1<<20)
	own, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var deleted bool
	if deleted, err = s.m.buried(own, rec.scope(), rec.Turn); deleted {
		s.wrote(rec, at)
		return nil
	}
	if err == nil {
		err = t.store(own, a)
	}
	fault, _ := faultOf(err)
	switch {
	case err == nil:
		s.wrote(rec, at)
		return nil
	case errors.Is(err, session.ErrNoRoom):
		return s.passOver(at, b, err)
	case ctx.Err() != nil:
		return err // this process ends; the store is not to blame
	case fault == cache.FaultCorrupt: // what is stored of the session: it is not cured by waiting
		return s.giveUp(at, err)
	case fault == cache.FaultKey && !errors.Is(err, cache.ErrDenied): // nor what another program has put in its place
		if !s.gaveUp(at) {
			return err
		}
		s.slow, s.tries = "", 0
		return s.giveUp(at, err)
	case own.Err() != nil:
		return s.postpone(ctx, rec, at, b, err)
	case fault == cache.FaultShard:
		s.m.failed(err)
		return s.passOver(at, b, err)
	case fault == cache.FaultStore:
		s.m.failed(err)
		return err
	}
	return s.postpone(ctx, rec, at, b, err) // it is the session's own trouble
}

// giveUp quarantines a record whose session cannot be written. Such records would fill the spool, and other sessions
// lose their turns.
func (s *spooler) giveUp(at reserve.Record, err error) error {
	s.m.failed(err)
	s.waiting.Refused(at)
	return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
}

// passOver moves a record whose session cannot be written now behind the records of other sessions, once per drain. If
// no other session can be written, the drain ends with err.
func (s *spooler) passOver(at reserve.Record, b []byte, err error) error {
	others := s.waiting.Any(func(g cache.Group) bool { return g != at.Group && !s.m.isAway(g) })
	if s.behind[at.Name] || !others || s.moveBack(at, b) != nil {
		return err
	}
	return nil
}

// postpone puts a record that the store did not take in time, for err, behind all others when that happened too often.
func (s *spooler) postpone(ctx context.Context, rec *spooled, at reserve.Record, b []byte, err error) error {
	if s.m.heard(s.ping(ctx)) != nil {
		return err
	}
	if s.m.isAway(at.Group) {
		return s.passOver(at, b, err)
	}
	if !s.gaveUp(at) {
		return err
	}
	if err := s.moveBack(at, b); err != nil {
		return err
	}
	if !s.slowed[at.Group] {
		s.slowed[at.Group] = true
		s.m.o.Log.Warn("store does not take a spooled turn; other sessions go first", "turn", rec.Turn, "bytes", len(b))
	}
	return nil
}

// wrote counts a record as gone that is in the store now.
func (s *spooler) wrote(rec *spooled, at reserve.Record) {
	s.slow, s.tries = "", 0
	delete(s.slowed, at.Group)
	if rec.Answer != nil {
		s.tell(rec.Turn, nil)
	}
	if rec.Answer != nil || !s.waiting.Has(at.Group, nameOfRecord(rec.Turn, true)) {
		s.m.processes.show(at.Group, rec.Turn)
	}
	s.waiting.Done(at)
}

// gaveUp notes that the store answers but did not take the record, and reports whether that happened too often.
func (s *spooler) gaveUp(at reserve.Record) bool {
	if s.slow != at.Name {
		s.slow, s.tries = at.Name, 0
	}
	s.tries++
	return s.tries >= spoolTries
}

// follows reports whether a record of the same session is in the spool that came before this one: they are written in that
// order.
//
// What comes up twice in a drain has seen all others come up in between. One that did not is not there any more: it could not
// be read, and was set aside.
func (s *spooler) follows(at reserve.Record) bool {
	for {
		first := s.waiting.First(at.Group)
		if first.Name == "" || first.Name == at.Name {
			return false
		}
		if !s.behind[at.Name] || s.met[first.Name] {
			return true
		}
		s.waiting.Done(first)
	}
}

// moveBack puts the record at the head of the spool behind all others.
func (s *spooler) moveBack(at reserve.Record, b []byte) error {
	if err := s.waiting.MoveBack(b); err != nil {
		return fmt.Errorf("move spooled record %s: %w", at.Name, err)
	}
	s.slow, s.tries, s.behind[at.Name] = "", 0, true
	return nil
}

// decodeSpooled decodes a record's session and turn, and leaves the rest.
func decodeSpooled(b []byte) (*spooled, error) {
	var rec spooled
	if err := json.Unmarshal(b, &rec); err != nil {
		return nil, fmt.Errorf("read spooled turn: %w", err)
	}
	if len(rec.Session) == 0 {
		return nil, errors.New("read spooled turn: it names no session")
	}
	return &rec, nil
}
