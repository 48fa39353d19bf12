package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

const rollingRestart = "rolling restart of 3 replicas behind a load balancer, 200 clients streaming"

// replica is a proxy behind a balancer.
type replica struct {
	*proxytest.Proxy
	host  string // host:port of its clients' address
	admin string // URL of its operators' address
	ready atomic.Bool
	// retired tells that it will be told to stop. Kubernetes takes a pod out of its Service before it sends SIGTERM, and
	// the chart's preStop is the time that this takes.
	retired atomic.Bool
	waiting atomic.Int64 // requests without the head of an answer
	open    atomic.Int64 // answers under way
}

// retire takes the replica out, and waits until all requests that it was sent have reached it.
func (r *replica) retire(t *testing.T) {
	t.Helper()
	r.retired.Store(true)
	eventually(t, func() error {
		if n := r.waiting.Load(); n > 0 {
			return fmt.Errorf("%d requests are on their way", n)
		}
		return nil
	})
}

// balancer sends each request to the next replica that says that it is ready, over a connection of its own. One that
// refuses the connection is passed over, and where none is ready, the request waits; one that was sent is never sent again.
type balancer struct {
	replicas []*replica
	next     atomic.Int64
	probes   *http.Client
	way      *http.Transport
}

func newBalancer(t *testing.T, replicas []*replica) (b *balancer, url string) {
	t.Helper()
	b = &balancer{
		replicas: replicas,
		probes:   &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		way:      &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1, Transport: b, ErrorLog: log.New(t.Output(), "", 0),
	})
	t.Cleanup(srv.Close)
	ctx, stop := context.WithCancel(context.Background())
	var probing sync.WaitGroup
	for _, r := range replicas {
		probing.Go(func() { b.watch(ctx, r) })
	}
	t.Cleanup(func() { stop(); probing.Wait() })
	return b, srv.URL
}

// watch asks a replica all the time whether it is ready.
func (b *balancer) watch(ctx context.Context, r *replica) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		res, err := b.probes.Get(r.admin + "/readyz")
		if err == nil {
			_ = res.Body.Close()
		}
		r.ready.Store(err == nil && res.StatusCode == http.StatusOK)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// RoundTrip sends a request to a replica.
func (b *balancer) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	for passed, begun := 0, time.Now(); time.Since(begun) < patience; passed++ {
		if passed > 0 && passed%len(b.replicas) == 0 { // all seem to be away, as on a machine that stood still they do
			time.Sleep(5 * time.Millisecond)
		}
		r := b.replicas[int(b.next.Add(1))%len(b.replicas)]
		r.waiting.Add(1)
		if !r.ready.Load() || r.retired.Load() {
			r.waiting.Add(-1)
			continue
		}
		out := req.Clone(req.Context())
		out.URL = &url.URL{Scheme: "http", Host: r.host, Path: req.URL.Path}
		out.Body = io.NopCloser(bytes.NewReader(body))
		res, err := b.way.RoundTrip(out)
		r.waiting.Add(-1)
		if err == nil {
			r.open.Add(1)
			res.Body = &counted{res.Body, sync.OnceFunc(func() { r.open.Add(-1) })}
			return res, nil
		}
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
			return nil, fmt.Errorf("replica %s: %w", r.host, err)
		}
		r.ready.Store(false) // until it is asked again
	}
	return nil, errors.New("no replica is ready")
}

// counted is the body of an answer that is under way until it is closed.
type counted struct {
	io.ReadCloser
	done func()
}

// Close ends the answer.
func (c *counted) Close() error {
	c.done()
	return c.ReadCloser.Close()
}

// underLoad has clients talk, and returns while at least so many answers of the replica are under way. load ends with the
// clients. On a machine that stood still, a replica may not look ready until all have had their say: then they talk again.
func underLoad(t *testing.T, clients *crowd, r *replica, atLeast int64) (load *sync.WaitGroup) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begun := time.Now(); time.Since(begun) < patience && !t.Failed(); {
		load, talked := new(sync.WaitGroup), make(chan struct{})
		load.Go(func() {
			defer close(talked)
			clients.talk(4)
		})
		for talking := true; talking; {
			if r.open.Load() >= atLeast {
				return load
			}
			select {
			case <-tick.C:
			case <-talked:
				talking = false
			}
		}
	}
	t.Fatalf("never %d answers of a replica under way", atLeast)
	return nil
}

// TestRollingRestart restarts three replicas one after the other while 200 clients stream: each is told to stop while
// answers are under way, finishes them, and comes back.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	const clientCount, atLeast = 200, 20
	up := newPacedUpstream(t, 300*time.Millisecond)
	redis := redistest.Start(t)
	var replicas []*replica
	for range 3 {
		admin := proxytest.FreeAddr(t)
		p := proxytest.Start(t, t.TempDir(), configWith(up.URL, patientStore(redis.URL()), fmt.Sprintf("server: {admin_listen: %q}", admin)))
		at, err := url.Parse(p.URL)
		if err != nil {
			t.Fatal(err)
		}
		replicas = append(replicas, &replica{Proxy: p, host: at.Host, admin: "http://" + admin})
	}
	_, front := newBalancer(t, replicas)
	allReady := func() error {
		for _, r := range replicas {
			if !r.ready.Load() {
				return fmt.Errorf("replica %s is not ready", r.host)
			}
		}
		return nil
	}
	clients := newCrowd(t, clientCount, func(int) string { return front })
	for _, c := range clients.now {
		c.stream = true
	}
	for range scale(1, 4) {
		for _, r := range replicas {
			eventually(t, allReady)
			load := underLoad(t, clients, r, atLeast)
			r.retire(t)
			r.Stop() // must exit with 0
			r.Restart()
			r.retired.Store(false)
			load.Wait()
		}
	}
	for _, r := range replicas {
		r.Stop()
	}
	clients.finish(rollingRestart, openArchive(t, "", redis.URL()))
}
