package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"remora/test/kit"
)

// ask sends a request and returns the answer's status, headers and body.
func (d *workspace) ask(key, body string) (int, http.Header, string) {
	d.t.Helper()
	res, answer, err := d.send("chat/completions", body, "Authorization: Bearer "+key, "X-Session-Id: s")
	if err != nil {
		d.t.Fatal(err)
	}
	return res.StatusCode, res.Header, answer
}

// TestRetryAndFallback: a request that upstream cannot have served is retried, then sent to another provider with its model.
func TestRetryAndFallback(t *testing.T) {
	t.Parallel()
	first, second := startUpstream(t), startUpstream(t)
	inject := func(fault string, times int) {
		t.Helper()
		if err := first.Inject(fault, times); err != nil {
			t.Fatal(err)
		}
	}
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf(`
providers:
  - {name: first, kind: compatible, base_url: %q, retry: {attempts: 2, base_delay: 1ms}, fallback: [{provider: second, model: other}]}
  - {name: second, kind: compatible, base_url: %q, api_key: its-own}
`, first.URL()+"/v1", second.URL()+"/v1"))
	inject("status=503", 1)
	if code, _, body := d.ask("k", chat("user: SAY Once.")); code != http.StatusOK || !strings.Contains(body, "Once.") || len(first.Requests()) != 2 {
		t.Errorf("retried: %d %s, %d requests", code, body, len(first.Requests()))
	}
	inject("status=503", 2)
	code, _, body := d.ask("k", chat("user: SAY Once.", "assistant: Once.", "user: SAY Twice."))
	if code != http.StatusOK || !strings.Contains(body, "Twice.") || !strings.Contains(body, `"model":"other"`) {
		t.Errorf("fallen back: %d %s", code, body)
	}
	if all := second.Requests(); len(all) != 1 || all[0].Header.Get("Authorization") != "Bearer its-own" {
		t.Errorf("the other provider got %d requests", len(all))
	}
	inject("status=500", 1)
	if code, _, _ := d.ask("k", chat("user: SAY Thrice.")); code != http.StatusInternalServerError {
		t.Errorf("what upstream may have served was tried again: %d", code)
	}
}

// TestProbableMistakes: the log names a key at the start that is probably wrong.
func TestProbableMistakes(t *testing.T) {
	t.Parallel()
	p := kit.StartProxy(t, t.TempDir(), "store: {url: \"memory:\"}\nserver: {admin_listen: \":0\"}\ntelemetry: {traces: {endpoint: \"http://127.0.0.1:4317\"}}\n")
	p.Logged(`"key":"server.admin_token","problem":"want a token, `, 1)
	p.Logged(`"key":"telemetry.traces.endpoint","problem":"4317 is the port of collectors for OTLP over gRPC`, 1)
}

// TestBaseURLWithoutPath: the log names the key at the start and once more when upstream answers 404. The client gets upstream's
// answer unchanged.
func TestBaseURLWithoutPath(t *testing.T) {
	t.Parallel()
	const want = "404 page not found\n"
	up := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(up.Close)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf("store: {url: \"memory:\"}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n", up.URL))
	d.proxy.Logged(`"key":"providers[0].base_url","problem":"has no path; most servers want `+up.URL+`/v1"`, 1)

	for range 2 {
		if code, _, body := d.ask("k", chat("user: SAY Hi.")); code != http.StatusNotFound || body != want {
			t.Errorf("got %d %q, upstream answers %q", code, body, want)
		}
	}
	d.proxy.Stop()
	const line = "upstream answers 404, and its base_url has no path"
	if log := d.proxy.Log(); strings.Count(log, line) != 1 {
		t.Errorf("want one line %q:\n%s", line, log)
	}
}

// TestReasoningThatTheClientDrops: some servers refuse calls that a client resends without their reasoning. In a session the
// calls get a placeholder, with X-History: server the reasoning of the stored answers.
func TestReasoningThatTheClientDrops(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	const kimi, tools = "X-Script: kind=kimi", `"tools":[{"type":"function","function":{"name":"look","parameters":{"type":"object"}}}]`
	for history, want := range map[string]int{"": http.StatusBadRequest, "auto": http.StatusOK, "server": http.StatusOK} {
		headers := []string{kimi, "Authorization: Bearer k"}
		if history != "" {
			headers = append(headers, "X-Session-Id: "+history, "X-History: "+history)
		}
		post := func(messages string) (int, string) {
			t.Helper()
			res, body, err := d.send("chat/completions", `{"model":"m",`+tools+`,"messages":[`+messages+`]}`, headers...)
			if err != nil {
				t.Fatal(err)
			}
			return res.StatusCode, body
		}
		const question = `{"role":"user","content":"REASON I look first. ;; CALL look {}"}`
		_, first := post(question)
		id := regexp.MustCompile(`call_\w+`).FindString(first)
		if !strings.Contains(first, "reasoning_content") || id == "" {
			t.Fatalf("no reasoning or no call: %s", first)
		}
		status, body := post(question + `,{"role":"assistant","content":null,"tool_calls":[{"id":"` + id + `","type":"function","function":{"name":"look","arguments":"{}"}}]},` +
			`{"role":"tool","tool_call_id":"` + id + `","content":"seen"}`)
		if status != want {
			t.Errorf("X-History: %s: %d %s, want %d", history, status, body, want)
		}
	}
}

