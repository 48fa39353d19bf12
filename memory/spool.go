package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"remora/cache"
	"remora/memory/reserve"
	"remora/memory/transcript"
	"remora/memory/turnrecord"
	"remora/wire"
)

// Spool is a durable local queue: see cache.Spool.
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
	drained chan struct{} // closed, and made anew, after each attempt to empty the spool

	// told is what layers were told of with turns in the spool, by turn. It is not in their records: it is true only as
	// long as the process is there that writes the states of those layers after them (see Turn.afterOutage).
	told map[string][]byte

	// Of the worker alone: the last trouble with the spool itself, "" for none; the record at the head of the spool that the
	// store was too slow for, and how often it was; the records of each session that were put behind all others for that, in
	// their order; and those of them that this drain has put there.
	trouble string
	slow    string
	tries   int
	moved   map[cache.Group][]string
	behind  map[string]bool
}

const (
	// spoolTries is how often a record may fail on its own account before those behind it go first.
	spoolTries = 3
	// spoolMiBWait is what a replay may take for each MiB of the record, on top of ten times Options.CommitWait.
	spoolMiBWait = time.Second
)

func newSpooler(ctx context.Context, m *Memory, disk Spool) *spooler {
	s := &spooler{
		m: m, wake: make(chan struct{}, 1), drained: make(chan struct{}),
		moved: make(map[cache.Group][]string), told: make(map[string][]byte), behind: make(map[string]bool),
	}
	if disk == nil {
		return s
	}
	s.disk = reserve.Over(disk, m.o.Log)
	s.waiting = reserve.Count(s.disk)
	if n, _ := disk.Len(); n > 0 {
		s.kick()
	}
	s.ended.Add(1)
	go s.run(ctx)
	return s
}

// stop ends the worker; what is in the spool stays there for the next process.
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
		if n, _ := s.disk.Len(); n > 0 {
			s.drain(ctx)
		}
		retry.Reset(s.m.o.RetryDelay)
	}
}

// drain writes what is in the spool into the store, as far as that takes it.
func (s *spooler) drain(ctx context.Context) {
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
}

// tellTrouble logs that the spool could not be emptied, once where that is its own fault. store is what the store said
// last, which was told of elsewhere.
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

// holds tells whether turns of the session wait in the spool.
func (s *spooler) holds(scope Scope) bool { return s.waiting.Holds(scope.Group()) }

// spooled is a turn on local disk: the request and what came back, to be merged when it is replayed. What callers and
// upstream choose is []byte: a JSON string would turn bytes that are not UTF-8 into one and the same character.
type spooled struct {
	Tenant    []byte            `json:"tenant"`
	Session   []byte            `json:"session"`
	Resource  []byte            `json:"resource,omitempty"`
	Execution []byte            `json:"execution,omitempty"`
	Parent    []byte            `json:"parent,omitempty"`
	Turn      string            `json:"turn"`
	Time      time.Time         `json:"time"`
	Dialect   wire.Dialect      `json:"dialect"`
	History   History           `json:"history"`
	Side      []byte            `json:"side,omitempty"`
	Body      []byte            `json:"body"`
	View      turnrecord.View   `json:"view"`
	Notes     *transcript.Notes `json:"notes,omitempty"`
	Kept      map[string][]byte `json:"kept,omitempty"`   // of the session, by name
	Answer    *spooledReply     `json:"answer,omitempty"` // nil: still to come when this was written
}

func (r *spooled) scope() Scope {
	return Scope{
		Tenant: string(r.Tenant), Session: string(r.Session), Resource: string(r.Resource),
		Execution: string(r.Execution), Parent: string(r.Parent),
	}
}

// name tells records apart: a turn may have one of its input and one of all of it.
func (r *spooled) name() string {
	if r.Answer == nil {
		return r.Turn + " input"
	}
	return r.Turn
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
	Cut        Cut        `json:"cut,omitempty"`
}

// add puts a turn into the spool; it is on disk when add returns.
func (s *spooler) add(t *Turn, a *Answer) error {
	if s.disk == nil {
		return errNoSpool
	}
	sc := t.call.Scope
	rec := spooled{
		Tenant: []byte(sc.Tenant), Session: []byte(sc.Session), Resource: []byte(sc.Resource),
		Execution: []byte(sc.Execution), Parent: []byte(sc.Parent),
		Turn: t.ID, Time: t.started, Dialect: t.call.Request.Dialect,
		History: t.entry.Mode(), Side: []byte(t.call.Side), Body: t.call.Request.Body, View: t.entry.View(), Notes: t.entry.Notes(),
	}
	var told []byte
	if a != nil {
		rec.Answer = newSpooledReply(a)
		if t.layers != nil {
			rec.Kept, told = t.layers.states.keeps().spooled()
		}
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode turn: %w", err)
	}
	s.tell(t.ID, told)
	if err := s.waiting.Append(sc.Group(), b); err != nil {
		s.tell(t.ID, nil)
		return fmt.Errorf("spool turn: %w", err)
	}
	return nil
}

