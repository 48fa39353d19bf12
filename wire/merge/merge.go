// Package merge makes one answer of several upstream answers.
//
// When the proxy runs a layer's tool, or has the model try again, one request of a client takes several upstream
// answers. The client sees one: text streams to it live, calls of hidden tools never appear, each further answer
// continues the same message under the same ids, and usage counts the input of the last answer and the output of all.
// An answer that needs none of this passes byte for byte.
//
// A [Merger] merges streams: upstream's bytes are written to it, and it returns those that the client may have now.
// Bytes that are still to be judged are held back, at most 16 MiB. [Whole] merges answers that are not streamed. Each
// dialect has its [Codec]: a [Half] handles the events of one client's answer, and writes through a [Client].
//
// The package turns bytes into bytes: it does no HTTP, has no clock, runs no tools and judges nothing.
package merge

import (
	"bytes"

	"remora/wire"
	"remora/wire/sse"
)

// maxHeld limits the bytes held back of one answer.
const maxHeld = 16 << 20

// Options select the bytes to hold back. The zero value holds the end only.
type Options struct {
	// Hide reports whether a tool is a layer's: the client never sees its calls. Nil hides nothing.
	Hide func(name string) bool
	// HoldCalls holds all tool calls until Release. Those of choices but the first are not judged and never pass: see
	// Unjudged. The same holds for HoldAll.
	HoldCalls bool
	// HoldAll holds the whole answer until Release; only comments and blank lines pass, which keep a connection alive.
	HoldAll bool
}

// Merger makes one stream of the streams that are written to it one after the other:
//
//	Write... until Ended or EOF, then Reply; then either
//	  [Release] Next, and Write the next upstream answer; or
//	  [Release] Finish.
//
// Next is for answers that the client need not see the end of: those with hidden or held calls, and all with HoldAll.
// The end of any other has gone out before it can be called. Bytes that methods return are the client's and belong to
// the caller.
type Merger struct {
	dialect wire.Dialect
	client  Client
	of      Half
	limit   int
	over    bool
	reading
}

// reading is how far the current upstream answer has been read.
type reading struct {
	split    sse.Splitter
	atEnd    sse.Splitter // split as it was at the end, for what comes after all
	all      []*Block     // with HoldAll: the answer
	last     *Block       // the block that came last
	leftover []byte       // the bytes after the last block
	given    int          // bytes that the client has of a block that ends after the end, foreign lines included
	bom      int          // bytes of a byte order mark at the beginning that have come
	ended    bool
	eof      bool
	spoke    bool // it has an event with data
	foreign  bool // it has something that is no part of an event stream
	unseen   bool // leftover may show what the client must not see
}

// New returns a Merger for one request of a client.
func New(d wire.Dialect, o Options) *Merger {
	s := &Merger{dialect: d, client: Client{o: o, got: wire.NewFolder(d)}, limit: maxHeld}
	s.client.upstream = s.newFolder()
	s.of = codecOf(d).Merge(&s.client)
	return s
}

// newFolder folds one upstream answer.
func (s *Merger) newFolder() *wire.Folder {
	if s.client.Judges() {
		return wire.NewJudgedFolder(s.dialect)
	}
	return wire.NewFolder(s.dialect)
}

// Write takes the next bytes of the upstream answer and returns the bytes that the client may have now. They include
// nothing of the terminal event ([DONE]; response.completed and its like), nor any held bytes. A judged answer that has
// become unclear (see wire.Reply) has ended, and no further byte passes.
func (s *Merger) Write(p []byte) []byte {
	p = s.withoutBOM(p)
	for len(p) > 0 && !s.over {
		b, n, ok := s.split.Next(p)
		p = p[n:]
		var effect wire.Effect
		if ok {
			effect, s.ended = s.client.upstream.Take(&b)
		} else {
			s.ended = s.client.upstream.Foresee(&s.split)
		}
		if s.client.upstream.Unclear() != "" {
			s.ended = true
			return s.client.give()
		}
		if ok {
			s.block(&Block{Block: b, Effect: effect})
		}
		if s.client.held+s.client.kept+s.split.Held() > s.limit {
			s.degrade()
		}
	}
	if len(p) > 0 {
		_, s.ended = s.client.upstream.Write(p)
		if !s.client.Judges() {
			s.client.say(p)
		}
	}
	return s.client.give()
}

