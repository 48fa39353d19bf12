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
)

var (
	bodies    = flag.Int("bodies", 6, "how many large bodies TestBodies sends at once")
	bodyBytes = flag.Int("body-bytes", 5<<20, "how large each of them is")
	bodyStore = flag.String("body-store", "bolt:bodies.db", "where TestBodies keeps them")
)

// TestBodies sends large conversations concurrently, each in its own session. It reports the peak memory above that of the idle
// process, and the time for all of them.
func TestBodies(t *testing.T) {
	for _, c := range []struct {
		name                     string
		sessions, layers, random bool
	}{
		{"without a session", false, false, false},
		{"with sessions", true, false, false},
		{"with sessions and layers", true, true, false},
		{"with sessions, where nothing can be compressed", true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			upstreams := provider(newUpstream(t))
			if !c.layers {
				upstreams, _, _ = strings.Cut(upstreams, "memory:")
				upstreams += shippedLayers
			}
			p := start(t, patient(*bodyStore), upstreams)
			idle := p.memory(t, "VmHWM")

			all := make([]string, *bodies)
			for i := range all {
				all[i] = conversation(uint64(i), *bodyBytes, c.random)
			}
			begun := time.Now()
			var work sync.WaitGroup
			for i, body := range all {
				session := ""
				if c.sessions {
					session = fmt.Sprintf("large-%d", i)
				}
				work.Go(func() { p.post(t, session, body) })
			}
			work.Wait()
			took := time.Since(begun)

			sent := float64(*bodies) * float64(*bodyBytes) / (1 << 20)
			need := p.memory(t, "VmHWM") - idle
			cpu := p.look(t).cpu
			t.Logf("%d bodies, %.0f MiB: at most %.0f MiB more than idle (%.1f of each byte), %s, %s of processor time (%s for each body)",
				*bodies, sent, need, need/sent, took.Round(time.Millisecond), cpu.Round(time.Millisecond), (cpu / time.Duration(*bodies)).Round(time.Millisecond))
			// The body, copies of those being written, and uncollected garbage, of which layers that may finish make some more.
			const each, beside = 2.5, 120
			if need > each*sent+beside {
				t.Errorf("at most %.0f MiB more than idle, want %.0f", need, each*sent+beside)
			}
		})
	}
}

// shippedLayers are the layers of config.yaml, with time for the words of large bodies: other suites share the machine.
const shippedLayers = `memory: {layers: [
  {kind: entity_memory, timeouts: {recall: 10m}}, {kind: semantic_recall, timeouts: {recall: 10m}},
  {kind: history_window, max_tokens: 64000, evict_share: 0.5, in_flight: window}]}
`

// post sends a body, and requires a complete answer.
func (p *proxy) post(t *testing.T, session, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	if session != "" {
		req.Header.Set("X-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || session != "" && !strings.HasPrefix(resp.Header.Get("X-Memory"), "ok") {
		t.Errorf("%d %v, X-Memory: %s, %.200s", resp.StatusCode, err, resp.Header.Get("X-Memory"), answer)
	}
}

// conversation returns a request of size bytes, with messages of a few thousand bytes each: of words, or of random letters.
func conversation(seed uint64, size int, letters bool) string {
	const alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/"
	words := strings.Fields("the window keeps what a model needs while older results of tools such as build logs listings and diffs are left out of it")
	random := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	b.Grow(size + 16<<10)
	b.WriteString(`{"model":"gpt-5-mini","messages":[`)
	for n := 0; b.Len() < size; n++ {
		if n > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"role":%q,"content":"message %d of %d: `, []string{"user", "assistant"}[n%2], n, seed)
		for end := b.Len() + 2000 + random.IntN(8000); b.Len() < end; {
			if letters {
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
