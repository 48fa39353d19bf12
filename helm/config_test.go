package helm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"remora/test/kit"
)

// The program accepts the chart's ConfigMap, with the pod's variables.
func TestProxyUnderstandsWhatIsRendered(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links the program")
	}
	dir := t.TempDir()
	proxy := kit.BuildProxy(t)
	// What README offers for production is tried as well.
	_, values, ok := strings.Cut(readFile(t, chart+"/README.md"), "\n```yaml\n")
	values, _, ends := strings.Cut(values, "\n```\n")
	readme := filepath.Join(dir, "my-values.yaml")
	if err := os.WriteFile(readme, []byte(values), 0o600); err != nil || !ok || !ends {
		t.Fatal("README.md has no values", err)
	}
	// Helm reads YAML 1.1, in which the key `on` is true. A tool's schema has keys of its own.
	odd := filepath.Join(dir, "odd-values.yaml")
	if err := os.WriteFile(odd, []byte(`config:
  server: {max_body: 10 MB}
  providers: [{name: a, kind: openai, retry: {on: [429, connect]}}, {name: b, kind: openai, retry: {"on": [503]}}]
  memory:
    layers:
      - kind: http
        url: http://wiki/recall
        tools: [{name: search, description: Search, parameters: {type: object, properties: {anything: {type: string}}}}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, values := range []string{readme, odd} {
		rendered, err := render(t, "-f", values)
		if err != nil {
			t.Fatalf("%s: %v", filepath.Base(values), err)
		}
		all[filepath.Base(values)] = string(rendered)
	}
	// The other sets name files that are only in a pod.
	for _, name := range []string{"1-minimal", "2-trial", "4-sentinel"} {
		all[name] = readFile(t, "testdata/golden/"+name+".yaml")
	}
	for name, manifests := range all {
		_, config, ok := strings.Cut(manifests, "\n  config.yaml: |\n")
		config, _, ends := strings.Cut(config, "\n---\n")
		if !ok || !ends {
			t.Fatal(name, "has no config.yaml")
		}
		file := filepath.Join(dir, name+".yaml")
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(config, "\n    ", "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), proxy, "--check", "--config", file)
		cmd.Dir = dir
		key := strings.Repeat("ab", 32)
		cmd.Env = []string{
			"OPENAI_API_KEY=k", "REMORA_SERVER_ADMIN_TOKEN=not-a-secret-either", "REMORA_STORE_URL=redis://h",
			"REMORA_SESSION_KEY=" + key, "DATA_KEY=" + key, "NAMES_KEY=" + strings.Repeat("cd", 32),
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
