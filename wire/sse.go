package wire

import "bytes"

// maxEvent bounds one event's name and data together, in bytes. A larger one is dropped and flagged.
const maxEvent = 16 << 20

// Event is one server-sent event.
type Event struct {
	// Name is the value of its event field, empty where there is none.
	Name []byte
	// Data are the values of its data fields, joined by line feeds.
	Data []byte
	// Dropped tells that the event was larger than 16 MiB; its Data are gone.
	Dropped bool
}

// Events splits a stream of server-sent events that comes in any chunks, in linear time, with any of the three line
// ends. Its zero value stands at the beginning of a stream. Fields other than event and data, and comments, are
// skipped.
type Events struct {
	name, data []byte
	line       []byte // beginning of a line whose end has not come yet
	offset     int64  // bytes taken so far
	start      int64  // offset of the event at hand, once it has begun
	begun      bool   // bytes of the event at hand have been seen
	hasData    bool
	dropped    bool
	overlong   bool // the line at hand is larger than any event may be and is not kept
	afterCR    bool // a line feed that comes next belongs to the line before
	pastBOM    bool
	handedOut  bool // the event at hand was returned
}

// Next takes bytes of p until an event is complete. It returns that event and how many bytes were taken; ok is false
// when p holds no end of an event, and then all of p was taken. The event's slices are valid until the next call.
//
// Events without data are not returned, as in browsers.
func (e *Events) Next(p []byte) (ev Event, n int, ok bool) {
	if e.handedOut {
		e.reset()
	}
	for n < len(p) {
		if e.afterCR {
			e.afterCR = false
			if p[n] == '\n' {
				n++
				e.offset++
				continue
			}
		}
		if !e.begun {
			e.begun, e.start = true, e.offset
		}
		end := lineEnd(p[n:])
		if end < 0 {
			e.keep(p[n:])
			e.offset += int64(len(p) - n)
			return Event{}, len(p), false
		}
		line := p[n : n+end]
		e.afterCR = p[n+end] == '\r'
		n += end + 1
		e.offset += int64(end + 1)
		if e.endLine(line) {
			e.handedOut = true
			return Event{Name: e.name, Data: e.data, Dropped: e.dropped}, n, true
		}
	}
	return Event{}, n, false
}

// lineEnd is the index of the first line feed or carriage return, -1 if there is none. It looks for both in windows:
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

// keep holds a piece of a line until the rest has come.
func (e *Events) keep(piece []byte) {
	if e.overlong {
		return
	}
	if len(e.line)+len(e.data)+len(piece) <= maxEvent {
		e.line = append(e.line, piece...)
		return
	}
	begin := e.line
	if len(begin) == 0 {
		begin = piece
	}
	if begin[0] != ':' {
		e.drop()
	}
	e.line, e.overlong = nil, true
}

func (e *Events) drop() { e.data, e.dropped = nil, true }

// endLine takes the rest of a line; true means that it ended an event that has data.
func (e *Events) endLine(line []byte) bool {
	if len(e.line) > 0 || e.overlong {
		e.keep(line)
		line = e.line
	}
	if !e.pastBOM {
		line, e.pastBOM = bytes.TrimPrefix(line, []byte("\ufeff")), true
	}
	blank := len(line) == 0 && !e.overlong
	if !e.overlong && !blank {
		e.field(line)
	}
	e.line, e.overlong = e.line[:0], false
	if !blank {
		return false
	}
	if e.hasData || e.dropped {
		return true
	}
	e.reset()
	return false
}

func (e *Events) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	value = bytes.TrimPrefix(value, []byte{' '})
	switch string(name) {
	case "event":
		if len(value) > maxName {
			value = nil
		}
		e.name = append(e.name[:0], value...)
	case "data":
		switch {
		case e.dropped:
		case len(e.data)+len(value)+1 > maxEvent:
			e.drop()
		default:
			if e.hasData {
				e.data = append(e.data, '\n')
			}
			e.data, e.hasData = append(e.data, value...), true
		}
	}
}

// maxName is the longest event name that is kept, in bytes; a longer one counts as none.
const maxName = 256

// reset begins the next event. Space that one large event took is not kept for the small ones after it.
func (e *Events) reset() {
	if cap(e.data) > maxPooled {
		e.data = nil
	}
	if cap(e.line) > maxPooled {
		e.line = nil
	}
	e.name, e.data = e.name[:0], e.data[:0]
	e.begun, e.hasData, e.dropped, e.handedOut = false, false, false, false
}
