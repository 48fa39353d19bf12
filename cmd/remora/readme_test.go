package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// readmeBlocks returns the fenced blocks of README.md in one language.
func readmeBlocks(t *testing.T, language string) []string {
	t.Helper()
	return blocksOf(t, "README.md", language)
}

// blocksOf returns the fenced blocks of a page in one language.
func blocksOf(t *testing.T, page, language string) []string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block in %s", page, language)
	}
	return blocks
}

// TestReadmeCommands runs what README.md and docs/operations.md tell a newcomer to type, against a scripted upstream instead of a real one.
// A command that it does not know how to run is an error, so that none can be added untested.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "OPENAI_API_KEY=sk-test", "REDIS_PASSWORD=hush", providerAt(up)}
	writeFile(t, dir+"/my.yaml", blocksOf(t, "docs/operations.md", "yaml")[0])
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	var server *running
	url, transcript := "", "false"
	for _, block := range slices.Concat(readmeBlocks(t, "sh"), blocksOf(t, "docs/operations.md", "sh")) {
		for command := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(block, "\\\n", "")), "\n") {
			command, _, _ = strings.Cut(command, "   # ")
			words := strings.Fields(command)
			switch {
			case words[0] == "make":
				if !strings.Contains(string(makefile), "\n"+words[1]+": ") {
					t.Errorf("%s: no such target", command)
				}
			case command == "go run ./cmd/remora":
				if server, url, err = startProxy(dir, env, nil); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(server.kill)
			case command == "go run ./cmd/remora demo", command == "go run ./cmd/remora upstream":
				// They have tests of their own; here they only have to exist.
				sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)+" --help")
			case strings.HasPrefix(command, "REMORA_PROVIDERS="), strings.HasPrefix(command, "go run ./cmd/remora --upstream "):
				// What it starts is tried by TestUpstream.
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora check", 1)); out != "config ok\n" {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora transcript "):
				transcript = strings.Replace(command, "go run ./cmd/remora", "remora", 1)
			case strings.HasPrefix(command, "go run ./cmd/remora ") && (strings.Contains(command, "--check") || strings.HasPrefix(command, "go run ./cmd/remora check")):
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)); out != "config ok\n" {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora "):
				// Serving is tested above; its configuration and flags are what is new.
				sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora --check", 1))
			case words[0] == "curl":
				out := sh(t, dir, env, strings.Replace(command, "http://127.0.0.1:8080", url, 1))
				if !strings.Contains(out, `"choices"`) {
					t.Errorf("%s: got %s", command, out)
				}
			default:
				t.Errorf("%s: teach this test how to run it", command)
			}
		}
	}
	// What README says of the curl command: a second question alone brings the first one along.
	knows := sh(t, dir, env, `curl -s `+url+`/v1/chat/completions -H "Authorization: Bearer $OPENAI_API_KEY" -H "X-Session-Id: first" `+
		`-d '{"model":"gpt-5-mini","messages":[{"role":"user","content":"What is my name?"}]}'`)
	if !strings.Contains(knows, `"Your name is Ada."`) {
		t.Errorf("the second answer is %s", knows)
	}
	server.kill()
	if out := sh(t, dir, env, transcript); !strings.Contains(out, "Ada") || !strings.Contains(out, "What is my name?") {
		t.Errorf("%s: got %s", transcript, out)
	}
}

func sh(t *testing.T, dir string, env []string, command string) string {
	t.Helper()
	cmd := exec.Command("sh", "-c", command)
	cmd.Dir, cmd.Env = dir, env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

// TestReadmeUsesTheDefaultAddress keeps the base URLs of the examples where the proxy and the scripted upstream serve by
// default.
func TestReadmeUsesTheDefaultAddress(t *testing.T) {
	t.Parallel()
	c, err := load("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defaults := []string{"http://" + c.Server.Listen, upstreamByDefault()}
	for _, block := range slices.Concat(readmeBlocks(t, "sh"), readmeBlocks(t, "js")) {
		for _, url := range regexp.MustCompile(`http://[^/"\s]+`).FindAllString(block, -1) {
			if !slices.Contains(defaults, url) {
				t.Errorf("README.md says %s, the defaults are %s", url, defaults)
			}
		}
	}
}

// upstreamByDefault is the URL of `remora upstream` without a flag.
func upstreamByDefault() string {
	return "http://" + newUpstreamCommand(process{}).Flag("listen").DefValue
}
