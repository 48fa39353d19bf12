// Package sse splits a stream of server-sent events into blocks of whole lines, and writes events with other data.
//
// No byte is lost: the blocks together are the stream. The package knows no JSON and no dialect.
package sse

import (
	"bytes"
	"iter"
	"slices"
)

const (
	// maxName is the longest event name that is kept, in bytes; a longer one counts as none.
	maxName = 256
	// maxSpare is the largest buffer that one event leaves to the next ones, in bytes.
	maxSpare = 64 << 10
)

// Kind is the meaning of a block for readers of a stream.
type Kind uint8

// Kinds of blocks.
const (
	Blank   Kind = iota // a comment, blank lines
	Fields              // fields without data, which no client acts upon
	Event               // an event with data
	LineEnd             // the line feed of a CR LF whose CR ended the block before
)

// Block is a run of whole lines of the stream: an event with the blank line that ends it, or lines outside of events, such as a
// comment.
type Block struct {
	Raw []byte
	// Name is the value of the event field, Data are the values of the data fields, joined by line feeds.
	Name, Data []byte
	Kind       Kind
	// Dropped: the event was larger than the splitter's limit. Its Raw and Data are gone.
	Dropped bool
}

// Splitter cuts a stream that comes in any pieces into blocks, in linear time, with any of the three line ends. The zero
// value stands at the beginning of a stream.
type Splitter struct {
	// Limit is the largest event that is kept, in bytes; 0 keeps all, so that the caller has to look at Held.
	Limit int

	raw     []byte // the current block, as far as it did not come in one piece
	line    int    // where its last line begins
	name    span   // of the event field's value
	data    span   // of the first data field's value
	datas   int    // how many data fields there are
	kind    Kind
	lost    []byte // the name of a block that is dropped
	dropped bool   // the current block is larger than the limit
	skips   bool   // the rest of the current line is not kept
	afterCR bool   // a line feed that comes next belongs to the line before
	ended   bool   // the block of that line was handed out
	pastBOM bool
	handed  bool // raw was handed out
}

// span is a range of the current block.
type span struct{ start, end int }

// Next takes bytes of p until a block is complete, which is valid until the next call. It returns how many bytes it took;
// ok is false when all of p was taken and no block was completed.
func (s *Splitter) Next(p []byte) (b Block, n int, ok bool) {
	if s.handed {
		s.raw, s.handed = s.raw[:0], false
		if cap(s.raw) > maxSpare {
			s.raw = nil
		}
	}
	if len(p) == 0 {
		return Block{}, 0, false
	}

	if s.afterCR && p[0] == '\n' {
		s.afterCR = false
		if s.ended {
			return Block{Raw: p[:1:1], Kind: LineEnd}, 1, true
		}
		if n = 1; !s.dropped {
			s.raw, s.line = append(s.raw, '\n'), s.line+1
		}
	}
	s.afterCR = false

	start := n
	for n < len(p) {
		at := lineEnd(p[n:])
		if at < 0 {
			break
		}
		lineAt := n
		n += at + 1
		if p[n-1] == '\r' {
			if n == len(p) {
				s.afterCR = true
			} else if p[n] == '\n' {
				n++
			}
		}
		before := s.line
		ends := s.endLine(p[lineAt:lineAt+at], lineAt-start, n-start)
		if s.skips || s.dropped {
			s.raw, s.line, s.skips, start = s.raw[:before], before, false, n
		}
		if ends {
			return s.end(p[start:n:n]), n, true
		}
		s.ended = false
		if s.Limit > 0 && s.line > s.Limit {
			s.drop(p[start:n])
			start = n
		}
	}
	s.keep(p[start:])
	return Block{}, len(p), false
}

// lineEnd returns the index of the first line feed or carriage return, -1 if there is none. It looks for both in windows:
// searching the whole of p for a line feed would be quadratic on a stream that has carriage returns only.
func lineEnd(p []byte) int {
	const window = 512
	for at := 0; at < len(p); at += window {
		w := p[at:min(at+window, len(p))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return at + cr
		}
		if lf >= 0 {
			return at + lf
		}
	}
	return -1
}

