package stitch

import (
	"bytes"
	"slices"
)

// block is a run of whole lines of the stream: an event with the blank line behind it, or lines that are none, such as
// a comment.
type block struct {
	raw  []byte
	name []byte // the event field
	data []byte // the data fields, joined by line feeds
	kind blockKind
	cut  bool // the stream ended within it
	// shown tells that bytes made of it have gone to the client, kept that raw is a copy which is still needed.
	shown, kept bool
}

type blockKind uint8

const (
	blank   blockKind = iota // a comment, blank lines
	fields                   // fields without data, which no client acts upon
	event                    // an event with data
	lineEnd                  // the line feed of a CR LF whose CR ended the block before
)

// splitter cuts a stream into blocks, in linear time, with any of the three line ends. It loses no byte.
type splitter struct {
	raw     []byte // the block at hand, as far as it was not in one piece
	line    int    // where its last line begins
	kind    blockKind
	afterCR bool // a line feed that comes next belongs to the line before
	ended   bool // the block of that line was handed out
	pastBOM bool
	handed  bool // raw was handed out
}

// next takes bytes of p until a block is complete, which is valid until the next call. It returns how many bytes it
// took; ok is false when all of p was taken and no block was completed.
func (s *splitter) next(p []byte) (b block, n int, ok bool) {
	if s.handed {
		s.raw, s.handed = s.raw[:0], false
		if cap(s.raw) > 64<<10 {
			s.raw = nil
		}
	}
	if s.afterCR && p[0] == '\n' {
		s.afterCR = false
		if s.ended {
			return block{raw: p[:1:1], kind: lineEnd}, 1, true
		}
		s.raw, s.line, n = append(s.raw, '\n'), s.line+1, 1
	}
	s.afterCR = false
	start := n
	for n < len(p) {
		at := bytes.IndexAny(p[n:], "\r\n")
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
		if !s.endLine(p[lineAt:lineAt+at], lineAt-start, n-start) {
			s.ended = false
			continue
		}
		raw := p[start:n:n]
		if len(s.raw) > 0 {
			s.raw, s.handed = append(s.raw, raw...), true
			raw = s.raw
		}
		b := parseBlock(raw, s.kind)
		s.line, s.kind, s.ended = 0, blank, true
		return b, n, true
	}
	s.raw = append(s.raw, p[start:]...)
	return block{}, len(p), false
}

// endLine takes the rest of a line, which stands start bytes behind what is kept; the next line begins at end. It tells
// whether a block ends with the line.
func (s *splitter) endLine(piece []byte, start, end int) bool {
	line := piece
	if s.line < len(s.raw)+start {
		line = append(append([]byte(nil), s.raw[s.line:]...), piece...)
	}
	only := s.line == 0
	s.line = len(s.raw) + end
	if !s.pastBOM {
		line, s.pastBOM = bytes.TrimPrefix(line, bom), true
	}
	switch {
	case len(line) == 0:
		return true
	case line[0] == ':':
		return only
	}
	name, _, _ := bytes.Cut(line, []byte{':'})
	if string(name) == "data" {
		s.kind = event
	}
	s.kind = max(s.kind, fields)
	return false
}

var bom = []byte("\ufeff") //nolint:gochecknoglobals // a constant

// rest ends the stream: it returns what stands behind the last block, nil if nothing does.
func (s *splitter) rest() []byte {
	raw := s.raw
	if s.handed {
		raw = nil
	}
	*s = splitter{}
	return raw
}

func parseBlock(raw []byte, kind blockKind) block {
	b := block{raw: raw, kind: kind}
	if kind != event {
		return b
	}
	fields := 0
	for line := range lines(raw) {
		name, value := line.field()
		switch {
		case string(name) == "event":
			b.name = value
		case string(name) != "data":
		case fields == 0:
			b.data, fields = slices.Clip(value), 1
		default:
			b.data, fields = append(append(b.data, '\n'), value...), fields+1
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
func (l line) field() (name, value []byte) {
	name, value, _ = bytes.Cut(bytes.TrimPrefix(l.text, bom), []byte{':'})
	return name, bytes.TrimPrefix(value, []byte{' '})
}

func lines(raw []byte) func(yield func(line) bool) {
	return func(yield func(line) bool) {
		for at := 0; at < len(raw); {
			l := line{start: at, stop: len(raw), end: len(raw)}
			if n := bytes.IndexAny(raw[at:], "\r\n"); n >= 0 {
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

// foreign tells of a line that is no part of an event stream, such as one of a JSON body or of an HTML page.
func foreign(raw []byte) bool {
	for l := range lines(raw) {
		switch name, _ := l.field(); string(name) {
		case "", "data", "event", "id", "retry":
		default:
			return true
		}
	}
	return false
}

// appendWith appends the block with other data; its other lines and its line ends stay.
func (b *block) appendWith(dst, data []byte) []byte {
	written := false
	for l := range lines(b.raw) {
		name, value := l.field()
		if string(name) != "data" || len(l.text) == 0 {
			dst = append(dst, b.raw[l.start:l.end]...)
			continue
		}
		if written {
			continue
		}
		written = true
		head, end := b.raw[l.start:l.stop-len(value)], b.raw[l.stop:l.end]
		for i, text := range bytes.Split(data, []byte{'\n'}) {
			if i > 0 && len(end) == 0 {
				dst = append(dst, '\n')
			}
			dst = append(append(append(dst, head...), text...), end...)
		}
	}
	return dst
}
