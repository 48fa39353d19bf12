package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"remora/memory"
	"remora/providers/scripted"
)

// patience bounds every wait for another process. It is long because tests share few cores, and never waited for.
const patience = 2 * time.Minute

// credential is what all SDKs here send as their API key; it is part of whose memory a session is in.
const credential = "sk-e2e"

func startUpstream(t *testing.T, o scripted.Options) *scripted.Server {
	t.Helper()
	s, err := scripted.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// setup is what a proxy is started with.
type setup struct {
	upstream string // origin of the upstream
	store    string // store.url; empty for a bbolt file in the test's folder
	layers   string // memory.layers as YAML, empty for the shipped ones
	memory   string // what else is in memory, as YAML; only with layers
	// providers as YAML, with %s where the upstream's base URL belongs; empty for it alone, without options.
	providers string
}

// windowOnly are layers that add nothing: what the shipped window leaves is what the client sent, byte for byte.
const windowOnly = "[{kind: history_window, max_items: 80, evict_batch: 40, in_flight: keep}]"

// proxy is one running process of the binary.
type proxy struct {
	t      *testing.T
	config string // path of its configuration
	url    string // its origin
	cmd    *exec.Cmd
	exited chan error

	mu  sync.Mutex
	log bytes.Buffer
}

// startProxy starts the binary and waits until it accepts connections. It is stopped when the test ends.
func startProxy(t *testing.T, s setup) *proxy {
	t.Helper()
	dir := t.TempDir()
	if s.store == "" {
		s.store = "bolt:" + filepath.Join(dir, "remora.db")
	}
	// A disk that is busy with other tests must not make these turns late: what happens then is tested elsewhere.
	text := fmt.Sprintf("server: {listen: '127.0.0.1:0'}\n"+
		"store: {url: '%s', commit_wait: 1m, read_wait: 1m, spool: {dir: '%s'}}\n"+
		"providers: %s\n", s.store, filepath.Join(dir, "spool"),
		strings.ReplaceAll(cmp.Or(s.providers, "[{name: scripted, kind: openai, base_url: '%s'}]"), "%s", s.upstream+"/v1"))
	if s.layers != "" {
		text += "memory: {layers: " + s.layers + ", " + s.memory + "}\n"
	}
	p := &proxy{t: t, config: filepath.Join(dir, "config.yaml"), exited: make(chan error, 1)}
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p.start()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("the proxy said:\n%s", p.said())
		}
	})
	return p
}

func (p *proxy) start() {
	p.t.Helper()
	p.cmd = exec.Command(binary, "--config", p.config)
	p.cmd.Dir, p.cmd.Env = filepath.Dir(p.config), environ()
	dieWithParent(p.cmd)
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	listens, cmd := make(chan string, 1), p.cmd
	go func() {
		p.read(stderr, listens)
		p.exited <- cmd.Wait() // only after all of stderr is read
	}()
	select {
	case p.url = <-listens:
	case err := <-p.exited:
		p.cmd = nil
		p.t.Fatalf("the proxy ended at once: %v\n%s", err, p.said())
	case <-time.After(patience):
		p.t.Fatalf("the proxy did not say where it listens:\n%s", p.said())
	}
	p.dial()
}

// environ is the environment without what would configure the proxy. With the race detector a process waits a second
// before it exits, unless told otherwise.
func environ() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "REMORA_") })
	return append(env, "GORACE=atexit_sleep_ms=10")
}

// read keeps what the process says and finds its address in it.
func (p *proxy) read(stderr io.Reader, listens chan<- string) {
	where := regexp.MustCompile(`listens on (http://[^/\s]+)`)
	lines := bufio.NewReader(stderr)
	for {
		line, err := lines.ReadBytes('\n')
		p.mu.Lock()
		p.log.Write(line)
		p.mu.Unlock()
		if m := where.FindSubmatch(line); m != nil {
			select {
			case listens <- string(m[1]):
			default:
			}
		}
		if err != nil {
			return
		}
	}
}

// dial waits until a connection is accepted.
func (p *proxy) dial() {
	p.t.Helper()
	addr := p.url[len("http://"):]
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(patience)
	for {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			p.t.Fatalf("nothing accepts on %s: %v", addr, err)
		}
	}
}

// stop ends the process as an operator would and requires that it goes in order. A second stop does nothing.
func (p *proxy) stop() {
	p.t.Helper()
	if p.cmd == nil {
		return
	}
	cmd := p.cmd
	p.cmd = nil
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Errorf("stop the proxy: %v", err)
	}
	select {
	case err := <-p.exited:
		if err != nil {
			p.t.Errorf("the proxy did not exit with 0 on SIGTERM: %v\n%s", err, p.said())
		}
	case <-time.After(patience):
		_ = cmd.Process.Kill() // it may have ended just now
		err := <-p.exited
		p.t.Errorf("the proxy did not end within %s of SIGTERM (%v):\n%s", patience, err, p.said())
	}
}

// in is p for a subtest, so that it fails and not its parent.
func (p *proxy) in(t *testing.T) *proxy {
	t.Helper()
	return &proxy{t: t, config: p.config, url: p.url}
}

func (p *proxy) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.log.Bytes()
	return string(b[max(0, len(b)-4000):])
}

// transcript reads a session as an operator would. On bbolt the proxy has to be stopped.
func (p *proxy) transcript(session string) []memory.ItemLine {
	p.t.Helper()
	cmd := exec.Command(binary, "transcript", "--config", p.config, "--session", session, "--key", credential)
	cmd.Dir, cmd.Env = filepath.Dir(p.config), environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("read the transcript of %q: %v\n%s", session, err, stderr.String())
	}
	var items []memory.ItemLine
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var line memory.Line
		if err := dec.Decode(&line); err == io.EOF {
			return items
		} else if err != nil {
			p.t.Fatalf("read the transcript of %q: %v\n%s", session, err, out)
		}
		if line.Item != nil {
			items = append(items, *line.Item)
		}
	}
}
