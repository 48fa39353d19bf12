package main

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/memory/tokens"
	"remora/memory/view"
	"remora/test/kit"
	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func newLab(t *testing.T, sessions []*session) *lab {
	t.Helper()
	return &lab{dir: t.TempDir(), binary: kit.BuildProxy(t), sessions: sessions, meter: tokens.New(), texts: newTexts()}
}

func policyNamed(t *testing.T, name string) *policy {
	t.Helper()
	all, err := shippedPolicies()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.name == name {
			return p
		}
	}
	t.Fatalf("no policy %s", name)
	return nil
}

// TestReplay is a short `make replay`: one session, two policies and both dialects through the real proxy. The full history,
// which takes most of the time, is only replayed in Chat.
func TestReplay(t *testing.T) {
	t.Parallel()
	sessions, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, sessions)
	var full *result
	for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		for _, p := range []*policy{policyNamed(t, fullHistory), noting()} {
			name := p.name
			if name == fullHistory && full != nil {
				continue
			}
			r, err := l.measure(t.Context(), p, d)
			if err != nil {
				t.Fatal(err)
			}
			if r.orphans+r.userless+r.refused+r.degraded+r.changed != 0 {
				t.Errorf("%s, %s: %d orphans, %d requests without a user message, %d refused, %d without memory, %d changed: %v",
					name, d, r.orphans, r.userless, r.refused, r.degraded, r.changed, r.problems)
			}
			if name == fullHistory {
				full = r
				if r.strings.all == 0 || r.old.all == 0 || r.lines.all == 0 || r.strings.cut+r.lines.cut > 0 {
					t.Errorf("full history lacks something that answers repeat, or they repeat nothing: %+v", r.needs)
				}
				if r.tokens != r.own.tokens || r.cached != r.own.cached {
					t.Errorf("full history is not what the client sends by itself: %+v, %+v", r.sums, *r.own)
				}
				if r.requests != len(sessions[0].steps) {
					t.Errorf("%s: %d requests for %d answers", d, r.requests, len(sessions[0].steps))
				}
				if cached := share(r.cached, r.tokens); cached < 0.95 {
					t.Errorf("%s: full history is cached to %.2f", d, cached)
				}
				continue
			}
			if r.requests <= full.requests || share(r.tokens, r.requests) > 0.7*share(full.tokens, full.requests) {
				t.Errorf("%s: %+v against %+v", d, r.sums, full.sums)
			}
		}
	}
}

// TestTargets: the policies with targets meet them on the generated sessions.
func TestTargets(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("half a minute")
	}
	sessions, err := generated(0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, sessions)
	l.head = defaultHead
	rep := report{sessions: sessions, head: l.head}
	for _, name := range []string{defaults, recommended} {
		r, err := l.measure(t.Context(), policyNamed(t, name), dialects.Chat)
		if err != nil {
			t.Fatal(err)
		}
		rep.results = append(rep.results, r)
	}
	for _, missed := range rep.missed() {
		t.Error(missed)
	}
}

// noting returns the recommended policy with an additional layer that the model writes to.
func noting() *policy {
	return &policy{"noting", []byte(`memory:
  layers:
    - {kind: working_memory}
    - {kind: entity_memory}
    - {kind: history_window, max_items: 110, evict_batch: 80, in_flight: window}
`)}
}

// TestLayersAddBlocks: layers add blocks to the replayed sessions; otherwise the table would measure nothing.
func TestLayersAddBlocks(t *testing.T) {
	t.Parallel()
	sessions, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	sessions[0].steps = sessions[0].steps[:80]
	l := newLab(t, sessions)
	u, err := startUpstream(l, dialects.Responses)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.server.Close() })
	p, err := l.start(t.Context(), t.TempDir(), u, noting())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.play(t.Context(), u, p.URL, dialects.Responses); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	sent := string(bytes.Join(u.talks[sessions[0].name].ledger.items, []byte("\n")))
	for _, tag := range []string{"<working_memory>", "<names_seen_earlier>"} {
		if !strings.Contains(sent, tag) {
			t.Errorf("the last request has no %s", tag)
		}
	}
}

// shorten shortens every text of a session: the properties of views only depend on their shape.
func shorten(t *testing.T, s *session) {
	t.Helper()
	short := func(text string) string { return text[:min(len(text), 12)] }
	for i := range s.steps {
		st := &s.steps[i]
		st.answer.Text, st.answer.Reasoning = short(st.answer.Text), short(st.answer.Reasoning)
		for j := range st.answer.Calls {
			st.answer.Calls[j].Arguments = "{}"
		}
		for j, in := range st.input {
			if in.compact != nil {
				continue
			}
			it := wire.NewToolResult(in.item.Answers(), dialects.Responses, short(in.item.Text()))
			if in.item.Kind == wire.Message {
				var err error
				if it, err = wire.ParseItem(dialects.Responses, []byte(`{"role":"user","content":"x"}`)); err != nil {
					t.Fatal(err)
				}
			}
			st.input[j].item = it
		}
	}
}

