package memory_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"remora/memory"
)

// TestAnyScheduleOfReplicas: whatever happens to the requests of a session and to its processes, each turn whose end a client has seen is
// stored once, in the order in which the client has asked, and is in each later view, unless that is degraded. The session can be read
// to its beginning.
func TestAnyScheduleOfReplicas(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := schedule{
			processes: rapid.IntRange(2, 3).Draw(rt, "processes"),
			talkers:   rapid.IntRange(1, 2).Draw(rt, "clients"),
			resend:    rapid.Bool().Draw(rt, "they resend"), // clients of one kind: which habit a request has cannot be seen from it alone
		}
		s.steps = rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
			return step{rapid.SampledFrom(happenings).Draw(rt, "what"), rapid.IntRange(0, 5).Draw(rt, "client"), rapid.IntRange(0, 5).Draw(rt, "process")}
		}), 1, 24).Draw(rt, "steps")
		if err := s.play(t); err != nil {
			rt.Fatal(err)
		}
	})
}

// happening is a kind of event in a schedule.
type happening string

const (
	sends     happening = "sends"      // a client sends a request to a process, unless one of it is open
	isGiven   happening = "is given"   // upstream answers the client's open request
	breaksOff happening = "breaks off" // the client does not wait for the answer
	holdsEnds happening = "holds ends" // no answer that the process writes arrives at the store
	holdsAll  happening = "holds all"  // nothing of sessions does
	isLost    happening = "is lost"    // what it writes arrives, and no reply does
	isLate    happening = "is late"    // what it writes arrives a second later, and no reply does
	leaves    happening = "leaves"     // the client has given up; upstream's answer comes later
	repeats   happening = "repeats"    // the client sends its open request to another process, too, and takes that one's answer
	edits     happening = "edits"      // the client takes back its last question
	isKilled  happening = "is killed"  // the process ends; another one takes over its disk
	isCut     happening = "is cut"     // the process cannot reach the store
	isFree    happening = "is free"    // it can
	isAhead   happening = "is ahead"   // the process's clock is ten minutes ahead of the others', from now on
	isBehind  happening = "is behind"  // ten minutes behind
	pause     happening = "pause"
	rest      happening = "rest"
)

// The more frequent ones are there several times.
var happenings = []happening{sends, sends, sends, isGiven, isGiven, isGiven, breaksOff, holdsEnds, holdsAll, isLost, isLate, leaves, repeats, edits, isKilled, isCut, isFree, isFree, isAhead, isBehind, pause, rest}

// troubles are the events in which a process is kept from the store.
var troubles = []happening{holdsEnds, holdsAll, isLost, isLate, isCut, isKilled}

type step struct {
	what            happening
	client, process int // modulo how many there are
}

// schedule is a list of events around one session, and what came of them.
type schedule struct {
	processes int
	talkers   int  // how many clients
	resend    bool // they send the history, too
	steps     []step

	replicas []*replica
	clients  []*scheduledClient
	asked    int
	acked    []*scheduledTurn // in the order in which clients saw their ends
	all      []*scheduledTurn
	left     []*scheduledTurn // open turns without a client
	started  []*replica       // in place of killed ones
	wrong    []string
	cut      map[*replica]time.Time // when they were cut off last, in the future while they are
}

type scheduledClient struct {
	said []string // what it has seen
	open *scheduledTurn
}

type scheduledTurn struct {
	*memory.Turn
	client          *scheduledClient
	on              *replica
	question, reply string
	ended           bool // the client has seen the end
}

// play runs the schedule and returns what is wrong.
func (s *schedule) play(t *testing.T) (err error) {
	t.Helper()
	withReplicas(t, s.processes, func(r []*replica) {
		s.replicas, s.cut = slices.Clone(r), make(map[*replica]time.Time)
		for range s.talkers {
			s.clients = append(s.clients, &scheduledClient{})
		}
		for _, step := range s.steps {
			s.happens(t, step)
		}
		for _, c := range s.clients {
			s.give(t, c)
		}
		for _, turn := range s.left {
			turn.on.settle()
			turn.Commit(memory.Answer{Aborted: memory.AbortedByClient})
		}
		for _, r := range s.replicas {
			s.free(r)
		}
		time.Sleep(5 * time.Minute)
		err = s.check()
		for _, r := range s.started {
			r.m.Close()
		}
	})
	if len(s.wrong) > 0 {
		err = errors.Join(err, errors.New(strings.Join(s.wrong, "\n")))
	}
	return err
}

