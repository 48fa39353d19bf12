package soak

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// waitLimit is the timeout of a call. It is long because the machine may be busy.
const waitLimit = 2 * time.Minute

// client is one connection with several conversations, one request at a time.
type client struct {
	addr     func() string // called for each connection
	prefix   string        // of its sessions' names
	random   *rand.Rand
	aborting bool // abort one in five answers
	open     []*session
	serial   int

	net net.Conn
	r   *bufio.Reader
	n   tally
}

// tally counts the clients' results.
type tally struct {
	answered, aborted int
	plain             int // answered, without a session
	degraded          int // answered, without memory
	forgotten         int // answered, with another number of items than the conversation has
	failed            []error
}

func (t *tally) add(from tally) {
	t.answered += from.answered
	t.aborted += from.aborted
	t.plain += from.plain
	t.degraded += from.degraded
	t.forgotten += from.forgotten
	t.failed = append(t.failed, from.failed...)
}

// sessionsPerClient is the number of a client's open sessions.
const sessionsPerClient = 6

func newClient(addr func() string, number int, aborting bool) *client {
	c := &client{
		addr: addr, prefix: fmt.Sprintf("soak-%d", number), aborting: aborting,
		random: rand.New(rand.NewPCG(4, uint64(number))),
	}
	for range sessionsPerClient {
		c.open = append(c.open, c.begin())
	}
	return c
}

// session is the client's side of a conversation.
type session struct {
	name      string // "" for none
	responses bool
	onlyNew   bool // sends only new messages
	tools     bool // every second answer is a call
	turns     int  // remaining turns
	said      []byte
	items     int    // of said
	pending   string // id of the call without result
	calls     int
	cut       bool // an answer was aborted: the client does not know what is stored of it
}

func (c *client) begin() *session {
	c.serial++
	s := &session{name: fmt.Sprintf("%s-%d", c.prefix, c.serial), turns: 3 + c.random.IntN(10)}
	switch kind := c.random.IntN(100); {
	case kind < 30:
		s.responses = true
	case kind < 40:
		s.tools = true
	case kind < 45:
		s.name = ""
	case kind < 48: // a history of 256 KB, resent with every turn
		s.said, s.items, s.turns = bigHistory, bigItems, 2
	}
	s.onlyNew = s.items == 0 && !s.tools && s.name != "" && c.random.IntN(4) == 0
	if s.items == 0 && c.random.IntN(5) == 0 {
		s.turns += c.random.IntN(50) // some exceed the window
	}
	return s
}

const bigItems = 128

// bigHistory has escapes and non-ASCII characters.
var bigHistory = func() []byte {
	line := strings.Repeat(`func f(x int) error {\n\treturn fmt.Errorf(\"größer als %d: %w\", x, err) // siehe \u00a7 4\n}\n`, 40)
	var b []byte
	for i := range bigItems / 2 {
		b = fmt.Appendf(b, `,{"role":"user","content":"%05d %s"},{"role":"assistant","content":%q}`, i, line, whole)
	}
	return b
}()

// turn plays one turn of one of the client's sessions.
func (c *client) turn() {
	i := c.random.IntN(len(c.open))
	s := c.open[i]
	if s.turns--; s.turns < 0 {
		s = c.begin()
		c.open[i] = s
	}
	if err := c.ask(s); err != nil {
		c.hangUp()
		c.n.failed = append(c.n.failed, fmt.Errorf("session %s: %w", s.name, err))
		c.open[i] = c.begin()
	}
}

// words are the words of users' messages.
var words = strings.Fields("please remember that the blue train to Lisbon leaves at seven from platform two, and I prefer a seat by the window " +
	"because my sister Anna decided yesterday to use Postgres instead of files for the ledger of our small company in Porto")

func (c *client) sentence() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", c.random.Uint32())
	for range 8 + c.random.IntN(80) {
		b.WriteString(" " + words[c.random.IntN(len(words))])
	}
	return b.String()
}

// ask plays one turn of a session.
func (c *client) ask(s *session) error {
	if c.net == nil {
		if err := c.dial(); err != nil {
			return err
		}
	}
	fresh := c.next(s)
	p := plan{every: time.Duration(c.random.IntN(10)) * time.Millisecond, abort: c.aborting && c.random.IntN(5) == 0}
	if !s.tools && c.random.IntN(2) == 0 {
		p.pieces = 4 + c.random.IntN(16)
	}
	call := ""
	if s.tools && s.pending == "" {
		s.calls++
		call = fmt.Sprintf(`{"id":"call_%d","type":"function","function":{"name":"lookup","arguments":"{\"key\":%d}"}}`, s.calls, s.calls)
	}
	if _, err := c.net.Write(c.request(s, fresh, p, call)); err != nil {
		return fmt.Errorf("send request: %w", err)
	}
	seen, err := c.receive(p)
	if err != nil {
		return err
	}
	if seen == nil {
		c.n.aborted++
		s.cut = true
		return nil // the next turn replaces this one: a branch
	}
	c.count(s, seen, fresh)
	text := whole
	if p.pieces > 0 {
		text = spoken(p.pieces)
	}
	s.said = append(append(slices.Clip(s.said), fresh.json...), s.answer(text, call)...)
	s.items += fresh.items + 1
	s.pending = call
	return nil
}

