package golden

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
)

// waitLimit bounds every wait for the proxy. It is long because tests share few cores.
const waitLimit = time.Minute

// Launcher starts proxies, in this process or from the binary.
type Launcher interface {
	// Start writes the configuration into dir, starts a proxy with it, and returns its origin and a function that stops it.
	Start(tb testing.TB, dir, config string) (origin string, stop func())
	// Command runs a subcommand of the proxy in dir and returns its output.
	Command(tb testing.TB, dir string, args ...string) (stdout string, err error)
}

// Run plays every scenario of dir and compares the result with the file, or with update writes the file.
func Run(t *testing.T, dir string, launcher Launcher, update bool) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txtar"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios in %s: %v", dir, err)
	}
	vectorsFile := filepath.Join(dir, "vectors.txt")
	vectors := readVectors(t, vectorsFile)

	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parseScenario(text)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			p := &player{t: t, launcher: launcher, dir: t.TempDir(), labels: map[string]string{}, name: name}
			got := p.play(s)
			if t.Failed() {
				return
			}

			if update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
				vectors[name] = p.hashes
				return
			}
			if diff := cmp.Diff(strings.Split(string(text), "\n"), strings.Split(string(got), "\n")); diff != "" {
				t.Errorf("%s (-file +played; README.md says how to update it):\n%s", file, diff)
			}
			if diff := cmp.Diff(vectors[name], p.hashes); diff != "" {
				t.Errorf("%s (-file +played): hashes that change lose every stored session:\n%s", vectorsFile, diff)
			}
		})
	}
	if update {
		vectors.write(t, vectorsFile)
	}
}

// player plays one scenario.
type player struct {
	t        *testing.T
	name     string
	launcher Launcher
	dir      string
	upstream *upstream
	config   string
	origin   string // empty while no proxy runs
	stop     func()
	labels   map[string]string // labels of turns, by turn id
	hashes   []string
	out      txtar.Archive
}

// play plays a scenario and returns the resulting file.
func (p *player) play(s *scenario) []byte {
	p.upstream = startUpstream(p.t)
	p.out.Comment = []byte(strings.TrimRight(s.intro, "\n") + "\n\n")
	defer p.halt()
	for _, st := range s.steps {
		switch {
		case st.configuration != nil:
			p.halt()
			p.config = *st.configuration
			p.write(kindConfiguration, p.config)
		case st.turn != nil:
			p.start()
			p.turn(st.turn)
		case st.stored != nil:
			p.halt()
			p.show(st.stored)
		case st.command != "":
			p.halt()
			p.run(st.command)
		case st.file != nil:
			p.put(st.file)
		case st.pause > 0:
			time.Sleep(st.pause)
			p.write(kindPause+": "+st.pause.String(), "")
		}
		if p.t.Failed() {
			return nil
		}
	}
	return txtar.Format(&p.out)
}

// write adds a section. Sections are separated by a blank line.
func (p *player) write(name, text string) {
	if !strings.HasSuffix(text, "\n\n") {
		text = strings.TrimRight(text, "\n") + "\n\n"
	}
	p.out.Files = append(p.out.Files, txtar.File{Name: name, Data: []byte(text)})
}

// start starts a proxy unless one runs. The defaults for scenarios are such that a busy machine delays no turn, and writes no
// question before its answer.
func (p *player) start() {
	p.t.Helper()
	if p.origin != "" {
		return
	}
	config := strings.NewReplacer("$UPSTREAM", p.upstream.origin, "$DIR", p.dir).Replace(p.config)
	for _, section := range []struct{ key, text string }{
		{"server:", "server: {listen: '127.0.0.1:0'}\n"},
		{"store:", "store: {url: 'bolt:" + p.dir + "/remora.db', commit_wait: 1m, read_wait: 1m, open_delay: 1m, spool: {dir: '" + p.dir + "/spool'}}\n"},
		{"providers:", "providers: [{name: upstream, kind: openai, base_url: '" + p.upstream.origin + "/v1'}]\n"},
	} {
		if !strings.HasPrefix(config, section.key) && !strings.Contains(config, "\n"+section.key) {
			config += section.text
		}
	}
	p.origin, p.stop = p.launcher.Start(p.t, p.dir, config)
}

func (p *player) halt() {
	p.t.Helper()
	if p.origin == "" {
		return
	}
	p.origin = ""
	p.stop()
	if err := p.upstream.expect("", nil); err != nil {
		p.t.Error(err)
	}
}

