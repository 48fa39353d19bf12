package wire

import (
	"bytes"
	"strconv"
)

// maxFolded bounds what a Folder keeps of one answer, in bytes.
const maxFolded = 32 << 20

// Reply is an answer, folded from a stream or read from a whole body: the same items either way.
type Reply struct {
	// Choices holds the items of each choice in the order of their index. Responses have one choice; Chat has n.
	Choices [][]Item
	// ID and Model are upstream's. Finish is the finish reason of the first choice (Chat) or the response's
	// status (Responses).
	ID, Model, Finish string
	// Usage is upstream's usage object as it came, nil if none came.
	Usage []byte
	// Complete tells that upstream ended the answer itself ([DONE], a terminal event, a finish reason for every
	// choice, a whole body).
	Complete bool
	// Truncated tells that the answer was too large to be folded: Choices hold only its beginning.
	Truncated bool
	// Error is upstream's error object where an answer with status 200 held one.
	Error []byte
}

// Folder folds a streamed answer while it passes. It never waits and never fails: what it does not understand it
// leaves out. It keeps no more than 32 MiB.
type Folder struct {
	dialect   Dialect
	events    Events
	chat      chatFold
	responses responsesFold
	meta      replyMeta
	folded    int // bytes of events folded so far
	truncated bool
	begun     bool // the terminal event has begun
	ended     bool // the terminal event is complete
}

// replyMeta is what both dialects tell about an answer.
type replyMeta struct {
	id, model, finish string
	usage, err        []byte
}

// NewFolder returns a Folder for one answer in dialect d.
func NewFolder(d Dialect) *Folder { return &Folder{dialect: d} }

// Write takes the next bytes of the stream. It returns how many bytes of p stand before the terminal event ("data:
// [DONE]" or a lone error in Chat; response.completed, response.incomplete, response.failed or error in Responses)
// and whether that event is complete now. Before the terminal event and after it, safe is len(p).
//
// What makes the event terminal may come late in it: of such an event the bytes of earlier calls were called safe,
// but never all of them.
func (f *Folder) Write(p []byte) (safe int, ended bool) {
	if f.ended {
		return len(p), true
	}
	safe = len(p)
	if f.begun {
		safe = 0
	}
	base := f.events.offset
	for rest := p; len(rest) > 0 && !f.ended; {
		ev, n, ok := f.events.Next(rest)
		rest = rest[n:]
		if ok {
			f.ended = f.fold(ev)
		} else {
			f.foresee()
		}
		if (f.begun || f.ended) && safe > 0 {
			safe = int(max(f.events.start-base, 0))
		}
		f.begun = f.begun || f.ended
	}
	return safe, f.ended
}

// foresee looks at an event that has not ended. Some clients act on a line without waiting for the blank one behind
// it, so a terminal event has to be known by its first telling line.
func (f *Folder) foresee() {
	if f.dialect == Responses {
		f.begun = f.begun || terminal(f.events.name)
		return
	}
	if f.events.hasData && isDone(f.events.data) {
		f.begun, f.ended = true, true
	}
}

// isDone looks at the first line only, so that it tells the same before and after the event has ended.
func isDone(data []byte) bool {
	line, _, _ := bytes.Cut(data, []byte{'\n'})
	return string(bytes.TrimSpace(line)) == "[DONE]"
}

// terminal tells that a Responses event of this type is the last one.
func terminal(typ []byte) bool {
	switch string(typ) {
	case "response.completed", "response.incomplete", "response.failed", "error":
		return true
	}
	return false
}

// fold takes in one event and tells whether it is the terminal one.
func (f *Folder) fold(ev Event) (last bool) {
	if ev.Dropped {
		f.truncated = true
		return f.dialect == Responses && terminal(ev.Name)
	}
	if f.dialect == Chat && isDone(ev.Data) {
		return true
	}
	f.folded += len(ev.Data)
	if f.folded > maxFolded {
		f.truncated, f.chat.full, f.responses.full = true, true, true
	}
	if f.dialect == Responses {
		return f.responses.event(&f.meta, ev)
	}
	return f.chat.chunk(&f.meta, ev.Data)
}