// TestEveryCutOfEverySessionPassesUpstream: the strict upstream accepts the view for every window start of every shipped
// session, in both dialects. For each of the client's requests it gets the view of the recommended window and, in turn, of one
// of the others.
func TestEveryCutOfEverySessionPassesUpstream(t *testing.T) {
	t.Parallel()
	all, err := generated(0)
	if err != nil {
		t.Fatal(err)
	}
	small, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, small...)
	for _, s := range all {
		shorten(t, s)
	}
	byTokens := view.Window{MaxTokens: 900, EvictShare: 0.5, InFlight: view.InFlightWindow}
	windows := []*view.Window{ // the recommended one first
		{MaxItems: 110, EvictBatch: 80, InFlight: view.InFlightWindow},
		{MaxItems: 40, EvictBatch: 1, InFlight: view.InFlightWindow},
		{MaxItems: 7, EvictBatch: 3, InFlight: view.InFlightWindow, MaxExpansion: 2},
		{MaxItems: 40, EvictBatch: 1, InFlight: view.InFlightKeep},
		&byTokens,
	}
	for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		t.Run(d.String(), func(t *testing.T) {
			u := newDirect(t)
			for _, s := range all {
				u.play(t, s, d, windows)
			}
		})
	}
}

// direct is the strict upstream with only a window in front of it.
type direct struct {
	server *scripted.Server
	step   *step
	view   []byte // replaces the client's next request
}

// RoundTrip implements http.RoundTripper.
func (u *direct) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(u.view)), int64(len(u.view))
	return http.DefaultTransport.RoundTrip(r)
}

func newDirect(t *testing.T) *direct {
	t.Helper()
	u := &direct{}
	var err error
	u.server, err = scripted.Start(scripted.Options{KeepRequests: 1, Respond: func(p scripted.Prompt) (scripted.Answer, bool) {
		a := u.step.answer
		if p.Path == "chat/completions" {
			a.Reasoning = ""
		}
		return a, true
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.server.Close() })
	return u
}

func (u *direct) play(t *testing.T, s *session, d wire.Dialect, windows []*view.Window) {
	t.Helper()
	a := &agent{http: &http.Client{Transport: u}, url: u.server.URL(), dialect: d, session: s}
	cuts := make([]view.WindowStart, len(windows))
	a.cue = func(st *step) {
		u.step = st
		req := wiretest.Request(t, d, string(a.body()))
		for _, i := range []int{0, 1 + a.answers%(len(windows)-1)} {
			w := windows[i]
			items := assemble(req, w, &cuts[i])
			if errs := wiretest.Check(d, items); len(errs) > 0 || !hasUser(items) {
				t.Fatalf("%s, %+v: %v, user message %v", s.name, *w, errs, hasUser(items))
			}
			body, err := req.With(items)
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				u.view = body
			} else {
				u.try(t, d, body)
			}
		}
	}
	if err := a.play(t.Context()); err != nil || a.refused > 0 {
		t.Errorf("%s: %v, %d refused: %s", s.name, err, a.refused, a.reason)
	}
}

// assemble returns the view of a request with a window, and moves its start.
func assemble(req *wire.Request, w *view.Window, cut *view.WindowStart) []wire.Item {
	items := req.Items()
	system := wire.SystemItems(items)
	price := func(it wire.Item) int { return len(it.Raw) / 4 }
	v := view.Assemble(view.Request{System: items[:system], Items: items[system:], Window: w, WindowInput: view.WindowInput{
		Tokens: price, AtMost: price, Previous: *cut, Keys: func() []wire.Hash {
			keys := make([]wire.Hash, len(items)-system)
			for i, it := range items[system:] {
				keys[i] = it.ContentHash()
			}
			return keys
		},
	}})
	*cut = v.Start
	return v.Items
}

// try sends one more request.
func (u *direct) try(t *testing.T, d wire.Dialect, body []byte) {
	t.Helper()
	path := map[wire.Dialect]string{dialects.Chat: "/v1/chat/completions", dialects.Responses: "/v1/responses"}[d]
	resp, err := http.Post(u.server.URL()+path, "application/json", bytes.NewReader(body)) //nolint:noctx // loopback
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body) // to reuse the connection
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d: %v", resp.StatusCode, u.server.Faults())
	}
}
