// Package golden plays the conversations in its testdata through the proxy, and compares the messages that client and upstream
// got with the file. README.md describes the files.
package golden

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// The kinds of a scenario's sections. The test writes the messages that upstream and client receive, stored sessions, and the
// output of commands; the author writes the others.
const (
	kindConfiguration = "configuration"
	kindSends         = "client sends"
	kindReceives      = "upstream receives"
	kindAnswers       = "upstream answers"
	kindGets          = "client receives"
	kindStored        = "stored"
	kindCommand       = "command"
	kindFile          = "file"
	kindPause         = "time passes"
)

// scenario is one file.
type scenario struct {
	intro string
	steps []step
}

// step is one of: a new configuration, a turn, a look at a session, an operator's command, an operator's file, or a pause.
type step struct {
	configuration *string
	turn          *turn
	stored        *look
	command       string // without the name of the program
	file          *file
	pause         time.Duration
}

// file is written into the scenario's folder; an empty one is removed.
type file struct {
	name, text string
}

// turn is one request of a client.
type turn struct {
	label   string // as in the sections, "turn 1"
	sends   string // the section, as written by its author
	answers []string
}

// look is a session whose transcript is shown.
type look struct {
	session, key string
}

func parseScenario(text []byte) (*scenario, error) {
	archive := txtar.Parse(text)
	s := &scenario{intro: string(archive.Comment)}
	if strings.TrimSpace(s.intro) == "" {
		return nil, fmt.Errorf("the file does not begin with a description")
	}

	for _, f := range archive.Files {
		label, kind, _ := strings.Cut(f.Name, ": ")
		data := string(f.Data)
		var before *turn // the step before, if it is one
		if n := len(s.steps); n > 0 {
			before = s.steps[n-1].turn
		}

		var next step
		switch {
		case f.Name == kindConfiguration:
			next.configuration = &data
		case label == kindStored:
			session, key, _ := strings.Cut(kind, " of ")
			next.stored = &look{session, key}
		case label == kindFile:
			next.file = &file{kind, data}
		case label == kindCommand:
			next.command = kind
		case label == kindPause:
			d, err := time.ParseDuration(kind)
			if err != nil || d <= 0 {
				return nil, fmt.Errorf("%s: want a duration such as 2s, have %q", kindPause, kind)
			}
			next.pause = d
		case kind == kindSends:
			if slices.ContainsFunc(s.steps, func(st step) bool { return st.turn != nil && st.turn.label == label }) {
				return nil, fmt.Errorf("two turns are called %q", label)
			}
			next.turn = &turn{label: label, sends: data}
		case before == nil || label != before.label:
			return nil, fmt.Errorf("section %q does not belong to the turn before it", f.Name)
		case kind == kindAnswers:
			before.answers = append(before.answers, data)
			continue
		case kind == kindReceives, kind == kindGets: // written by the test
			continue
		default:
			return nil, fmt.Errorf("section %q: want %q, %q or %q with what it is of, or the label of a turn and one of %q", f.Name,
				kindConfiguration, kindStored, kindCommand, []string{kindSends, kindReceives, kindAnswers, kindGets})
		}
		s.steps = append(s.steps, next)
	}
	return s, nil
}

// Lines in a body that are directives.
const (
	boundary   = "~~~"
	brokenOff  = "~~~ broken off"
	untilGone  = "~~~ until the proxy closes the connection"
	leavesWhen = "~~~ leaves when it has: "
)

// message is a request or an answer in a section.
type message struct {
	start   string   // request line or status line
	headers []string // as "Name: value"
	pieces  []string // of the body; one chunk each
	broken  bool     // the connection is closed after the last piece
	hangs   bool     // of an answer: it stalls until the proxy gives up
	leaves  string   // of a request: the client closes its connection when the answer contains this
}

// parseMessage parses a section. A line that ends with \ continues in the next one. The last line end of a body is only part of
// it in an event stream.
func parseMessage(section string) (*message, error) {
	head, body, _ := strings.Cut(section, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	m := &message{start: lines[0], headers: lines[1:], pieces: []string{""}}
	for _, h := range m.headers {
		if !strings.Contains(h, ": ") {
			return nil, fmt.Errorf("want a header as `Name: value`, have %q", h)
		}
	}

	for line := range strings.Lines(body) {
		switch text := strings.TrimSuffix(line, "\n"); {
		case text == boundary:
			m.pieces = append(m.pieces, "")
		case text == brokenOff:
			m.broken = true
		case text == untilGone:
			m.hangs = true
		case strings.HasPrefix(text, leavesWhen):
			m.leaves = strings.TrimPrefix(text, leavesWhen)
		case m.broken || m.hangs || m.leaves != "":
			if text != "" {
				return nil, fmt.Errorf("%q follows the end of the body", text)
			}
		default:
			last := &m.pieces[len(m.pieces)-1]
			if joined, ok := strings.CutSuffix(text, `\`); ok {
				*last += joined
			} else {
				*last += line
			}
		}
	}
	if !isEventStream(m.header("Content-Type")) {
		last := &m.pieces[len(m.pieces)-1]
		*last = strings.TrimRight(*last, "\n")
	}
	return m, nil
}

func (m *message) header(name string) string { return headerOf(m.headers, name) }

func (m *message) body() string { return strings.Join(m.pieces, "") }

// wire returns the bytes for the connection: the head, and the body's pieces in their framing.
func (m *message) wire(isAnswer bool) (head []byte, pieces [][]byte) {
	var b bytes.Buffer
	start := m.start
	if isAnswer {
		start = "HTTP/1.1 " + start
	} else {
		start += " HTTP/1.1"
	}
	fmt.Fprintf(&b, "%s\r\n", start)
	for _, h := range m.headers {
		fmt.Fprintf(&b, "%s\r\n", h)
	}

	chunked := strings.EqualFold(m.header("Transfer-Encoding"), "chunked")
	if isAnswer && !chunked && m.header("Content-Length") == "" && (len(m.pieces) > 1 || isEventStream(m.header("Content-Type"))) {
		b.WriteString("Transfer-Encoding: chunked\r\n")
		chunked = true
	}
	if body := m.body(); !chunked && m.header("Content-Length") == "" && (isAnswer || body != "") {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(body))
	}
	if !isAnswer && m.header("Host") == "" {
		b.WriteString("Host: remora.test\r\n")
	}
	b.WriteString("\r\n")

	for _, p := range m.pieces {
		if chunked && p != "" {
			p = fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
		}
		pieces = append(pieces, []byte(p))
	}
	if chunked && !m.broken && !m.hangs {
		last := len(pieces) - 1
		pieces[last] = append(pieces[last], "0\r\n\r\n"...)
	}
	return b.Bytes(), pieces
}

func headerOf(headers []string, name string) string {
	for _, h := range headers {
		if k, v, _ := strings.Cut(h, ":"); strings.EqualFold(strings.TrimSpace(k), name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func isEventStream(contentType string) bool {
	return strings.HasPrefix(contentType, "text/event-stream")
}

// bodiless reports whether an answer with this status line to this method has no body, despite its headers.
func bodiless(method, start string) bool {
	status := strings.TrimPrefix(start, "HTTP/1.1 ")
	return method == http.MethodHead || strings.HasPrefix(status, "204") || strings.HasPrefix(status, "304")
}