func newSpooledReply(a *Answer) *spooledReply {
	r := &spooledReply{
		ID: []byte(a.Reply.ID), Model: []byte(a.Reply.Model), Finish: []byte(a.Reply.Finish),
		Usage: a.Reply.Usage, Error: a.Reply.Error, Complete: a.Reply.Complete, HTTPStatus: a.HTTPStatus, Cut: a.Cut,
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
	a := &Answer{HTTPStatus: r.HTTPStatus, Cut: r.Cut, Reply: wire.Reply{
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

// replay writes one spooled turn into the store. For a record that can't be read, and one whose session can't be, the error
// wraps cache.ErrUnreadable: the disk sets it aside. One that the store is too slow for is put behind the others. Neither
// holds up all that follow.
func (s *spooler) replay(ctx context.Context, b []byte) error {
	s.waiting.Next()
	rec, err := decodeSpooled(b)
	if err != nil {
		s.waiting.Refused(cache.Group{}) // of no session
		return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	group := rec.scope().Group()
	t, a, err := s.m.resume(rec, s.kept(rec))
	if err != nil {
		s.waiting.Refused(group)
		return fmt.Errorf("%w: %w", cache.ErrUnreadable, err)
	}
	// Where there is no room to move it, a turn out of its order is better than a spool that nothing ever leaves.
	if s.follows(rec, group) && s.moveBack(rec, group, b) == nil {
		s.waiting.Done(group)
		return nil
	}
	wait := 10*s.m.o.CommitWait + spoolMiBWait*time.Duration(len(b))/(1<<20)
	own, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	err = t.store(own, a)
	switch {
	case err == nil:
		s.wrote(rec, group)
		return nil
	case ctx.Err() != nil:
		return err // this process ends; the store is not to blame
	case errors.Is(err, cache.ErrUnreadable):
		s.m.failed(err)
		s.waiting.Refused(group)
		return err
	case own.Err() != nil || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, transcript.ErrCorrupt):
		return s.postpone(ctx, rec, b, err)
	}
	s.m.failed(err)
	return err
}

// postpone puts a record that the store did not take in time, for err, behind all others when that happened too often.
func (s *spooler) postpone(ctx context.Context, rec *spooled, b []byte, err error) error {
	if down := s.ping(ctx); down != nil {
		s.m.failed(down)
		return err
	}
	if !s.gaveUp(rec) {
		return err
	}
	group := rec.scope().Group()
	first := len(s.moved[group]) == 0
	if err := s.moveBack(rec, group, b); err != nil {
		return err
	}
	if first {
		s.m.o.Log.Warn("store does not take a spooled turn; other sessions go first", "turn", rec.Turn, "bytes", len(b))
	}
	s.waiting.Done(group)
	return nil
}

// wrote counts a record as gone that is in the store now.
func (s *spooler) wrote(rec *spooled, group cache.Group) {
	s.slow, s.tries = "", 0
	s.forget(rec.name(), group)
	if rec.Answer != nil {
		s.tell(rec.Turn, nil)
	}
	s.waiting.Done(group)
}

// gaveUp notes that the store answers but did not take the record, and tells whether that happened too often.
func (s *spooler) gaveUp(rec *spooled) bool {
	if s.slow != rec.name() {
		s.slow, s.tries = rec.name(), 0
	}
	s.tries++
	return s.tries >= spoolTries
}

// follows tells whether an earlier record of the same session was put behind all others: then this one has to go behind
// that, since a session's turns are replayed in their order.
//
// One that comes twice in a drain has not met the one that it follows, which so is not there any more: it could not be read,
// and was set aside.
func (s *spooler) follows(rec *spooled, group cache.Group) bool {
	waits := func() bool {
		moved := s.moved[group]
		return len(moved) > 0 && moved[0] != rec.name()
	}
	if waits() && s.behind[rec.name()] {
		s.forget(s.moved[group][0], group)
	}
	return waits()
}

// forget strikes a record off those that others follow.
func (s *spooler) forget(name string, group cache.Group) {
	s.moved[group] = slices.DeleteFunc(s.moved[group], func(n string) bool { return n == name })
	if len(s.moved[group]) == 0 {
		delete(s.moved, group)
	}
}

// moveBack puts a record behind all others.
func (s *spooler) moveBack(rec *spooled, group cache.Group, b []byte) error {
	if err := s.waiting.Append(group, b); err != nil {
		return fmt.Errorf("move spooled turn %s: %w", rec.Turn, err)
	}
	s.slow, s.tries, s.behind[rec.name()] = "", 0, true
	if !slices.Contains(s.moved[group], rec.name()) {
		s.moved[group] = append(s.moved[group], rec.name())
	}
	return nil
}

// decodeSpooled reads a record as far as it says whose it is.
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
