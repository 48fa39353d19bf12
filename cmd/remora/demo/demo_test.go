package demo_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
)

// play runs `remora demo` and returns what it prints and its exit code.
func play(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out bytes.Buffer
	stderr, code = playTo(t, &out, args...)
	return out.String(), stderr, code
}

// playTo runs `remora demo` with a given standard output, and checks that it leaves no files behind.
func playTo(t *testing.T, stdout io.Writer, args ...string) (stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute) // only if it hangs
	defer cancel()
	tmp := t.TempDir()
	var log bytes.Buffer
	binary := kit.BuildProxy(t)
	cmd := exec.CommandContext(ctx, binary, append([]string{"demo"}, args...)...)
	// A setting of the caller must not reach the demo's proxy.
	cmd.Env = append(os.Environ(), "TMPDIR="+tmp, "REMORA_MEMORY_LAYERS=[]", "DEMO_BINARY="+binary)
	cmd.Stdout, cmd.Stderr = stdout, &log
	if err := cmd.Run(); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			t.Fatal(err)
		}
		code = exit.ExitCode()
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v behind, %v", left, err)
	}
	return log.String(), code
}

// TestDemoWithoutReader: the demo ends normally when its output is not read, as in `remora demo | head`.
func TestDemoWithoutReader(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	defer func() { _ = w.Close() }()
	if stderr, code := playTo(t, w); code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

func TestDemoTable(t *testing.T) {
	t.Parallel()
	out, stderr, code := play(t, "--table")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q:\n%s", code, stderr, out)
	}
	for _, want := range []string{
		"ok      turns       71, with 57 tool calls, 5 times several at once; 35 answers streamed",
		"ok      window      fired on 56 turns; the model never got more than 26 of up to 148 items",
		"ok      views ",
		"ok      orphans     0: ",
		"ok      notes       made in turn 2 by a call that no client got; told 64 times since, 56 without the call",
		"ok      recall      turn 67 knew what another session had been told; turn 71, of another resource, did not",
		"ok      denied      1 call that no client got; ",
		"ok      blocks      the model got 124, ",
		"ok      restart     killed with SIGKILL after turn 44: all 103 items ",
		"ok      transcript  3 sessions with 149, 10, 2 items ",
		"turn 45 in full",
		"+ block      working-memory, slot 100, 29 tokens",
		"+ block      observational-memory, slot 200, 44 tokens",
		"all 11 ~     13    13         0  100:29          user Hi",
		"* call       working-memory_update {",
		"* call       order(Dune, 500)",
		"- user: Shelf 9 is Bento's, by the way.",
		"OPENAI_API_KEY",
		"go run ./cmd/remora demo --full",
	} {
		if !strings.Contains(strings.ToLower(out), strings.ToLower(want)) {
			t.Errorf("it does not say %q", want)
		}
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours are for terminals")
	}
	for line := range strings.SplitSeq(out, "\n") {
		if n := len([]rune(line)); n > 110 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	if t.Failed() {
		t.Log("\n" + out)
	}

	again, _, _ := play(t, "--table")
	ports := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	if diff := cmp.Diff(ports.ReplaceAllString(out, "ADDR"), ports.ReplaceAllString(again, "ADDR")); diff != "" {
		t.Errorf("two demos differ:\n%s", diff)
	}
}

// TestDemo: the demo prints a page of at most 30 lines.
func TestDemo(t *testing.T) {
	t.Parallel()
	out, stderr, code := play(t)
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q:\n%s", code, stderr, out)
	}
	for _, want := range []string{
		"  you said       When do we reorder Ulysses?\n" +
			"  the model saw  23 of 136 items, and of working-memory: \"Ulysses\": \"below three copies\"\n" +
			"  it answered    When fewer than three are left.   (about ",
		"kill -9 in the middle of turn 45: all 103 items so far were on disk",
		"observational-memory: user: Shelf 9 is Bento's, by the way.\n  it answered    It is Bento's.\n",
		"order(Dune, 500): denied, and no client got it",
		"I ordered 50: no order may be larger.",
		"I do not know.",
		" % saved; nothing lost",
		"go run ./cmd/remora demo --table",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if n := strings.Count(out, "\n"); n > 30 {
		t.Errorf("%d lines", n)
	}
	if strings.Contains(out, "\x1b") {
		t.Error("colours are for terminals")
	}
	if t.Failed() {
		t.Log("\n" + out)
	}
}

// TestDemoInFull: turns that are shown in full are complete, and every stored item is printed once, in order.
func TestDemoInFull(t *testing.T) {
	t.Parallel()
	out, stderr, code := play(t, "--full")
	if code != 0 || stderr != "" {
		t.Fatalf("exit code %d, stderr %q:\n%s", code, stderr, out)
	}
	if left := regexp.MustCompile(`(?m)^ .*\.\.\. +\d+ more.*`).FindString(out); left != "" {
		t.Errorf("it leaves something out: %s", left)
	}
	_, stored, _ := strings.Cut(out, "\nStored of session \"stocktaking\": 149 items")
	stored, _, ok := strings.Cut(stored, "\nChecked\n")
	if !ok || strings.Contains(stored, "…") {
		t.Errorf("it does not print the transcript, or cuts it:\n%s", stored)
	}
	var counted []int
	for part := range strings.SplitSeq(stored, "\nStored of session ") {
		n := len(regexp.MustCompile(`(?m)^ +\d+  [ *] (?:user|assistant|call|result) +\S`).FindAllString(part, -1))
		counted = append(counted, n)
	}
	if diff := cmp.Diff([]int{149, 10, 2}, counted); diff != "" {
		t.Errorf("stored items that are printed:\n%s\n%s", diff, stored)
	}
	for _, want := range []string{
		"  13    user       And of Emma, Ulysses and Middlemarch?", "   4  * call       working-memory_update {", " 149    assistant  Good night, Ada.",
	} {
		if !strings.Contains(stored, want) {
			t.Errorf("the transcript has no %q", want)
		}
	}
}

// TestDemoFails plays through faulty proxies: a few lines of shell in front of the real one.
func TestDemoFails(t *testing.T) {
	t.Parallel()
	f := func(name, script string, want ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			wrapper := filepath.Join(t.TempDir(), "remora")
			script = "#!/bin/sh\n" + script + "\nexec \"$DEMO_BINARY\" \"$@\"\n"
			if err := os.WriteFile(wrapper, []byte(script), 0o700); err != nil {
				t.Fatal(err)
			}
			out, stderr, code := play(t, "--binary", wrapper)
			if code != 1 {
				t.Errorf("want exit code 1, have %d", code)
			}
			for _, w := range want {
				if !strings.Contains(out+stderr, w) {
					t.Errorf("it does not say %q", w)
				}
			}
			if t.Failed() {
				t.Logf("stderr %q\n%s", stderr, out)
			}
		})
	}
	f("an item is missing", `if [ "$1" = transcript ]; then "$DEMO_BINARY" "$@" | grep -v '"seq":7,'; exit; fi`,
		"FAILED  restart", "FAILED  transcript", `number 7 is`, "demo: the checks above have failed")
	f("the store is lost in the crash", `
if [ "$1" = --config ]; then
	if [ -e "$0.started" ]; then rm -f "$(dirname "$2")/demo.db"; fi
	touch "$0.started"
fi`,
		"demo: turn 45: ")
	f("no window", `if [ "$1" = --config ]; then sed -i 's/max_items: 24,/max_items: 2400,/' "$2"; fi`,
		"FAILED  window      it fired on 0 turns", "ok      transcript")
	f("no working memory", `if [ "$1" = --config ]; then sed -i '/kind: working_memory/d' "$2"; fi`,
		"FAILED  notes       turn 1: the model was not offered working-memory_update",
		"FAILED  recall      turn 61: the model said assistant \"I do not know.\"", "ok      denied", "ok      transcript")
	f("each session for itself", `
if [ "$1" = --config ]; then sed -i 's/{kind: observational_memory}/{kind: observational_memory, scope: thread}/' "$2"; fi`,
		"FAILED  recall      turn 67: the model said assistant \"I do not know.\"", "ok      notes", "ok      transcript")
	f("no rule", `if [ "$1" = --config ]; then sed -i 's/copies > 50/copies > 5000/' "$2"; fi`,
		"FAILED  denied      session \"next day\": a client got call \"order(Dune, 500)\"", "ok      transcript")
	f("it does not start", `if [ "$1" = --config ]; then echo no luck today >&2; exit 3; fi`,
		"demo: start remora: exit status 3; the proxy said: no luck today")
}
