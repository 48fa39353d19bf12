package main

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/kit"
	"remora/test/scripted"
)

// workspace is a folder with a configuration and a store, for a proxy and for `remora transcript`.
type workspace struct {
	env    []string // of commands, besides that of the tests
	t      *testing.T
	dir    string
	config string
	proxy  *kit.Proxy
}

// startUpstream starts a scripted upstream that ends with the test.
func startUpstream(t *testing.T) *scripted.Server {
	t.Helper()
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = up.Close() })
	return up
}

func newWorkspace(t *testing.T) *workspace {
	t.Helper()
	up := startUpstream(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(d.configFor("bolt:remora.db", up.URL()))
	return d
}

// start starts a proxy that waits for its store: a disk or machine that is busy is no store that is down.
func (d *workspace) start(config string) {
	d.t.Helper()
	d.proxy = kit.StartProxy(d.t, d.dir, config, patientStore...)
	d.config = d.proxy.Config
}

func (d *workspace) configFor(store, upstream string) string {
	return fmt.Sprintf("store: {url: %q}\nproviders: [{name: up, kind: compatible, base_url: %q}]\n", store, upstream+"/v1")
}

// say sends a request whose answer may end early. Each header is "Name: value".
func (d *workspace) say(path, body string, header ...string) {
	d.t.Helper()
	res, _, err := d.send(path, body, header...)
	if res.StatusCode != http.StatusOK || err != nil && res.Request.Header.Get("X-Script") == "" {
		d.t.Fatalf("%s: %s, %v", body, res.Status, err)
	}
}

// send sends a request and returns the answer, the body as far as it was received, and the error that ended it early.
func (d *workspace) send(path, body string, header ...string) (*http.Response, string, error) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), http.MethodPost, d.proxy.URL+"/v1/"+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	return res, string(b), err
}

// chat returns a Chat Completions body with messages, each "role: text".
func chat(messages ...string) string {
	list := make([]string, len(messages))
	for i, m := range messages {
		role, text, _ := strings.Cut(m, ": ")
		list[i] = fmt.Sprintf(`{"role":%q,"content":%q}`, role, text)
	}
	return fmt.Sprintf(`{"model":"m","messages":[%s]}`, strings.Join(list, ","))
}

// run runs `remora transcript ARGS`, checks the exit code, and returns the output.
func (d *workspace) run(code int, stdin string, args ...string) (stdout, stderr string) {
	d.t.Helper()
	cmd := exec.CommandContext(d.t.Context(), kit.BuildProxy(d.t), append([]string{"transcript", "--config", d.config}, args...)...)
	var out, log bytes.Buffer
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = d.dir, strings.NewReader(stdin), &out, &log
	cmd.Env = slices.Concat(os.Environ(), []string{"A_KEY=key-a"}, d.env)
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != code {
		d.t.Errorf("transcript %q: want exit code %d, have %s\n%s%s", args, code, cmd.ProcessState, &out, &log)
	}
	return out.String(), log.String()
}

// prints checks the command's output.
func (d *workspace) prints(want string, args ...string) {
	d.t.Helper()
	if got, _ := d.run(0, "", args...); got != want {
		d.t.Errorf("transcript %q:\n%s", args, cmp.Diff(want, got))
	}
}

// refuses checks that the command prints an error that contains want, and nothing on stdout.
func (d *workspace) refuses(want string, args ...string) {
	d.t.Helper()
	if out, got := d.run(1, "", args...); !strings.Contains(got, want) || out != "" {
		d.t.Errorf("transcript %q: want %q, have %q and %q", args, want, got, out)
	}
}

