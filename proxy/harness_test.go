package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"go.yaml.in/yaml/v3"

	"remora"
	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/test/kit"
)

func TestMain(m *testing.M) {
	flag.Parse() // m.Run would come too late
	// Benchmarks leave behind the fasthttp client that they compare with, which cannot be stopped.
	if benched := flag.Lookup("test.bench"); benched != nil && benched.Value.String() != "" {
		os.Exit(m.Run())
	}
	os.Exit(kit.RunWithoutLeaks(m,
		// fasthttp's own, which end with the process or a while after the last connection.
		"github.com/valyala/fasthttp.updateServerDate.func1",
		"github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

// waitLimit bounds what a test waits for; nothing takes that long unless it is broken, on a machine that is busy or stands
// still for a moment either.
const waitLimit = time.Minute

// defaultOptions are those of config.yaml, where a test does not change them.
func defaultOptions() Options {
	return Options{
		Listen:         "127.0.0.1:8080",
		MaxBody:        64 << 20,
		MaxHeader:      16 << 10,
		MaxConnections: 65536,
		ReadTimeout:    time.Minute,
		IdleTimeout:    2 * time.Minute,
		WriteTimeout:   time.Minute,
		ShutdownGrace:  30 * time.Second,
		Upstream: providers.ClientOptions{
			DialTimeout: 10 * time.Second, ResponseHeaderTimeout: 10 * time.Minute, StreamIdleTimeout: 5 * time.Minute,
			IdleConnTimeout: 10 * time.Second, MaxIdleConns: 1024, MaxHeader: 16 << 10,
		},
		Session: defaultSessionOptions(),
	}
}

// defaultSessionOptions are those of config.yaml.
func defaultSessionOptions() (o SessionOptions) {
	var c struct{ Session map[string]any }
	if err := errors.Join(yaml.Unmarshal(remora.Config, &c), mapstructure.Decode(c.Session, &o)); err != nil {
		panic(err)
	}
	return o
}

// rig is a proxy in front of one upstream.
type rig struct {
	*Server
	*emptyMemory // of the Server
	addr         string
	log          *bytes.Buffer // written by one handler that locks; read after the server has stopped
}

type rigOptions struct {
	upstream string    // host:port
	memory   beginTurn // of the emptyMemory by default
	kind     string
	provider func(*providers.Options)
	tune     func(*Options)
	list     net.Listener
	now      func() time.Time // time.Now by default
}

func start(t *testing.T, ro rigOptions) *rig {
	t.Helper()
	o := defaultOptions()
	o.Upstream.Proxy = func(*http.Request) (u *url.URL, err error) { return nil, nil } //nolint:nilnil // no proxy
	o.ShutdownGrace = waitLimit
	if ro.tune != nil {
		ro.tune(&o)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	po := providers.Options{Name: "test", Kind: "compatible", BaseURL: "http://" + ro.upstream + "/v1"}
	if ro.kind != "" {
		po.Kind = ro.kind
	}
	if ro.provider != nil {
		ro.provider(&po)
	}
	set, err := providers.NewSet([]providers.Options{po})
	if err != nil {
		t.Fatal(err)
	}
	ln := ro.list
	if ln == nil {
		if ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	now := ro.now
	if now == nil {
		now = time.Now
	}
	r := &rig{log: new(bytes.Buffer), addr: ln.Addr().String(), emptyMemory: &emptyMemory{tb: t}}
	r.Server = New(o, r.emptyMemory, set, slog.New(slog.NewTextHandler(r.log, nil)), now)
	if ro.memory != nil {
		r.begin = ro.memory
	}
	served := make(chan error, 1)
	go func() { served <- r.Serve(ln) }()
	t.Cleanup(func() {
		if !r.stopping.Load() {
			r.stop(t)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		if n := r.panics(); n != 0 && !strings.Contains(t.Name(), "Panic") {
			t.Errorf("%d panics:\n%s", n, r.log)
		}
	})
	return r
}

// emptyMemory is a memory that must not be asked for a turn. It knows no answers and has no rules, where a test does not set these.
type emptyMemory struct {
	tb       testing.TB
	response func(ctx context.Context, tenant, id string) (memory.Response, error)
	late     func(tenant, id string, known memory.Response) *memory.Late
	guards   func() bool
}

func (m *emptyMemory) Begin(context.Context, memory.Call) (*memory.Turn, error) {
	m.tb.Error("memory was asked for a request without a session")
	return nil, memory.ErrUnavailable
}

func (m *emptyMemory) Response(ctx context.Context, tenant, id string) (memory.Response, error) {
	if m.response == nil {
		return memory.Response{}, nil
	}
	return m.response(ctx, tenant, id)
}

func (m *emptyMemory) Late(tenant, id string, known memory.Response) *memory.Late {
	if m.late == nil {
		return nil
	}
	return m.late(tenant, id, known)
}

func (m *emptyMemory) Guards() bool { return m.guards != nil && m.guards() }

// panics counts the panics in the log. The proxy must have stopped.
func (r *rig) panics() int { return strings.Count(r.log.String(), "recovered from a panic") }

// upstreamFailures counts the failures that the log lays on upstream. The proxy must have stopped.
func (r *rig) upstreamFailures() int { return strings.Count(r.log.String(), "upstream failed") }

// overTLS is a listener for a rig.
func overTLS(t *testing.T) net.Listener {
	t.Helper()
	other := httptest.NewUnstartedServer(nil)
	other.StartTLS() // for its certificate
	defer other.Close()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return tls.NewListener(inner, other.TLS)
}

// route serves requests by two providers and what is tried after them, the first one by default.
func (r *rig) route(t *testing.T, list []retry.Entry) {
	t.Helper()
	set, err := providers.NewSet([]providers.Options{list[0].Provider, list[1].Provider})
	if err != nil {
		t.Fatal(err)
	}
	policy, err := retry.New(retry.Config{Set: set, Entries: list, Now: time.Now, Rand: func() float64 { return 0 }})
	if err != nil {
		t.Fatal(err)
	}
	r.Route(set, policy)
}

// stop shuts the proxy down and waits for all that it does.
func (r *rig) stop(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

// upstream is a server on raw TCP: serve gets each connection and may do with it what it likes.
func upstream(t *testing.T, serve func(c net.Conn, r *bufio.Reader)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan net.Conn, 1024)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(conns)
		open := make(chan struct{})
		n := 0
		for {
			c, err := ln.Accept()
			if err != nil {
				break
			}
			conns <- c
			n++
			go func() {
				defer func() { open <- struct{}{} }()
				defer shut(c)
				serve(c, bufio.NewReader(c))
			}()
		}
		for range n {
			<-open
		}
	}()
	t.Cleanup(func() {
		shut(ln)
		for {
			select {
			case c := <-conns:
				if c != nil {
					shut(c)
				}
				continue
			case <-done:
			}
			break
		}
	})
	return ln.Addr().String()
}

// answering is an upstream that reads each request and writes what answer returns for it.
func answering(t *testing.T, answer func(req *http.Request, body []byte) string) string {
	t.Helper()
	return reading(t, func(req *http.Request) string {
		body, err := io.ReadAll(req.Body)
		if err != nil {
			return ""
		}
		return answer(req, body)
	})
}

// reading is answering for answers that read the body themselves. After an empty one the connection is closed.
func reading(t *testing.T, answer func(*http.Request) string) string {
	t.Helper()
	return upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			said := answer(req)
			if _, err := io.WriteString(c, said); err != nil || said == "" {
				return
			}
		}
	})
}

// speaking is an upstream that reads a request, writes a head, and then what it is given on next, until that is closed.
func speaking(t *testing.T, head string) (addr string, next chan<- string) {
	t.Helper()
	pieces := make(chan string)
	return upstream(t, func(c net.Conn, r *bufio.Reader) {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		drain(req.Body)
		write(c, head)
		for piece := range pieces {
			write(c, piece)
		}
	}), pieces
}

// recording is an upstream that keeps every byte of each request that ends with end, and answers with a fixed text.
func recording(t *testing.T, answer string, length func(head string) int) (addr string, requests <-chan string) {
	t.Helper()
	ch := make(chan string, 100)
	return upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			var b strings.Builder
			for !strings.HasSuffix(b.String(), "\r\n\r\n") {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				b.WriteString(line)
			}
			body := make([]byte, length(b.String()))
			if _, err := io.ReadFull(r, body); err != nil {
				return
			}
			b.Write(body)
			ch <- b.String()
			if _, err := io.WriteString(c, answer); err != nil {
				return
			}
		}
	}), ch
}

func noBody(string) int { return 0 }

// dial opens a connection to the proxy.
func (r *rig) dial(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(c) })
	if err := c.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	return c, bufio.NewReader(c)
}

// exchange sends raw bytes on a connection of its own and returns all that comes back until the proxy closes it.
func (r *rig) exchange(t *testing.T, request string) string {
	t.Helper()
	c, br := r.dial(t)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(br)
	if err != nil {
		t.Fatalf("read the answer after %q: %v", all, err)
	}
	return string(all)
}

func await[T any](t *testing.T, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(waitLimit):
		t.Fatal("no " + what)
		panic("unreachable")
	}
}

// write and drain are for ends that may break off while they are used: the test sees the effect, not the error.
func write(w io.Writer, s string) { _, _ = io.WriteString(w, s) }

func drain(r io.Reader) { _, _ = io.Copy(io.Discard, r) }

func shut(c io.Closer) { _ = c.Close() }

func reader(s string) *bufio.Reader { return bufio.NewReader(strings.NewReader(s)) }
