package chaos

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/test/kit"
)

// anyReplica is the base URL of a fleet, for the fleet's client.
const anyReplica = "http://fleet"

// fleet is the replicas of a scenario. Each request goes to a random one, as behind a load balancer without session affinity.
type fleet struct {
	t        *testing.T
	replicas []*replica
	way      *http.Transport

	// spool is the directory of a single replica's spool, "" for the default.
	spool string

	mu    sync.Mutex
	draws map[string]*rand.Rand // by session, so that each session uses the same replicas in every run
}

// replica is a proxy of a fleet.
type replica struct {
	*kit.Proxy
	name string
	host string // host:port

	away    atomic.Bool  // gets no more requests
	kills   atomic.Int64 // incremented before and after each kill, so that it is odd during one
	waiting atomic.Int64 // requests without response headers
	open    atomic.Int64 // answers in progress
}

// newFleet starts n replicas with the same configuration, each in its own folder.
func newFleet(t *testing.T, n int, config string) *fleet {
	t.Helper()
	return newMixedFleet(t, slices.Repeat([]string{config}, n))
}

// newMixedFleet starts a replica for each configuration.
func newMixedFleet(t *testing.T, configs []string) *fleet {
	t.Helper()
	f := &fleet{
		t: t, draws: map[string]*rand.Rand{},
		// A connection per request: a request on one that a stopping process closes would fail.
		way: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	f.replicas = make([]*replica, len(configs))
	var starting sync.WaitGroup
	for i, config := range configs {
		dir := t.TempDir()
		starting.Go(func() {
			p := kit.StartProxy(t, dir, config)
			at, err := url.Parse(p.URL)
			if err != nil {
				t.Error(err)
				return
			}
			f.replicas[i] = &replica{Proxy: p, name: string(rune('A' + i)), host: at.Host}
		})
	}
	starting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return f
}

// client is an HTTP client of the fleet.
func (f *fleet) client() *http.Client { return &http.Client{Transport: f, Timeout: callLimit} }

// errKilled: the process was killed during the call.
var errKilled = errors.New("the replica was killed")

// seed selects the replicas of sessions.
const seed = 12

// servedBy is a header that a fleet adds to answers, with the name of the replica.
const servedBy = "X-Replica"

// RoundTrip sends a request to one of the replicas. If a replica refuses the connection it tries another; it never repeats a
// request that was sent.
func (f *fleet) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}

	for begun := time.Now(); time.Since(begun) < kit.WaitLimit; {
		r := f.draw(req.Header.Get("X-Session-Id"))
		r.waiting.Add(1)
		if r.away.Load() {
			r.waiting.Add(-1)
			time.Sleep(time.Millisecond) // all of them may be away
			continue
		}
		kills := r.kills.Load()
		out := req.Clone(req.Context())
		out.URL = &url.URL{Scheme: "http", Host: r.host, Path: req.URL.Path}
		out.Body = io.NopCloser(bytes.NewReader(body))
		res, err := f.way.RoundTrip(out)
		r.waiting.Add(-1)

		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			time.Sleep(time.Millisecond) // all of them may be away
			continue
		}
		if err != nil {
			return nil, r.blame(err, kills)
		}
		r.open.Add(1)
		res.Header.Set(servedBy, r.name)
		res.Body = &answer{ReadCloser: res.Body, from: r, kills: kills, done: sync.OnceFunc(func() { r.open.Add(-1) })}
		return res, nil
	}
	return nil, errors.New("no replica takes the request")
}

// draw selects the replica of a session's next request.
func (f *fleet) draw(session string) *replica {
	f.mu.Lock()
	defer f.mu.Unlock()
	random := f.draws[session]
	if random == nil {
		h := fnv.New64a()
		_, _ = h.Write([]byte(session))
		random = rand.New(rand.NewPCG(seed, h.Sum64()))
		f.draws[session] = random
	}
	return f.replicas[random.IntN(len(f.replicas))]
}

// blame adds the replica to the error of a call, and errKilled if it was killed since the call began.
func (r *replica) blame(err error, kills int64) error {
	if kills%2 == 1 || r.kills.Load() != kills {
		return fmt.Errorf("%w: %s: %w", errKilled, r.name, err)
	}
	return fmt.Errorf("replica %s: %w", r.name, err)
}

// answer is the body of an answer. It counts as open until it is closed.
type answer struct {
	io.ReadCloser
	from  *replica
	kills int64
	done  func()
}

// Read reads from the answer.
func (a *answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = a.from.blame(err, a.kills)
	}
	return n, err
}

// Close ends the answer.
func (a *answer) Close() error {
	a.done()
	return a.ReadCloser.Close()
}

// kill kills the replica.
func (r *replica) kill() {
	r.kills.Add(1)
	r.Kill()
	r.kills.Add(1)
}

// retire sends the replica no more requests, and waits until those already sent have reached it: Kubernetes removes a pod from
// its Service before it sends SIGTERM, and the chart's preStop waits for that.
func (r *replica) retire(t *testing.T) {
	t.Helper()
	r.away.Store(true)
	kit.Eventually(t, func() error {
		if n := r.waiting.Load(); n > 0 {
			return fmt.Errorf("%d requests are on their way", n)
		}
		return nil
	})
}

// restart stops a replica with SIGTERM while it answers, and starts it again.
func (r *replica) restart(t *testing.T) {
	t.Helper()
	r.retire(t)
	r.Stop() // must exit with 0
	r.Restart()
	r.away.Store(false)
}

// stop stops all replicas.
func (f *fleet) stop() {
	for _, r := range f.replicas {
		r.Stop()
	}
}

// drained waits until the spools of all replicas are empty.
func (f *fleet) drained() {
	f.t.Helper()
	kit.Eventually(f.t, func() error {
		for _, r := range f.replicas {
			if err := spoolEmpty(cmp.Or(f.spool, filepath.Join(r.Dir, "spool"))); err != nil {
				return err
			}
		}
		return nil
	})
}

// pressure keeps the processor busy with additional processes, until stop is called or the test ends.
func pressure(t *testing.T, processes int) (stop func()) {
	t.Helper()
	var ends []func()
	for range processes {
		// The shell waits for the end of its input, which is the end of the test process at the latest.
		loop := exec.Command("sh", "-c", "while :; do :; done & read end; kill $!")
		in, err := loop.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, func() {
			_ = in.Close()
			_ = loop.Wait() // read fails at the end of the input
		})
	}
	stop = sync.OnceFunc(func() {
		for _, end := range ends {
			end()
		}
	})
	t.Cleanup(stop)
	return stop
}
