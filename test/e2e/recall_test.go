package e2e

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// TestResourceSharesMemory: a fact of one session is recalled in others of the same resource only.
func TestResourceSharesMemory(t *testing.T) {
	g := startGate(t, "[{kind: working_memory, scope: resource}, {kind: observational_memory}]", scripted.Options{})
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			ada := "X-Resource-Id: ada " + d.String()
			g.say(t, d, "My favourite tea is Oolong from Wuyi.", "X-Session-Id: one "+d.String(), ada)
			g.say(t, d, `CALL working-memory_update {"city":"Lucerne"} ;; SAY Noted.`, "X-Session-Id: one "+d.String(), ada)
			for _, c := range []struct {
				name    string
				headers []string
				knows   bool
			}{
				{"same resource", []string{"X-Session-Id: two " + d.String(), ada}, true},
				{"another resource", []string{"X-Session-Id: three " + d.String(), "X-Resource-Id: bob"}, false},
				{"no resource", []string{"X-Session-Id: four " + d.String()}, false},
				{"another key", []string{"X-Session-Id: two " + d.String(), ada, "Authorization: Bearer sk-other"}, false},
				{"another key, first session", []string{"X-Session-Id: one " + d.String(), ada, "Authorization: Bearer sk-other"}, false},
			} {
				r := g.say(t, d, "What do you know of me?", c.headers...)
				for _, fact := range []string{"Oolong", "Lucerne"} {
					if strings.Contains(g.seen(t), fact) != c.knows {
						t.Errorf("%s: upstream sees %s: %v, want %v (X-Memory %s)", c.name, fact, !c.knows, c.knows, r.header.Get("X-Memory"))
					}
				}
			}
		})
	}
	g.sound(t)
}

