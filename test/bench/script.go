package main

import (
	"fmt"
	"strconv"
	"strings"
)

// dialogue is a conversation: message 0 is the user's, message 1 the answer, and so on. Every request begins with the system
// message.
type dialogue struct {
	head []byte // of the body, up to the first message
	all  []byte // the messages, each with a comma before it
	ends []int  // offset in all of the end of message i
}

const bodyTail = "]}"

// newDialogue returns a dialogue of n messages with equal answers; user(i) is the JSON text of message i, without quotes.
func newDialogue(n int, answer string, user func(i int) string) *dialogue {
	d := &dialogue{}
	d.head = append(d.head, `{"model":"gpt-5-mini","messages":[{"role":"system","content":"You answer in one sentence."}`...)
	for i := range n {
		if i%2 == 0 {
			d.all = fmt.Appendf(d.all, `,{"role":"user","content":"%s"}`, user(i))
		} else {
			d.all = append(d.all, `,{"role":"assistant","content":"`+answer+`"}`...)
		}
		d.ends = append(d.ends, len(d.all))
	}
	return d
}

func number(i int) string { return fmt.Sprintf("Remember number %05d for me, please.", i) }

const smallTurns = 4

// smallDialogue has turns whose bodies are 0.4 KB on average: 1 to 7 messages.
func smallDialogue() *dialogue { return newDialogue(2*smallTurns+2, answerText, number) }

// streamDialogue has answers that are streams of a number of chunks.
func streamDialogue(chunks int) *dialogue {
	d := newDialogue(2*smallTurns+2, strings.Repeat(streamWord, chunks), number)
	d.head = append([]byte(`{"stream":true,`), d.head[1:]...)
	return d
}

const (
	bigMessages = 400
	bigTurns    = 4 // measured turns of one session, after a first one with the history
)

// bigDialogue has bodies of 256 KB with about 400 messages, with escapes and non-ASCII characters.
func bigDialogue() *dialogue {
	line := `func f(x int) error {\n\treturn fmt.Errorf(\"größer als %d: %w\", x, err) // siehe \u00a7 4\n}\n`
	return newDialogue(bigMessages+2*bigTurns+2, answerText, func(i int) string {
		return fmt.Sprintf("%05d ", i) + strings.Repeat(line, 12)
	})
}

// span is the part of a dialogue in a request: messages [from, to).
type span struct{ from, to int }

func (d *dialogue) size(s span) int {
	return len(d.head) + len(d.messages(s)) + len(bodyTail)
}

func (d *dialogue) messages(s span) []byte {
	start := 0
	if s.from > 0 {
		start = d.ends[s.from-1]
	}
	return d.all[start:d.ends[s.to-1]]
}

// talker plays the sessions of one connection. It uses them in turn, so that a session's next request never overtakes its answer.
type talker struct {
	said   *dialogue
	turns  []span // of one session, in order
	named  bool   // send the session header; requests are the same otherwise
	header string // further request headers, each with its line end
	prefix string // of the session ids
	open   []session
	at     int
	serial int
}

type session struct {
	id   string
	turn int // number of its turns so far
}

// newTalker returns a talker with n sessions. A session that had all its turns is replaced by a new one.
func newTalker(said *dialogue, turns []span, prefix string, n int) *talker {
	t := &talker{said: said, turns: turns, prefix: prefix}
	for range n {
		t.open = append(t.open, t.newSession())
	}
	return t
}

func (t *talker) newSession() session {
	t.serial++
	return session{id: t.prefix + "-" + strconv.Itoa(t.serial)}
}

// next appends the next request to buf.
func (t *talker) next(buf []byte) []byte {
	s := &t.open[t.at]
	if t.at++; t.at == len(t.open) {
		t.at = 0
	}
	if s.turn == len(t.turns) {
		*s = t.newSession()
	}
	turn := t.turns[s.turn]
	s.turn++
	return t.request(buf, s.id, turn)
}

func (t *talker) request(buf []byte, id string, turn span) []byte {
	buf = append(buf, "POST /v1/chat/completions HTTP/1.1\r\nHost: bench.local\r\n"+
		"Authorization: Bearer sk-bench\r\nContent-Type: application/json\r\n"...)
	if t.named {
		buf = append(append(append(buf, "X-Session-Id: "...), id...), "\r\n"...)
	}
	buf = append(append(buf, t.header...), "Content-Length: "...)
	buf = strconv.AppendInt(buf, int64(t.said.size(turn)), 10)
	buf = append(append(buf, "\r\n\r\n"...), t.said.head...)
	return append(append(buf, t.said.messages(turn)...), bodyTail...)
}

// growing returns the turns of a client that resends everything: messages [0, first), then two more each time.
func growing(first, n int) []span {
	turns := make([]span, n)
	for i := range turns {
		turns[i] = span{0, first + 2*i}
	}
	return turns
}
