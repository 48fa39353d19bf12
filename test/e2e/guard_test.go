package e2e

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"remora/test/scripted"
)

// TestRulesCannotBeBypassed: a denied call reaches no client: not without a session, with memory off, in a side request, or
// with a body that only upstream can read. TestRulesCannotBeBypassedByPath tests its path.
func TestRulesCannotBeBypassed(t *testing.T) {
	g := startGate(t, noDeletes, scripted.Options{})
	const script = `CALL rm {"path":"/"} | ls {"path":"/"} ;; SAY Listed.`
	for name, headers := range map[string][]string{
		"without a session": {"X-Session-Id: null"},
		"memory off":        {"X-Memory: off"},
		"neither":           {"X-Memory: off", "X-Session-Id: null"},
		"a side request":    {`X-Codex-Turn-Metadata: {"request_kind":"compaction"}`},
	} {
		for _, d := range dialects {
			t.Run(name+" "+d.String(), func(t *testing.T) {
				r := g.say(t, d, script, headers...)
				if got, want := d.facts(t, r), []string{`call ls {"path":"/"}`}; !slices.Equal(got, want) {
					t.Errorf("the client sees %q, want %q: %s", got, want, r.body)
				}
				r = g.say(t, d, `SAY Cleaning. ;; CALL rm {"path":"/"} ;; SAY I will not then.`, headers...)
				if got := strings.Join(d.facts(t, r), " "); strings.Contains(got, "call") || !strings.Contains(got, "I will not then.") {
					t.Errorf("the client sees %q", got)
				}
				if name != "a side request" && r.header.Get("X-Turn-Id") != "" {
					t.Errorf("the client is told of a turn: %q", r.header)
				}
			})
		}
	}
	r := g.ask(t, "chat/completions", "not what it says", "X-Session-Id: null", "Content-Encoding: br")
	if r.status != http.StatusBadRequest || !strings.Contains(r.body, "rules of this gateway") {
		t.Errorf("a body that cannot be read: %d %s", r.status, r.body)
	}
	g.sound(t)
	g.proxy.Stop()
	if got := g.proxy.transcriptOf(t, "list"); strings.TrimSpace(got) != "s" {
		t.Errorf("stored sessions: %q, want only that of the side requests", got)
	}
}

// lenient serves an upstream at every path that some server accepts for one of its endpoints.
func lenient(t *testing.T, upstream string) string {
	t.Helper()
	to, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	behind := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		read := r.In.URL.Path // decoded once
		for again, err := url.PathUnescape(read); err == nil && again != read; again, err = url.PathUnescape(read) {
			read = again
		}
		read, _, _ = strings.Cut(read, "?")
		segments := strings.Split(strings.ToLower(strings.ReplaceAll(read, `\`, "/")), "/")
		for i := range segments {
			segments[i], _, _ = strings.Cut(segments[i], ";")
		}
		r.Out.URL.Path, r.Out.URL.RawPath = path.Clean(strings.Join(segments, "/")), ""
		r.SetURL(to)
	}}
	s := httptest.NewServer(behind)
	t.Cleanup(s.Close)
	return s.URL
}

// TestRulesCannotBeBypassedByPath: a denied call reaches no client by a path that only upstream accepts for an endpoint.
func TestRulesCannotBeBypassedByPath(t *testing.T) {
	up := startUpstream(t, scripted.Options{})
	g := gateTo(t, setup{layers: noDeletes, upstream: lenient(t, up.URL())})
	g.up = up
	for _, respell := range []func(p string) string{
		func(p string) string { return strings.Replace(p, "s", "%73", 1) },
		func(p string) string { return strings.ReplaceAll(p, "e", "%2565") },
		func(p string) string { return strings.Replace("/x/"+p, "/x/", "%2F", 1) },
		func(p string) string { return "/" + p },
		func(p string) string { return p + "/" },
		func(p string) string { return "x/../" + p },
		func(p string) string { return "./x%2f%2e%2e/" + p },
		func(p string) string { return "x/..;a=b/" + p },
		func(p string) string { return "%5C" + p },
		func(p string) string { return p + ";a=b" },
		func(p string) string { return p + "%3Fa" },
		func(p string) string { return "../V1/" + strings.ToUpper(p) },
	} {
		for _, d := range []dialect{{path: "chat/completions"}, {path: "responses"}} {
			target := respell(d.path)
			t.Run(target, func(t *testing.T) {
				r := g.ask(t, target, d.body(t, `CALL rm {"path":"/"} | ls {"path":"/"} ;; SAY Listed.`), "X-Session-Id: null")
				if r.status != http.StatusOK {
					t.Fatalf("status %d, %.500s", r.status, r.body)
				}
				if got, want := d.facts(t, r), []string{`call ls {"path":"/"}`}; !slices.Equal(got, want) {
					t.Errorf("the client sees %q, want %q: %s", got, want, r.body)
				}
			})
		}
	}
	for _, unclear := range []string{"responses;/../chat/completions", "openai/chat/completions", "deployments/m/responses?api-version=1"} {
		r := g.ask(t, unclear, dialects[0].body(t, "SAY hi"), "X-Session-Id: null")
		if r.status != http.StatusBadRequest || !strings.Contains(r.body, "rules of this gateway") {
			t.Errorf("%s: %d %s", unclear, r.status, r.body)
		}
	}
	g.sound(t)
}
