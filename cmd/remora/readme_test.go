package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// blocksOf returns the fenced blocks of a page in one language.
func blocksOf(t *testing.T, page, language string) []string {
	t.Helper()
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(readPage(t, page), -1) {
		blocks = append(blocks, m[1])
	}
	if len(blocks) == 0 {
		t.Fatalf("%s has no block in %s", page, language)
	}
	return blocks
}

// guides are the pages whose commands a reader types one after the other, the README first.
var guides = []string{"README.md", "docs/operations.md", "docs/troubleshooting.md", "docs/faq.md"} //nolint:gochecknoglobals // constant

// TestReadmeCommands runs the commands of README.md and the guides against a scripted upstream. It fails on a command that it
// does not know how to run, so that no untested one is added.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "OPENAI_API_KEY=sk-test", "REDIS_PASSWORD=hush", providerAt(up)}
	writeFile(t, dir+"/my.yaml", blocksOf(t, "docs/operations.md", "yaml")[0])
	var blocks []string
	for _, page := range guides {
		blocks = append(blocks, blocksOf(t, page, "sh")...)
	}

	var server *running
	var err error
	url, transcript := "", "false"
	for _, block := range blocks {
		for command := range strings.SplitSeq(strings.TrimSpace(strings.ReplaceAll(block, "\\\n", "")), "\n") {
			command, comment, _ := strings.Cut(command, "   # ")
			command = strings.TrimSpace(command)
			words := strings.Fields(command)
			switch {
			case strings.HasPrefix(command, "export "): // env has it
			case command == "go run ./cmd/remora":
				if server, url, err = startProxy(dir, env, nil); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(server.kill)
			case command == "go run ./cmd/remora demo", command == "go run ./cmd/remora upstream":
				// These have their own tests; check only that they exist.
				sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)+" --help")
			case strings.HasPrefix(command, "REMORA_PROVIDERS="), strings.HasPrefix(command, "go run ./cmd/remora --upstream "):
				// TestUpstream runs the server.
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora check", 1)); out != "config ok\n" {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora transcript list "):
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)); out != "first\n" {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora transcript "):
				transcript = strings.Replace(command, "go run ./cmd/remora", "remora", 1)
				if out := sh(t, dir, env, transcript); !strings.Contains(out, "Ada") { // while the proxy runs
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora forget "):
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)); !strings.HasPrefix(out, "forgot 0 sessions of ") {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora ") && (strings.Contains(command, "--check") || strings.HasPrefix(command, "go run ./cmd/remora check")):
				if out := sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora", 1)); out != "config ok\n" {
					t.Errorf("%s: got %s", command, out)
				}
			case strings.HasPrefix(command, "go run ./cmd/remora "):
				// Serving is tested above; check only configuration and flags.
				sh(t, dir, env, strings.Replace(command, "go run ./cmd/remora", "remora --check", 1))
			case words[0] == "curl" && strings.Contains(command, " | grep "):
				shown := regexp.MustCompile("(?m)^```\n(X-Session-Id: [^`]*)^```").FindStringSubmatch(readPage(t, "docs/troubleshooting.md"))
				if shown == nil {
					t.Fatal("docs/troubleshooting.md does not show the headers")
				}
				id := regexp.MustCompile(`X-Turn-Id: \w+`)
				out := sh(t, dir, env, strings.Replace(command, "http://127.0.0.1:8080", url, 1))
				if have, want := id.ReplaceAllString(strings.ReplaceAll(out, "\r", ""), ""), id.ReplaceAllString(shown[1], ""); have != want {
					t.Errorf("%s: got %s, the page shows %s", command, have, want)
				}
			case words[0] == "curl":
				out := sh(t, dir, env, strings.Replace(command, "http://127.0.0.1:8080", url, 1))
				if printed := comment; !strings.HasPrefix(printed, "such as: ") && !strings.Contains(out, printed) {
					t.Errorf("%s: got %s, the page shows %s", command, out, printed)
				}
				if !strings.Contains(out, `"choices"`) || strings.Contains(command, "X-Memory: off") && !strings.Contains(out, "I do not know your name.") {
					t.Errorf("%s: got %s", command, out)
				}
			default:
				t.Errorf("%s: teach this test how to run it", command)
			}
		}
	}
	server.kill()
	if out := sh(t, dir, env, transcript); !strings.Contains(out, "Ada") || !strings.Contains(out, "What is my name?") {
		t.Errorf("%s: got %s", transcript, out)
	}
}

