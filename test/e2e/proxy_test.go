package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"remora/memory"
	"remora/test/kit"
	"remora/test/process"
	"remora/test/scripted"
)

// waitLimit bounds every wait for another process. It is long because tests share few cores.
const waitLimit = 2 * time.Minute

// credential is the API key of all SDKs here; sessions belong to it.
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

// setup configures a proxy.
type setup struct {
	upstream string // origin of the upstream
	store    string // store.url; empty for a bbolt file in the test's folder
	layers   string // memory.layers as YAML, empty for the shipped ones
	memory   string // other keys of memory as YAML; only with layers
	admin    string // server.admin_listen; empty for none
	// providers as YAML, with %s for the upstream's base URL; empty for only the upstream, without options.
	providers string
}

// proxy is a process of the binary.
type proxy struct{ *kit.Proxy }

// startProxy starts the binary and waits until it accepts connections. It is stopped when the test ends.
func startProxy(t *testing.T, s setup) *proxy {
	t.Helper()
	dir := t.TempDir()
	if s.store == "" {
		s.store = "bolt:" + filepath.Join(dir, "remora.db")
	}
	// A busy disk must not delay these turns: other tests test that.
	text := fmt.Sprintf("server: {admin_listen: '%s'}\n"+
		"store: {url: '%s', commit_wait: 1m, read_wait: 1m, spool: {dir: '%s'}}\n"+
		"providers: %s\n", s.admin, s.store, filepath.Join(dir, "spool"),
		strings.ReplaceAll(cmp.Or(s.providers, "[{name: scripted, kind: openai, base_url: '%s'}]"), "%s", s.upstream+"/v1"))
	if s.layers != "" {
		text += "memory: {layers: " + s.layers + ", " + s.memory + "}\n"
	}
	p := &proxy{kit.StartProxy(t, dir, text)}
	t.Cleanup(func() {
		p.Stop()
		if t.Failed() {
			t.Logf("the proxy said:\n%s", p.said())
		}
	})
	return p
}

// said returns the end of the process's output.
func (p *proxy) said() string {
	text := p.Log()
	return text[max(0, len(text)-4000):]
}

// transcript returns the items of a session. With bbolt the proxy must be stopped.
func (p *proxy) transcript(t *testing.T, session string) (items []memory.ExportedItem) {
	t.Helper()
	out := p.transcriptOf(t, "--session", session)
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var line memory.ExportLine
		if err := dec.Decode(&line); err == io.EOF {
			return items
		} else if err != nil {
			t.Fatalf("read the transcript of %q: %v\n%s", session, err, out)
		}
		if line.Item != nil {
			items = append(items, *line.Item)
		}
	}
}

// transcriptOf runs `remora transcript` and returns its output. With bbolt the proxy must be stopped.
func (p *proxy) transcriptOf(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(kit.BuildProxy(t), append([]string{"transcript", "--config", p.Config, "--key", credential}, args...)...)
	cmd.Dir, cmd.Env = p.Dir, process.Environ()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("remora transcript %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return string(out)
}
