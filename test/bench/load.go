package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// crew is the connections of one phase, each with its sessions.
type crew struct {
	talkers []*talker
	conns   []*conn
}

// newCrew dials one connection for each talker.
func newCrew(addr string, talkers []*talker) (*crew, error) {
	c := &crew{talkers: talkers}
	for range talkers {
		nc, err := dial(addr)
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, nc)
	}
	return c, nil
}

// setHeader adds a header to every request.
func (c *crew) setHeader(header string) {
	for _, t := range c.talkers {
		t.header = header
	}
}

func (c *crew) close() {
	for _, nc := range c.conns {
		_ = nc.net.Close()
	}
}

// tally is the result of a run of requests.
type tally struct {
	latencies []time.Duration
	elapsed   time.Duration
	failed    int // answers that were not a 200
	forgotten int // answers in a session without memory
}

func (t *tally) merge(from tally) {
	t.latencies = append(t.latencies, from.latencies...)
	t.failed += from.failed
	t.forgotten += from.forgotten
}

// check counts the errors of an answer.
func (t *tally) check(r *reply, named bool) {
	switch {
	case r.status != 200:
		t.failed++
	case named && !remembered(r.memory):
		t.forgotten++
	}
}

// remembered reports whether X-Memory is ok, or degraded only by a layer.
func remembered(header []byte) bool {
	status, rest, _ := bytes.Cut(header, []byte(";"))
	status, _, _ = bytes.Cut(status, []byte(","))
	return string(status) == "ok" || string(status) == "degraded" && bytes.Contains(rest, []byte("skipped="))
}

// closedLoop sends the next request on each connection when the last answer has arrived, until the time is over or it has sent
// count requests; 0 means no bound for either.
func (c *crew) closedLoop(d time.Duration, count int) (tally, error) {
	var total tally
	var mu sync.Mutex
	var g errgroup.Group
	start := time.Now()
	end := start.Add(d)
	for i, nc := range c.conns {
		if err := nc.net.SetDeadline(start.Add(d + answerLimit)); err != nil {
			return tally{}, err
		}
		g.Go(func() error {
			var mine tally
			err := nc.talk(c.talkers[i], &mine, func(sent int, now time.Time) bool {
				return (count == 0 || sent < count) && (d == 0 || now.Before(end))
			})
			mu.Lock()
			defer mu.Unlock()
			total.merge(mine)
			return err
		})
	}
	err := g.Wait()
	total.elapsed = time.Since(start)
	return total, err
}

// answerLimit bounds the wait for answers after the end of a phase.
const answerLimit = 20 * time.Second

func (c *conn) talk(t *talker, into *tally, more func(sent int, now time.Time) bool) error {
	var buf []byte
	var r reply
	now := time.Now()
	for sent := 0; more(sent, now); sent++ {
		buf = t.next(buf[:0])
		begun := time.Now()
		if err := c.exchange(buf, &r, nil); err != nil {
			return err
		}
		now = time.Now()
		into.latencies = append(into.latencies, now.Sub(begun))
		into.check(&r, t.named)
	}
	return nil
}

// openLoop sends at a constant rate, independently of the answers. A latency is measured from the write of the request, or from
// its due time if no connection was free then.
func (c *crew) openLoop(rate, count int) (tally, error) {
	idle := make(chan *caller, len(c.conns))
	var g errgroup.Group
	callers := make([]*caller, len(c.conns))
	for i, nc := range c.conns {
		if err := nc.net.SetDeadline(time.Now().Add(time.Duration(count)*time.Second/time.Duration(rate) + answerLimit)); err != nil {
			return tally{}, err
		}
		callers[i] = &caller{conn: nc, talker: c.talkers[i]}
		idle <- callers[i]
		g.Go(func() error { return callers[i].listen(idle) })
	}
	err := dispatch(idle, rate, count)
	for range callers {
		if err != nil {
			break
		}
		select { // each returns with its last answer
		case <-idle:
		case <-time.After(answerLimit):
			err = errors.New("wait for the last answers: timeout")
		}
	}
	var total tally
	for _, cl := range callers {
		_ = cl.conn.net.SetReadDeadline(time.Unix(1, 0)) // ends listen
	}
	err = errors.Join(err, g.Wait())
	for _, cl := range callers {
		total.merge(cl.tally)
	}
	return total, err
}