// Reply is the answer as far as it has come. Its items share no memory with what was written.
func (f *Folder) Reply() Reply {
	r := Reply{
		ID: f.meta.id, Model: f.meta.model, Finish: f.meta.finish,
		Usage: f.meta.usage, Error: f.meta.err,
		Complete: f.ended, Truncated: f.truncated,
	}
	if f.dialect == Responses {
		r.Choices = f.responses.choices()
		return r
	}
	// Some upstreams leave [DONE] out, or its line end.
	r.Complete = r.Complete || f.chat.finished() || string(bytes.TrimSpace(f.events.line)) == "data: [DONE]"
	r.Choices = f.chat.build()
	if r.Finish == "" {
		r.Finish = f.chat.finish()
	}
	return r
}

// WithoutBOM is a body without a byte order mark in front, which JSON must not have and some servers send.
func WithoutBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) }

// FoldBody reads a whole answer, also behind a byte order mark. Errors are of type *ParseError. The reply shares no memory
// with body.
func FoldBody(d Dialect, body []byte) (Reply, error) {
	start := len(body) - len(WithoutBOM(body))
	s := scanner{b: body, i: start}
	s.space()
	ok := s.peek() == '{' || s.fail("not an object")
	if ok && s.value() {
		if s.space(); s.i != len(body) {
			s.fail("data behind the object")
		}
	}
	if s.reason != "" {
		return Reply{}, s.err()
	}
	body = bytes.Clone(body[start:])
	var m replyMeta
	var r Reply
	if d == Responses {
		r.Choices = wholeResponse(&m, body)
	} else {
		r.Choices = wholeCompletion(&m, body)
	}
	r.ID, r.Model, r.Finish, r.Usage, r.Error, r.Complete = m.id, m.model, m.finish, m.usage, m.err, true
	return r, nil
}

// note takes in a member that both dialects have at the top of a chunk, a body or a response.
func (m *replyMeta) note(p part) {
	switch string(p.name) {
	case "id":
		m.id = orElse(text(p.value), m.id)
	case "model":
		m.model = orElse(text(p.value), m.model)
	case "usage":
		if p.value[0] == '{' {
			m.usage = bytes.Clone(p.value)
		}
	case "error":
		if !isNull(p.value) {
			m.err = bytes.Clone(p.value)
		}
	}
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// choiceMembers are the raw members of a choice. Of members of one name the last one counts.
func choiceMembers(raw []byte) (index, message, finish []byte) {
	for p := range parts(raw) {
		switch string(p.name) {
		case "index":
			index = p.value
		case "message":
			message = p.value
		case "finish_reason":
			finish = p.value
		}
	}
	return index, message, finish
}

// Usage is what a call has cost, in tokens.
type Usage struct {
	// Input holds Cached, what was read from the provider's prompt cache. Output holds Reasoning.
	Input, Cached, Output, Reasoning int64
	// CacheKnown tells that upstream has said what was cached, if that was nothing.
	CacheKnown bool
}

// Known tells that upstream has said what the call has cost.
func (u *Usage) Known() bool { return u.Input > 0 || u.Output > 0 }

const (
	maxUsage  = 64 << 10 // bytes of a usage object; real ones have a few hundred
	maxTokens = 1e12
)

// ParseUsage reads a usage object of either dialect, [Reply.Usage]. What can't be read counts as nothing; the result is
// never negative.
func ParseUsage(raw []byte) Usage {
	if len(raw) > maxUsage {
		return Usage{}
	}
	var u Usage
	s := scanner{b: raw}
	for name := range s.each() {
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			s.tokens(&u.Input)
		case "completion_tokens", "output_tokens":
			s.tokens(&u.Output)
		case "prompt_tokens_details", "input_tokens_details":
			for name := range s.each() {
				if string(name) == "cached_tokens" && s.tokens(&u.Cached) {
					u.CacheKnown = true
				}
			}
		case "completion_tokens_details", "output_tokens_details":
			for name := range s.each() {
				if string(name) == "reasoning_tokens" {
					s.tokens(&u.Reasoning)
				}
			}
		}
	}
	if s.reason != "" {
		return Usage{}
	}
	return u
}

// tokens raises n to the count at the scanner's place and tells whether there is one. Some upstreams give a count under
// the names of both dialects, and one of them is 0.
func (s *scanner) tokens(n *int64) bool {
	f, err := strconv.ParseFloat(string(s.raw()), 64)
	if err != nil || f < 0 || f > maxTokens {
		return false
	}
	*n = max(*n, int64(f))
	return true
}
