// Package examples_test runs the examples whose packages the repository has, and reads the others.
package examples_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"remora/test/kit"
	"remora/test/scripted"
)

const packages = "../test/e2e/testdata/node/node_modules"

// TestExamples: each program tells its name, and is known in that session and in no other.
func TestExamples(t *testing.T) {
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	proxy := kit.StartProxy(t, t.TempDir(), "store: {url: \"memory:\"}\nproviders: [{kind: compatible, base_url: \""+up.URL()+"/v1\"}]\n")

	for _, c := range []struct {
		file    string
		command []string
	}{
		{"curl/ask.sh", []string{"sh"}},
		{"go/main.go", []string{"go", "run"}},
		{"node/ask.mjs", []string{"node"}},
		{"ai-sdk/ask.mjs", []string{"node"}},
	} {
		t.Run(c.file, func(t *testing.T) {
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
			from, err := filepath.Abs(packages)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(from, filepath.Join(dir, "node_modules")); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), c.command[0], append(c.command[1:], file)...)
			cmd.Env = append(os.Environ(), "REMORA_URL="+proxy.URL+"/v1", "OPENAI_API_KEY=anything")
			out, err := cmd.CombinedOutput()
			if want := "Your name is Ada.\nI do not know your name.\n"; err != nil || string(out) != want {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestExamplesAreWellFormed: programs whose packages are not here can be parsed, and so can configurations.
func TestExamplesAreWellFormed(t *testing.T) {
	for _, c := range [][]string{
		{"node", "--check", "langchain/ask.mjs"},
		{"node", "--check", "agents-sdk/ask.mjs"},
		{"node", "--check", "mastra/ask.mjs"},
		{"python3", "-c", "import ast; ast.parse(open('python/ask.py').read())"},
	} {
		if _, err := exec.LookPath(c[0]); err != nil && c[0] == "python3" {
			t.Log("no python3 here: python/ask.py is not parsed")
			continue
		}
		if out, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%q: %v\n%s", c, err, out)
		}
	}
	for file, read := range map[string]func([]byte, any) error{"opencode/opencode.json": json.Unmarshal, "continue/config.yaml": yaml.Unmarshal} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var parsed map[string]any
		if err := read(text, &parsed); err != nil || len(parsed) == 0 {
			t.Errorf("%s: %v", file, err)
		}
	}
}
