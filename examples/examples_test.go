// Package examples_test runs the examples against the real binary and the scripted upstream.
package examples_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"remora/test/kit"
	"remora/test/scripted"
)

// packages are the SDKs for Node, from the lock file that the end-to-end tests have.
const packages = "../test/e2e/testdata/node/node_modules"

// known is the scripted model's answer once the session has a name, and unknown its answer in any other session.
const (
	known   = "Your name is Ada."
	unknown = "I do not know your name."
)

func startProxy(t *testing.T) *kit.Proxy {
	t.Helper()
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return kit.StartProxy(t, t.TempDir(), "store: {url: \"memory:\"}\nproviders: [{kind: compatible, base_url: \""+up.URL()+"/v1\"}]\n")
}

// TestExamples: each program tells its name, and is known in that session and in no other.
func TestExamples(t *testing.T) {
	proxy := startProxy(t)
	sdks, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs("testdata/python")
	if err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		file    string
		command []string
	}{
		{"curl/ask.sh", []string{"sh"}},
		{"python/ask.py", []string{"python3"}},
		{"go/main.go", []string{"go", "run"}},
		{"node/ask.mjs", []string{"node"}},
		{"ai-sdk/ask.mjs", []string{"node"}},
		{"langchain/ask.mjs", []string{"node"}},
		{"agents-sdk/ask.mjs", []string{"node"}},
		{"mastra/ask.mjs", []string{"node"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(c.command[0]); err != nil && c.command[0] == "python3" {
				t.Skip("no python3 here")
			}
			text, err := os.ReadFile(c.file)
			if err != nil {
				t.Fatal(err)
			}

			// A copy: Go finds this module's packages, and Node those beside it.
			dir := t.TempDir()
			file := filepath.Join(dir, filepath.Base(c.file))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(sdks, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), c.command[0], append(c.command[1:], file)...)
			cmd.Env = append(os.Environ(), "REMORA_URL="+proxy.URL+"/v1", "OPENAI_API_KEY=anything", "PYTHONPATH="+python, "PYTHONDONTWRITEBYTECODE=1")

			out, err := cmd.CombinedOutput()
			if want := known + "\n" + unknown + "\n"; err != nil || string(out) != want {
				t.Errorf("%v (if a package is missing: make deps)\n%s", err, out)
			}
		})
	}
}

// TestOneSessionThroughSDKs: what one SDK was told, two others of another API know.
func TestOneSessionThroughSDKs(t *testing.T) {
	proxy := startProxy(t)
	sdks, err := filepath.Abs(packages)
	if err != nil {
		t.Fatal(err)
	}
	session := regexp.MustCompile(`"X-Session-Id": "\w[\w-]*"`)
	telling := regexp.MustCompile(`(?m)^await \w+(?:\.invoke)?\("My name is Ada\."\);\n`)
	for i, name := range []string{"node", "langchain", "ai-sdk"} {
		text, err := os.ReadFile(name + "/ask.mjs")
		if err != nil {
			t.Fatal(err)
		}
		program := session.ReplaceAllString(string(text), `"X-Session-Id": "shared"`)
		if i > 0 {
			program = telling.ReplaceAllString(program, "")
		}
		if told := strings.Contains(program, "My name is Ada."); told != (i == 0) {
			t.Fatalf("%s: the program does not look as this test expects:\n%s", name, program)
		}

		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "ask.mjs"), []byte(program), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(sdks, filepath.Join(dir, "node_modules")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "ask.mjs"))
		cmd.Env = append(os.Environ(), "REMORA_URL="+proxy.URL+"/v1", "OPENAI_API_KEY=anything")
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != known+"\n"+known+"\n" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// agent is what a configuration of an agent makes it send: where to, and which headers of its own.
type agent struct {
	base    string
	headers map[string]string
}

