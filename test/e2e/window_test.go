package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
	"remora/test/scripted"
)

// A small window that also leaves out items of a running tool loop.
const (
	windowItems = 20
	windowBatch = 5
)

var smallWindow = fmt.Sprintf("[{kind: history_window, max_items: %d, evict_batch: %d, in_flight: window}]", windowItems, windowBatch)

// loops are scenarios of 100 tool calls each. The model gets at most a fifth of them.
var loops = []string{
	"chat.loop100", "chat.runTools", "responses.loop100",
	"aisdk.chatLoop100", "aisdk.responsesLoop100", "aisdk.responsesReasoning30",
	"go.loop100", "go.loop100Stream", "go.responsesLoop100",
}

// TestWindowedLoops runs long tool loops through a much smaller window: the strict upstream must accept every view, every call
// must be answered, and the whole conversation must be stored.
func TestWindowedLoops(t *testing.T) {
	t.Run("bbolt", func(t *testing.T) { checkLoops(t, setup{layers: smallWindow}) })
	t.Run("redis", func(t *testing.T) {
		checkLoops(t, setup{layers: smallWindow, store: kit.StartRedis(t).URL()})
	})
}

func checkLoops(t *testing.T, s setup) {
	t.Helper()
	o := play(t, remembering, s, loops...)
	for _, name := range loops {
		if r, ok := o.records[name]; !ok || r.Thrown != nil {
			t.Errorf("%s: %v", name, r.Thrown)
		}
	}
	if len(o.faults) > 0 {
		t.Errorf("upstream met faulty histories: %q", o.faults)
	}
	checkWire(t, o)
	all := sessions(t, o.client)
	if len(all) != len(loops) {
		t.Errorf("%d sessions of %d scenarios", len(all), len(loops))
	}
	views := make(map[string][]exchange)
	for _, e := range o.upstream {
		views[e.req.header("X-Session-Id")] = append(views[e.req.header("X-Session-Id")], e)
	}
	for session, c := range all {
		t.Run(session, func(t *testing.T) {
			rounds := 100
			if strings.HasSuffix(session, "Reasoning30") {
				rounds = 30
			}
			checkRounds(t, c, rounds)
			checkViews(t, views[session], rounds)
			checkTranscript(t, c, o.proxy.transcript(t, session))
		})
	}
}

// TestHistoriesOfAnyLength: a history of tens of thousands of items is windowed and stored like any other, although its items
// take several batches of the store. The next request adds to it what is new.
func TestHistoriesOfAnyLength(t *testing.T) {
	t.Parallel()
	const items = 40_000
	var history strings.Builder
	for i := range items {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		fmt.Fprintf(&history, `{"role":%q,"content":"message %d"},`, role, i)
	}
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			g := startGate(t, smallWindow, scripted.Options{})
			asks := func(history, question string) string {
				return fmt.Sprintf(`{"model":"m","stream":%v,%q:[%s{"role":"user","content":%q}]}`, d.stream, d.list(), history, question)
			}
			first := "SAY The first answer."
			resent := history.String() + fmt.Sprintf(`{"role":"user","content":%q},{"role":"assistant","content":"The first answer."},`, first)
			for i, body := range []string{asks(history.String(), first), asks(resent, "SAY The second answer.")} {
				r := g.ask(t, d.path, body)
				memory := r.header.Get("X-Memory")
				if r.status != http.StatusOK || !strings.HasPrefix(memory, fmt.Sprintf("ok;items=%d;", items+1+2*i)) {
					t.Fatalf("request %d: %d, X-Memory: %s, %.200s", i, r.status, memory, r.body)
				}
				var sent requestBody
				decode(t, last(t, g.up).Body, &sent)
				if n := len(sent.items(t)); n == 0 || n > windowItems {
					t.Errorf("request %d: upstream got %d items", i, n)
				}
			}

			g.proxy.Stop()
			stored := g.proxy.transcript(t, "s")
			if len(stored) != items+4 {
				t.Fatalf("%d items are stored, want %d", len(stored), items+4)
			}
			for i, it := range stored[:items] {
				if text := fmt.Sprintf(`"message %d"`, i); !it.OnHead || !strings.Contains(string(it.JSON), text) {
					t.Fatalf("item %d: %s", i, it.JSON)
				}
			}
		})
	}
}