// keep holds a piece of the current block until the rest has come. Of a comment that is too long the beginning is enough; an
// event that is too large is dropped.
func (s *Splitter) keep(piece []byte) {
	size := len(s.raw) + len(piece)
	switch {
	case s.dropped:
		s.skips = s.skips || len(piece) > 0
	case s.skips:
	case s.Limit == 0 || size <= s.Limit:
		s.raw = append(s.raw, piece...)
	default:
		if s.line >= len(s.raw) {
			s.raw, piece = append(s.raw, piece[:s.line-len(s.raw)]...), piece[s.line-len(s.raw):]
		}
		if len(s.raw) > s.line && s.raw[s.line] == ':' || len(s.raw) == s.line && len(piece) > 0 && piece[0] == ':' {
			s.raw = append(s.raw[:s.line], ':')
		} else {
			s.drop(piece)
		}
		s.skips = size > s.line
	}
}

// drop forgets the current block except for its name. piece is the part of it that was not kept.
func (s *Splitter) drop(piece []byte) {
	if s.name.end <= len(s.raw) {
		s.lost = bytes.Clone(s.raw[s.name.start:s.name.end])
	} else {
		s.lost = slices.Concat(s.raw, piece)[s.name.start:s.name.end]
	}
	s.raw, s.line, s.dropped = nil, 0, true
}

// endLine takes the rest of a line, which begins start bytes after the kept ones; the next line begins at end. It
// reports whether a block ends with the line.
func (s *Splitter) endLine(piece []byte, start, end int) bool {
	if s.dropped {
		return len(piece) == 0 && !s.skips
	}
	at, line := s.line, piece
	if at < len(s.raw)+start {
		line = append(append([]byte(nil), s.raw[at:]...), piece...)
	}
	first := at == 0
	s.line = len(s.raw) + end
	if !s.pastBOM {
		s.pastBOM = true
		if rest, ok := bytes.CutPrefix(line, []byte(BOM)); ok {
			line, at = rest, at+len(BOM)
		}
	}

	switch {
	case len(line) == 0:
		return true
	case line[0] == ':':
		return first
	}
	name, value := field(line)
	at += len(line) - len(value)
	switch string(name) {
	case "data":
		if s.kind = Event; s.datas == 0 {
			s.data = span{at, at + len(value)}
		}
		s.datas++
	case "event":
		if s.name = (span{}); len(value) <= maxName {
			s.name = span{at, at + len(value)}
		}
	}
	s.kind = max(s.kind, Fields)
	return false
}

// BOM is a byte order mark, which may stand at the beginning of a stream.
const BOM = "\ufeff"

// end returns the current block. tail is the part of it that was not kept.
func (s *Splitter) end(tail []byte) Block {
	b := Block{Raw: tail, Kind: s.kind}
	if len(s.raw) > 0 {
		s.raw, s.handed = append(s.raw, tail...), true
		b.Raw = s.raw
	}
	switch {
	case s.dropped:
		b = Block{Name: s.lost, Kind: Event, Dropped: true}
	case s.datas == 1:
		b.Name, b.Data = b.Raw[s.name.start:s.name.end], slices.Clip(b.Raw[s.data.start:s.data.end])
	case s.datas > 1:
		b = Parse(b.Raw, Event)
	}
	s.line, s.name, s.data, s.datas, s.kind, s.lost, s.dropped, s.ended = 0, span{}, span{}, 0, Blank, nil, false, true
	return b
}

// Held returns how many bytes of the current block are kept.
func (s *Splitter) Held() int { return len(s.raw) }

