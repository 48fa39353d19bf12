package soak

import (
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/test/kit"
)

var (
	bodies    = flag.Int("bodies", 12, "how many large bodies TestBodies sends at once")
	bodyBytes = flag.Int("body-bytes", 5<<20, "how large each of them is")
	bodyGC    = flag.String("body-gogc", "5", "GOGC of the proxy: a small value measures the memory in use, without garbage; empty for the value that the proxy sets")
)

// TestBodies sends large conversations concurrently, and reports the peak memory above that of the idle process, and the time for
// all of them. It fails if the proxy holds one copy too many: it needs each body, and the body that it sends if that differs.
func TestBodies(t *testing.T) {
	t.Setenv("GOGC", *bodyGC)
	for _, c := range []struct {
		name   string
		memory string  // the section of the configuration
		copies float64 // of each body, or of some of them in the spool
		largeBodies
	}{
		{"without a session", shippedLayers, 1, largeBodies{path: chatPath}},
		{"with sessions", shippedLayers, 1, largeBodies{path: chatPath, session: true}},
		{"with sessions and layers", "", 1, largeBodies{path: chatPath, session: true, streamed: true}},
		{"with sessions, where nothing can be compressed", window, 1, largeBodies{path: responsesPath, session: true, random: true, redis: true}},
		{"with sessions, of unknown length", window, 1.25, largeBodies{path: responsesPath, session: true, chunked: true}},
		{"with sessions, and views as large", wholeViews, 2, largeBodies{path: chatPath, session: true, random: true}},
		{"with sessions, and streamed views as large", wholeViews, 2, largeBodies{path: responsesPath, session: true, random: true, streamed: true, redis: true}},
		{"with sessions, while the store is down", window, 1.5, largeBodies{path: chatPath, session: true, random: true, redis: true, down: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			upstreams := provider(newUpstream(t))
			if c.memory != "" {
				upstreams, _, _ = strings.Cut(upstreams, "memory:")
				upstreams += c.memory
			}
			store := "bolt:bodies.db"
			var redis *kit.Redis
			if c.redis {
				redis = kit.StartRedis(t)
				store = redis.URL()
			}
			p := start(t, patient(store), upstreams)
			if c.down {
				redis.Kill()
			}
			idle := p.memory(t, "VmHWM")

			all := make([]string, *bodies)
			for i := range all {
				all[i] = c.conversation(uint64(i), *bodyBytes)
			}
			begun := time.Now()
			var work sync.WaitGroup
			for i, body := range all {
				work.Go(func() { c.post(t, p, fmt.Sprintf("large-%d", i), body) })
			}
			work.Wait()
			took := time.Since(begun)

			sent := float64(*bodies) * float64(*bodyBytes) / (1 << 20)
			need := p.memory(t, "VmHWM") - idle
			cpu := p.look(t).cpu
			t.Logf("%d bodies, %.0f MiB: at most %.0f MiB more than idle (%.1f of each byte), %s, %s of processor time (%s for each body)",
				*bodies, sent, need, need/sent, took.Round(time.Millisecond), cpu.Round(time.Millisecond), (cpu / time.Duration(*bodies)).Round(time.Millisecond))
			// Beside the bodies: the portions of four turns that are being written, what layers and indexes keep, some garbage.
			const beside = 76
			most := c.copies*sent + beside
			if *bodyGC == "" {
				most = most*4/3 + 32 // see ballastBytes and heapGrowth in cmd/remora
			}
			if need > most {
				t.Errorf("at most %.0f MiB more than idle, want %.0f: %.0f for each byte", need, most, c.copies)
			}
		})
	}
}

// Sections memory: with window, views are a part of the conversation; with wholeViews all of it, and a block.
const (
	window     = "memory: {layers: [{kind: history_window, max_tokens: 64000, evict_share: 0.5, in_flight: window}]}\n"
	wholeViews = "memory: {policy: {token_budget: 0}, layers: [{kind: static_content, text: Answer in British English.}]}\n"
)

// shippedLayers are the layers of config.yaml, with time for the words of large bodies: other suites share the machine.
const shippedLayers = `memory: {layers: [
  {kind: entity_memory, timeouts: {recall: 10m}}, {kind: semantic_recall, timeouts: {recall: 10m}},
  {kind: history_window, max_tokens: 64000, evict_share: 0.5, in_flight: window}]}
`

// largeBodies are requests of one kind.
type largeBodies struct {
	path     string
	session  bool // each has one
	streamed bool // the answer is
	chunked  bool // the request is
	random   bool // it is of random letters instead of words
	redis    bool // the store is Redis instead of a file
	down     bool // the store, so that turns go to the spool
}

const (
	chatPath      = "/v1/chat/completions"
	responsesPath = "/v1/responses"
)

// post sends a body, and requires a complete answer. It comes late: until then, all bodies have to be held.
func (l *largeBodies) post(t *testing.T, p *proxy, session, body string) {
	t.Helper()
	var from io.Reader = strings.NewReader(body)
	if l.chunked {
		from = io.MultiReader(from) // hides its length
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+l.path, from)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if l.session {
		req.Header.Set("X-Session-Id", session)
	}
	req.Header.Set(everyHeader, "500ms")
	if l.streamed {
		req.Header.Set(piecesHeader, "10")
		req.Header.Set(everyHeader, "50ms")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	want := ""
	switch {
	case l.down:
		want = "degraded"
	case l.session:
		want = "ok"
	}
	if err != nil || resp.StatusCode != http.StatusOK || !strings.HasPrefix(resp.Header.Get("X-Memory"), want) {
		t.Errorf("%d %v, X-Memory: %s, %.200s", resp.StatusCode, err, resp.Header.Get("X-Memory"), answer)
	}
}

// conversation returns a request of size bytes, with messages of a few thousand bytes each.
func (l *largeBodies) conversation(seed uint64, size int) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	words := strings.Fields("the window keeps what a model needs while older results of tools such as build logs listings and diffs are left out of it")
	random := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.Grow(size + 16<<10)
	list := "messages"
	if l.path == responsesPath {
		list = "input"
	}
	fmt.Fprintf(&b, `{"model":"gpt-5-mini","stream":%t,%q:[`, l.streamed, list)
	for n := 0; b.Len() < size; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":"message %d of %d: `, []string{"user", "assistant"}[n%2], n, seed)
		for end := b.Len() + 2000 + random.IntN(8000); b.Len() < end; {
			if l.random {
				b.WriteByte(alphabet[random.IntN(len(alphabet))])
				continue
			}
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte(' ')
		}
		b.WriteString(`"}`)
	}
	b.WriteString(`,{"role":"user","content":"and now?"}]}`)
	return b.String()
}