// TestConfigurations reads the configurations as their agents do, and sends what these put on the wire with them, as it was
// recorded from the agents themselves: the session is remembered.
func TestConfigurations(t *testing.T) {
	var codex struct {
		ModelProvider  string `toml:"model_provider"`
		ModelProviders map[string]struct {
			Name        string            `toml:"name"`
			BaseURL     string            `toml:"base_url"`
			EnvKey      string            `toml:"env_key"`
			WireAPI     string            `toml:"wire_api"`
			HTTPHeaders map[string]string `toml:"http_headers"`
		} `toml:"model_providers"`
	}
	read(t, "codex/config.toml", func(text []byte) error {
		d := toml.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(&codex)
	})
	codexProvider := codex.ModelProviders[codex.ModelProvider]
	if codexProvider.WireAPI != "responses" || codexProvider.EnvKey != "OPENAI_API_KEY" || codexProvider.Name == "" {
		t.Errorf("codex: provider %q is %+v", codex.ModelProvider, codexProvider)
	}

	var opencode struct {
		Schema   string `json:"$schema"`
		Provider map[string]struct {
			NPM     string `json:"npm"`
			Name    string `json:"name"`
			Options struct {
				BaseURL string            `json:"baseURL"`
				APIKey  string            `json:"apiKey"`
				Headers map[string]string `json:"headers"`
			} `json:"options"`
			Models map[string]struct {
				Name string `json:"name"`
			} `json:"models"`
		} `json:"provider"`
	}
	read(t, "opencode/opencode.json", func(text []byte) error {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		return d.Decode(&opencode)
	})
	opencodeProvider := opencode.Provider["remora"]
	if opencodeProvider.NPM != "@ai-sdk/openai-compatible" || opencodeProvider.Options.APIKey != "{env:OPENAI_API_KEY}" || len(opencodeProvider.Models) == 0 {
		t.Errorf("opencode: %+v", opencode)
	}

	var continues struct {
		Name, Version, Schema string
		Models                []struct {
			Name, Provider, Model string
			APIBase               string `yaml:"apiBase"`
			APIKey                string `yaml:"apiKey"`
			RequestOptions        struct {
				Headers map[string]string
			} `yaml:"requestOptions"`
		}
	}
	read(t, "continue/config.yaml", func(text []byte) error {
		d := yaml.NewDecoder(bytes.NewReader(text))
		d.KnownFields(true)
		return d.Decode(&continues)
	})
	if len(continues.Models) != 1 || continues.Models[0].Provider != "openai" || continues.Schema != "v1" {
		t.Fatalf("continue: %+v", continues)
	}

	const chatBody = `{"model":"gpt-5-mini","messages":[{"role":"user","content":"WORDS"}]}`
	with := func(headers map[string]string, own ...string) map[string]string {
		all := maps.Clone(headers)
		for i := 0; i < len(own); i += 2 {
			all[own[i]] = own[i+1]
		}
		return all
	}
	proxy := startProxy(t)
	for name, c := range map[string]struct {
		agent
		path, body string
	}{
		"codex": {
			agent{codexProvider.BaseURL, with(codexProvider.HTTPHeaders, "session-id", "019a-c", "thread-id", "019a-c")},
			"/responses", `{"model":"gpt-5-mini","store":false,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"WORDS"}]}]}`,
		},
		"opencode": {agent{opencodeProvider.Options.BaseURL, with(opencodeProvider.Options.Headers, "x-session-id", "ses_1")}, "/chat/completions", chatBody},
		"continue": {agent{continues.Models[0].APIBase, with(continues.Models[0].RequestOptions.Headers)}, "/chat/completions", chatBody},
	} {
		rest, ok := strings.CutPrefix(c.base, "http://127.0.0.1:8080")
		if !ok {
			t.Errorf("%s: base URL %q is not where the proxy serves by default", name, c.base)
		}
		if c.headers["X-Resource-Id"] == "" {
			t.Errorf("%s: no resource in %v", name, c.headers)
		}
		ask := func(words string) (memory, answer string) {
			return send(t, proxy.URL+rest+c.path, strings.Replace(c.body, "WORDS", words, 1), c.headers)
		}
		ask("My name is Ada.")
		if memory, answer := ask("What is my name?"); !strings.HasPrefix(memory, "ok;") || !strings.Contains(answer, known) {
			t.Errorf("%s: X-Memory %q, answer %s", name, memory, answer)
		}
	}
}

func read(t *testing.T, file string, parse func([]byte) error) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := parse(text); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// send posts a body and returns the answer's X-Memory and its body.
func send(t *testing.T, url, body string, headers map[string]string) (memory, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer anything")
	for k, v := range headers {
		req.Header.Set(k, v)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header.Get("X-Memory"), string(text)
}
