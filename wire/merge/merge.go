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

// guards reports whether some calls are kept from the client, or held back until they are judged.
func (o Options) guards() bool { return o.Hide != nil || o.HoldCalls || o.HoldAll }

// judges reports whether calls are judged before they pass.
func (o Options) judges() bool { return o.HoldCalls || o.HoldAll }

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
	dialect  wire.Dialect
	o        Options
	of       Half
	split    sse.Splitter
	behind   sse.Splitter         // split as it was at the end, for what comes after all
	upstream *wire.Folder         // this upstream answer
	client   *wire.Folder         // what the client has got
	out      []byte               // what it gets next
	answer   int                  // number of the upstream answer, from 0
	released bool                 // what was held of this answer may go
	allow    func(wire.Call) bool // which of its calls may, nil for all
	all      []*Block             // with HoldAll: the answer
	terminal []*Block             // from the event on that ends it
	last     *Block               // the block that came last
	leftover []byte               // what stands behind the last block
	held     int                  // bytes that are held of this answer
	kept     int                  // bytes that are kept until the end
	limit    int
	given    int // bytes of a block that ends behind the end which the client has
	bom      int // bytes at the beginning of this answer that may be a byte order mark, those of it behind them
	ended    bool
	eof      bool
	open     bool // the client's stream stands within an event that was cut
	over     bool
	unjudged bool
	spoke    bool // this upstream answer has an event with data
	foreign  bool // it has something that is no part of an event stream
	unseen   bool // leftover may show what the client must not see
}

// New returns a Merger for one request of a client.
func New(d wire.Dialect, o Options) *Merger {
	s := &Merger{dialect: d, o: o, client: wire.NewFolder(d), limit: maxHeld}
	s.upstream = s.newFolder()
	s.of = codecOf(d).Merge(Client{s})
	return s
}

// newFolder folds one upstream answer.
func (s *Merger) newFolder() *wire.Folder {
	if s.o.judges() {
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
			effect, s.ended = s.upstream.Take(&b)
		} else {
			s.ended = s.upstream.Foresee(&s.split)
		}
		if s.upstream.Unclear() != "" {
			s.ended = true
			return s.give()
		}
		if ok {
			s.block(&Block{Block: b, Effect: effect})
		}
		if s.held+s.kept+s.split.Held() > s.limit {
			s.degrade()
		}
	}
	if len(p) > 0 {
		_, s.ended = s.upstream.Write(p)
		if !s.o.judges() {
			s.say(p)
		}
	}
	return s.give()
}

// say gives the client bytes that are not a whole block.
func (s *Merger) say(p []byte) {
	s.out = append(s.out, p...)
	s.client.Write(p)
}