// TestServerHistoryHasHiddenCalls: a client that sends only new items gets its history back with the hidden calls.
func TestServerHistoryHasHiddenCalls(t *testing.T) {
	g := startGate(t, notes, scripted.Options{})
	for _, d := range dialects {
		for _, mode := range []string{"auto", "server"} {
			t.Run(mode+" "+d.String(), func(t *testing.T) {
				session, history := "X-Session-Id: "+t.Name(), "X-History: "+mode
				g.say(t, d, `SAY One moment. ;; CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, session, history)
				g.say(t, d, "SAY Bye.", session, history)
				var r requestBody
				decode(t, []byte(g.seen(t)), &r)
				var got []string
				for _, it := range r.items(t) {
					for _, f := range facts(t, it) {
						if kind, _, _ := strings.Cut(f, " "); kind != "system" && kind != "developer" {
							got = append(got, kind)
						}
					}
				}
				want := []string{"user", "call", "result", "assistant", "user"}
				if d.path == "responses" {
					// Two messages with the call between them; in Chat the client's answer is one message.
					want = []string{"user", "assistant", "call", "result", "assistant", "user"}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("the second view (-want +got):\n%s\n%s", diff, g.seen(t))
				}
			})
		}
	}
	g.sound(t)
}

// TestUpstreamWithoutTools: if upstream refuses tools, the request is retried without them, once. Other refusals that mention
// tools, such as the client's own, are not retried.
func TestUpstreamWithoutTools(t *testing.T) {
	up := startUpstream(t, scripted.Options{})
	var asked, refused atomic.Int32
	var status atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		body := readAll(t, r.Body)
		if strings.Contains(body, `"model":"plain"`) && strings.Contains(body, `"tools"`) || strings.Contains(body, "BAD") {
			refused.Add(1)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(int(status.Load()))
			w.(http.Flusher).Flush() // without a length, like gateways
			_, _ = fmt.Fprint(w, `{"error":{"message":"No endpoints found that support tool use.","code":404}}`)
			return
		}
		req, err := http.NewRequestWithContext(r.Context(), r.Method, up.URL()+r.URL.Path, strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return
		}
		req.Header = r.Header.Clone()
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		w.Header().Set("Content-Type", res.Header.Get("Content-Type"))
		w.WriteHeader(res.StatusCode)
		_, _ = fmt.Fprint(w, readAll(t, res.Body))
	}))
	t.Cleanup(front.Close)
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	for i, code := range []int{http.StatusBadRequest, http.StatusNotFound} {
		status.Store(int32(code))
		g := gateTo(t, setup{upstream: front.URL, layers: notes})
		g.up = up
		body := func(model, text string) string {
			return fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":%q}]}`, model, text)
		}
		asked.Store(0)
		refused.Store(0)
		if r := g.ask(t, "chat/completions", body("other", "BAD"), fmt.Sprintf("X-Session-Id: bad %d", i)); r.status != code {
			t.Errorf("a request that is refused anyway: status %d, want %d", r.status, code)
		}
		if r := g.ask(t, "chat/completions", body("other", "SAY Hi."), fmt.Sprintf("X-Session-Id: other %d", i)); r.status != http.StatusOK ||
			!strings.Contains(g.seen(t), "working-memory_update") {
			t.Errorf("a model with tools has lost them: %d, upstream saw %s", r.status, g.seen(t))
		}
		asked.Store(0)
		refused.Store(0)
		for n := range 3 {
			r := g.ask(t, "chat/completions", body("plain", "SAY Hi."), fmt.Sprintf("X-Session-Id: plain %d %d", i, n))
			if r.status != http.StatusOK || !strings.Contains(r.body, "Hi.") {
				t.Errorf("request %d: %d %s", n, r.status, r.body)
			}
		}
		if asked.Load() != 4 || refused.Load() != 1 {
			t.Errorf("%d: upstream was asked %d times and refused %d, want 4 and 1", code, asked.Load(), refused.Load())
		}
		g.proxy.Stop()
	}
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}

// layerTimeout is the time limit of the layers in TestBadLayers.
const layerTimeout = 300 * time.Millisecond

// TestBadLayers: an http layer that hangs, disconnects or gives invalid or too large answers costs at most its timeout, and
// X-Memory names it.
func TestBadLayers(t *testing.T) {
	bad := map[string]http.HandlerFunc{
		"hangs": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body) // needed to detect that the caller disconnects
			<-r.Context().Done()
		},
		"trickles": trickle,
		"panics":   func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"garbage":  func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "\x00<html>not JSON") },
		"shape":    func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, `{"messages":{"a":[1]}}`) },
		"content": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprint(w, `{"items":[{"role":"user","content":"hi"}]}`)
		},
		"huge": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"messages":[%q]}`, strings.Repeat("x", 10<<20))
		},
		"fails":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"redirects": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
	}
	for _, name := range slices.Sorted(maps.Keys(bad)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := httptest.NewServer(bad[name])
			t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
			g := startGate(t, fmt.Sprintf("[{kind: http, id: mine, url: '%s', hooks: [recall, on_item_append, before_tool_call, store], "+
				"timeouts: {recall: %[2]s, on_item_append: %[2]s, before_tool_call: %[2]s, store: %[2]s}}]", srv.URL, layerTimeout), scripted.Options{})
			d := dialect{"chat/completions", true}
			// Three hooks before the end of the answer, one after the other, and some time for a busy machine.
			const most = 3*layerTimeout + 5*time.Second
			for n, fastest := 0, 2*most; n < 2 || n < 6 && fastest > most; n++ {
				begun := time.Now()
				r := g.say(t, d, "SAY Hi. ;; CALL ls {}", fmt.Sprintf("X-Session-Id: %s %d", name, n))
				took := time.Since(begun)
				if want := []string{"assistant Hi.", "call ls {}"}; !slices.Equal(d.facts(t, r), want) {
					t.Errorf("the client sees %s", r.body)
				}
				if m := r.header.Get("X-Memory"); !strings.HasPrefix(m, "degraded;") ||
					!strings.Contains(m, "mine:recall") && !strings.Contains(m, "mine:on_item_append") {
					t.Errorf("X-Memory does not say which layer fails: %s", m)
				}
				if fastest = min(fastest, took); n == 5 && fastest > most {
					t.Errorf("each of the calls took %s or longer, want at most %s", fastest, most)
				}
			}
			g.proxy.Stop() // waits for the layers' hooks after the answer
		})
	}
}

// trickle sends single bytes forever.
func trickle(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		_, _ = fmt.Fprint(w, " ")
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}
