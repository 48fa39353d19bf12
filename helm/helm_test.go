// Package helm_test checks the chart in remora/ without a cluster. test/install.sh installs it into one.
package helm_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	chart = "remora"
	// kubernetes is the version of the schemas in testdata.
	kubernetes = "1.36.3"
)

// update writes the golden files anew: go test ./helm -update.
var update = flag.Bool("update", false, "write the golden files")

// tool finds a program: in HELM or KUBECONFORM, or on the path. Without it the test is skipped, but not in CI.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path := os.Getenv(strings.ToUpper(name)); path != "" {
		return path
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed: make deps", name)
		}
		t.Skipf("%s is not installed: make deps", name)
	}
	return path
}

// valueSets are the files that golden files are made of.
func valueSets(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(chart + "/ci/*-values.yaml")
	if err != nil || len(files) != 5 {
		t.Fatal(files, err)
	}
	return files
}

// render is helm template.
func render(t *testing.T, args ...string) (stdout []byte, err error) {
	t.Helper()
	return renderChart(t, chart, args...)
}

func renderChart(t *testing.T, dir string, args ...string) (stdout []byte, err error) {
	t.Helper()
	args = append([]string{"template", "r", dir, "-n", "llm", "--kube-version", kubernetes}, args...)
	cmd := exec.CommandContext(t.Context(), tool(t, "helm"), args...)
	// A developer's own plugins and repositories have no say.
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err = cmd.Output()
	if err != nil {
		return nil, &renderError{stderr.String()}
	}
	return stdout, nil
}

type renderError struct{ text string }

func (e *renderError) Error() string { return e.text }

func TestChartCarriesTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(chart + "/files/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, got) {
		t.Error("cp config.yaml helm/remora/files/config.yaml")
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	for _, values := range valueSets(t) {
		out, err := exec.CommandContext(t.Context(), tool(t, "helm"), "lint", "--strict", "--kube-version", kubernetes, "-f", values, chart).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", values, err, out)
		}
	}
}

// The rendered chart equals the reviewed one, and fits the schemas of Kubernetes to the last member.
func TestRendering(t *testing.T) {
	t.Parallel()
	for _, values := range valueSets(t) {
		name := strings.TrimSuffix(filepath.Base(values), "-values.yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := render(t, "-f", values)
			if err != nil {
				t.Fatal(err)
			}
			golden := "testdata/golden/" + name + ".yaml"
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Error("go test ./helm -update, if that is right (-want +got)", diff)
			}
			if out, err := conform(t, got); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func conform(t *testing.T, manifests []byte) ([]byte, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, "kubeconform"), "-strict",
		"-schema-location", "testdata/schemas/{{.ResourceKind}}{{.KindSuffix}}.json", "-")
	cmd.Stdin = bytes.NewReader(manifests)
	return cmd.CombinedOutput()
}

// The check of TestRendering would notice.
func TestConformanceSeesTypingErrors(t *testing.T) {
	t.Parallel()
	good, err := os.ReadFile("testdata/golden/3-production.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range [][2]string{
		{"readOnlyRootFilesystem:", "readonlyRootFilesystem:"},
		{"terminationGracePeriodSeconds: 635", "terminationGracePeriodSeconds: '635'"},
		{"policyTypes: [Ingress, Egress]", "policyTypes: Ingress"},
		{"path: /metrics", "paths: /metrics"},
		{"alert: RemoraDegraded", "alarm: RemoraDegraded"},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(good, bad) {
			t.Errorf("%s: not there", change[0])
		}
		if _, err := conform(t, bad); err == nil {
			t.Errorf("%s passed", change[1])
		}
	}
}