// withoutBOM cuts the byte order mark off an answer that goes on with one before. In the middle of a stream the mark would
// be part of a field's name, and clients would drop the event.
func (s *Merger) withoutBOM(p []byte) []byte {
	for s.client.answer > 0 && s.bom < len(sse.BOM) && len(p) > 0 {
		if p[0] != sse.BOM[s.bom] {
			p = append([]byte(sse.BOM[:s.bom]), p...)
			s.bom = len(sse.BOM)
			break
		}
		p = p[1:]
		s.bom++
	}
	return p
}

// block takes a block of the upstream answer.
func (s *Merger) block(b *Block) {
	if b.Kind == sse.LineEnd {
		if s.last != nil && s.last.shown {
			s.client.say(b.Raw)
		}
		if s.last != nil && s.last.kept {
			s.last.Raw = append(s.last.Raw, b.Raw...)
		}
		return
	}
	odd := b.Kind == sse.Fields && sse.Foreign(b.Raw)
	if b.Kind == sse.Event && s.client.Judges() && sse.Foreign(b.Raw) {
		b.Raw = sse.WithoutForeign(b.Raw) // calls in these lines would have to be judged
	}
	s.last, s.spoke, s.foreign = b, s.spoke || b.Kind == sse.Event, s.foreign || odd
	switch {
	case len(s.client.terminal) > 0:
		if s.follows(b) {
			s.client.Terminate(b)
		}
	case s.client.o.HoldAll && !s.client.released && b.Kind != sse.Blank:
		s.all = append(s.all, s.client.Keep(b))
	case odd && s.client.Judges(): // calls in it would have to be judged
	case b.Kind != sse.Event:
		s.client.Pass(b)
	default:
		s.of.Event(b)
	}
}

// follows reports whether a block may follow the end of the answer. Where calls are judged, it must not hold one:
// many clients read on there, and nothing judges what comes.
func (s *Merger) follows(b *Block) bool {
	return !s.client.Judges() || !sse.Foreign(b.Raw) && (b.Kind != sse.Event || string(bytes.TrimSpace(b.Data)) == "[DONE]")
}

// EOF ends the upstream answer, whether it is whole or was cut. An event without its last line end counts if its data are
// whole.
func (s *Merger) EOF() {
	if s.eof {
		return
	}
	s.eof, s.ended, s.atEnd = true, true, s.split
	rest := s.split.Rest()
	if len(rest) == 0 {
		return
	}
	b := Block{Block: sse.Parse(rest, sse.Event)}
	if wire.Valid(b.Data) || sse.IsDone(b.Data) {
		b.cut, s.given = true, len(rest)
		b.Effect, _ = s.client.upstream.Take(&b.Block) // many clients act on it as it is
		if s.client.upstream.Unclear() == "" {
			s.block(&b)
		}
		return
	}
	s.client.upstream.Write(rest)
	odd := len(b.Data) > 0 || sse.Foreign(rest)
	s.leftover, s.foreign = bytes.Clone(rest), s.foreign || odd
	// It may be part of a call that would have to be judged or hidden.
	s.unseen = s.client.Judges() || s.client.Guards() && bytes.IndexByte(b.Data, '{') >= 0
}

// Illegible reports, once this upstream answer has ended, whether it is not an event stream and must not be sent on: calls
// in it would have to be judged, or it continues one that is an event stream.
func (s *Merger) Illegible() bool {
	return s.foreign && !s.spoke && (s.client.Judges() || s.client.answer > 0)
}

// Ended reports whether the terminal event of this upstream answer has been seen, or its end.
func (s *Merger) Ended() bool { return s.ended }

