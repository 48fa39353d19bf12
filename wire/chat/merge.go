package chat

import (
	"slices"

	"remora/wire"
	"remora/wire/merge"
	"remora/wire/sse"
)

// merging is the merge.Codec.
type merging struct{}

var _ merge.Codec = merging{}

// merger merges streams of chunks.
type merger struct {
	s *merge.Client
	// head are members of the first answer that the client has seen something of, which all chunks get.
	head   map[string][]byte
	first  int         // the number of that answer, -1 before it
	roles  map[int]int // by choice: the answer that its role was shown in
	ended  map[int]int // by choice: the answer that its finish reason was shown in
	calls  []*call     // of choice 0 in this answer, in the order of their first delta
	held   []*chunk    // chunks with held calls
	ending []*chunk    // the finish reason of choice 0, and what comes after it
	index  int         // of the next call that the client gets
	// dropped: the client does not get all calls. showed is the answer in which it last got one, -1 for none.
	dropped bool
	showed  int
	said    bool   // the client has some text of choice 0
	spoke   int    // the latest answer that the client has text of choice 0 from, of those that continue the first
	prior   []byte // usage of the answers before
}

// call is a call of choice 0.
type call struct {
	told    *streamedCall
	verdict merge.Verdict
	out     int  // number in the client's, -1 before its first delta has gone out
	late    bool // its name came after its first delta, which is held
}

// chunk is an event and what of it is still to be sent.
type chunk struct {
	b     *merge.Block
	calls []*call // of the elements of choice 0's calls in their order, nil for those not to be sent, as are those after its end
	// rest is everything but calls and finish reason; ends is the finish reason.
	rest, ends bool
}

func (merging) Merge(s *merge.Client) merge.Half {
	return &merger{
		s: s, first: -1, showed: -1,
		head: make(map[string][]byte), roles: make(map[int]int), ended: make(map[int]int),
	}
}

func (c *merger) Event(b *merge.Block) {
	if sse.IsDone(b.Data) {
		c.s.Terminate(b)
		return
	}
	k := chunk{b: b, rest: true}
	about, _ := b.Effect.(*effect)
	if about == nil { // an event after an error that is no JSON, which has ended the answer
		about = new(effect)
	}
	for _, told := range about.Touched {
		k.calls = append(k.calls, c.call(told))
	}
	k.ends = about.Ends
	if !wire.IsObject(b.Data) {
		// It can't be cut to what the client may see; some would read a call in it nevertheless.
		if len(k.calls) == 0 || !c.s.Guards() {
			c.s.Pass(b)
		}
		return
	}
	switch {
	case about.Failed && about.Choices == 0:
		c.s.Terminate(b)
		return
	case about.Choices == 0 && len(c.ending) > 0:
		c.hold(&c.ending, k)
		return
	}
	if c.plain(&k, about) {
		c.remember(b.Data)
		c.s.Pass(b)
		return
	}
	holds := slices.ContainsFunc(k.calls, (*call).waits)
	pending := k.ends && c.pending()
	if !holds && !pending {
		c.show(&k)
		return
	}
	k.ends = false // the finish reason comes with the ending
	if about.Says || about.Choices > about.First || slices.ContainsFunc(k.calls, (*call).goes) {
		c.show(&k)
		k.rest = false
	}
	if holds {
		c.hold(&c.held, chunk{b: b, calls: waiting(k.calls), rest: k.rest})
		k.rest = false
	}
	if pending {
		c.hold(&c.ending, chunk{b: b, rest: k.rest, ends: true})
	}
}

func (c *merger) hold(list *[]*chunk, k chunk) {
	k.b = c.s.Keep(k.b)
	*list = append(*list, &k)
}

func (k *call) waits() bool {
	return k != nil && (k.verdict == merge.Unnamed || k.verdict == merge.Held)
}
func (k *call) goes() bool { return k != nil && k.verdict == merge.Passed }

// waiting returns calls with nil in the place of those that do not wait.
func waiting(calls []*call) []*call {
	out := slices.Clone(calls)
	for i, k := range out {
		if !k.waits() {
			out[i] = nil
		}
	}
	return out
}

// pending reports whether the client lacks calls of this answer, so that this may not be the last one.
func (c *merger) pending() bool {
	return slices.ContainsFunc(c.calls, func(k *call) bool { return k.verdict != merge.Passed })
}

// plain reports whether a chunk only continues what choice 0 of the first answer says, as nearly all do: show would change
// nothing in it, and note nothing but what remember does. Show needs a few KiB of stack to find that out, which a stream
// then keeps while it waits for its next event.
func (c *merger) plain(k *chunk, about *effect) bool {
	return c.said && c.first == c.s.Answer() && about.Choices == 1 && about.First == 1 &&
		!about.Role && !about.Usage && !about.Repeats && !k.ends && len(k.calls) == 0
}

// call returns what becomes of a call, nil where there is none.
func (c *merger) call(told *streamedCall) *call {
	if told == nil {
		return nil
	}
	i := slices.IndexFunc(c.calls, func(k *call) bool { return k.told == told })
	if i < 0 {
		i = len(c.calls)
		c.calls = append(c.calls, &call{told: told, out: -1})
	}
	c.decide(c.calls[i])
	return c.calls[i]
}

// decide gives a call its verdict once its name is known.
func (c *merger) decide(k *call) {
	if k.verdict != merge.Unnamed {
		return
	}
	call := k.told.Call()
	if call.Name == "" && c.s.Guards() {
		k.late = true
		return
	}
	k.verdict = c.s.Verdict(call)
	c.dropped = c.dropped || k.verdict == merge.Hidden
	if k.late {
		c.flush()
	}
}

func (c *merger) Release() {
	for _, k := range c.calls {
		if k.waits() {
			k.verdict = c.s.Verdict(k.told.Call())
			c.dropped = c.dropped || k.verdict == merge.Hidden
		}
	}
	c.flush()
}

// flush sends what was held of the calls that pass by now, and of chunks none of whose calls waits any more.
func (c *merger) flush() {
	chunks := c.held
	c.held = nil
	for _, k := range chunks {
		waits := slices.ContainsFunc(k.calls, (*call).waits)
		if !waits || slices.ContainsFunc(k.calls, (*call).goes) {
			c.show(k) // without a call, too, for what else is in it
			k.rest = false
		}
		if waits {
			k.calls = waiting(k.calls)
			c.held = append(c.held, k)
		}
	}
}

func (c *merger) End() {
	c.dropped = c.dropped || len(c.held) > 0
	for _, k := range c.ending {
		c.show(k)
	}
	for i, b := range c.s.Terminal() {
		if i == 0 && !sse.IsDone(b.Data) { // an error
			c.show(&chunk{b: b, rest: true})
			continue
		}
		c.s.Pass(b)
	}
	c.held, c.ending = nil, nil
}

func (c *merger) Next() {
	c.prior = merge.ContinueUsage(c.prior, c.s.Usage())
	c.calls, c.held, c.ending = nil, nil, nil
	c.dropped = c.dropped || c.first >= 0
}

func (*merger) Number() int { return 0 }