func TestRefusesWhatWouldNotWork(t *testing.T) {
	t.Parallel()
	f := func(want string, set ...string) {
		t.Helper()
		var args []string
		for _, s := range set {
			args = append(args, "--set", s)
		}
		_, err := render(t, args...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q:\ngot  %v\nwant %s", set, err, want)
		}
	}
	// Helm deletes a section that is there without a key, with its defaults.
	f("missing property 'ingress'", "ingress=null")
	f("at '/probes': missing property 'startup'", "probes.startup=null")
	f("several replicas need a Redis", "replicaCount=2")
	f("several replicas need a Redis", "autoscaling.enabled=true")
	f("persistence.accessModes: several replicas need ReadWriteMany", "replicaCount=2", "redis.enabled=true", "persistence.enabled=true")
	f("redis.enabled, store.url: want one of them", "redis.enabled=true", "store.url=redis://h")
	f("config.store.url: use store.url", "config.store.url=redis://h")
	f("config.server.listen: the chart sets it", "config.server.listen=:80")
	f("config.server.shutdown_delay: the chart sets it; see the values admin, preStopSeconds", "config.server.shutdown_delay=20s")
	f("secretEnv.REMORA_STORE_URL: use store.url", "secretEnv.REMORA_STORE_URL=redis://h")
	f("secretEnv.REMORA_SERVER_LISTEN: the chart's Service needs :8080", "secretEnv.REMORA_SERVER_LISTEN=:9")
	f("env[0]: REMORA_SERVER_TLS_KEY: use tls.secretName", "env[0].name=REMORA_SERVER_TLS_KEY", "env[0].value=x")
	f("secretEnv.REMORA_FOO: want a key of the configuration after REMORA_", "secretEnv.REMORA_FOO=x")
	f("env[0]: REMORA_FOO: want a key", "env[0].name=REMORA_FOO", "env[0].value=x")
	f("secretEnv.1BAD: want the name of a variable", "secretEnv.1BAD=x")
	f("dataSizeLimit: want five quarters of config.store.spool.max_bytes (1GiB) or more, have 100Mi", "dataSizeLimit=100Mi")
	f("dataSizeLimit: want five quarters", "config.store.spool.max_bytes=10 GB")
	f("dataSizeLimit: want five quarters", "config.store.spool.max_bytes=10000000000")
	f("dataSizeLimit: want five quarters", "secretEnv.REMORA_STORE_SPOOL_MAX_BYTES=2GiB")
	f("persistence.size: want five quarters", "persistence.enabled=true", "persistence.size=1Gi")
	f("config.store.spool.dir: want a folder below /data", "config.store.spool.dir=/x")
	f("config.store.spool.dir: want a folder below /data", "config.store.spool.dir=/database/x", "extraVolumeMounts[0].mountPath=/databas")
	f("config.store.spool.dir: want a folder below /data", "env[0].name=REMORA_STORE_SPOOL_DIR", "env[0].value=/x")
	f("podLabels: the chart sets app.kubernetes.io/name itself", `podLabels.app\.kubernetes\.io/name=x`)
	f("serviceMonitor.labels: the chart sets helm.sh/chart itself", `serviceMonitor.labels.helm\.sh/chart=x`)
	f("podAnnotations: the chart sets checksum/config itself", "podAnnotations.checksum/config=x")
	f("prometheusRule.labels: the chart sets helm.sh/chart itself", `prometheusRule.labels.helm\.sh/chart=x`)
	f("httpRoute.parentRefs: want the Gateway", "httpRoute.enabled=true")
	f("degradedShare", "prometheusRule.degradedShare=5")
	f("store.url: want redis://", "store.url=postgres://h")
	f("store.url: special characters of the password have to be percent-encoded", "store.url=redis://:a/b@h")
	f("special characters of the password percent-encoded", "store.url=redis://:a?b@h/0")
	f("store.url: want [user:password@]host[:port]", "store.url=redis://:hush@h:0")
	f("config.telemetry.traces.endpoint: want a URL such as http://host:4318/path", "config.telemetry.traces.endpoint=collector:4318")
	f("config.providers[0].base_url: want a URL", "config.providers[0].base_url=ftp://h")
	f("admin.token, admin.existingSecret: want one of them", "admin.token=a-token-of-sixteen", "admin.existingSecret=b")
	f("autoscaling.maxReplicas: want minReplicas", "redis.enabled=true", "autoscaling.enabled=true", "autoscaling.maxReplicas=1")
	f("polcy", "config.memory.polcy.token_budget=1")
	f("base_ulr", "config.providers[0].base_ulr=http://h")
	f("token_budget", "config.memory.token_budget=1") // is one of memory.policy
	f("burst", "config.providers[0].retry.burst=1")   // is one of limits.tenant
	f("names_kye", "config.store.encryption.names_kye=a")
	f("replicacount", "replicacount=2")   // not in the schema
	f("password", "redis.password=p@ss")  // would break the URL
	f("url", "store.url=bolt:/data/x.db") // not for several replicas, so not an URL to give
	f("url", "store.url=redis://h:0")
	f("url", "store.url=redis://h:65536/0")
	f("url", "store.url=redis://300.1.1.1")
	f("url", "store.url=redis+cluster://a\\,256.1.1.1:7000")
	f("token", "admin.token=short")
	f("runAsUser", "runAsUser=0") // root
	f("value", "env[0].name=A", "env[0].value=5")
	f("targetCPU", "redis.enabled=true", "autoscaling.enabled=true", "autoscaling.targetCPU=0")
	// Values of the configuration, which the pods would refuse.
	for _, c := range []struct{ key, value string }{
		{"server.max_body", "'64'"},
		{"server.read_timeout", "0s"},
		{"server.max_connections", "0"},
		{"store.commit_wait", "1000h"},
		{"store.read_wait", "250"},
		{"store.session_ttl", "soon"},
		{"store.session_ttl", "1ms"},
		{"server.read_timeout", "9ms"},
		{"server.idle_timeout", "100000h"},
		{"server.keep_alive", "25h"},
		{"providers[0].retry.max_delay", "2h"},
		{"providers[0].kind", "opneai"},
		{"providers[0].base_url", "http://300.1.1.1"},
		{"memory.layers[0].kind", "history_windw"},
		{"models.refresh", "59m"},
		{"store.spool.max_bytes", "12"},
		{"session.tenancy", "none"},
		{"session.history", "all"},
		{"providers[0].kind", "Open AI"},
		{"memory.on_store_error", "maybe"},
		{"memory.policy.token_budget", "99999999999999999999999"},
		{"memory.policy.overflow", "drop"},
		{"memory.layers[0].kind", "No Such"},
		{"limits.tenant.concurrent", "-1"},
		{"log.level", "loud"},
		{"telemetry.traces.sample_ratio", "7"},
		{"telemetry.traces.endpoint", "collector:4318"},
		{"telemetry.metrics.endpoint", "http://collector:99999"},
		{"telemetry.metrics.endpoint", "http://300.1.1.1:4318"},
		{"telemetry.metrics.interval", "0s"},
		{"telemetry.metrics.interval", "999ms"},
	} {
		// Helm writes a path as config.store.wait or /config/store/wait, by its version.
		leaf := c.key[strings.LastIndexByte(c.key, '.')+1:]
		f(leaf, "config."+c.key+"="+c.value)
	}
}