// Begun returns the known part of the current block: its name, the first line of its data, nil before that has ended,
// and the line that has not ended.
func (s *Splitter) Begun() (name, data, line []byte) {
	if s.handed {
		return nil, nil, nil
	}
	if s.dropped {
		return s.lost, nil, nil
	}
	if s.datas > 0 {
		data = s.raw[s.data.start:s.data.end]
	}
	return s.raw[s.name.start:s.name.end], data, s.raw[s.line:]
}

// Rest ends the stream. It returns the bytes after the last block, nil if there are none.
func (s *Splitter) Rest() []byte {
	raw := s.raw
	if s.handed {
		raw = nil
	}
	*s = Splitter{Limit: s.Limit}
	return raw
}

// Parse reads a block of a kind.
func Parse(raw []byte, kind Kind) Block {
	b := Block{Raw: raw, Kind: kind}
	if kind != Event {
		return b
	}
	fields := 0
	for l := range lines(raw) {
		name, value := l.field()
		switch {
		case string(name) == "event":
			if b.Name = value; len(value) > maxName {
				b.Name = nil
			}
		case string(name) != "data":
		case fields == 0:
			b.Data, fields = slices.Clip(value), 1
		default:
			b.Data, fields = append(append(b.Data, '\n'), value...), fields+1
		}
	}
	return b
}

// line is a line with its end.
type line struct {
	start, stop, end int // where it begins, where its text ends, where the next one begins
	text             []byte
}

// field splits the line into a field's name and its value.
func (l line) field() (name, value []byte) { return field(bytes.TrimPrefix(l.text, []byte(BOM))) }

func field(text []byte) (name, value []byte) {
	name, value, _ = bytes.Cut(text, []byte{':'})
	return name, bytes.TrimPrefix(value, []byte{' '})
}

func lines(raw []byte) iter.Seq[line] {
	return func(yield func(line) bool) {
		for at := 0; at < len(raw); {
			l := line{start: at, stop: len(raw), end: len(raw)}
			if n := lineEnd(raw[at:]); n >= 0 {
				l.stop, l.end = at+n, at+n+1
				if raw[l.stop] == '\r' && l.end < len(raw) && raw[l.end] == '\n' {
					l.end++
				}
			}
			l.text = raw[l.start:l.stop]
			if !yield(l) {
				return
			}
			at = l.end
		}
	}
}

// Foreign reports whether raw has a line that does not belong to an event stream, such as one of a JSON body or an HTML page.
func Foreign(raw []byte) bool {
	for l := range lines(raw) {
		if l.foreign() {
			return true
		}
	}
	return false
}

// WithoutForeign returns raw without the lines that Foreign looks for.
func WithoutForeign(raw []byte) []byte {
	var own []byte
	for l := range lines(raw) {
		if !l.foreign() {
			own = append(own, raw[l.start:l.end]...)
		}
	}
	return own
}

func (l line) foreign() bool {
	switch name, _ := l.field(); string(name) {
	case "", "data", "event", "id", "retry":
		return false
	}
	return true
}

// AppendWith appends the block with other data; its other lines and its line ends stay.
func (b *Block) AppendWith(dst, data []byte) []byte {
	written := false
	for l := range lines(b.Raw) {
		name, value := l.field()
		if string(name) != "data" || len(l.text) == 0 {
			dst = append(dst, b.Raw[l.start:l.end]...)
			continue
		}
		if written {
			continue
		}
		written = true
		head, end := b.Raw[l.start:l.stop-len(value)], b.Raw[l.stop:l.end]
		for i, text := range bytes.Split(data, []byte{'\n'}) {
			if i > 0 && len(end) == 0 {
				dst = append(dst, '\n')
			}
			dst = append(append(append(dst, head...), text...), end...)
		}
	}
	return dst
}

// IsDone reports whether data are the marker that ends a stream of Chat Completions, by their first line alone, so that it is
// the same before and after the event has ended.
func IsDone(data []byte) bool {
	first, _, _ := bytes.Cut(data, []byte{'\n'})
	return string(bytes.TrimSpace(first)) == "[DONE]"
}