// count counts and checks an answer.
func (c *client) count(s *session, seen *http.Response, fresh message) {
	c.n.answered++
	memory := seen.Header.Get("X-Memory")
	status, rest, _ := strings.Cut(memory, ";")
	switch {
	case s.name == "":
		c.n.plain++
	case status != "ok" && !strings.Contains(rest, "skipped="): // if only a layer was skipped, the turn has its history
		c.n.degraded++
	case s.onlyNew && !s.cut:
		// Only the proxy has the history; its length must be that of the conversation.
		_, items, _ := strings.Cut(rest, "items=")
		items, _, _ = strings.Cut(items, ";")
		if n, err := strconv.Atoi(strings.TrimSpace(items)); err != nil || n != s.items+fresh.items+s.heads() {
			c.n.forgotten++
			c.n.failed = append(c.n.failed, fmt.Errorf("session %s: want %d items, X-Memory is %q", s.name, s.items+fresh.items+s.heads(), memory))
		}
	}
}

// heads returns the number of items before the conversation in the body.
func (s *session) heads() int {
	if s.responses {
		return 0 // instructions are a member of the body
	}
	return 1
}

// message is a client's addition to its conversation.
type message struct {
	json  []byte
	items int
}

func (c *client) next(s *session) message {
	text := c.sentence()
	switch {
	case s.pending != "":
		return message{fmt.Appendf(nil, `,{"role":"tool","tool_call_id":"call_%d","content":%q}`, s.calls, text), 1}
	case s.responses:
		return message{fmt.Appendf(nil, `,{"type":"message","role":"user","content":[{"type":"input_text","text":%q}]}`, text), 1}
	default:
		return message{fmt.Appendf(nil, `,{"role":"user","content":%q}`, text), 1}
	}
}

// answer returns an answer as the client resends it.
func (s *session) answer(text, call string) []byte {
	switch {
	case s.responses:
		return fmt.Appendf(nil, `,{"type":"message","role":"assistant","content":[{"type":"output_text","text":%q,"annotations":[]}]}`, text)
	case call != "":
		return fmt.Appendf(nil, `,{"role":"assistant","content":null,"tool_calls":[%s]}`, call)
	default:
		return fmt.Appendf(nil, `,{"role":"assistant","content":%q}`, text)
	}
}

// plan is how a request is answered and read.
type plan struct {
	pieces int // of the answer's stream, 0 without a stream
	every  time.Duration
	abort  bool
}

func (c *client) request(s *session, fresh message, p plan, call string) []byte {
	history := s.said
	if s.onlyNew {
		history = nil
	}
	path, head := "/v1/chat/completions", `{"model":"gpt-5-mini",`
	if p.pieces > 0 {
		head += `"stream":true,`
	}
	if s.tools {
		head += `"tools":[{"type":"function","function":{"name":"lookup","description":"Looks a key up.","parameters":{"type":"object","properties":{"key":{"type":"integer"}}}}}],`
	}
	list := `"messages":[{"role":"system","content":"You answer in one sentence."}`
	if s.responses {
		path, list = "/v1/responses", `"instructions":"You answer in one sentence.","input":[`
		if len(history) > 0 {
			history = history[1:] // no comma before the first
		} else {
			fresh.json = fresh.json[1:]
		}
	}
	length := len(head) + len(list) + len(history) + len(fresh.json) + len("]}")
	b := make([]byte, 0, length+512)
	b = fmt.Appendf(b, "POST %s HTTP/1.1\r\nHost: soak.local\r\nAuthorization: Bearer sk-soak\r\nContent-Type: application/json\r\n"+
		"%s: %s\r\nContent-Length: %d\r\n", path, everyHeader, p.every, length)
	if s.name != "" {
		b = fmt.Appendf(b, "X-Session-Id: %s\r\n", s.name)
	}
	if p.pieces > 0 {
		b = fmt.Appendf(b, "%s: %d\r\n", piecesHeader, p.pieces)
	}
	if call != "" {
		b = fmt.Appendf(b, "%s: %s\r\n", callHeader, call)
	}
	b = append(append(append(b, "\r\n"...), head...), list...)
	return append(append(append(b, history...), fresh.json...), "]}"...)
}

// receive reads a whole answer. It returns nil for one that the plan aborts.
func (c *client) receive(p plan) (*http.Response, error) {
	if p.abort && p.pieces == 0 {
		time.Sleep(p.every / 2) // while upstream answers
		c.hangUp()
		return nil, nil
	}
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if p.abort {
		_, err = io.CopyN(io.Discard, res.Body, 300) // one event or two
		c.hangUp()
		return nil, err
	}
	body, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return nil, fmt.Errorf("read answer: %w", err)
	case res.StatusCode != status200:
		return nil, fmt.Errorf("status %d: %.200s", res.StatusCode, body)
	case p.pieces > 0 && !complete(string(body), p.pieces):
		return nil, errors.New("pieces of a stream are missing")
	}
	return res, nil
}

// complete reports whether a stream has all pieces, in order, and its end.
func complete(body string, pieces int) bool {
	for n := range pieces {
		_, rest, found := strings.Cut(body, piece(n))
		if !found {
			return false
		}
		body = rest
	}
	return strings.Contains(body, "data: [DONE]\n\n") || strings.Contains(body, `"type":"response.completed"`)
}

func (c *client) dial() error {
	nc, err := net.DialTimeout("tcp", c.addr(), waitLimit)
	if err != nil {
		return err
	}
	c.net, c.r = nc, bufio.NewReaderSize(nc, 4<<10)
	return nil
}

func (c *client) hangUp() {
	if c.net != nil {
		_ = c.net.Close()
		c.net = nil
	}
}