func (s *schedule) happens(t *testing.T, step step) {
	t.Helper()
	c, r := s.clients[step.client%len(s.clients)], s.replicas[step.process%len(s.replicas)]
	switch step.what {
	case sends:
		s.ask(r, c)
	case isGiven:
		s.give(t, c)
	case breaksOff:
		if turn := c.open; turn != nil {
			c.open = nil
			turn.on.settle()
			turn.Commit(memory.Answer{Aborted: memory.AbortedByClient})
		}
	case holdsEnds:
		r.link.hold(answers)
	case holdsAll:
		r.link.hold(ofSession)
	case isLost:
		r.link.arriveLate(time.Millisecond)
	case isLate:
		r.link.arriveLate(time.Second)
	case leaves:
		if c.open != nil {
			s.left, c.open = append(s.left, c.open), nil
		} else if n := len(s.left); n > 0 {
			late := s.left[0]
			s.left = s.left[1:]
			late.on.settle()
			late.Commit(answer(t, late.reply))
		}
	case repeats:
		// What is sent again at the beginning of a session may be the whole history of a client that resends it.
		if turn := c.open; turn != nil && turn.on != r && len(s.clients) == 1 && len(c.said) >= 4 {
			s.left = append(s.left, turn)
			c.open = nil
			s.send(r, c, turn.question, turn.reply, true)
		}
	case edits:
		if s.resend && len(c.said) > 0 && c.open == nil {
			c.said = c.said[:len(c.said)-2]
		}
	case isKilled:
		s.kill(t, r)
	case isCut:
		r.link.cut(true)
		s.cut[r] = time.Now().Add(time.Hour)
	case isFree:
		s.free(r)
	case isAhead:
		r.link.setClock(10 * time.Minute)
	case isBehind:
		r.link.setClock(-10 * time.Minute)
	case pause:
		time.Sleep(300 * time.Millisecond)
	case rest:
		time.Sleep(20 * time.Second)
	}
}

func (s *schedule) free(r *replica) {
	r.settle()
	r.link.hold(nil)
	r.link.cut(false)
	r.link.arriveLate(0)
	if _, cut := s.cut[r]; cut {
		s.cut[r] = time.Now()
	}
}

// kill ends a process without a word: it does not reach the store any more, and another process begins with a copy of its disk.
func (s *schedule) kill(t *testing.T, r *replica) {
	t.Helper()
	r.settle()
	r.link.cut(true)
	s.cut[r] = time.Now().Add(time.Hour)
	for _, c := range s.clients {
		if c.open != nil && c.open.on == r {
			s.left, c.open = append(s.left, c.open), nil // its client sees an error
		}
	}
	next := startReplica(t, r.store, &link{Store: r.store, ahead: r.link.ahead}, &queue{recs: r.spool.copied()})
	s.replicas[slices.Index(s.replicas, r)] = next
	s.started = append(s.started, next)
	synctest.Wait()
}

// settle waits until no question is being written to a store that does not answer: a turn's end waits for that in a way that stops
// virtual time.
func (r *replica) settle() {
	if holds, away := r.link.state(); holds != nil || away || r.link.lateness() > 0 {
		time.Sleep(300 * time.Millisecond)
	}
}

func (s *schedule) ask(r *replica, c *scheduledClient) {
	if c.open != nil {
		return
	}
	time.Sleep(10 * time.Millisecond) // a client is slower than the clock of turn ids
	s.asked++
	s.send(r, c, fmt.Sprint("u:", s.asked), fmt.Sprint("a:", s.asked), false)
}

