package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestMain runs the benchmark's children in the test binary, as the benchmark does in its own.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "-role" {
		main()
		return
	}
	os.Exit(m.Run())
}

// sendInPieces returns a client of a server that sends text in pieces of arbitrary size.
func sendInPieces(t *rapid.T, text string) *conn {
	client, server := net.Pipe()
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	size := rapid.IntRange(1, len(text)).Draw(t, "size")
	go func() {
		for piece := range slices.Chunk([]byte(text), size) {
			if _, err := server.Write(piece); err != nil {
				return
			}
		}
		_ = server.Close()
	}()
	return newConn(client)
}

func TestReceive(t *testing.T) {
	f := func(text, wantBody, wantMemory string, wantStatus int) {
		t.Helper()
		rapid.Check(t, func(t *rapid.T) {
			// Two answers: the first read must end at the beginning of the second.
			c := sendInPieces(t, text+text)
			for range 2 {
				var r reply
				var body []byte
				if err := c.receive(&r, func(p []byte) { body = append(body, p...) }); err != nil {
					t.Fatal(err)
				}
				if string(body) != wantBody || string(r.memory) != wantMemory || r.status != wantStatus || r.first.IsZero() {
					t.Fatalf("have %d %q, X-Memory %q", r.status, body, r.memory)
				}
			}
		})
	}
	f("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-memory: ok;items=3\r\n\r\nhello", "hello", "ok;items=3", 200)
	f("HTTP/1.1 503 Sorry\r\ncontent-length:0\r\n\r\n", "", "", 503)
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nA;x=y\r\n, you all!\r\n0\r\n\r\n", "hello, you all!", "", 200)
}

func TestReceiveRefuses(t *testing.T) {
	f := func(text string) {
		t.Helper()
		rapid.Check(t, func(t *rapid.T) {
			if err := sendInPieces(t, text).receive(new(reply), nil); err == nil {
				t.Fatal("no error")
			}
		})
	}
	f("SSH-2.0-OpenSSH\r\n")
	f("HTTP/1.1 200 OK\r\n\r\nto the end")
	f("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n")
	f("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
	f("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello, more\r\n0\r\n\r\n")
}

func TestStampsDoNotDependOnPieces(t *testing.T) {
	at := time.Unix(1_763_689_200, 0)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(t, "events")
		var text []byte
		var want []time.Duration
		for i := range n {
			want = append(want, time.Duration(i)*time.Millisecond)
			text = fmt.Appendf(text, `data: {"choices":[],%s%d"}`+"\n\n", stampMark, at.Add(-want[i]).UnixNano())
		}
		var s stamps
		for piece := range slices.Chunk(text, rapid.IntRange(1, 200).Draw(t, "size")) {
			s.take(piece, at)
		}
		if diff := cmp.Diff(want, s.delays); diff != "" {
			t.Fatal(diff)
		}
	})
}

type message struct{ Role, Content string }

// readRequest parses a request of a talker.
func readRequest(t *testing.T, raw []byte) (session string, messages []message) {
	t.Helper()
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(raw) - bytes.Index(raw, []byte("\r\n\r\n")) - 4; n != len(text) {
		t.Fatalf("Content-Length says %d of %d bytes", len(text), n)
	}
	var body struct{ Messages []message }
	if err := json.Unmarshal(text, &body); err != nil {
		t.Fatal(err)
	}
	return r.Header.Get("X-Session-Id"), body.Messages
}