// TestWindowsBeginWithTheUser: a window may begin with an answer or a call. Servers that want the user first refuse that once, and
// the client does not see it.
func TestWindowsBeginWithTheUser(t *testing.T) {
	t.Parallel()
	g := startGate(t, "[{kind: history_window, max_items: 6, evict_batch: 2}]", scripted.Options{KindOf: byModel})
	for _, kind := range []scripted.Kind{scripted.KindBedrock, scripted.KindGemini, scripted.KindMistral} {
		for _, path := range []string{"chat/completions", "responses"} {
			t.Run(string(kind)+" "+path, func(t *testing.T) {
				d := dialect{path: path}
				c := client{g: g, d: d, session: t.Name(), habit: resendsAll, members: map[string]any{"model": kind, "tools": d.tools("rm", "ls")}}
				before := len(g.up.Faults())
				for range 4 {
					c.run(t, `CALL ls {} ;; SAY Looking. ;; CALL ls {} ;; SAY Done.`, aFile)
				}
				if f := g.up.Faults()[before:]; len(f) > 1 {
					t.Errorf("refused first: %q", f)
				}
			})
		}
	}
}

// checkRounds requires that the conversation is the whole loop: call i, its result, and the last text.
func checkRounds(t *testing.T, c *conversation, rounds int) {
	t.Helper()
	var got []string
	for _, f := range c.line {
		kind, rest, _ := strings.Cut(f, " ")
		if kind == "call" || kind == "result" {
			_, rest, _ = strings.Cut(rest, " ") // without the id
			got = append(got, kind+" "+rest)
		}
	}
	var want []string
	for i := 1; i <= rounds; i++ {
		want = append(want, fmt.Sprintf(`call step {"i":%d}`, i), fmt.Sprintf(`result step says ok to {"i":%d}`, i))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the loop is not whole (-want +got):\n%s", diff)
	}
	if last := c.line[len(c.line)-1]; last != "assistant finished" {
		t.Errorf("the loop ends with %q", last)
	}
}

// checkViews requires that upstream's views are small, begin with the user message, end with the newest result, and that the
// window moves in batches.
func checkViews(t *testing.T, views []exchange, rounds int) {
	t.Helper()
	if len(views) != rounds+1 {
		t.Errorf("upstream was asked %d times, want %d", len(views), rounds+1)
	}
	first, moves, largest := "", 0, 0
	for i, e := range views {
		var r requestBody
		decode(t, e.req.body, &r)
		var shown []string
		items := r.items(t)
		for _, it := range items {
			shown = append(shown, facts(t, it)...)
		}
		var calls []string
		for _, f := range shown {
			if strings.HasPrefix(f, "call ") {
				calls = append(calls, f)
			}
		}
		if !strings.HasPrefix(shown[0], "user ") || len(calls) == 0 != (i == 0) {
			t.Fatalf("view %d is no loop: %q", i, shown)
		}
		largest = max(largest, len(items))
		if i == 0 {
			continue
		}
		if want := fmt.Sprintf(`result step says ok to {"i":%d}`, i); !strings.HasSuffix(shown[len(shown)-1], strings.TrimPrefix(want, "result ")) {
			t.Errorf("view %d ends with %q, want %q", i, shown[len(shown)-1], want)
		}
		if calls[0] != first {
			first, moves = calls[0], moves+1
		}
	}
	// The user message of the run is in addition to the window, and a call is never separated from its result or reasoning.
	if largest > windowItems+3 || largest < windowItems-windowBatch {
		t.Errorf("the largest view has %d items, the window %d", largest, windowItems)
	}
	if most := 3*rounds/windowBatch + 1; moves > most {
		t.Errorf("the cut moved %d times, want at most %d", moves, most)
	}
}