func TestTranscript(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	const a, b, s = "Authorization: Bearer key-a", "Authorization: Bearer key-b", "X-Session-Id: s"
	d.say("chat/completions", chat("user: Hello"), a, s)
	d.say("chat/completions", chat(`user: CALL f {"n":1}`), a, s)
	d.say("chat/completions", chat("user: Salut"), b, s)
	d.say("responses", `{"model":"m","input":"Moin"}`, "X-Session-Id: u")
	// An edit leaves a side branch; the answer to the last message is aborted.
	v := []string{a, "X-Session-Id: v"}
	d.say("chat/completions", chat("user: One"), v...)
	d.say("chat/completions", chat("user: One", "assistant: You said: One", "user: Two"), v...)
	d.say("chat/completions", chat("user: One", "assistant: You said: One", "user: Three"), v...)
	d.say("chat/completions", strings.Replace(chat("user: Four and some words more"), "{", `{"stream":true,`, 1),
		append(v, "X-History: server", "X-Script: cut-after=3")...)
	d.proxy.Stop()

	const text = "     1  user       Hello\n" +
		"     2  assistant  You said: Hello\n" +
		"     3  user       CALL f {\"n\":1}\n" +
		"     4  assistant  f{\"n\":1}\n"
	d.prints(text, "--text", "--session", "s", "--key", "key-a")
	d.prints(text, "--text", "--session", "s", "--key", "Bearer key-a")
	d.prints(text, "--text", "--session", "s", "--key-env", "A_KEY")
	if got, _ := d.run(0, "key-a\n", "--text", "--session", "s", "--key", "-"); got != text {
		t.Error(cmp.Diff(text, got))
	}
	d.prints("     1  user       Salut\n     2  assistant  You said: Salut\n", "--text", "--session", "s", "--key", "key-b")
	d.prints("     1  user       Moin\n     2  assistant  You said: Moin\n", "--text", "--session", "u")
	d.prints("     1  user       One\n"+
		"     2  assistant  You said: One\n"+
		"     3  user       Two  [branch]\n"+
		"     4  assistant  You said: Two  [branch]\n"+
		"     5  user       Three\n"+
		"     6  assistant  You said: Three\n"+
		"     7  user       Four and some words more  [incomplete]\n"+
		"     8  assistant  You said: Four and some words  [partial]\n", "--text", "--session", "v", "--key", "key-a")

	// The items that a turn sent upstream, in their stored bytes.
	exported, _ := d.run(0, "", "--session", "v", "--key", "key-a")
	turns := regexp.MustCompile(`"turn":\{"id":"(\w+)"`).FindAllStringSubmatch(exported, -1)
	if len(turns) != 4 {
		t.Fatalf("%d turns in %s", len(turns), exported)
	}
	d.prints(`{"role":"user","content":"One"}`+"\n"+
		`{"role":"assistant","content":"You said: One","refusal":null,"annotations":[]}`+"\n"+
		`{"role":"user","content":"Three"}`+"\n", "--session", "v", "--key", "key-a", "--turn", turns[2][1])
	d.refuses("no such turn", "--session", "v", "--key", "key-a", "--turn", "X")

	d.prints("s\nv\n", "list", "--key", "key-a")
	d.prints("u\n", "list")
	if out, said := d.run(0, "", "list", "--key", "key-c"); out != "" || !strings.Contains(said, "no session is stored under this credential") {
		t.Errorf("an empty list prints %q and %q", out, said)
	}

	d.refuses("--session is missing")
	const unknown = `"s": no such session under this credential; `
	d.refuses("transcript of "+unknown+"sessions belong to the API key that created them: add --key-env NAME", "--session", "s")
	d.refuses("transcript of "+unknown+"`remora transcript list`", "--session", "s", "--key", "key-c")
	d.refuses("delete "+unknown+"sessions belong to the API key", "delete", "--session", "s")

	writeFile(t, filepath.Join(d.dir, "single.yaml"), d.configFor("bolt:remora.db", "http://127.0.0.1:1")+"session: {tenancy: single}\n")
	d.config = filepath.Join(d.dir, "single.yaml")
	d.refuses("transcript of "+unknown+"`remora transcript list`", "--session", "s")
	d.refuses("the environment variable NO_SUCH_KEY is not set", "--session", "s", "--key-env", "NO_SUCH_KEY")
	d.refuses("none of the others can be", "--session", "s", "--key-env", "A_KEY", "--key", "key-a")
	d.refuses("read --key from stdin", "--session", "s", "--key", "-")
}