// TestSessionsContinue: every request of a session is the turn after the previous one, as with real clients.
func TestSessionsContinue(t *testing.T) {
	f := func(said *dialogue, turns []span, answer string) {
		t.Helper()
		talk := newTalker(said, turns, "s", 3)
		talk.named = true
		last, count := map[string][]message{}, map[string]int{}
		for range 3 * 2 * len(turns) {
			id, messages := readRequest(t, talk.next(nil))
			if before := last[id]; before != nil {
				before = append(before, message{"assistant", answer})
				if len(messages) != len(before)+1 {
					t.Fatalf("session %s: %d messages after %d", id, len(messages), len(before))
				}
				if diff := cmp.Diff(before, messages[:len(before)]); diff != "" {
					t.Fatalf("session %s does not go on: %s", id, diff)
				}
			}
			last[id] = messages
			count[id]++
		}
		if len(count) != 6 {
			t.Errorf("have %d sessions, want 6: each ends after its turns", len(count))
		}
		for id, n := range count {
			if n != len(turns) {
				t.Errorf("session %s had %d turns instead of %d", id, n, len(turns))
			}
		}
	}
	f(smallDialogue(), growing(1, smallTurns), answerText)
	f(streamDialogue(5), growing(1, smallTurns), strings.Repeat(streamWord, 5))
	f(bigDialogue(), growing(bigMessages-1, 1+bigTurns), answerText)
}

func TestSizesOfBodies(t *testing.T) {
	var sum int
	for _, s := range growing(1, smallTurns) {
		sum += smallDialogue().size(s)
	}
	if kb := float64(sum) / smallTurns / 1000; kb < 0.35 || kb > 0.5 {
		t.Errorf("small bodies have %.2f KB, want 0.4", kb)
	}
	if kb := bigDialogue().size(span{0, bigMessages + 1}) >> 10; kb < 245 || kb > 270 {
		t.Errorf("big bodies have %d KB, want 256", kb)
	}
	if len(answerBody) < 380 || len(answerBody) > 480 {
		t.Errorf("the answer has %d bytes, want 0.4 KB", len(answerBody))
	}
}

// TestHabitsDifferInStoredItemsOnly: short and long sessions get equal requests, and have the expected number of items.
func TestHabitsDifferInStoredItemsOnly(t *testing.T) {
	for _, h := range habits() {
		said := newDialogue(flatMany+100, answerText, number)
		for _, n := range []int{h.few, flatMany} {
			stored := 0
			for _, turn := range h.prepare(n) {
				// A request begins with the user's message and ends with one.
				if turn.from > stored || turn.to <= stored || turn.from%2 != 0 || turn.to%2 != 1 {
					t.Errorf("%s: turn %v after %d stored items", h.name, turn, stored)
				}
				stored = turn.to + 1
			}
			if stored != n {
				t.Errorf("%s: %d items stored instead of %d", h.name, stored, n)
			}
		}
		few, many := h.next(h.few), h.next(flatMany)
		if a, b := said.size(few), said.size(many); a != b || few.to-few.from != h.sends {
			t.Errorf("%s: bodies of %d and %d bytes, %v and %v", h.name, a, b, few, many)
		}
	}
}

func TestMemoryHeader(t *testing.T) {
	f := func(header string, wantOK bool, wantItems int) {
		t.Helper()
		if ok, items := remembered([]byte(header)), memoryItems([]byte(header)); ok != wantOK || items != wantItems {
			t.Errorf("%q: remembered %v, %d items", header, ok, items)
		}
	}
	f(`ok;items=12;sent=8;windowed=4;source="x-session-id"`, true, 12)
	f(`ok`, true, -1)
	f(`degraded;items=2;sent=2`, false, 2)
	f(`degraded;items=2;sent=2;skipped="notes:recall"`, true, 2)
	f(`off`, false, -1)
	f(`okay`, false, -1)
	f(``, false, -1)
}

func TestQuantiles(t *testing.T) {
	f := func(values []float64, share, want float64) {
		t.Helper()
		if have := quantile(values, share); have != want {
			t.Errorf("quantile %v of %v is %v, want %v", share, values, have, want)
		}
	}
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	f(hundred, 0.5, 50)
	f(hundred, 0.99, 99)
	f(hundred, 1, 100)
	f(hundred, 0, 1)
	f([]float64{7}, 0.99, 7)
	if m := median([]float64{3, math.NaN(), 1, 2, 10}); m != 2.5 {
		t.Errorf("median is %v, want 2.5", m)
	}
	if m := median(nil); !math.IsNaN(m) {
		t.Errorf("median of nothing is %v", m)
	}
}

