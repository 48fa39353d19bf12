package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"remora/providers"
	"remora/test/process"
	"remora/test/scripted"
)

// waitLimit bounds every wait for another process. It is long because tests share few cores.
const waitLimit = 2 * time.Minute

// patientStore is the environment of every proxy in these tests: a busy disk must not count as an unavailable store.
var patientStore = []string{"REMORA_STORE_COMMIT_WAIT=1m", "REMORA_STORE_READ_WAIT=1m"}

// The scripts of testdata/script run this test binary under the name "remora". Each script has a scripted upstream at $UPSTREAM,
// which $REMORA_PROVIDERS makes the only provider.
//
//	start NAME ARGS...     runs remora ARGS until `halt`, on a free port, and sets $NAME to its URL once it listens
//	halt NAME [SIGNAL...]  sends SIGTERM, or the given signals; sets $NAME_CODE to the exit code, and writes stderr to
//	                       the file NAME.stderr
//	http METHOD URL [-h 'Name: value']... [BODY]   prints status, headers and body of the answer
func TestMain(m *testing.M) {
	if name := filepath.Base(os.Args[0]); name != "remora" && name != "http" { // for the scripts
		for _, set := range patientStore {
			name, value, _ := strings.Cut(set, "=")
			_ = os.Setenv(name, value)
		}
	}
	testscript.Main(m, map[string]func(){
		"remora": func() { os.Exit(mainCode()) },
		"http":   func() { os.Exit(httpMain()) },
	})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		Setup:               setUp,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"start": cmdStart,
			"halt":  cmdHalt,
		},
	})
}

func setUp(env *testscript.Env) error {
	up, err := scripted.Start(scripted.Options{})
	if err != nil {
		return err
	}
	env.Defer(func() { _ = up.Close() })
	env.Setenv("UPSTREAM", up.URL())
	name, value, _ := strings.Cut(providerAt(up), "=")
	env.Setenv(name, value)
	env.Values[runningKey{}] = map[string]*running{}
	// Lists in error messages, so that a new kind changes no script.
	env.Setenv("PROVIDER_KINDS", strings.Join(providerKinds(), ", "))
	env.Setenv("LAYER_KINDS", strings.Join(layerKindNames(), ", "))
	return nil
}

func providerKinds() []string {
	var names []string
	for _, k := range providers.Kinds() {
		names = append(names, k.Name)
	}
	return names
}

// providerAt returns the environment variable that makes a scripted upstream the only provider.
func providerAt(up *scripted.Server) string {
	return fmt.Sprintf(`REMORA_PROVIDERS=[{"name":"scripted","kind":"compatible","base_url":"%s/v1"}]`, up.URL())
}

type runningKey struct{}

// running is a proxy process of a test.
type running struct{ *process.Child }

// startProxy runs the binary on a free port and waits until it listens.
func startProxy(dir string, env, args []string) (r *running, url string, err error) {
	r, err = launchProxy(dir, env, args)
	if err != nil {
		return nil, "", err
	}
	if url, err = r.Await(); err != nil {
		return nil, "", fmt.Errorf("%w\n%s", err, r.Log())
	}
	return r, url, nil
}

// launchProxy is startProxy without the wait.
func launchProxy(dir string, env, args []string) (*running, error) {
	path, err := exec.LookPath("remora") // created by testscript.Main
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(path, append([]string{"--listen", "127.0.0.1:0"}, args...)...)
	cmd.Dir, cmd.Env = dir, slices.Concat(patientStore, env)
	c, err := process.Launch(cmd)
	return &running{c}, err
}

func (r *running) kill() { _ = r.Kill() }

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: start NAME ARGS...")
	}
	var env []string
	for _, key := range []string{
		"PATH", "HOME", "REMORA_PROVIDERS", "REMORA_STORE_URL", "REMORA_SERVER_LISTEN",
		"REMORA_MEMORY_ON_STORE_ERROR",
	} {
		env = append(env, key+"="+ts.Getenv(key))
	}
	name := args[0]
	r, url, err := startProxy(ts.Getenv("WORK"), env, args[1:])
	ts.Check(err)
	ts.Defer(r.kill)
	ts.Value(runningKey{}).(map[string]*running)[name] = r
	ts.Setenv(name, url)
	ts.Setenv(name+"_ADDR", strings.TrimPrefix(url, "http://"))
}

func cmdHalt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: halt NAME [SIGNAL...]")
	}
	name, signals := args[0], args[1:]
	r := ts.Value(runningKey{}).(map[string]*running)[name]
	if r == nil {
		ts.Fatalf("%s was not started", name)
	}
	if len(signals) == 0 {
		signals = []string{"TERM"}
	}
	known := map[string]os.Signal{"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL}
	for _, s := range signals {
		ts.Check(r.Signal(known[s]))
	}
	select {
	case <-r.Ended():
	case <-time.After(waitLimit):
		ts.Fatalf("%s does not stop after %s:\n%s", name, waitLimit, r.Log())
	}
	ts.Setenv(name+"_CODE", fmt.Sprint(r.ExitCode()))
	ts.Check(os.WriteFile(ts.MkAbs(name+".stderr"), []byte(r.Log()), 0o600))
}

// httpMain is the HTTP client of the scripts.
func httpMain() int {
	args := os.Args[1:]
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: http METHOD URL [-h 'Name: value']... [BODY]")
		return 2
	}
	method, url, rest := args[0], args[1], args[2:]
	header := http.Header{"Content-Type": {"application/json"}}
	for len(rest) > 1 && rest[0] == "-h" {
		name, value, _ := strings.Cut(rest[1], ": ")
		header.Set(name, value)
		rest = rest[2:]
	}
	req, err := http.NewRequest(method, url, strings.NewReader(strings.Join(rest, " ")))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	req.Header = header
	client := http.Client{Timeout: waitLimit, Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}}
	resp, err := client.Do(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer resp.Body.Close()
	fmt.Println(resp.Status)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		fmt.Printf("%s: %s\n", name, strings.Join(resp.Header[name], ", "))
	}
	fmt.Println()
	if _, err := io.Copy(os.Stdout, resp.Body); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