// TestSessionsRepairHistories: upstream refuses the histories of docs/troubleshooting.md without a session, with the errors
// listed there, and accepts them in one.
func TestSessionsRepairHistories(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	const (
		user   = `{"role":"user","content":"SAY Fine."}`
		call   = `{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]}`
		result = `{"role":"tool","tool_call_id":"c1","content":"seen"}`
		called = `{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}`
		output = `{"type":"function_call_output","call_id":"c1","output":"seen"}`
		said   = `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"Hi."}]}`
	)
	for i, c := range []struct{ path, items, refusal string }{
		{"chat/completions", user + "," + result + "," + user, "messages with role 'tool' must be a response to a "},
		{"chat/completions", user + "," + call + "," + user, "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."},
		{"chat/completions", user + "," + call + "," + user + "," + result, "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."},
		{"chat/completions", user + "," + call + "," + result + "," + result + "," + user, "Duplicate value for 'tool_call_id' of "},
		{"responses", said + "," + said + "," + user, "Duplicate item found with id "},
		{"responses", output + "," + user, "No tool call found for "},
		{"responses", user + "," + called + "," + user, "No tool output found for "},
		{"responses", output + "," + called + "," + user, "No tool call found for "},
	} {
		member := "messages"
		if c.path == "responses" {
			member = "input"
		}
		body := `{"model":"m","` + member + `":[` + c.items + `]}`
		res, text, err := d.send(c.path, body, "Authorization: Bearer k")
		if err != nil || res.StatusCode != http.StatusBadRequest || !strings.Contains(text, c.refusal) {
			t.Errorf("%s without a session: %v %v %s", body, res.Status, err, text)
		}
		res, text, err = d.send(c.path, body, "Authorization: Bearer k", fmt.Sprintf("X-Session-Id: mended-%d", i))
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(text, "Fine.") || !strings.Contains(res.Header.Get("X-Memory"), "repaired=") {
			t.Errorf("%s with a session: %v %v %s, X-Memory %s", body, res.Status, err, text, res.Header.Get("X-Memory"))
		}
	}
}

// TestStoreIsWaitedFor: the proxy waits for a slow store as long as configured.
func TestStoreIsWaitedFor(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.proxy = kit.StartProxy(t, d.dir, fmt.Sprintf(
		"store: {url: %q, commit_wait: 2m, read_wait: 2m}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n", redis.URL(), up.URL()+"/v1"))
	if _, h, body := d.ask("first", chat("user: SAY Hi.")); !strings.HasPrefix(h.Get("X-Memory"), "ok;") {
		t.Fatalf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
	redis.Pause()
	back := time.AfterFunc(2*leastOpTimeout, redis.Resume)
	defer back.Stop()
	if _, h, body := d.ask("second", chat("user: SAY Hi.")); !strings.HasPrefix(h.Get("X-Memory"), "ok;") {
		t.Errorf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
	if log := d.proxy.Log(); strings.Contains(log, `"level":"WARN"`) {
		t.Errorf("the log tells of trouble:\n%s", log)
	}
}

// TestCommandsOnAStoreThatHangs: a command says why it failed, and nothing about calls, which it does not serve.
func TestCommandsOnAStoreThatHangs(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t)
	d := &workspace{t: t, dir: t.TempDir(), env: []string{"REMORA_STORE_COMMIT_WAIT=250ms", "REMORA_STORE_READ_WAIT=250ms"}}
	d.proxy = kit.StartProxy(t, d.dir, d.configFor(redis.URL(), up.URL()))
	d.config = d.proxy.Config
	d.proxy.Stop()
	redis.Pause()
	defer redis.Resume()
	for _, args := range [][]string{{"--session", "s"}, {"list"}} {
		if _, text := d.run(1, "", args...); !strings.Contains(text, "deadline exceeded") || strings.Contains(text, "calls are served") {
			t.Errorf("%q: %s", args, text)
		}
	}
}

// TestSlowStoreIsLogged: a store that answers pings and is too slow for a request leaves a line in the log.
func TestSlowStoreIsLogged(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.proxy = kit.StartProxy(t, d.dir, fmt.Sprintf(
		"store: {url: %q}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n", redis.URL(), up.URL()+"/v1"))
	redis.Pause()
	_, h, body := d.ask("first", chat("user: SAY Hi."))
	redis.Resume()
	if !strings.HasPrefix(h.Get("X-Memory"), "degraded;") {
		t.Fatalf("X-Memory %q: %s", h.Get("X-Memory"), body)
	}
	d.proxy.Logged("store did not answer in time", 1)
}

// TestRefusedAccount: a password that the store refuses is logged as an error from the start on, with the key and without the
// password.
func TestRefusedAccount(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t, "--requirepass", "hush")
	for name, password := range map[string]string{"wrong": ":wr0ng@", "none": ""} {
		t.Run(name, func(t *testing.T) {
			d := &workspace{t: t, dir: t.TempDir()}
			d.start(fmt.Sprintf(
				"store: {url: %q}\nmemory: {on_store_error: closed}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n",
				"redis://"+password+redis.Addr(), up.URL()+"/v1"))
			if code, h, body := d.ask("k", chat("user: SAY Hi.")); code != http.StatusServiceUnavailable || h.Get("Retry-After") != "1" {
				t.Errorf("%d, Retry-After %q: %s", code, h.Get("Retry-After"), body)
			}
			log := d.proxy.Logged(`"level":"ERROR"`, 2)
			for _, want := range []string{"the store refuses store.url: ", "of sessions get 503"} {
				if !strings.Contains(log, want) {
					t.Errorf("the log does not hold %q", want)
				}
			}
			if strings.Count(log, `"level":"ERROR"`) != 2 || strings.Contains(log, "wr0ng") || strings.Contains(log, "hush") {
				t.Errorf("want two errors and no password:\n%s", log)
			}
		})
	}
}