// send sends a client's next question to a process.
func (s *schedule) send(r *replica, c *scheduledClient, question, reply string, retry bool) {
	turn := &scheduledTurn{client: c, on: r, question: question, reply: reply}
	sent := []string{turn.question}
	if s.resend {
		sent = append(slices.Clone(c.said), turn.question)
	}
	known := slices.Clone(s.acked)
	turn.Turn = r.begin(memory.Call{Scope: scope, Retry: retry}, strings.Join(sent, " "))
	turn.Forwarded()
	synctest.Wait()
	c.open, s.all = turn, append(s.all, turn)

	view := strings.Fields(told(r.t, turn.View))
	if turn.Summary.Status != memory.StatusOK {
		return
	}
	if s.resend {
		if len(c.said) > 0 && !slices.Equal(view, sent) {
			s.fault("%s: a client that resends sent %v, and the model saw %v", turn.question, sent, view)
		}
		return
	}
	for _, earlier := range known {
		if time.Since(s.cut[earlier.on]) > 5*time.Second && !slices.Contains(view, earlier.reply) { // else others cannot know of it
			s.fault("%s: the model saw %v without %s", turn.question, view, earlier.reply)
		}
	}
}

// give answers the open request of a client.
func (s *schedule) give(t *testing.T, c *scheduledClient) {
	t.Helper()
	turn := c.open
	if turn == nil {
		return
	}
	c.open = nil
	turn.on.settle()
	turn.Commit(answer(t, turn.reply))
	turn.ended = true
	c.said = append(c.said, turn.question, turn.reply)
	s.acked = append(s.acked, turn)
}

func (s *schedule) fault(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// check compares what is stored with what clients have seen.
func (s *schedule) check() error {
	r := s.replicas[0]
	if len(s.all) == 0 {
		return nil
	}
	var exported bytes.Buffer
	err := r.m.Export(context.Background(), scope, &exported)
	if errors.Is(err, memory.ErrNoSession) && len(s.acked) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	line, _, err := r.readTranscript(scope)
	if err != nil {
		return err
	}
	text := exported.String()
	for _, turn := range s.acked {
		for _, word := range []string{turn.question, turn.reply} {
			n := strings.Count(text, say(word))
			if n == 2 && s.sent(turn.question) > 1 && s.has(troubles...) {
				continue // an outage kept the retry from its first attempt
			}
			if n != 1 {
				s.fault("%s is stored %d times", word, n)
			}
		}
	}
	for _, turn := range s.all {
		if !turn.ended && s.sent(turn.question) == 1 && strings.Count(text, say(turn.question)) > 1 {
			s.fault("%s, which was broken off, is stored twice", turn.question)
		}
	}
	s.checkOrder(strings.Fields(line))
	if len(s.wrong) > 0 {
		s.fault("the line is %s", line)
	}
	return nil
}

// sent returns how often a question was sent.
func (s *schedule) sent(question string) (n int) {
	for _, turn := range s.all {
		if turn.question == question {
			n++
		}
	}
	return n
}

// has reports whether one of some events is in the schedule.
func (s *schedule) has(what ...happening) bool {
	return slices.ContainsFunc(s.steps, func(s step) bool { return slices.Contains(what, s.what) })
}

// checkOrder looks at clients of one habit: the line has what each has seen, in its order.
func (s *schedule) checkOrder(line []string) {
	if s.resend && (len(s.clients) > 1 || s.has(leaves) || s.has(troubles...)) {
		return // each request has its own history; until the next one, the line is that of the turn that was written last
	}
	delayed := s.has(isCut, isKilled) // its turns come when it is back
	if s.has(isAhead, isBehind) && s.has(troubles...) {
		delayed = true // turns that were not written come in the order of the clocks
	}
	var want []string
	for _, turn := range s.acked {
		if !s.resend || slices.Contains(turn.client.said, turn.reply) { // it may have taken it back
			want = append(want, turn.reply)
		}
	}
	at := -1
	for _, reply := range want {
		next := slices.Index(line, reply)
		switch {
		case next < 0:
			s.fault("%s is not in the line", reply)
		case !delayed && len(s.clients) == 1 && next < at:
			s.fault("%s is before an earlier one", reply)
		}
		at = next
	}
}
