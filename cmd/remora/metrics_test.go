package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"remora/cache/spool"
	"remora/test/kit"
)

// TestMetricsOfTraffic: after traffic of every kind, the metrics page of the binary passes `promtool check metrics`. The test
// calls promtool's linter, and promtool itself if PROMTOOL is its path (make promtool), since it takes minutes to build.
func TestMetricsOfTraffic(t *testing.T) {
	t.Parallel()
	up, embedder := startUpstream(t), startUpstream(t)
	admin := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf(`
server: {admin_listen: %q}
providers: [{name: up, kind: compatible, base_url: %q}, {name: two, kind: compatible, base_url: %q, models: [small]}]
limits: {tenant: {requests_per_minute: 1, burst: 5}}
memory: {layers: [{kind: working_memory}, {kind: semantic_recall, timeouts: {recall: 1m}, embeddings: {provider: two, model: small, timeout: 50s}}]}
`, admin, up.URL()+"/v1", embedder.URL()+"/v1"))
	// Canaries are in content, keys and sessions: no error, metric or log line may contain one.
	const key, limited = "Authorization: Bearer canary-a", "canary-b"
	d.say("chat/completions", chat("user: No session, canary"), key)
	d.say("responses", `{"model":"m","stream":true,"input":"canary"}`, key, "X-Session-Id: canary-r")
	d.say("chat/completions", strings.Replace(chat(`user: CALL working-memory_update {"bird":"canary"} ;; SAY Noted.`), "{", `{"stream":true,`, 1), key, "X-Session-Id: canary-s")
	d.say("chat/completions", strings.Replace(chat("user: canary breaks off"), "{", `{"stream":true,`, 1), key, "X-Session-Id: canary-s", "X-Script: cut-after=2")
	if err := up.Inject("status=500", 1); err != nil {
		t.Fatal(err)
	}
	refused := map[int]int{}
	for range 8 {
		code, _, body := d.ask(limited, chat("user: Too many canaries"))
		refused[code]++
		if code != http.StatusOK && strings.Contains(body, "canar") {
			t.Errorf("the error %d holds what it should not: %s", code, body)
		}
	}
	if refused[http.StatusInternalServerError] != 1 || refused[http.StatusTooManyRequests] == 0 {
		t.Fatalf("answers by status: %v", refused)
	}
	page := pageAt(t, admin, "/metrics")
	for _, want := range []string{ // what the traffic was for
		`remora_requests_total{class="5xx"} 1`, `remora_requests_total{class="4xx"}`, `remora_turns_total{status="ok"}`,
		`layer="working-memory"`, `gen_ai_client_token_usage_bucket`, `error_type="500"`, `error_type="closed"`,
		`gen_ai_client_token_usage_count{gen_ai_operation_name="embeddings",gen_ai_provider_name="two",gen_ai_request_model="small",gen_ai_token_type="input",layer="semantic-recall"}`, `remora_spool_turns 0`,
		// An increase is seen only in a series that was there before.
		`remora_panics_total 0`, `remora_spool_lost_total 0`, `remora_spool_quarantined_total 0`, `remora_export_failures_total 0`, `remora_turns_total{status="degraded"} 0`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	for name, text := range map[string]string{"the page": page, "the log": d.proxy.Log()} {
		if strings.Contains(text, "canar") {
			t.Errorf("%s holds content, a session or a key:\n%s", name, text)
		}
	}
	problems, err := promlint.New(strings.NewReader(page)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	promtool := os.Getenv("PROMTOOL")
	if promtool == "" {
		return
	}
	cmd := exec.CommandContext(t.Context(), promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	} else {
		t.Logf("promtool has no objection to %d lines", strings.Count(page, "\n"))
	}
}

// TestMetricsThatAreNamedExist: the metrics and labels that the documentation, the chart's alerts and its dashboard name are those of a
// real proxy after traffic and trouble, and operations.md names all of Remora's own.
func TestMetricsThatAreNamedExist(t *testing.T) {
	t.Parallel()
	up, srv := startUpstream(t), kit.StartRedis(t, "--maxmemory-policy", "noeviction")
	admin := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor(srv.URL(), up.URL()) + fmt.Sprintf("server: {admin_listen: %q}\n", admin) +
		"memory: {layers: [{kind: http, url: \"http://127.0.0.1:9\", hooks: [recall], timeouts: {recall: 1s}}]}\n")
	d.say("responses", `{"model":"m","stream":true,"input":"Hello"}`, "X-Session-Id: a")
	d.say("chat/completions", chat("user: Hello"), "X-Session-Id: a")
	if err := up.Inject("status=429", 1); err != nil {
		t.Fatal(err)
	}
	if res, body, err := d.send("chat/completions", chat("user: Too much"), "X-Session-Id: a"); res.StatusCode != http.StatusTooManyRequests {
		t.Fatal(res.Status, body, err)
	}
	srv.Kill()
	d.say("chat/completions", chat("user: Without a store"), "X-Session-Id: a")
	page := pageAt(t, admin, "/metrics")

	sources, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(sources) == 0 {
		t.Fatal(sources, err)
	}
	sources = append(sources, "../../helm/remora/files/dashboard.json", "../../helm/remora/templates/prometheusrule.yaml")
	var operations string
	named := map[string]string{}
	for _, file := range sources {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "operations.md" {
			operations = string(text)
		}
		for _, name := range regexp.MustCompile(`\b(remora|gen_ai|process)_[a-z_]+`).FindAllString(string(text), -1) {
			named[name] = file
		}
	}
	if len(named) < 30 {
		t.Fatalf("only %d names were found", len(named))
	}
	for name, file := range named {
		// A name is a metric, a label, with its suffix of a histogram or without, or remora_tokens_* for several metrics.
		known := regexp.MustCompile(`(?m)^` + name + `(_count)?[{ ]|[{,]` + name + `=`).MatchString(page)
		if !known && strings.HasSuffix(name, "_") {
			known = strings.Contains(page, "\n"+name)
		}
		if !known {
			t.Errorf("%s names %s, which the metrics page lacks", file, name)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE ((?:remora|gen_ai)_\w+)`).FindAllStringSubmatch(page, -1) {
		if !strings.Contains(operations, "`"+m[1]+"`") {
			t.Errorf("docs/operations.md lacks %s", m[1])
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

// TestMetricOfQuarantinedTurns: spooled records that are damaged or no turns are counted when recovery sets them aside.
func TestMetricOfQuarantinedTurns(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	admin := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	dir := filepath.Join(d.dir, "spool")
	queue, err := spool.Open(dir, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range []string{"damaged", "no turn", "no turn either"} {
		if err := queue.Append([]byte(rec)); err != nil {
			t.Fatal(err)
		}
	}
	if err := queue.Close(); err != nil {
		t.Fatal(err)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := 0
	for _, file := range segments {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(raw, []byte("damaged")); at >= 0 {
			raw[at] ^= 1
			flipped++
			if err := os.WriteFile(file, raw, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if flipped != 1 {
		t.Fatalf("%d files have the record, of %q", flipped, segments)
	}

	d.start(fmt.Sprintf(`
server: {admin_listen: %q}
providers: [{name: up, kind: compatible, base_url: %q}]
store: {spool: {dir: %q}}
`, admin, up.URL()+"/v1", dir))
	d.proxy.Logged("set aside", 1)
	kit.Eventually(t, func() error {
		res, err := http.Get("http://" + admin + "/metrics") //nolint:noctx // ends with the proxy
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		page, err := io.ReadAll(res.Body)
		if err == nil && !bytes.Contains(page, []byte("remora_spool_quarantined_total 3")) {
			err = fmt.Errorf("three records were set aside, have %s", regexp.MustCompile("(?m)^remora_spool.*").FindAll(page, -1))
		}
		return err
	})
}
