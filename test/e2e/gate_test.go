package e2e

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/test/scripted"
)

// gate is a proxy with layers in front of a scripted upstream, and an HTTP client for it.
type gate struct {
	up    *scripted.Server
	proxy *proxy
	http  *http.Client
}

func startGate(t *testing.T, layers string, o scripted.Options) *gate {
	t.Helper()
	return startGateWith(t, setup{layers: layers}, o)
}

// startGateWith is startGate with a whole setup, except for the upstream.
func startGateWith(t *testing.T, s setup, o scripted.Options) *gate {
	t.Helper()
	up := startUpstream(t, o)
	s.upstream = up.URL()
	g := gateTo(t, s)
	g.up = up
	return g
}

// gateTo returns a gate to any upstream. Only those with a scripted one have up.
func gateTo(t *testing.T, s setup) *gate {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}
	t.Cleanup(client.CloseIdleConnections)
	return &gate{http: client, proxy: startProxy(t, s)}
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// ask posts a body. Headers are given as "Name: value"; the session and the key have defaults.
func (g *gate) ask(t *testing.T, path, body string, headers ...string) reply {
	t.Helper()
	return g.do(t, http.MethodPost, path, body, headers...)
}

// get sends a GET request.
func (g *gate) get(t *testing.T, path string, headers ...string) reply {
	t.Helper()
	return g.do(t, http.MethodGet, path, "", headers...)
}

// do is ask with any method.
func (g *gate) do(t *testing.T, method, path, body string, headers ...string) reply {
	t.Helper()
	r, err := g.try(t, method, path, body, headers...)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return r
}

// read is ask for an answer that may end early: it returns the client's error after the last byte.
func (g *gate) read(t *testing.T, path, body string, headers ...string) (reply, error) {
	t.Helper()
	return g.try(t, http.MethodPost, path, body, headers...)
}

func (g *gate) try(t *testing.T, method, path, body string, headers ...string) (reply, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, g.proxy.URL+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = http.Header{"X-Session-Id": {"s"}, "Authorization": {"Bearer " + credential}, "Content-Type": {"application/json"}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }() // it was read
	b, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, string(b)}, err
}

// say sends a user message, and requires an answer.
func (g *gate) say(t *testing.T, d dialect, text string, headers ...string) reply {
	t.Helper()
	r := g.ask(t, d.path, d.body(t, text), headers...)
	if r.status != http.StatusOK {
		t.Fatalf("%q: status %d, %.500s", text, r.status, r.body)
	}
	return r
}

// seen returns the body of upstream's last request.
func (g *gate) seen(t *testing.T) string {
	t.Helper()
	return string(last(t, g.up).Body)
}

// sound requires that upstream refused no history.
func (g *gate) sound(t *testing.T) {
	t.Helper()
	if f := g.up.Faults(); len(f) > 0 {
		t.Errorf("upstream met faulty histories: %q", f)
	}
}

// dialect is one way to ask.
type dialect struct {
	path   string
	stream bool
}

// dialects are all ways to ask.
var dialects = []dialect{{"chat/completions", false}, {"chat/completions", true}, {"responses", false}, {"responses", true}}

func (d dialect) String() string { return fmt.Sprintf("%s stream=%v", d.path, d.stream) }

// list is the member of a request with the items.
func (d dialect) list() string {
	if d.path == "responses" {
		return "input"
	}
	return "messages"
}

// tools returns functions of the client.
func (d dialect) tools(names ...string) (tools []any) {
	for _, name := range names {
		f := map[string]any{"name": name, "parameters": map[string]any{"type": "object"}}
		if d.path == "responses" {
			f["type"] = "function"
			tools = append(tools, f)
		} else {
			tools = append(tools, map[string]any{"type": "function", "function": f})
		}
	}
	return tools
}

// result returns the result of a call.
func (d dialect) result(id, text string) string {
	if d.path == "responses" {
		return fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, id, text)
	}
	return fmt.Sprintf(`{"role":"tool","tool_call_id":%q,"content":%q}`, id, text)
}

// body returns a request with one user message and the client's tools rm and ls.
func (d dialect) body(t *testing.T, text string) string {
	t.Helper()
	message := []any{map[string]any{"role": "user", "content": text}}
	return string(encode(t, map[string]any{"model": "m", "stream": d.stream, d.list(): message, "tools": d.tools("rm", "ls")}))
}

// rawFacts returns the facts of an answer.
func (d dialect) rawFacts(t *testing.T, r reply) []string {
	t.Helper()
	e := exchange{req: message{start: "POST /v1/" + d.path + " HTTP/1.1"}, resp: message{body: []byte(r.body)}}
	e.resp.headers = []string{"Content-Type: " + r.header.Get("Content-Type")}
	return answer(t, e)[0]
}

// lastCall returns the id of an answer's last call, empty if it has none.
func (d dialect) lastCall(t *testing.T, r reply) (id string) {
	t.Helper()
	for _, f := range d.rawFacts(t, r) {
		id = cmp.Or(callOf(f), id)
	}
	return id
}

// callOf returns the id of the call that a fact is, empty if it is none.
func callOf(fact string) string {
	rest, _ := strings.CutPrefix(fact, "call ")
	id, _, _ := strings.Cut(rest, " ")
	if rest == fact {
		return ""
	}
	return id
}

// facts returns the facts of an answer, without the ids of calls.
func (d dialect) facts(t *testing.T, r reply) []string {
	t.Helper()
	var out []string
	for _, f := range d.rawFacts(t, r) {
		if kind, rest, _ := strings.Cut(f, " "); kind == "call" {
			_, rest, _ = strings.Cut(rest, " ")
			f = kind + " " + rest
		}
		out = append(out, f)
	}
	return out
}
