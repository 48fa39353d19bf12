package proxy

import (
	"bufio"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"remora/providers"
	"remora/providers/retry"
)

// BenchmarkHop compares this proxy without a session with a bare fasthttp reverse proxy of the usual thirty lines,
// under the same load in the same run: 16 clients, 2 KiB or a conversation of 256 KiB in, 4 KiB out. This proxy has a
// fallback, which nothing has to be found out for as long as no call fails.
//
//	go test -run - -bench Hop ./proxy
func BenchmarkHop(b *testing.B) {
	answer := make([]byte, 4<<10)
	target := listen(b, (&fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		ctx.Response.SetBodyRaw(answer)
	}}).Serve)
	client := &fasthttp.HostClient{Addr: target, MaxConns: 1024, DisableHeaderNamesNormalizing: true, DisablePathNormalizing: true}
	bare := listen(b, (&fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) {
		req, resp := &ctx.Request, &ctx.Response
		req.Header.Del("Connection")
		req.SetHost(target)
		if err := client.Do(req, resp); err != nil {
			ctx.Error("upstream", fasthttp.StatusBadGateway)
		}
		resp.Header.Del("Connection")
	}, DisableHeaderNamesNormalizing: true, NoDefaultServerHeader: true, NoDefaultContentType: true}).Serve)
	proxy := serveFor(b, target)
	const message = `{"role":"user","content":"func f() error {\n\treturn fmt.Errorf(\"\u00a7 4: %w\", err) // \"session_id\": none\n}"},`
	big := `{"model":"m","messages":[` + strings.Repeat(message, 256<<10/len(message)) + `{"role":"user","content":"go on"}]}`
	for _, c := range []struct{ name, path, body string }{
		{"2KiB", "/v1/embeddings", string(make([]byte, 2<<10))}, {"256KiB", "/v1/chat/completions", big},
	} {
		for _, to := range []struct{ name, addr string }{{"direct", target}, {"bare", bare}, {"proxy", proxy}} {
			b.Run(c.name+"/"+to.name, func(b *testing.B) { load(b, to.addr, c.path, c.body) })
		}
	}
}

// listen serves on a port of its own until the benchmark ends.
func listen(tb testing.TB, serve func(net.Listener) error) string {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = serve(ln) })
	tb.Cleanup(func() {
		shut(ln)
		wg.Wait()
	})
	return ln.Addr().String()
}

func serveFor(tb testing.TB, target string) string {
	tb.Helper()
	o := defaultOptions()
	o.Upstream.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	entry := retry.Entry{Provider: providers.Options{Name: "first", Kind: "compatible", BaseURL: "http://" + target + "/v1"}}
	other := retry.Entry{Provider: entry.Provider}
	other.Provider.Name, other.Provider.APIKey = "other", "k"
	entry.Resilience.Fallback = []retry.Target{{Provider: "other"}}
	set, err := providers.NewSet([]providers.Options{entry.Provider, other.Provider})
	if err != nil {
		tb.Fatal(err)
	}
	policy, err := retry.New(retry.Config{
		Set: set, Entries: []retry.Entry{entry, other}, Now: time.Now, Rand: func() float64 { return 0 },
	})
	if err != nil {
		tb.Fatal(err)
	}
	s := New(o, &emptyMemory{tb: tb}, set, slog.New(slog.DiscardHandler), time.Now)
	s.Route(set, policy)
	tb.Cleanup(s.watcher.close)
	tb.Cleanup(s.client.Close)
	return listen(tb, s.Serve)
}

const clients = 16

// load sends b.N requests over 16 connections.
func load(b *testing.B, addr, path, body string) {
	b.Helper()
	request := []byte("POST " + path + " HTTP/1.1\r\nHost: api.example\r\nUser-Agent: OpenAI/JS 6.1.0\r\nAccept: application/json\r\n" +
		"Content-Type: application/json\r\nAuthorization: Bearer sk-0123456789abcdef\r\nX-Stainless-Lang: js\r\n" +
		"X-Stainless-Retry-Count: 0\r\nAccept-Encoding: gzip, br\r\nConnection: keep-alive\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body)
	work := make(chan struct{}, 1024)
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	before := cpu(b)
	defer func() { b.ReportMetric(float64(cpu(b)-before)/float64(b.N)/1e3, "cpu-us/op") }()
	for range clients {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			if err != nil {
				b.Error(err)
				return
			}
			defer shut(c)
			br := bufio.NewReader(c)
			var resp fasthttp.Response
			for range work {
				if _, err := c.Write(request); err != nil {
					b.Error(err)
					return
				}
				if err := resp.Read(br); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range b.N {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
}

// cpu is the processor time of this process, all ends of the connections included. Unlike the wall clock it hardly
// depends on what else the machine does.
func cpu(tb testing.TB) int64 {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// TestPassthroughAllocations keeps the hop free of garbage: the remaining allocations are fasthttp's.
func TestPassthroughAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	answer := make([]byte, 4<<10)
	target := listen(t, (&fasthttp.Server{Handler: func(ctx *fasthttp.RequestCtx) { ctx.Response.SetBodyRaw(answer) }}).Serve)
	addr := serveFor(t, target)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer shut(c)
	br := bufio.NewReader(c)
	var resp fasthttp.Response
	one := func() {
		write(c, "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer k\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\n{}")
		if err := resp.Read(br); err != nil {
			t.Fatal(err)
		}
	}
	one()
	// Client and both servers together.
	if n := testing.AllocsPerRun(500, one); n > 3 {
		t.Errorf("%v allocations per request", n)
	}
}

// BenchmarkWatch measures watching a request; the limit is 200 ns.
func BenchmarkWatch(b *testing.B) {
	w := newWatcher(sweepEvery)
	defer w.close()
	a, z := net.Pipe()
	defer shut(a)
	defer shut(z)
	b.RunParallel(func(pb *testing.PB) {
		x := &watch{onEnd: func(end) {}}
		w.assign(x)
		for pb.Next() {
			w.add(x, a)
			w.remove(x)
		}
	})
}

// TestManyStreams opens streams and reports what each of them costs. The limit holds for the proxy with both ends of
// the connections in the same process, which makes it a ceiling.
func TestManyStreams(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("measures memory")
	}
	const n = 1000
	release := make(chan struct{})
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		write(c, eventHead+chunk("data: x\n\n"))
		<-release
		write(c, "0\r\n\r\n")
	})
	r := start(t, rigOptions{upstream: addr})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	readers := make([]*bufio.Reader, n)
	for i := range readers {
		c, br := r.dial(t)
		write(c, "GET /v1/x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		if _, err := br.ReadString('x'); err != nil {
			t.Fatal(err)
		}
		readers[i] = br
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := (after.HeapInuse + after.StackInuse - before.HeapInuse - before.StackInuse) / n
	// 4 KiB of reader and a stack of each of the two other ends are not the proxy's.
	t.Logf("%d KiB a stream, both ends included", used>>10)
	if used > 80<<10 {
		t.Errorf("%d KiB a stream", used>>10)
	}
	close(release)
	for _, br := range readers {
		if _, err := br.ReadString('z'); err == nil {
			t.Error("no end")
		}
	}
}