// withoutBOM cuts the byte order mark off an answer that goes on with one before. In the middle of a stream the mark would
// be part of a field's name, and clients would drop the event.
func (s *Merger) withoutBOM(p []byte) []byte {
	for s.answer > 0 && s.bom < len(sse.BOM) && len(p) > 0 {
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

func (s *Merger) give() []byte {
	out := s.out
	s.out = nil
	return out
}

// block takes a block of the upstream answer.
func (s *Merger) block(b *Block) {
	if b.Kind == sse.LineEnd {
		if s.last != nil && s.last.shown {
			s.say(b.Raw)
		}
		if s.last != nil && s.last.kept {
			s.last.Raw = append(s.last.Raw, b.Raw...)
		}
		return
	}
	odd := b.Kind == sse.Fields && sse.Foreign(b.Raw)
	s.last, s.spoke, s.foreign = b, s.spoke || b.Kind == sse.Event, s.foreign || odd
	switch {
	case len(s.terminal) > 0:
		if s.follows(b) {
			s.terminate(b)
		}
	case s.o.HoldAll && !s.released && b.Kind != sse.Blank:
		s.all = append(s.all, s.keep(b))
	case odd && s.o.judges(): // calls in it would have to be judged
	case b.Kind != sse.Event:
		s.pass(b)
	default:
		s.of.Event(b)
	}
}

// keep makes the block one that outlives the next Write.
func (s *Merger) keep(b *Block) *Block {
	if !b.kept {
		b.Block, b.kept = sse.Parse(bytes.Clone(b.Raw), b.Kind), true
		if b.Effect != nil {
			b.Effect = b.Effect.Keep(&b.Block)
		}
		s.held += len(b.Raw)
	}
	return b
}

// follows reports whether a block may stand behind the end of the answer. Where calls are judged, it must not hold one:
// many clients read on there, and nothing judges what comes.
func (s *Merger) follows(b *Block) bool {
	return !s.o.judges() || !sse.Foreign(b.Raw) && (b.Kind != sse.Event || string(bytes.TrimSpace(b.Data)) == "[DONE]")
}

// terminate holds a block for the end.
func (s *Merger) terminate(b *Block) { s.terminal = append(s.terminal, s.keep(b)) }

// pass sends a block on as it came.
func (s *Merger) pass(b *Block) { s.send(b, b.Data) }

// send sends a block on with the data given.
func (s *Merger) send(b *Block, data []byte) {
	if s.open {
		s.say([]byte("\n\n"))
		s.open = false
	}
	from := len(s.out)
	if b.Kind != sse.Event || bytes.Equal(data, b.Data) {
		s.out = append(s.out, b.Raw...)
	} else {
		s.out = b.AppendWith(s.out, data)
	}
	if b.cut {
		s.client.Write(s.out[from:])
	} else {
		s.client.Take(&sse.Block{Name: b.Name, Data: data, Kind: b.Kind})
	}
	b.shown, s.open = true, b.cut
}

func (s *Merger) verdict(c wire.Call) Verdict {
	switch {
	case s.o.Hide != nil && s.o.Hide(c.Name):
		return Hidden
	case !s.released && s.o.HoldCalls:
		return Held
	case s.allow != nil && !s.allow(c):
		return Hidden
	}
	return Passed
}

// EOF ends the upstream answer, whether it is whole or was cut. An event without its last line end counts if its data are
// whole.
func (s *Merger) EOF() {
	if s.eof {
		return
	}
	s.eof, s.ended, s.behind = true, true, s.split
	rest := s.split.Rest()
	if len(rest) == 0 || s.over {
		return
	}
	b := Block{Block: sse.Parse(rest, sse.Event)}
	if len(b.Data) > 0 && (wire.Valid(b.Data) || sse.IsDone(b.Data)) {
		b.cut = true
		b.Effect, _ = s.upstream.Take(&b.Block) // many clients act on it as it is
		if s.upstream.Unclear() == "" {
			s.block(&b)
		}
		return
	}
	s.upstream.Write(rest)
	odd := len(b.Data) > 0 || sse.Foreign(rest)
	s.leftover, s.foreign = bytes.Clone(rest), s.foreign || odd
	// It may be what would have to be judged, or a piece of an object with a call that is hidden.
	s.unseen = s.o.judges() || s.o.guards() && bytes.IndexByte(b.Data, '{') >= 0
}

// Illegible reports, once this upstream answer has ended, whether it is not an event stream and must not be sent on: calls
// in it would have to be judged, or it continues one that is an event stream.
func (s *Merger) Illegible() bool {
	return s.foreign && !s.spoke && (s.o.judges() || s.answer > 0)
}

// Ended reports whether the terminal event of this upstream answer has been seen, or its end.
func (s *Merger) Ended() bool { return s.ended }

// Reply is this upstream answer as far as it has come, hidden calls included.
func (s *Merger) Reply() wire.Reply { return s.upstream.Reply() }

// Merged returns the answer as the client has it: all that was returned so far.
func (s *Merger) Merged() wire.Reply { return s.client.Reply() }

// Unjudged reports whether calls were dropped because they belong to a choice that no layer judges. The client's answer is
// incomplete then and has to fail.
func (s *Merger) Unjudged() bool { return s.unjudged }

// Degraded reports whether more than 16 MiB would have had to be held, or Degrade was called. From then on nothing is merged.
// Where calls are judged, nothing passes and the client's answer has to fail. Otherwise what was held passes, except for hidden
// calls, and then everything as it comes.
func (s *Merger) Degraded() bool { return s.over }

// Degrade is for a caller that has no room for what is held. It returns what passes of it.
func (s *Merger) Degrade() []byte {
	if !s.over {
		s.degrade()
	}
	return s.give()
}

func (s *Merger) degrade() {
	s.over = true
	rest := s.split.Rest()
	s.upstream.Write(rest)
	if s.o.judges() {
		s.all, s.terminal, s.held = nil, nil, 0
		return
	}
	s.release(nil)
	s.of.End()
	s.say(rest)
	s.all, s.terminal, s.held = nil, nil, 0
}

// Release lets the client have what was held of this answer: the calls that allow names, in their order, and with
// HoldAll its text. It does not end the answer. Calls of hidden tools are never asked for; a legacy call has no ID.
func (s *Merger) Release(allow func(wire.Call) bool) []byte {
	if s.over {
		return nil
	}
	s.release(allow)
	return s.give()
}

func (s *Merger) release(allow func(wire.Call) bool) {
	s.released, s.allow = true, allow
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
	s.all, s.terminal, s.leftover, s.last, s.held = nil, nil, nil, nil, 0
	s.released, s.allow = false, nil
	s.split, s.upstream, s.bom = sse.Splitter{}, s.newFolder(), 0
	s.ended, s.eof, s.spoke, s.foreign, s.unseen = false, false, false, false, false
	s.answer++
}

// Finish returns what ends the client's answer: its finish reason and usage and what follows them. Of an answer that
// was cut it returns nothing that upstream did not send.
func (s *Merger) Finish() []byte {
	s.EOF()
	if !s.over {
		if !s.o.HoldCalls && !s.o.HoldAll {
			s.release(nil) // calls without a name
		}
		s.of.End()
		if !s.unseen || !s.o.judges() && len(s.terminal) > 0 {
			s.say(s.leftover)
		}
	}
	s.all, s.terminal, s.leftover, s.held, s.split = nil, nil, nil, 0, s.behind
	if s.last != nil && s.last.cut && s.last.shown {
		s.given = len(s.last.Raw)
	}
	return s.give()
}

// Behind takes what upstream sends behind the answer's end, after Finish, and returns what of it the client may have.
func (s *Merger) Behind(p []byte) []byte {
	if !s.o.judges() {
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
			s.say(b.Raw[s.given:])
		}
		s.given = 0
	}
	return s.give()
}