// TestSessionsPage imports the messages that docs/sessions.md shows, reads the export with its jq command, and carries the messages
// over as docs/operations.md says.
func TestSessionsPage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "OPENAI_API_KEY=sk-test"}
	shown := regexp.MustCompile("(?m)^```\n(\\{\"session[^`]*)^```").FindStringSubmatch(readPage(t, "docs/sessions.md"))
	if shown == nil {
		t.Fatal("docs/sessions.md shows no messages to import")
	}
	writeFile(t, dir+"/messages.jsonl", shown[1])
	sh(t, dir, env, "remora transcript --import messages.jsonl --key-env OPENAI_API_KEY")
	sh(t, dir, env, "remora transcript --session ada-2023-05 --key-env OPENAI_API_KEY > session.jsonl")
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("no jq here: its command is not run")
	}
	command := blocksOf(t, "docs/sessions.md", "sh")[0]
	if out := sh(t, dir, env, command); strings.Count(out, "\n") != 3 || !strings.Contains(out, `"content":"My sister moved to Lisbon."`) {
		t.Errorf("%s: got %s", command, out)
	}

	_, rest, _ := strings.Cut(readPage(t, "docs/operations.md"), "```sh\n  remora-before ")
	carry, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/operations.md does not say how to carry a session over")
	}
	sh(t, dir, env, "set -e\nremora "+strings.ReplaceAll(carry, "--session first", "--session ada-2023-05"))
	after := sh(t, dir, env, "remora transcript --session ada-2023-05 --key-env OPENAI_API_KEY")
	if strings.Count(after, `"time":"2023-05-08T13:56:00Z"`) != 1 || strings.Count(after, `"time":"2023-05-08T14:01:00Z"`) != 1 {
		t.Errorf("the turns have other times now: %s", after)
	}
}

// TestCommandsOfPages: every command in a page's back quotes and blocks exists, with its flags. Other tests run them, except for
// images, clusters and long measurements.
func TestCommandsOfPages(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "helm/*/*.md", "memory/layers/*/*.md", "test/*/*.md"} {
		found, err := filepath.Glob("../../" + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		for _, page := range found {
			pages = append(pages, strings.TrimPrefix(page, "../../"))
		}
	}
	makefile := readPage(t, "Makefile")
	program := regexp.MustCompile("(?m)(?:`|^|&& )((?:go run \\./[a-z/]+|remora|make)(?: [^`\n&|]*)?)")
	for _, page := range pages {
		for _, m := range program.FindAllStringSubmatch(readPage(t, page), -1) {
			command, _, _ := strings.Cut(m[1], "   ")
			words := strings.Fields(command)
			switch {
			case words[0] == "make" && len(words) > 1:
				if target := words[1]; regexp.MustCompile(`^[a-z-]+$`).MatchString(target) && !strings.Contains(makefile, "\n"+target+":") && strings.HasPrefix(m[0], "`") {
					t.Errorf("%s: %s: no such target", page, command)
				}
			case words[0] == "remora" && strings.HasPrefix(m[0], "`"):
				checkCommand(t, page, command, words[1:])
			case words[0] == "go" && words[2] == "./cmd/remora":
				checkCommand(t, page, command, words[3:])
			case words[0] == "go":
				checkFlags(t, page, command, "../../"+words[2], words[3:])
			}
		}
	}
}

// checkCommand checks that the program has a command line's subcommand and flags.
func checkCommand(t *testing.T, page, command string, args []string) {
	t.Helper()
	cmd, rest, err := newCommand(console{}).Find(args)
	if err == nil && !cmd.HasParent() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		err = errors.New("no such subcommand")
	}
	if err != nil {
		t.Errorf("%s: %s: %v", page, command, err)
		return
	}
	for _, arg := range rest {
		name, long := strings.CutPrefix(arg, "--")
		name, _, _ = strings.Cut(strings.TrimRight(name, ".,;:)"), "=")
		if long && name != "help" && name != "version" && cmd.Flags().Lookup(name) == nil && cmd.InheritedFlags().Lookup(name) == nil {
			t.Errorf("%s: %s: no flag --%s", page, command, name)
		}
	}
}

// checkFlags checks that the source of another program of this repository defines its flags.
func checkFlags(t *testing.T, page, command, folder string, args []string) {
	t.Helper()
	files, err := filepath.Glob(folder + "/*.go")
	if err != nil || len(files) == 0 {
		t.Errorf("%s: %s: no such program", page, command)
	}
	var source strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(text)
	}
	for _, arg := range args {
		if name, flag := strings.CutPrefix(arg, "-"); flag && !strings.Contains(source.String(), `"`+name+`"`) {
			t.Errorf("%s: %s: no flag %s", page, command, arg)
		}
	}
}

func readPage(t *testing.T, page string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + page)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
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

// TestReadmeUsesTheDefaultAddress: the examples use the default addresses of the proxy and of the scripted upstream.
func TestReadmeUsesTheDefaultAddress(t *testing.T) {
	t.Parallel()
	c, err := sources{}.load()
	if err != nil {
		t.Fatal(err)
	}
	defaults := []string{"http://" + c.Server.Listen, upstreamByDefault()}
	for _, url := range regexp.MustCompile("http://[^/\"\\s`]+").FindAllString(readPage(t, "README.md"), -1) {
		if !slices.Contains(defaults, url) {
			t.Errorf("README.md says %s, the defaults are %s", url, defaults)
		}
	}
}

// upstreamByDefault is the URL of `remora upstream` without a flag.
func upstreamByDefault() string {
	return "http://" + newUpstreamCommand(console{}).Flag("listen").DefValue
}