// The schema has nothing against the documented defaults, nor against references in the place of any value.
func TestSchemaTakesWhatTheProxyTakes(t *testing.T) {
	t.Parallel()
	config, err := os.ReadFile("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	values := "config:\n"
	for line := range strings.Lines(string(config)) {
		// The chart has values of its own for these.
		if key, _, _ := strings.Cut(strings.TrimSpace(line), ":"); slices.Contains([]string{"listen", "admin_listen", "url", "tls_cert", "tls_key", "admin_token", "shutdown_delay", "shutdown_grace"}, key) {
			continue
		}
		values += "  " + line
	}
	if _, err := renderValues(t, values); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for _, set := range []string{
		"config.store.commit_wait=${WAIT}", "config.memory.policy.token_budget=${BUDGET}", "config.server.max_body=65536",
		"config.store.session_ttl=720h", "config.store.commit_wait=1m", "config.store.commit_wait=1.5s", "config.log.level=debug",
		"config.telemetry.traces.endpoint=http://collector.monitoring:4318", "config.telemetry.traces.endpoint=https://[::1]:4318/v1/traces",
		"config.server.keep_alive=15s", "config.server.keep_alive=0", "config.server.idle_timeout=24h", "config.server.idle_timeout=1h30m", "config.server.read_timeout=10ms",
		"config.server.upstream.response_header_timeout=100h", "config.store.session_ttl=0", "config.store.session_ttl=8760h", "config.store.session_ttl=1500ms",
		"config.models.refresh=0", "config.models.refresh=1h", "config.models.refresh=90m", "config.models.refresh=24h0m", "config.telemetry.metrics.interval=1s", "config.telemetry.metrics.interval=1500ms",
		"config.memory.layers[0].kind=working_memory", "config.memory.layers[0].kind=${KIND}", "config.telemetry.metrics.endpoint=http://10.0.0.1:4318",
		"store.url=redis://u:p%40ss@h", "store.url=rediss://:a%2Cb@h:1/0?db=1", "store.url=redis+sentinel://a:1\\,b/m", "store.url=redis://10.0.0.1:6379", "store.url=redis://[::1]:6379", "store.url=redis://${HOST}:${PORT}",
		"config.store.tls.ca_file=/etc/ca.pem", "config.store.spool.max_bytes=1600MiB", "config.store.spool.max_bytes=${MAX}",
		"config.store.spool.dir=/data/elsewhere", "config.store.spool.dir=spool", "config.store.spool.dir=${DIR}", "config.store.spool.dir=",
		"store.url=redis://h/0?client_name=a@b", "secretEnv.REMORA_MEMORY_POLICY_OVERFLOW=truncate", "podLabels.team=a",
	} {
		if _, err := render(t, "--set-string", set); err != nil && !strings.Contains(set, "65536") {
			t.Errorf("%s: %v", set, err)
		}
		if _, err := render(t, "--set", set); err != nil {
			t.Errorf("%s: %v", set, err)
		}
	}
}

// Sections without a key, as when all their lines are comments, are as if they were not there, and a tool's parameters are a
// schema of the operator's, whose names are no keys.
func TestOrdinaryConfigurationsRender(t *testing.T) {
	t.Parallel()
	plain, err := render(t, "--set", "admin.token=a-token-of-sixteen")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []string{"secretEnv:", "podAnnotations:", "env:", "ingress: {tls: }", "config:", "config: {store: , server: , session: }", "config: {store: {spool: }}", "config: {telemetry: , providers: }"} {
		got, err := renderValues(t, "admin: {token: a-token-of-sixteen}\n"+config+"\n")
		if err != nil {
			t.Errorf("%s: %v", config, err)
		} else if diff := cmp.Diff(string(plain), string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
	}
	if _, err := renderValues(t, "ingress: {enabled: true, tls: }\n"); err != nil {
		t.Error(err)
	}
	const layer = `{kind: http, url: "http://search", tools: [{name: look, parameters: {type: object, properties: {city: {type: string}}}}]}`
	for _, config := range []string{"memory: {layers: [" + layer + "]}", "telemetry: {traces: , metrics: {}}"} {
		if _, err := renderValues(t, "config: {"+config+"}\n"); err != nil {
			t.Error(err)
		}
	}
}

// TestDashboard: the dashboard is one JSON text, with and without Helm, and its own braces are not Helm's.
func TestDashboard(t *testing.T) {
	t.Parallel()
	out, err := render(t, "--set", "dashboard.enabled=true", "-s", "templates/dashboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(out), "remora.json: |-\n")
	if file := readFile(t, chart+"/files/dashboard.json"); !json.Valid([]byte(file)) || strings.ReplaceAll(text, "\n    ", "\n") != "    "+file {
		t.Error(text)
	}
}

// Kubernetes refuses rollingUpdate beside another type, and the values have one by default.
func TestRecreateStandsAlone(t *testing.T) {
	t.Parallel()
	out, err := render(t, "--set", "strategy.type=Recreate", "--set", "store.url=redis://h")
	if err != nil || !bytes.Contains(out, []byte("strategy: {type: Recreate}\n")) || bytes.Contains(out, []byte("rollingUpdate:")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// A volume that only one node can mount is with the old pod until that is gone: another one, on another node, would wait for it,
// and a rolling update for that one.
func TestOneNodesVolumeIsGivenUpFirst(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set      string
		recreate bool
	}{
		{"persistence.enabled=true", true},
		{"persistence.enabled=true,persistence.accessModes={ReadWriteOncePod}", true},
		{"persistence.enabled=true,persistence.accessModes={ReadWriteOnce,ReadWriteMany}", false},
		{"persistence.enabled=true,persistence.existingClaim=mine", false},
		{"persistence.enabled=false", false},
	} {
		out, err := render(t, "--set", "store.url=redis://h", "--set", c.set)
		if err != nil || bytes.Contains(out, []byte("strategy: {type: Recreate}\n")) != c.recreate || bytes.Contains(out, []byte("rollingUpdate:")) == c.recreate {
			t.Errorf("%s: %v, want Recreate: %v", c.set, err, c.recreate)
		}
	}
}

// The notes name the base URL once /v1 is in it.
func TestNotesNameTheBaseURL(t *testing.T) {
	t.Parallel()
	notes := notesOf(t)
	for _, path := range []string{"/", "/v1", "/v1/"} {
		if text := notes("ingress.enabled=true,ingress.hosts[0].host=h,ingress.hosts[0].path=" + path); !strings.Contains(text, `  http://h/v1\n`) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// The notes name what the network policy keeps pods from. Other policies may allow it, so it is no error.
func TestNotesNameClosedPorts(t *testing.T) {
	t.Parallel()
	notes := notesOf(t)
	for _, c := range []struct{ set, want string }{
		{"store.url=redis://r:6379", "port 6379, which store.url needs"},
		{"store.url=redis://:a@r", "port 6379, which store.url needs"},
		{"store.url=rediss+sentinel://u:p@a\\,b:1234/my", "port 26379, which store.url needs"},
		{"store.url=rediss+sentinel://u:p@a\\,b:1234/my", "port 1234, which store.url needs"},
		{"config.providers[0].kind=compatible,config.providers[0].base_url=http://vllm:8000/v1", "port 8000, which config.providers[0].base_url needs"},
		{"config.telemetry.traces.endpoint=http://collector:4318", "port 4318, which config.telemetry.traces.endpoint needs"},
		{"store.existingSecret=s", "must have the port of the Redis of store.existingSecret"},
		{"store.existingSecret=s,networkPolicy.egressPorts={443,6379}", ""},
		{"store.url=redis://r,networkPolicy.egressPorts={443,6379}", ""},
		{"store.url=redis://${HOST}", ""},
		{"store.url=redis://r,networkPolicy.egress[0].ports[0].port=6379", ""},
		{"config.providers[0].kind=compatible,config.providers[0].base_url=https://h/v1", ""},
		{"redis.enabled=true", ""},
	} {
		text := notes("networkPolicy.enabled=true," + c.set)
		if c.want == "" && strings.Contains(text, "The network policy keeps") || !strings.Contains(text, c.want) {
			t.Errorf("%s: %s, want %q", c.set, text, c.want)
		}
	}
}

// notesOf returns a function that renders the notes. Helm shows them only with a cluster, so a manifest has them here.
func notesOf(t *testing.T) func(set string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"notes.txt":            readFile(t, chart+"/templates/NOTES.txt"),
		"templates/notes.yaml": `notes: {{ tpl (.Files.Get "notes.txt") . | toJson }}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(set string) string {
		t.Helper()
		out, err := renderChart(t, dir, "--set", set)
		if err != nil {
			t.Fatalf("%s: %v", set, err)
		}
		_, text, _ := strings.Cut(string(out), "\nnotes: ")
		text, _, _ = strings.Cut(text, "\n")
		return text
	}
}

// renderValues is helm template with a file of values.
func renderValues(t *testing.T, values string) ([]byte, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	return render(t, "-f", file)
}

func TestSecretsStayOutOfTheConfigMap(t *testing.T) {
	t.Parallel()
	out, err := render(t, "--set", "secretEnv.KEY=canary-1", "--set", "admin.token=canary-2-sixteen-letters", "--set", "store.url=redis://:canary-3@h")
	if err != nil {
		t.Fatal(err)
	}
	for manifest := range strings.SplitSeq(string(out), "\n---\n") {
		if strings.Contains(manifest, "canary") && !strings.Contains(manifest, "\nkind: Secret\n") {
			t.Error(manifest)
		}
	}
	if n := strings.Count(string(out), "canary"); n != 3 {
		t.Errorf("the canaries are there %d times", n)
	}
}

// A generated password is the same everywhere.
func TestMadeUpSecretsAgree(t *testing.T) {
	t.Parallel()
	out, err := render(t, "--set", "redis.enabled=true")
	if err != nil {
		t.Fatal(err)
	}
	f := func(pattern string) string {
		t.Helper()
		m := regexp.MustCompile(pattern).FindSubmatch(out)
		if m == nil {
			t.Fatalf("no %s", pattern)
		}
		return string(m[1])
	}
	server := f(`(?m)^  password: "(\w{32})"$`)
	if client := f(`REMORA_STORE_URL: "redis://:(\w+)@r-remora-redis:6379/0"`); client != server {
		t.Error("Remora and its Redis have different passwords")
	}
	if token := f(`REMORA_SERVER_ADMIN_TOKEN: "(\w{32})"`); token == server {
		t.Error("two secrets are one")
	}
}

// A new password of a Secret that the chart makes must reach the pods; a pod that need not be replaced must not be.
func TestPodsAreReplacedWhenTheyMustBe(t *testing.T) {
	t.Parallel()
	sums := func(set ...string) []string {
		t.Helper()
		args := []string{"-s", "templates/deployment.yaml", "--set", "secretEnv.A=x", "--set", "admin.token=a-token-of-sixteen", "--set", "redis.enabled=true", "--set", "redis.password=p"}
		for _, s := range set {
			args = append(args, "--set", s)
		}
		out, err := render(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`checksum/.*`).FindAllString(string(out), -1)
	}
	base := sums()
	for _, c := range []struct {
		set     string
		changed bool
	}{
		{"secretEnv.A=y", true},
		{"config.log.level=debug", true},
		{"redis.password=other", true},
		{"admin.token=another-of-sixteen", true},
		{"service.port=80", false},
	} {
		if got := !slices.Equal(base, sums(c.set)); got != c.changed {
			t.Errorf("%s: replaced is %v", c.set, got)
		}
	}
	if got := sums("restartOnConfigChange=false"); len(got) != len(base)-1 {
		t.Errorf("restartOnConfigChange=false: %q", got)
	}
}