func TestTranscriptImport(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	// In the format of Python's json.dumps: the bytes are preserved, so the export has them as base64.
	const spaced = `{"role": "user", "content": "Hello"}`
	d.say("chat/completions", `{"model":"m","messages":[{"role":"system","content":"Be brief."},`+spaced+`]}`, "X-Session-Id: s")
	d.say("chat/completions", chat("system: Be brief.", "user: Hello", "assistant: You said: Hello", "user: More"), "X-Session-Id: s")
	d.proxy.Stop()
	exported, _ := d.run(0, "", "--session", "s")
	if raw := `"raw":"` + base64.StdEncoding.EncodeToString([]byte(spaced)) + `"`; strings.Count(exported, `"raw":`) != 1 || !strings.Contains(exported, raw) {
		t.Errorf("want %s once in %s", raw, exported)
	}
	writeFile(t, filepath.Join(d.dir, "s.jsonl"), exported)

	// Another store.
	writeFile(t, filepath.Join(d.dir, "other.yaml"), d.configFor("bolt:other.db", "http://127.0.0.1:1"))
	d.config = filepath.Join(d.dir, "other.yaml")
	d.refuses("other.db: no such file", "--session", "s")
	if _, err := os.Stat(filepath.Join(d.dir, "other.db")); err == nil {
		t.Error("reading has created a store")
	}
	d.prints("sessions imported: 1\n", "--session", "copy", "--key", "key-b", "--import", "s.jsonl")
	d.prints(exported, "--session", "copy", "--key", "key-b")
	d.refuses(`session "copy": session exists already under this credential`, "--session", "copy", "--key", "key-b", "--import", "s.jsonl")
	if _, stderr := d.run(0, exported, "--session", "stdin", "--key", "key-b", "--import", "-"); stderr != "" {
		t.Error(stderr)
	}
	for _, name := range []string{"a", "zz", "m"} {
		d.run(0, exported, "--session", name, "--key", "key-b", "--import", "-")
	}
	d.prints("a\ncopy\nm\nstdin\nzz\n", "list", "--key", "key-b")

	changed := strings.Replace(exported, "You said: Hello", "You said: Howdy", 1)
	writeFile(t, filepath.Join(d.dir, "changed.jsonl"), changed)
	d.refuses("import line 3: item 2: chain hash is not", "--session", "changed", "--import", "changed.jsonl")
	d.refuses("no such file", "--session", "x", "--import", "missing.jsonl")
	for garbage, line := range map[string]string{"rubbish": "line 1", exported + "[1]": "line ", `{"item":`: "line 1"} {
		writeFile(t, filepath.Join(d.dir, "garbage.jsonl"), garbage)
		for _, want := range []string{"import " + line, "want JSON Lines as `remora transcript"} {
			d.refuses(want, "--session", "garbage", "--import", "garbage.jsonl")
		}
	}
	d.refuses("--text prints the whole session, --turn the items that one turn sent", "--session", "s", "--turn", "t", "--text")
	d.refuses("--import reads a session", "--session", "s", "--import", "s.jsonl", "--text")
	d.refuses("--record needs --turn", "--session", "s", "--record")
	d.refuses("no such session", "--session", "changed")

	// Messages of another program, with their times.
	const messages = `{"session":"old","resource":"ada"}
{"message":{"role":"user","content":"Hello"},"time":"2023-05-08T13:56:00Z"}
{"message":{"role":"assistant","content":"Hi"}}
{"session":"older"}
{"message":{"role":"user","content":"Anybody there?"},"time":"2022-05-08T13:56:00Z"}
`
	writeFile(t, filepath.Join(d.dir, "messages.jsonl"), messages)
	d.prints("sessions imported: 2\n", "--key", "key-c", "--import", "messages.jsonl")
	if out, _ := d.run(0, "key-d\n"+messages, "--key", "-", "--import", "-"); out != "sessions imported: 2\n" {
		t.Errorf("key and messages from stdin: %q", out)
	}
	d.prints("     1  user       Hello\n     2  assistant  Hi\n", "--session", "old", "--key", "key-c", "--text")
	if out, _ := d.run(0, "", "--session", "old", "--key", "key-c"); !strings.Contains(out, `"time":"2023-05-08T13:56:00Z"`) || !strings.Contains(out, `"resource":"ada"`) {
		t.Error(out)
	}
	d.refuses(`session "old": session exists already under this credential; sessions before it in the file, which are imported: 0`,
		"--key", "key-c", "--import", "messages.jsonl")
	writeFile(t, filepath.Join(d.dir, "more.jsonl"), `{"session":"none"}
{"session":"new"}
{"message":{"role":"user","content":"Hello"}}
`+messages)
	d.refuses("which are imported: 1", "--key", "key-c", "--import", "more.jsonl")
	d.prints("new\nold\nolder\n", "list", "--key", "key-c")
	d.refuses("--session is for messages without a session", "--session", "new", "--import", "messages.jsonl")
	d.refuses("an export does not name its session", "--import", "s.jsonl")
	d.refuses("--resource is for messages", "--session", "copy", "--resource", "ada", "--import", "s.jsonl")
	for _, file := range []string{"", `{"role":"user","content":"Hi."}`, `{"mesage":{"role":"user"}}`, `[{"role":"user"}]`} {
		if _, text := d.run(1, file, "--session", "bare", "--import", "-"); !strings.Contains(text, `want {"message": {"role": ..., "content": ...}, "time": ...}`) {
			t.Errorf("of %q: %s", file, text)
		}
	}
}