// run runs an operator's command while no proxy runs.
func (p *player) run(command string) {
	p.t.Helper()
	args := append(strings.Fields(command), "--config", filepath.Join(p.dir, "config.yaml"))
	out, err := p.launcher.Command(p.t, p.dir, args...)
	if err != nil {
		p.t.Fatalf("%s: %s: %v", kindCommand, command, err)
	}
	if out == "" {
		out = "(no output)\n"
	}
	p.write(kindCommand+": "+command, p.normal(out))
}

// put writes an operator's file while the proxy runs.
func (p *player) put(f *file) {
	p.t.Helper()
	at := filepath.Join(p.dir, filepath.FromSlash(f.name))
	if strings.TrimSpace(f.text) == "" {
		if err := os.Remove(at); err != nil {
			p.t.Fatal(err)
		}
	} else {
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(strings.TrimRight(f.text, "\n")+"\n"), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.write(kindFile+": "+f.name, f.text)
}

// turn plays one request.
func (p *player) turn(turn *turn) {
	p.t.Helper()
	request, err := parseMessage(turn.sends)
	if err != nil {
		p.t.Fatalf("%s: %s: %v", turn.label, kindSends, err)
	}
	p.write(turn.label+": "+kindSends, turn.sends)
	answers := make([]*message, len(turn.answers))
	for i, a := range turn.answers {
		if answers[i], err = parseMessage(a); err != nil {
			p.t.Fatalf("%s: %s: %v", turn.label, kindAnswers, err)
		}
	}

	if err := p.upstream.expect(turn.label, answers); err != nil {
		p.t.Fatal(err)
	}
	answer, err := p.ask(request)
	if err != nil {
		p.t.Fatalf("%s: %v", turn.label, err)
	}
	if id := headerOf(answer.headers, "X-Turn-Id"); id != "" {
		p.labels[id] = turn.label
	}
	received, err := p.upstream.settled()
	if err != nil {
		p.t.Error(err)
	}
	for i, r := range received {
		p.write(turn.label+": "+kindReceives, p.normal(r.show(request.body())))
		p.write(turn.label+": "+kindAnswers, turn.answers[i])
	}

	sent := ""
	for _, a := range answers { // the last one, unless a layer asked its model after the client had got one
		if sent = a.body(); sent == answer.body {
			break
		}
	}
	p.write(turn.label+": "+kindGets, p.normal(answer.showAnswer(sent)))
}

// received is a message as it arrived on a connection.
type received struct {
	interim string // status line before the answer, for a request that waits for it
	start   string
	headers []string
	body    string
	end     string // how it ended, if not regularly
}

// ask sends a request on a new connection and reads the answer.
func (p *player) ask(request *message) (received, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.origin, "http://"))
	if err != nil {
		return received{}, err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		return received{}, err
	}

	r := bufio.NewReader(conn)
	interim := ""
	head, pieces := request.wire(false)
	for i, piece := range append([][]byte{head}, pieces...) {
		if i == 1 && request.header("Expect") != "" {
			if interim, err = readInterim(r); err != nil {
				return received{}, err
			}
		}
		if _, err := conn.Write(piece); err != nil {
			return received{}, fmt.Errorf("send the request: %w", err)
		}
	}
	if request.broken {
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil { //nolint:forcetypeassert // of net.Dial
			return received{}, err
		}
	}

	method, _, _ := strings.Cut(request.start, " ")
	answer, err := readMessage(r, method, request.leaves)
	answer.interim = interim
	if request.broken && errors.Is(err, io.EOF) {
		return received{end: "(nothing: the connection was closed)"}, nil
	}
	return answer, err
}

// readInterim reads the interim answer after which the client sends its body, and returns its status.
func readInterim(r *bufio.Reader) (status string, err error) {
	head, err := readHead(r)
	if err != nil {
		return "", fmt.Errorf("wait for 100 Continue: %w", err)
	}
	if status = strings.TrimPrefix(head[0], "HTTP/1.1 "); !strings.HasPrefix(status, "100 ") {
		return "", fmt.Errorf("want 100 Continue, have %q", status)
	}
	return status, nil
}

// readHead reads the lines of a head, up to the empty line after it. It skips empty lines before it.
func readHead(r *bufio.Reader) (lines []string, err error) {
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, fmt.Errorf("read a head: %w", err)
		}
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			lines = append(lines, line)
		} else if len(lines) > 0 {
			return lines, nil
		}
	}
}

// clientLeft is the end of an answer whose client disconnects.
const clientLeft = "(the client leaves here)"

