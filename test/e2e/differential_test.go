package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/scripted"
)

// mode is the SDKs' path to upstream.
type mode int

const (
	direct      mode = iota
	passing          // through the proxy, no session
	remembering      // through the proxy, each conversation with its own session
)

// outcome is everything observable of a run of the scenarios.
type outcome struct {
	records map[string]record
	// client is the traffic between SDK and proxy, upstream the traffic between proxy and upstream.
	client, upstream []exchange
	faults           []string
	proxy            *proxy
}

// play runs scenarios, all of them if only is empty, against a new upstream.
func play(t *testing.T, m mode, s setup, only ...string) outcome {
	t.Helper()
	up := startUpstream(t, scripted.Options{Echo: true})
	if m == direct {
		return outcome{records: runSDKs(t, up.URL(), false, only), faults: up.Faults()}
	}
	behind := startTap(t, up.URL())
	s.upstream = behind.url()
	o := outcome{proxy: startProxy(t, s)}
	front := startTap(t, o.proxy.URL)
	o.records = runSDKs(t, front.url(), m == remembering, only)
	o.faults = up.Faults()
	front.close()
	if strings.HasPrefix(s.store, "redis") {
		// The transcripts are read while the proxy runs.
		behind.close()
	} else {
		o.proxy.Stop()
		behind.close()
	}
	o.client, o.upstream = front.exchanges(t), behind.exchanges(t)
	return o
}

var (
	directOnce sync.Once
	directRun  outcome
)

// withoutProxy returns the results of all scenarios without a proxy. They run once for all tests.
func withoutProxy(t *testing.T) outcome {
	t.Helper()
	directOnce.Do(func() { directRun = play(t, direct, setup{}) })
	if len(directRun.records) == 0 {
		t.Fatal("the scenarios did not run without a proxy; another test says why")
	}
	return directRun
}

func runSDKs(t *testing.T, origin string, session bool, only []string) map[string]record {
	t.Helper()
	isGo := func(name string) bool { return strings.HasPrefix(name, "go.") }
	records := make(map[string]record)
	if len(only) == 0 || !slices.ContainsFunc(only, isGo) || !allOf(only, isGo) {
		forNode := slices.DeleteFunc(slices.Clone(only), isGo)
		maps.Copy(records, runNode(t, nodeOptions{BaseURL: origin + "/v1", Session: session, Only: forNode}))
	}
	if len(only) == 0 || slices.ContainsFunc(only, isGo) {
		maps.Copy(records, runGo(t, origin+"/v1", session, only...))
	}
	return records
}

func allOf(names []string, f func(string) bool) bool {
	return !slices.ContainsFunc(names, func(n string) bool { return !f(n) })
}

// repaired are the scenarios with an intentionally invalid history: with a session, Remora repairs it.
var repaired = []string{"faults.orphanChat", "faults.orphanResponses"}

// brokenBody is the scenario with an answer whose body, which is not streamed, ends early. With a session such an answer is
// held until it is committed, so its client gets an error status instead of a broken connection.
const brokenBody = "faults.cutBody"

// TestSameResults: with an SDK, the proxy gives the same results as the API, with and without a session.
func TestSameResults(t *testing.T) {
	want := withoutProxy(t)
	for name, r := range want.records {
		if r.Thrown != nil {
			t.Fatalf("%s fails without a proxy: %v", name, r.Thrown)
		}
	}
	if len(want.faults) != len(repaired) {
		t.Fatalf("the scenarios have faulty histories of their own: %q", want.faults)
	}
	t.Run("passing", func(t *testing.T) {
		got := play(t, passing, setup{})
		compare(t, want, got, nil)
		checkWire(t, got)
		if len(got.faults) != len(repaired) {
			t.Errorf("upstream met faulty histories: %q", got.faults)
		}
	})
	t.Run("remembering", func(t *testing.T) {
		got := play(t, remembering, setup{})
		compare(t, want, got, append(slices.Clone(repaired), brokenBody))
		checkWire(t, got)
		if len(got.faults) > 0 {
			t.Errorf("upstream met faulty histories: %q", got.faults)
		}
		for _, name := range repaired {
			checkRepaired(t, name, got.records[name])
		}
		if diff := cmp.Diff(repaired, changed(t, got)); diff != "" {
			t.Errorf("scenarios whose requests the shipped configuration changes (-want +got):\n%s", diff)
		}
		if r := got.records[brokenBody]; r.Tries[0].Status != http.StatusBadGateway {
			t.Errorf("%s: want 502, have %v", brokenBody, r)
		}
		for session, c := range sessions(t, got.client) {
			t.Run(session, func(t *testing.T) { checkTranscript(t, c, got.proxy.transcript(t, session)) })
		}
	})
}

// compare requires that two runs have the same results, except for the scenarios in but and the headers that Remora adds.
func compare(t *testing.T, want, got outcome, but []string) {
	t.Helper()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(want.records)), slices.Sorted(maps.Keys(got.records))); diff != "" {
		t.Fatalf("the runs have other scenarios: %s", diff)
	}
	for _, name := range slices.Sorted(maps.Keys(want.records)) {
		if slices.Contains(but, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			r := got.records[name]
			r.Tries = slices.Clone(r.Tries)
			for i := range r.Tries {
				r.Tries[i].Own = nil
			}
			if diff := cmp.Diff(want.records[name], r); diff != "" {
				t.Errorf("not what the API gives (-direct +proxy):\n%.4000s", diff)
			}
		})
	}
}

