package wire

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"remora/wire/sse"
)

// maxEvent is the largest event that is folded, in bytes.
const maxEvent = 16 << 20

// maxFolded bounds the collected part of one answer, in bytes.
const maxFolded = 32 << 20

// Reply is an answer, folded from a stream or read from a whole body: the same items either way.
type Reply struct {
	// Choices holds the items of each choice in the order of their index. Responses have one choice; Chat has n.
	Choices [][]Item
	// ID and Model are upstream's. Finish is the finish reason of the first choice (Chat) or the response's
	// status (Responses).
	ID, Model, Finish string
	// Usage is upstream's unchanged usage object, nil if there is none; Used has its figures.
	Usage []byte
	Used  Usage
	// Complete: upstream ended the answer itself ([DONE], a terminal event, a finish reason for every choice, or a whole
	// body, unless that announces an answer in the background which is still to come).
	Complete bool
	// Truncated: the answer was too large to be folded. Choices hold only its beginning.
	Truncated bool
	// Error is upstream's error object in an answer with status 200.
	Error []byte
	// OtherNames has, by the number of a call in the first choice of a stream, other names that some clients read, since
	// upstream sent the name in several pieces. It is nil if there are none.
	OtherNames map[int][]string
	// Unclear, for an answer that NewJudgedFolder folded, is why clients may read other calls in it than these items have.
	Unclear string
}

// Folder folds a streamed answer while it passes. It never blocks and never fails: it skips unknown events. It keeps at most 32
// MiB.
type Folder struct {
	split     sse.Splitter
	block     sse.Block // at hand, and what it does
	effect    Effect
	at, start int64 // bytes taken so far, and where the block at hand begins
	answer    Stream
	judged    *readings // nil for an answer that passes unjudged
	meta      Meta
	folded    int // bytes of events folded so far
	truncated bool
	begun     bool // the terminal event has begun
	ended     bool // the terminal event is complete
}

// Meta is the part of an answer that both dialects have.
type Meta struct {
	ID, Model, Finish string
	Usage, Err        []byte
}

// NewFolder returns a Folder for one answer in dialect d.
func NewFolder(d Dialect) *Folder {
	return &Folder{answer: d.Codec().Stream(), split: sse.Splitter{Limit: maxEvent}}
}

// Write takes the next bytes of the stream. It returns how many bytes of p stand before the terminal event ("data:
// [DONE]" or a lone error in Chat; response.completed, response.incomplete, response.failed or error in Responses)
// and whether that event is complete now. Before the terminal event and after it, safe is len(p).
//
// An event may turn out terminal only at its end: then earlier calls have reported a part of its bytes as safe, but never all
// of them.
func (f *Folder) Write(p []byte) (safe int, ended bool) {
	if f.ended {
		return len(p), true
	}
	safe = len(p)
	if f.begun {
		safe = 0
	}
	base := f.at
	for rest := p; len(rest) > 0 && !f.ended; {
		b, n, ok := f.split.Next(rest)
		f.block = b
		rest = rest[n:]
		f.at += int64(n)
		switch {
		case !ok:
			f.foresee(&f.split)
		default:
			f.ended = f.fold()
		}
		if (f.begun || f.ended) && safe > 0 {
			safe = int(max(f.start-base, 0))
		}
		f.begun = f.begun || f.ended
		if ok {
			f.start = f.at
		}
	}
	return safe, f.ended
}

// Take is Write for a complete block, for a caller that splits the stream itself. The returned effect is valid as long as the
// block.
func (f *Folder) Take(b *sse.Block) (e Effect, ended bool) {
	if f.ended {
		return e, true
	}
	f.block = *b
	f.ended = f.fold()
	return f.effect, f.ended
}

// Foresee is Write for an incomplete block of the caller's splitter.
func (f *Folder) Foresee(s *sse.Splitter) (ended bool) {
	if !f.ended {
		f.foresee(s)
	}
	return f.ended
}

// foresee checks an incomplete event. Some clients act on a line without waiting for the blank line after it, so a terminal
// event must be recognised by its first distinctive line.
func (f *Folder) foresee(s *sse.Splitter) {
	name, data, _ := s.Begun()
	begun, ended := f.answer.Begun(name, data)
	f.begun, f.ended = f.begun || begun, f.ended || ended
}

// fold takes in the block at hand and reports whether it is the terminal one.
func (f *Folder) fold() (last bool) {
	b := &f.block
	f.effect = nil
	if b.Kind != sse.Event {
		return false
	}
	if b.Dropped {
		f.truncated = true
		return f.answer.Lost(b.Name)
	}
	if _, ended := f.answer.Begun(nil, b.Data); ended {
		return true
	}

	f.folded += len(b.Data)
	if f.folded > maxFolded {
		f.truncated = true
		f.answer.Stop()
	}
	f.effect, last = f.answer.Event(&f.meta, b)
	if f.judged != nil {
		f.judged.event(b, f.effect)
	}
	return last
}

