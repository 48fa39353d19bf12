// Package stitch makes one answer of several.
//
// When the proxy runs a tool of a layer itself, or has the model try again, one request of a client takes several
// upstream answers. The client sees one: text streams to it live, calls of hidden tools never appear, the next
// upstream answer continues the same message under the same ids, and usage is the sum. An answer that needs none of
// this passes byte for byte.
//
// The package turns bytes into bytes; it knows no HTTP and no clock.
package stitch

import (
	"bytes"

	"remora/wire"
)

// maxHeld bounds what is held back of one answer, in bytes.
const maxHeld = 16 << 20

// maxCalls bounds the calls, choices and output items that are told apart in one answer, as package wire does.
const maxCalls = 1024

// Options say what is held back. The zero value holds the end only.
type Options struct {
	// Hide tells that a tool is a layer's: the client never sees its calls. Nil hides nothing.
	Hide func(name string) bool
	// HoldCalls holds all tool calls until Release. Those of choices but the first, which nobody judges, never pass:
	// see Unjudged. So it is with HoldAll.
	HoldCalls bool
	// HoldAll holds the whole answer until Release; only comments and blank lines pass, which keep a connection alive.
	HoldAll bool
}

// guards tells that some calls must not reach the client unseen.
func (o Options) guards() bool { return o.Hide != nil || o.HoldCalls || o.HoldAll }

// judges tells that calls are judged before they pass.
func (o Options) judges() bool { return o.HoldCalls || o.HoldAll }

// Stitcher makes one stream of the streams that are written to it one after the other:
//
//	Write... until Ended or EOF, then Reply; then either
//	  [Release] Next, and Write the next upstream answer; or
//	  [Release] Finish.
//
// Next is for answers that the client need not see the end of: those with hidden or held calls, and all with HoldAll.
// The end of any other has gone out before it can be called. Bytes that methods return are the client's and belong to
// the caller.
type Stitcher struct {
	dialect  wire.Dialect
	o        Options
	voice    voice
	split    splitter
	behind   splitter     // split as it was at the end, for what comes after all
	upstream *wire.Folder // this upstream answer
	client   *wire.Folder // what the client has got
	out      []byte       // what it gets next
	answer   int          // number of the upstream answer, from 0
	judge    func(wire.Call) bool
	all      []*block // with HoldAll: the answer
	terminal []*block // from the event on that ends it
	last     *block   // the block that came last
	leftover []byte   // what stands behind the last block
	held     int      // bytes that are held of this answer
	kept     int      // bytes that are kept until the end
	limit    int
	given    int // bytes of a block that ends behind the end which the client has
	ended    bool
	eof      bool
	open     bool // the client's stream stands within an event that was cut
	over     bool
	unjudged bool
	spoke    bool // this upstream answer has an event with data
	foreign  bool // it has something that is no part of an event stream
	unseen   bool // leftover may show what the client must not see
}

// voice is what the dialects do differently.
type voice interface {
	// event takes an event that does not come after the terminal one.
	event(b *block)
	// release lets go of the held calls that the judge allows, and forgets the others.
	release()
	// end writes what is held for the end.
	end()
	// next begins the next upstream answer.
	next()
}

// New returns a Stitcher for one request of a client.
func New(d wire.Dialect, o Options) *Stitcher {
	s := &Stitcher{dialect: d, o: o, upstream: wire.NewFolder(d), client: wire.NewFolder(d), limit: maxHeld}
	if d == wire.Responses {
		s.voice = newResponses(s)
	} else {
		s.voice = newChat(s)
	}
	return s
}

// Write takes the next bytes of the upstream answer and returns those that the client may have now. Nothing of the
// terminal event ([DONE]; response.completed and its like) is among them, nor of what is held.
func (s *Stitcher) Write(p []byte) []byte {
	_, s.ended = s.upstream.Write(p)
	if s.over {
		if !s.o.judges() {
			s.out = append(s.out, p...)
		}
		return s.give()
	}
	for len(p) > 0 {
		b, n, ok := s.split.next(p)
		p = p[n:]
		if ok {
			s.block(&b)
		}
		if s.held+s.kept+len(s.split.raw) > s.limit {
			if s.degrade(); !s.o.judges() {
				s.out = append(s.out, p...)
			}
			break
		}
	}
	return s.give()
}