// checkRepaired requires that a request with an orphan, which the API refuses, was answered.
func checkRepaired(t *testing.T, name string, r record) {
	t.Helper()
	result, _ := r.Result.(map[string]any)
	if result["value"] == nil {
		t.Errorf("%s: want an answer, have %v", name, r.Result)
	}
	if m := r.Tries[0].Own["x-memory"]; !strings.Contains(m, "orphans=1;") || !strings.Contains(m, "repaired=1;") {
		t.Errorf("%s: X-Memory does not tell of the orphan: %q", name, m)
	}
}

// Headers of one connection or of one hop. The framing is compared separately.
var (
	hopRequest  = []string{"Host", "Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding"}
	hopResponse = []string{"Connection", "Keep-Alive", "Content-Length", "Transfer-Encoding"}
	own         = []string{"X-Session-Id", "X-Turn-Id", "X-Memory", "Server-Timing"}
)

// checkWire compares the traffic on both sides of the proxy byte for byte. Requests with a session may only differ in their
// messages or input, and these only as checkItems allows.
func checkWire(t *testing.T, o outcome) {
	t.Helper()
	pairs(t, o, func(what string, front, back exchange) {
		same(t, what+": request line", front.req.start, back.req.start)
		if !remembered(&front.req) {
			same(t, what+": request body", string(front.req.body), string(back.req.body))
			sameHeaders(t, what+": request", &front.req, &back.req, hopRequest)
			added := hopResponse
			if front.req.header("X-Session-Id") != "" && strings.HasPrefix(front.req.start, "POST ") { // to a path without memory
				added = slices.Concat(hopResponse, own)
				if memory := front.resp.header("X-Memory"); !strings.HasPrefix(memory, "bypass;reason=") {
					t.Errorf("%s: X-Memory is %q", what, memory)
				}
			}
			sameAnswer(t, what, front, back, added)
			same(t, what+": answer's framing", front.resp.framing, back.resp.framing)
			return
		}
		memory := front.resp.header("X-Memory")
		if !strings.HasPrefix(memory, "ok") {
			t.Errorf("%s: X-Memory is %q", what, memory)
		}
		for _, name := range own {
			if front.resp.header(name) == "" {
				t.Errorf("%s: the answer has no %s", what, name)
			}
		}
		checkItems(t, what, front.req.body, back.req.body, memory)
		same(t, what+": Accept-Encoding", back.req.header("Accept-Encoding"), "identity")
		if front.resp.start == "HTTP/1.1 502 Bad Gateway" && !back.resp.whole {
			return // see brokenBody
		}
		sameHeaders(t, what+": request", &front.req, &back.req, append(slices.Clone(hopRequest), "Accept-Encoding"))
		sameAnswer(t, what, front, back, slices.Concat(hopResponse, own))
	})
}

// changed returns the scenarios of which upstream got another body than the client sent, sorted.
func changed(t *testing.T, o outcome) []string {
	t.Helper()
	names := make(map[string]bool)
	pairs(t, o, func(_ string, front, back exchange) {
		if string(front.req.body) != string(back.req.body) {
			_, name, _ := strings.Cut(front.req.header("X-Session-Id"), " ")
			names[name] = true
		}
	})
	return slices.Sorted(maps.Keys(names))
}

// pairs calls f for each exchange, with its two sides of the proxy.
func pairs(t *testing.T, o outcome, f func(what string, front, back exchange)) {
	t.Helper()
	if len(o.client) != len(o.upstream) || len(o.client) == 0 {
		t.Fatalf("the proxy made %d requests of %d", len(o.upstream), len(o.client))
	}
	for i := range o.client {
		f(fmt.Sprintf("exchange %d, %s %s", i, o.client[i].req.start, o.client[i].req.header("X-Session-Id")), o.client[i], o.upstream[i])
	}
}

func sameAnswer(t *testing.T, what string, front, back exchange, but []string) {
	t.Helper()
	same(t, what+": status line", front.resp.start, back.resp.start)
	// An SDK may disconnect after [DONE]; compare what it got until then.
	if body := string(back.resp.body); front.resp.whole || !strings.HasPrefix(body, string(front.resp.body)) {
		same(t, what+": answer's body", string(front.resp.body), body)
	}
	if front.resp.whole && !back.resp.whole {
		t.Errorf("%s: upstream broke off, and the client saw a proper end", what)
	}
	sameHeaders(t, what+": answer", &front.resp, &back.resp, but)
}

// sameHeaders requires the same fields with the same case in the same order.
func sameHeaders(t *testing.T, what string, front, back *message, but []string) {
	t.Helper()
	if diff := cmp.Diff(front.without(but...), back.without(but...)); diff != "" {
		t.Errorf("%s headers (-client's side +upstream's side):\n%s", what, diff)
	}
}

func same[T comparable](t *testing.T, what string, front, back T) {
	t.Helper()
	if front != back {
		t.Errorf("%s:\nclient's side   %.300q\nupstream's side %.300q", what, fmt.Sprint(front), fmt.Sprint(back))
	}
}