// Reply returns the answer so far. Its items share no memory with the input.
func (f *Folder) Reply() Reply {
	r := Reply{
		ID: f.meta.ID, Model: f.meta.Model, Finish: f.meta.Finish,
		Usage: f.meta.Usage, Used: ParseUsage(f.meta.Usage), Error: f.meta.Err,
		Complete: f.ended, Truncated: f.truncated,
	}
	_, _, line := f.split.Begun()
	f.answer.Reply(&r, line)
	if f.judged != nil {
		r.Unclear = f.judged.unclear(r.Choices)
	}
	return r
}

// BeginsStream reports whether the first bytes of a body are those of an event stream. JSON never begins so.
func BeginsStream(body []byte) bool {
	body = bytes.TrimSpace(WithoutBOM(body))
	return slices.ContainsFunc([]string{":", "data:", "event:", "id:", "retry:"}, func(field string) bool {
		n := min(len(body), len(field))
		return n > 0 && string(body[:n]) == field[:n]
	})
}

// WithoutBOM returns a body without a byte order mark in front, which JSON must not have and some servers send.
func WithoutBOM(body []byte) []byte { return bytes.TrimPrefix(body, []byte("\ufeff")) }

// FoldBody reads a whole answer, also after a byte order mark. Errors are of type *ParseError. The reply's items alias body, as
// those of a Request do.
func FoldBody(d Dialect, body []byte) (Reply, error) {
	var read struct { // in one allocation
		Scanner
		Meta
	}
	s, m := &read.Scanner, &read.Meta
	s.b, s.i = body, len(body)-len(WithoutBOM(body))
	s.space()
	var r Reply
	if s.Peek() != '{' {
		s.fail("not an object")
	} else if r.Choices, r.Complete = d.Codec().Whole(m, s); s.reason == "" {
		if s.space(); s.i != len(body) {
			s.fail("data behind the object")
		}
	}
	if s.reason != "" {
		return Reply{}, s.err()
	}
	r.ID, r.Model, r.Finish, r.Usage, r.Used, r.Error = m.ID, m.Model, m.Finish, m.Usage, ParseUsage(m.Usage), m.Err
	return r, nil
}

// Note takes in a member that both dialects have at the top of a chunk, a body or a response.
func (m *Meta) Note(name, value []byte) {
	switch string(name) {
	case "id":
		m.ID = latest(m.ID, value)
	case "model":
		m.Model = latest(m.Model, value)
	case "usage":
		if len(value) > 0 && value[0] == '{' {
			m.Usage = bytes.Clone(value)
		}
	case "error":
		if !IsNull(value) {
			m.Err = bytes.Clone(value)
		}
	}
}

// latest returns the text of a member that most events of a stream repeat, old for an empty one.
func latest(old string, value []byte) string {
	if content, ok := Inside(value); ok && string(content) == old {
		return old
	}
	return cmp.Or(Text(value), old)
}

// Usage is the cost of a call, in tokens.
type Usage struct {
	// Input holds Cached, what was read from the provider's prompt cache. Output holds Reasoning.
	Input, Cached, Output, Reasoning int64
	// CacheKnown: upstream has said how much was cached, which may be nothing.
	CacheKnown bool
}

// Known reports whether upstream has said what the call has cost.
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
	s := Scanner{b: raw}
	for name := range s.Each() {
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			s.tokens(&u.Input)
		case "completion_tokens", "output_tokens":
			s.tokens(&u.Output)
		case "prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens": // DeepSeek, Moonshot, Anthropic behind gateways
			u.CacheKnown = s.tokens(&u.Cached) || u.CacheKnown
		case "prompt_tokens_details", "input_tokens_details":
			for name := range s.Each() {
				if string(name) == "cached_tokens" && s.tokens(&u.Cached) {
					u.CacheKnown = true
				}
			}
		case "completion_tokens_details", "output_tokens_details":
			for name := range s.Each() {
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

// tokens raises n to the count at the scanner's place and reports whether there is one. Some upstreams give a count under
// the names of both dialects, and one of them is 0.
func (s *Scanner) tokens(n *int64) bool {
	f, err := strconv.ParseFloat(string(s.Raw()), 64)
	if err != nil || f < 0 || f > maxTokens {
		return false
	}
	*n = max(*n, int64(f))
	return true
}