func (s *Stitcher) give() []byte {
	out := s.out
	s.out = nil
	s.client.Write(out)
	return out
}

// block takes a block of the upstream answer.
func (s *Stitcher) block(b *block) {
	if b.kind == lineEnd {
		if s.last != nil && s.last.shown {
			s.out = append(s.out, b.raw...)
		}
		if s.last != nil && s.last.kept {
			s.last.raw = append(s.last.raw, b.raw...)
		}
		return
	}
	odd := b.kind == fields && foreign(b.raw)
	s.last, s.spoke, s.foreign = b, s.spoke || b.kind == event, s.foreign || odd
	switch {
	case len(s.terminal) > 0:
		if s.follows(b) {
			s.terminate(b)
		}
	case s.o.HoldAll && s.judge == nil && b.kind != blank:
		s.all = append(s.all, s.keep(b))
	case odd && s.o.judges(): // calls in it would have to be judged
	case b.kind != event:
		s.pass(b)
	default:
		s.voice.event(b)
	}
}

// keep makes the block one that outlives the next Write.
func (s *Stitcher) keep(b *block) *block {
	if !b.kept {
		whole := parseBlock(bytes.Clone(b.raw), b.kind)
		b.raw, b.name, b.data, b.kept = whole.raw, whole.name, whole.data, true
		s.held += len(b.raw)
	}
	return b
}

// follows tells that a block may come behind the end of the answer. Where calls are judged, it must not bring one: many
// clients read on there, and nobody looks at what comes.
func (s *Stitcher) follows(b *block) bool {
	return !s.o.judges() || !foreign(b.raw) && (b.kind != event || string(bytes.TrimSpace(b.data)) == "[DONE]")
}

// terminate holds a block for the end.
func (s *Stitcher) terminate(b *block) { s.terminal = append(s.terminal, s.keep(b)) }

// pass sends a block on as it came.
func (s *Stitcher) pass(b *block) { s.send(b, b.data) }

// send sends a block on with the data given.
func (s *Stitcher) send(b *block, data []byte) {
	if s.open {
		s.out, s.open = append(s.out, "\n\n"...), false
	}
	if b.kind != event || bytes.Equal(data, b.data) {
		s.out = append(s.out, b.raw...)
	} else {
		s.out = b.appendWith(s.out, data)
	}
	b.shown, s.open = true, b.cut
}

// fate is what becomes of a call.
type fate uint8

const (
	unnamed fate = iota // held until its name is known
	passed
	held
	hidden
)

func (s *Stitcher) fate(c wire.Call) fate {
	switch {
	case s.o.Hide != nil && s.o.Hide(c.Name):
		return hidden
	case s.judge != nil:
		if s.judge(c) {
			return passed
		}
		return hidden
	case s.o.HoldCalls:
		return held
	}
	return passed
}

// EOF tells that the upstream answer came to its end, or to an end. An event whose last line end is missing counts if
// it is whole.
func (s *Stitcher) EOF() {
	if s.eof {
		return
	}
	s.eof, s.ended, s.behind = true, true, s.split
	rest := s.split.rest()
	if len(rest) == 0 || s.over {
		return
	}
	b := parseBlock(rest, event)
	if len(b.data) > 0 && (wire.Valid(b.data) || s.dialect == wire.Chat && isDone(b.data)) {
		b.cut = true
		s.block(&b)
		return
	}
	odd := len(b.data) > 0 || foreign(rest)
	s.leftover, s.foreign = bytes.Clone(rest), s.foreign || odd
	// It may be what would have to be judged, or a piece of an object with a call that is hidden.
	s.unseen = s.o.judges() || s.o.guards() && bytes.IndexByte(b.data, '{') >= 0
}

// Illegible tells, once this upstream answer has ended, that it is no event stream and must not pass for one: calls in it
// would have to be judged, or it continues one that is.
func (s *Stitcher) Illegible() bool {
	return s.foreign && !s.spoke && (s.o.judges() || s.answer > 0)
}

// Ended tells that the terminal event of this upstream answer has been seen, or its end.
func (s *Stitcher) Ended() bool { return s.ended }