func TestFirstRunes(t *testing.T) {
	t.Parallel()
	f := func(text string, n int, want string) {
		t.Helper()
		if got := firstRunes(text, n); got != want {
			t.Errorf("want %q, have %q", want, got)
		}
	}
	f("short", 5, "short")
	f("a longer text", 8, "a long..")
	f("zwölf Boxkämpfer", 9, "zwölf B..")
	f("two\nlines\tand tabs", 70, "two lines and tabs")
	f("\x1b[2Jclears the screen\u009b1m", 70, "?[2Jclears the screen?1m")
	f("reads \u202eddawkcab\u202c", 70, "reads ?ddawkcab?")
}

func TestTranscriptDelete(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	d.say("chat/completions", chat("user: SAY Hi."), "X-Session-Id: one", "Authorization: Bearer k")
	d.proxy.Stop()
	d.run(0, "", "delete", "--session", "one", "--key", "k")
	if _, stderr := d.run(1, "", "delete", "--session", "one", "--key", "k"); !strings.Contains(stderr, "no such session") {
		t.Errorf("deleted twice: %s", stderr)
	}
	if out, _ := d.run(0, "", "list", "--key", "k"); out != "" {
		t.Errorf("still listed: %s", out)
	}
}

// TestForget: forget deletes all sessions of a resource and its layer data, and keeps other sessions.
func TestForget(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	for _, c := range [][2]string{{"one", "ada"}, {"two", "ada"}, {"three", "bob"}} {
		d.say("chat/completions", chat("user: SAY Hi."), "X-Session-Id: "+c[0], "X-Resource-Id: "+c[1], "Authorization: Bearer k")
	}
	d.proxy.Stop()
	forget := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), kit.BuildProxy(t), append([]string{"forget", "--config", d.config}, args...)...)
		cmd.Dir = d.dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := forget("--key", "k"); err == nil || !strings.Contains(out, "--resource is missing") {
		t.Errorf("have %q, %v", out, err)
	}
	if out, err := forget("--key", "k", "--resource", "ada"); err != nil || !strings.Contains(out, "forgot 2 sessions of ada\n") {
		t.Errorf("have %q, %v", out, err)
	}
	d.prints("three\n", "list", "--key", "k")
}

// TestTranscriptOfARunningProxy: the proxy that has the bolt file open runs the command, for its own user only.
func TestTranscriptOfARunningProxy(t *testing.T) {
	t.Parallel()
	d := newWorkspace(t)
	const a, s = "Authorization: Bearer key-a", "X-Session-Id: s"
	d.say("chat/completions", chat("user: Hello"), a, s)
	const want = "     1  user       Hello\n     2  assistant  You said: Hello\n"
	d.prints(want, "--text", "--session", "s", "--key-env", "A_KEY")
	d.prints("s\n", "list", "--key-env", "A_KEY")
	d.refuses(`transcript of "s": no such session under this credential; sessions belong to the API key`, "--session", "s")
	d.refuses(`turn "none" of session "s": no such turn`, "--session", "s", "--key-env", "A_KEY", "--turn", "none")

	exported, _ := d.run(0, "", "--session", "s", "--key-env", "A_KEY")
	d.run(0, exported, "--session", "copy", "--key-env", "A_KEY", "--import", "-")
	d.prints(want, "--text", "--session", "copy", "--key-env", "A_KEY")
	if _, text := d.run(1, exported, "--session", "copy", "--key-env", "A_KEY", "--import", "-"); !strings.Contains(text, "session exists") {
		t.Errorf("a second import says %s", text)
	}
	d.run(0, "", "delete", "--session", "copy", "--key-env", "A_KEY")
	d.prints("s\n", "list", "--key-env", "A_KEY")
	d.say("chat/completions", chat("user: What is my name?"), a, s)
	info, err := os.Stat(filepath.Join(d.dir, "remora.db.sock"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	info, err = os.Stat(filepath.Join(d.dir, "remora.db"))
	if err != nil || info.Size() > 1<<20 {
		t.Errorf("a new store has %d bytes, want at most 1 MB, %v", info.Size(), err)
	}

	d.proxy.Stop()
	d.prints("s\n", "list", "--key-env", "A_KEY") // opened by the command itself
}