func TestComparedByRounds(t *testing.T) {
	r := results{}
	for round, pair := range [][2]float64{{10, 20}, {50, 100}, {0, 0}, {30, 90}} {
		if round == 2 {
			r.put("b", throughput, round, 1) // a failed in this round
			continue
		}
		r.put("a", throughput, round, pair[0])
		r.put("b", throughput, round, pair[1])
	}
	if have := r.compared("a", "b", throughput, ratio); have != 0.5 {
		t.Errorf("ratio is %v, want 0.5: round 2 does not count", have)
	}
}

func TestTargets(t *testing.T) {
	b := &report{results: results{}, variants: []variant{{name: bare}, {name: none}, {name: onBolt, named: true}, {name: onRedis, named: true}}}
	put := func(v string, m measure, value float64) { b.results.put(v, m, 0, value) }
	put(bare, throughput, 1000)
	put(none, throughput, 860)
	put(onRedis, throughput, 340)
	put(bare, p50, 0.1)
	put(none, p50, 0.16)
	put(onBolt, bigCPU, 2.5) // the worst of the sessions counts
	put(onRedis, bigCPU, 1)
	put(none, idleMemory, 20)
	put(onBolt, idleMemory, 30)
	put(onRedis, idleMemory, 25)
	put(none, startup, 20) // the others have no figures: no result
	b.flatness = []flatness{{
		variant: onRedis, habit: "h", few: costs{cpu: []float64{1}, p50: []float64{1}}, many: costs{cpu: []float64{1.2}, p50: []float64{1.4}},
	}}
	met := map[string]bool{}
	for _, target := range b.targets() {
		met[target.name] = target.met
	}
	want := map[string]bool{
		"no session: throughput of the bare proxy's":                  true,
		"no session: p50 over the bare proxy's":                       false,
		"session on Redis: throughput of the bare proxy's":            false,
		"256 KB with a session: CPU of a request":                     false,
		"session, Redis, h: cost with 0 items stored, of that with 0": false,
		"memory when idle": true,
	}
	if diff := cmp.Diff(want, met); diff != "" {
		t.Error(diff)
	}
}

// TestPhasesMeasure runs all phases once, briefly, with real children.
func TestPhasesMeasure(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, addr, err := launchRole(t.Context(), self, "-role", "upstream")
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	l := &lab{dir: t.TempDir(), self: self, upstream: addr}
	b := newBench(l, options{quick: true, rounds: 1}, io.Discard)
	b.variants = []variant{{name: direct, start: startDirect}, {name: bare, start: startBare("")}}
	b.problems, b.flat = nil, false
	b.plan.warm, b.plan.load, b.plan.steady, b.plan.burst = 10*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond, 20*time.Millisecond
	b.plan.streamChunks, b.plan.bigSessions = 3, 1
	if err := b.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(b.problems) > 0 {
		t.Error(b.problems)
	}
	for _, m := range []measure{throughput, p50, p99, firstByteP50, chunkP50, streamsPerSec, bigP50} {
		for _, v := range []string{direct, bare} {
			if value := b.results.median(v, m); !(value > 0) {
				t.Errorf("%s: %s is %v", v, m, value)
			}
		}
	}
	if first := b.results.median(direct, firstByteP50); first < 19 {
		t.Errorf("the first byte came after %.1f ms, but upstream waits for %s", first, streamSpacing)
	}
	for _, m := range []measure{requestCPU, bigCPU, idleMemory, peakMemory, startup} {
		if value := b.results.median(bare, m); !(value > 0) {
			t.Errorf("%s: %s is %v", bare, m, value)
		}
	}
	report := b.markdown()
	for _, want := range []string{"| direct | bare fasthttp |", "| requests/s, 32 connections |", "| start to first answer, ms | - |"} {
		if !strings.Contains(report, want) {
			t.Errorf("the report lacks %q:\n%s", want, report)
		}
	}
	if names := slices.Sorted(maps.Keys(b.results)); !slices.Equal(names, []string{bare, direct}) {
		t.Errorf("results of %v", names)
	}
}