// TestOtherServerThanStoreURLSays: /readyz fails for a database that Redis does not have, and for a master that its Sentinels do not
// know. The log says at the start what is wrong.
func TestOtherServerThanStoreURLSays(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	for url, want := range map[string]string{
		"redis://" + kit.StartRedis(t).Addr() + "/99":                          "no such database",
		strings.Replace(kit.StartSentinel(t).URL(), "/mymaster", "/nobody", 1): "no such master",
	} {
		d, address := &workspace{t: t, dir: t.TempDir()}, kit.FreeAddr(t)
		d.start(fmt.Sprintf("server: {admin_listen: %q}\nstore: {url: %q}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n",
			address, url, up.URL()+"/v1"))
		d.proxy.Logged(want, 1)
		res, err := http.Get("http://" + address + "/readyz") //nolint:noctx // ends with the test
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if _ = res.Body.Close(); err != nil || res.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), want) {
			t.Errorf("/readyz: %s %s %v, want %q", res.Status, body, err, want)
		}
	}
}

// TestAccountRefusedSinceTheStart: /readyz fails until the store has accepted the account of store.url once, so that a rollout with a
// wrong password stops. A password that is changed later is an outage.
func TestAccountRefusedSinceTheStart(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	redis := kit.StartRedis(t)
	address := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	password := func(words ...string) {
		t.Helper()
		if _, err := redis.Do(append([]string{"ACL", "SETUSER", "u", "on", "~*", "+@all", "resetpass"}, words...)...); err != nil {
			t.Fatal(err)
		}
		if _, err := redis.Do("CLIENT", "KILL", "USER", "u"); err != nil {
			t.Fatal(err)
		}
	}
	ready := func(want int) {
		t.Helper()
		kit.Eventually(t, func() error {
			res, err := http.Get("http://" + address + "/readyz") //nolint:noctx // ends with the test
			if err != nil {
				return err
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			if err == nil && res.StatusCode != want {
				err = fmt.Errorf("/readyz: %s %s, want %d", res.Status, body, want)
			}
			return err
		})
	}
	memory := func(want string) {
		t.Helper()
		kit.Eventually(t, func() error {
			if code, h, _ := d.ask("k", chat("user: SAY Hi.")); code != http.StatusOK || !strings.HasPrefix(h.Get("X-Memory"), want) {
				return fmt.Errorf("%d, X-Memory %q, want %s", code, h.Get("X-Memory"), want)
			}
			return nil
		})
	}

	password(">before")
	d.start(fmt.Sprintf("server: {admin_listen: %q}\nstore: {url: %q}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n",
		address, "redis://u:now@"+redis.Addr(), up.URL()+"/v1"))
	ready(http.StatusServiceUnavailable)
	memory("degraded;")
	password(">now")
	ready(http.StatusOK)
	memory("ok;")
	password(">later")
	memory("degraded;")
	ready(http.StatusOK)
}

// TestLimits: a caller that exceeds its rate gets 429 with Retry-After; another caller is unaffected.
func TestLimits(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf(
		"providers: [{name: up, kind: compatible, base_url: %q}]\nlimits: {tenant: {requests_per_minute: 2, burst: 1}}\n", up.URL()+"/v1"))
	if code, _, body := d.ask("a", chat("user: SAY Hi.")); code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	code, h, body := d.ask("a", chat("user: SAY Hi."))
	if code != http.StatusTooManyRequests || h.Get("Retry-After") == "" || !strings.Contains(body, `"code":"rate_limit_exceeded"`) {
		t.Errorf("beyond the limit: %d %v %s", code, h, body)
	}
	if code, _, body := d.ask("b", chat("user: SAY Hi.")); code != http.StatusOK {
		t.Errorf("another caller: %d %s", code, body)
	}
}