// Reply is this upstream answer as far as it has come, hidden calls included.
func (s *Merger) Reply() wire.Reply { return s.client.upstream.Reply() }

// Merged returns the answer as the client has it: all that was returned so far.
func (s *Merger) Merged() wire.Reply { return s.client.got.Reply() }

// Unjudged reports whether calls were dropped because they belong to a choice that no layer judges. The client's answer is
// incomplete then and has to fail.
func (s *Merger) Unjudged() bool { return s.client.unjudged }

// Degraded reports whether more than 16 MiB would have had to be held, or Degrade was called. From then on nothing is merged.
// Where calls are judged, nothing passes and the client's answer has to fail. Otherwise what was held passes, except for hidden
// calls, and then everything as it comes.
func (s *Merger) Degraded() bool { return s.over }

// Degrade is for a caller that has no room for what is held. It returns what passes of it.
func (s *Merger) Degrade() []byte {
	if !s.over {
		s.degrade()
	}
	return s.client.give()
}

func (s *Merger) degrade() {
	s.over = true
	rest := s.split.Rest()
	s.client.upstream.Write(rest)
	if !s.client.Judges() {
		s.release(nil)
		s.of.End()
		s.client.say(rest)
	}
	s.all, s.client.terminal, s.client.held = nil, nil, 0
}

// Release lets the client have what was held of this answer: the calls that allow names, in their order, and with
// HoldAll its text. It does not end the answer. Calls of hidden tools are never asked for; a legacy call has no ID.
func (s *Merger) Release(allow func(wire.Call) bool) []byte {
	if s.over {
		return nil
	}
	s.release(allow)
	return s.client.give()
}

func (s *Merger) release(allow func(wire.Call) bool) {
	s.client.released, s.client.allow = true, allow
	all := s.all
	s.all = nil
	for _, b := range all {
		s.block(b)
	}
	s.of.Release()
}

// Next ends this upstream answer without showing its end, and drops what is still held of it. The next Write begins
// the next one, which continues the client's.
func (s *Merger) Next() {
	s.EOF()
	s.of.Next()
	s.reading = reading{}
	s.client.round = round{upstream: s.newFolder(), answer: s.client.answer + 1}
}

// Finish returns what ends the client's answer: its finish reason and usage and what follows them. Of an answer that
// was cut it returns nothing that upstream did not send.
func (s *Merger) Finish() []byte {
	s.EOF()
	if !s.over {
		if !s.client.Judges() {
			s.release(nil) // calls without a name
		}
		s.of.End()
		if !s.unseen || !s.client.Judges() && len(s.client.terminal) > 0 {
			s.client.say(s.leftover)
		}
	}
	s.all, s.client.terminal, s.leftover, s.client.held, s.split = nil, nil, nil, 0, s.atEnd
	if s.last == nil || !s.last.cut || !s.last.shown {
		s.given = 0
	}
	return s.client.give()
}

// ErrorEvent returns the event that ends the client's stream with a fault, to be sent after all that was returned so far.
func (s *Merger) ErrorEvent(f wire.Fault) []byte { return s.dialect.ErrorEvent(f, s.of.Number()) }

// AfterEnd takes what upstream sends after the answer's end, and returns what the client may have of it. Call it after Finish.
func (s *Merger) AfterEnd(p []byte) []byte {
	if !s.client.Judges() {
		return p
	}
	for len(p) > 0 {
		next, n, ok := s.split.Next(p)
		p = p[n:]
		b := Block{Block: next}
		switch {
		case !ok:
			if s.split.Held() > s.limit {
				s.split = sse.Splitter{}
			}
			continue
		case b.Kind == sse.LineEnd:
			b.shown = s.last != nil && s.last.shown
		default:
			b.shown = s.follows(&b)
		}
		if s.last = &b; b.shown {
			s.client.say(b.Raw[s.given:])
		}
		s.given = 0
	}
	return s.client.give()
}