// readMessage reads a message. For an answer, method is the request's; for a request it is empty. If stopAt is not empty, it
// stops when the body contains that text.
func readMessage(r *bufio.Reader, method, stopAt string) (received, error) {
	head, err := readHead(r)
	if err != nil {
		return received{}, err
	}
	m := received{start: head[0], headers: head[1:]}

	isAnswer := method != ""
	var body io.Reader
	length, err := strconv.Atoi(headerOf(m.headers, "Content-Length"))
	sized := err == nil
	switch {
	case isAnswer && bodiless(method, m.start):
		return m, nil
	case strings.EqualFold(headerOf(m.headers, "Transfer-Encoding"), "chunked"):
		body = httputil.NewChunkedReader(r)
	case sized:
		body = io.LimitReader(r, int64(length))
	case isAnswer:
		body = r
	default:
		return m, nil
	}

	var all bytes.Buffer
	buf := make([]byte, 64<<10)
	for {
		n, err := body.Read(buf)
		all.Write(buf[:n])
		m.body = all.String()
		if stopAt != "" && strings.Contains(m.body, stopAt) {
			m.end = clientLeft
			return m, nil
		}
		if err == io.EOF && (!sized || all.Len() == length) {
			return m, nil
		}
		if err != nil {
			m.end = "(broken off)"
			return m, nil //nolint:nilerr // the file shows how the message ended
		}
	}
}

// upstream gives the answers of the current turn.
type upstream struct {
	origin string

	mu       sync.Mutex
	idle     *sync.Cond // busy is 0
	busy     int        // answers in progress
	label    string     // of the current turn
	answers  []*message
	requests []received
}

func newUpstream(origin string) *upstream {
	u := &upstream{origin: origin}
	u.idle = sync.NewCond(&u.mu)
	return u
}

func startUpstream(t *testing.T) *upstream {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u := newUpstream("http://" + ln.Addr().String())
	var conns []net.Conn
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			u.mu.Lock()
			conns = append(conns, conn)
			u.mu.Unlock()
			serving.Go(func() { u.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		u.mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		u.mu.Unlock()
		serving.Wait()
	})
	return u
}

// expect sets the answers of a turn. It returns an error if upstream was asked again after the previous turn had settled.
func (u *upstream) expect(label string, answers []*message) error {
	_, err := u.settled()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.label, u.answers, u.requests = label, answers, nil
	return err
}

// settled waits until all answers of the turn were given, and returns their requests. A layer may ask its model after the client
// is served.
func (u *upstream) settled() ([]received, error) {
	limit := time.Now().Add(waitLimit)
	alarm := time.AfterFunc(waitLimit, func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.idle.Broadcast()
	})
	defer alarm.Stop()

	u.mu.Lock()
	defer u.mu.Unlock()
	for u.busy > 0 || len(u.requests) < len(u.answers) && time.Now().Before(limit) {
		u.idle.Wait()
	}
	if len(u.requests) != len(u.answers) {
		return nil, fmt.Errorf("%s: upstream was asked %d times, and the scenario has %d answers; the requests:\n%s", u.label,
			len(u.requests), len(u.answers), showAll(u.requests))
	}
	return u.requests, nil
}

func showAll(requests []received) string {
	var b strings.Builder
	for _, r := range requests {
		b.WriteString(r.show("") + "\n\n")
	}
	return b.String()
}

func (u *upstream) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	r := bufio.NewReader(conn)
	for {
		request, err := readMessage(r, "", "")
		if err != nil {
			return
		}
		answer := u.take(request)
		more := give(conn, r, answer)
		u.given()
		if !more || request.end != "" {
			return
		}
	}
}

// take records a request and returns its answer, which is in progress until given.
func (u *upstream) take(request received) *message {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy++
	u.requests = append(u.requests, request)
	if n := len(u.requests); n <= len(u.answers) {
		return u.answers[n-1]
	}
	return &message{start: "500 Internal Server Error", pieces: []string{"the scenario has no answer for this"}}
}

func (u *upstream) given() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.busy--; u.busy == 0 {
		u.idle.Broadcast()
	}
}

// give writes an answer and reports whether the connection can be used again.
func give(conn net.Conn, r io.Reader, answer *message) bool {
	head, pieces := answer.wire(true)
	for _, piece := range slices.Insert(pieces, 0, head) {
		if _, err := conn.Write(piece); err != nil {
			return false
		}
	}
	if answer.hangs {
		_, _ = io.Copy(io.Discard, r) // it ends when the proxy closes the connection
	}
	return !answer.broken && !answer.hangs
}