// Reply is this upstream answer as far as it has come, hidden calls included.
func (s *Stitcher) Reply() wire.Reply { return s.upstream.Reply() }

// Merged is the answer as the client has it: all that was returned so far.
func (s *Stitcher) Merged() wire.Reply { return s.client.Reply() }

// Unjudged tells that calls were dropped because they are of a choice that nobody judges. The client's answer is not
// whole then and has to fail.
func (s *Stitcher) Unjudged() bool { return s.unjudged }

// Degraded tells that more than 16 MiB would have had to be held. From then on nothing is stitched: where calls are
// judged nothing passes, and the client's answer has to fail; else what was held passes, but for hidden calls, and then
// everything as it comes.
func (s *Stitcher) Degraded() bool { return s.over }

func (s *Stitcher) degrade() {
	s.over = true
	if s.o.judges() {
		s.all, s.terminal, s.held, s.split = nil, nil, 0, splitter{}
		return
	}
	s.judge = func(wire.Call) bool { return true }
	s.voiceAll()
	s.voice.release()
	s.voice.end()
	s.out = append(s.out, s.split.rest()...)
	s.all, s.terminal, s.held = nil, nil, 0
}

// Release lets the client have what was held of this answer: the calls that allow names, in their order, and with
// HoldAll its text. It does not end the answer. Calls of hidden tools are never asked for; a legacy call has no ID.
func (s *Stitcher) Release(allow func(wire.Call) bool) []byte {
	if s.over {
		return nil
	}
	s.judge = allow
	s.voiceAll()
	s.voice.release()
	return s.give()
}

// voiceAll handles what HoldAll held.
func (s *Stitcher) voiceAll() {
	all := s.all
	s.all = nil
	for _, b := range all {
		s.block(b)
	}
}

// Next ends this upstream answer without showing its end, and drops what is still held of it. The next Write begins
// the next one, which continues the client's.
func (s *Stitcher) Next() {
	s.EOF()
	s.voice.next()
	s.all, s.terminal, s.leftover, s.last, s.judge, s.held = nil, nil, nil, nil, nil, 0
	s.split, s.upstream = splitter{}, wire.NewFolder(s.dialect)
	s.ended, s.eof, s.spoke, s.foreign, s.unseen = false, false, false, false, false
	s.answer++
}

// Finish returns what ends the client's answer: its finish reason and usage and what follows them. Of an answer that
// was cut it returns nothing that upstream did not send.
func (s *Stitcher) Finish() []byte {
	s.EOF()
	if !s.over {
		if !s.o.HoldCalls && !s.o.HoldAll {
			s.judge = func(wire.Call) bool { return true }
			s.voice.release() // calls without a name
		}
		s.voice.end()
		if !s.unseen || !s.o.judges() && len(s.terminal) > 0 {
			s.out = append(s.out, s.leftover...)
		}
	}
	s.all, s.terminal, s.leftover, s.held, s.split = nil, nil, nil, 0, s.behind
	if s.last != nil && s.last.cut && s.last.shown {
		s.given = len(s.last.raw)
	}
	return s.give()
}

// Behind takes what upstream sends behind the answer's end, after Finish, and returns what of it the client may have.
func (s *Stitcher) Behind(p []byte) []byte {
	if !s.o.judges() {
		return p
	}
	for len(p) > 0 {
		b, n, ok := s.split.next(p)
		p = p[n:]
		switch {
		case !ok:
			if len(s.split.raw) > s.limit {
				s.split = splitter{}
			}
			continue
		case b.kind == lineEnd:
			b.shown = s.last != nil && s.last.shown
		default:
			b.shown = s.follows(&b)
		}
		if s.last = &b; b.shown {
			s.out = append(s.out, b.raw[s.given:]...)
		}
		s.given = 0
	}
	return s.give()
}

func isDone(data []byte) bool {
	first, _, _ := bytes.Cut(data, []byte{'\n'})
	return string(bytes.TrimSpace(first)) == "[DONE]"
}

// opaque tells that an event's data are no object, so that nobody can read anything in them.
func opaque(data []byte) bool {
	return len(data) == 0 || data[0] != '{' || !wire.Valid(data)
}