// dispatch writes the requests one after the other, each at its due time.
func dispatch(idle <-chan *caller, rate, count int) error {
	defer ownThread()()
	start := time.Now()
	for n := range count {
		due := start.Add(time.Duration(n) * time.Second / time.Duration(rate))
		sleepUntil(due)
		from := time.Time{}
		var cl *caller
		select {
		case cl = <-idle:
		default:
			from = due
			select {
			case cl = <-idle:
			case <-time.After(answerLimit):
				return errors.New("send at a steady rate: all connections wait for answers")
			}
		}
		cl.buf = cl.talker.next(cl.buf[:0])
		if from.IsZero() {
			from = time.Now()
		}
		cl.begun.Store(from.UnixNano())
		if _, err := cl.conn.net.Write(cl.buf); err != nil {
			return fmt.Errorf("send request: %w", err)
		}
	}
	return nil
}

// caller is one connection of an open loop.
type caller struct {
	conn   *conn
	talker *talker
	buf    []byte
	begun  atomic.Int64 // Unix time in nanoseconds
	tally  tally
}

// listen reads answers until its read deadline is set to the past.
func (cl *caller) listen(idle chan<- *caller) error {
	var r reply
	for {
		if err := cl.conn.receive(&r, nil); err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return nil
			}
			return err
		}
		cl.tally.latencies = append(cl.tally.latencies, time.Duration(time.Now().UnixNano()-cl.begun.Load()))
		cl.tally.check(&r, cl.talker.named)
		idle <- cl
	}
}

// streamTally is the result of streamed answers.
type streamTally struct {
	tally
	firstByte []time.Duration
	delays    []time.Duration // of chunks, from upstream's write to their arrival
	missing   int             // chunks that did not arrive
}

// streams runs one stream on each connection. The starts are spread over the interval, so that upstream does not write all of
// them at the same time. With d > 0 each connection starts new streams until the time is over.
func (c *crew) streams(chunks int, interval, d time.Duration) (streamTally, error) {
	var total streamTally
	var mu sync.Mutex
	var g errgroup.Group
	start := time.Now()
	for i, nc := range c.conns {
		if err := nc.net.SetDeadline(start.Add(time.Duration(chunks+1)*interval + d + answerLimit)); err != nil {
			return streamTally{}, err
		}
		t := c.talkers[i]
		t.header = fmt.Sprintf("%s: %d\r\n%s: %s\r\n", chunksHeader, chunks, intervalHeader, interval)
		g.Go(func() error {
			time.Sleep(interval * time.Duration(i) / time.Duration(len(c.conns)))
			var mine streamTally
			err := nc.stream(t, &mine)
			for err == nil && time.Since(start) < d {
				err = nc.stream(t, &mine)
			}
			mu.Lock()
			defer mu.Unlock()
			total.merge(mine.tally)
			total.firstByte = append(total.firstByte, mine.firstByte...)
			total.delays = append(total.delays, mine.delays...)
			return err
		})
	}
	err := g.Wait()
	total.elapsed = time.Since(start)
	total.missing = len(total.latencies)*chunks - len(total.delays)
	return total, err
}

func (c *conn) stream(t *talker, into *streamTally) error {
	buf := t.next(nil)
	s := stamps{delays: into.delays}
	var r reply
	begun := time.Now()
	if err := c.exchange(buf, &r, func(piece []byte) { s.take(piece, time.Now()) }); err != nil {
		return err
	}
	into.delays = s.delays
	into.firstByte = append(into.firstByte, r.first.Sub(begun))
	into.latencies = append(into.latencies, time.Since(begun))
	into.check(&r, t.named)
	return nil
}
