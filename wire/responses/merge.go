package responses

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"remora/wire"
	"remora/wire/merge"
)

// merging is the merge.Codec.
type merging struct{}

var _ merge.Codec = merging{}

// merger merges streams of Responses events.
type merger struct {
	s *merge.Client
	// first is the number of the first answer that the client has seen something of, -1 before it; head are the
	// members of its response object that all others get.
	first  int
	head   map[string][]byte
	opened map[string]int // by type: the answer whose beginning was shown
	items  []*item        // of this answer
	held   []part
	shown  []output // of the answers before
	seq    int      // of the next event
	place  int      // of the next output item
	// ours: sequence numbers and output indexes are no longer upstream's.
	ours   bool
	listed bool   // some answer listed its output at its end
	prior  []byte // usage of the answers before
}

// item is an item of this answer's output.
type item struct {
	index   int // upstream's
	out     int // the client's, -1 before its first event has gone out
	known   bool
	late    bool // events are held since it is not known what it is
	calls   bool // it is a call
	call    wire.Call
	verdict merge.Verdict
	id      string
	done    []byte // the item as its last event has it
	final   []byte // the item as the end of the answer lists it
}

// part is a held event of an item.
type part struct {
	b  *merge.Block
	of *item
}

// output is an item that the client has seen.
type output struct {
	place int
	raw   []byte
}

func (merging) Merge(s *merge.Client) merge.Half {
	return &merger{s: s, first: -1, head: make(map[string][]byte), opened: make(map[string]int)}
}

// seen is an event with its type and its item's id as text.
type seen struct {
	event
	typ, id string
}

func see(b *merge.Block) seen {
	e := seen{event: *b.Effect.(*event)} //nolint:forcetypeassert // of this dialect's Stream
	e.typ = string(e.Type)
	if e.id = wire.Text(wire.Member(e.Item, "id")); e.id == "" {
		e.id = wire.Text(e.ItemID)
	}
	return e
}

func (r *merger) Event(b *merge.Block) {
	h := see(b)
	switch {
	case h.last(b.Name):
		r.s.Terminate(b)
		r.list(wire.Member(see(b).Response, "output")) // of the copy that is kept: h aliases bytes that are overwritten
	case !wire.IsObject(b.Data):
		if !r.s.Guards() || r.harmless(h) {
			r.s.Pass(b)
		}
	case h.Index != nil || h.Item != nil || isInput(h.typ):
		r.itemEvent(b, h)
	case h.typ == "response.created" || h.typ == "response.in_progress" || h.typ == "response.queued":
		if answer, ok := r.opened[h.typ]; ok && answer < r.s.Answer() {
			return
		}
		r.opened[h.typ] = r.s.Answer()
		r.send(b, nil)
	default:
		r.send(b, nil)
	}
}

// itemEvent takes an event of an output item.
func (r *merger) itemEvent(b *merge.Block, h seen) {
	it := r.about(h)
	if it == nil {
		if !r.s.Guards() {
			r.send(b, nil)
		}
		return
	}
	if h.Item != nil {
		r.learn(it, h.Item)
		if h.typ == "response.output_item.done" && it.verdict != merge.Hidden {
			it.done = bytes.Clone(h.Item)
			r.s.Hold(len(it.done))
		}
	}
	if !it.known && r.s.Guards() && isInput(h.typ) {
		it.late = true
		r.hold(b, it)
		return
	}
	switch {
	case it.verdict == merge.Hidden:
	case it.verdict != merge.Passed:
		r.hold(b, it)
	default:
		r.send(b, it)
	}
}

// harmless reports whether an event that cannot be rewritten shows nothing that the client must not see.
func (r *merger) harmless(h seen) bool {
	it := r.about(h)
	if it == nil {
		return false
	}
	if h.Item != nil {
		r.learn(it, h.Item)
	}
	return it.verdict == merge.Passed && (it.known || !isInput(h.typ))
}

// isInput reports whether only calls have events of this type.
func isInput(typ string) bool {
	return strings.HasPrefix(typ, "response.function_call_arguments.") || strings.HasPrefix(typ, "response.custom_tool_call_input.")
}

func (r *merger) hold(b *merge.Block, it *item) {
	r.ours = true
	r.held = append(r.held, part{r.s.Keep(b), it})
}

// about returns the item of an event, by its output_index or else by its id. It is nil if the index is invalid, or
// there are too many items.
func (r *merger) about(h seen) *item {
	n, ok := wire.Index(h.Index, -1)
	if !ok {
		return nil
	}
	for _, it := range slices.Backward(r.items) {
		if it.index == n || n < 0 && it.id == h.id {
			return it
		}
	}
	if n < 0 {
		n = 2*wire.MaxIndex + len(r.items) // no event names such an index
	}
	if it := r.begin(n); it != nil {
		it.id = h.id
		return it
	}
	return nil
}

func (r *merger) begin(n int) *item {
	if len(r.items) >= wire.MaxIndex {
		return nil
	}
	it := &item{index: n, out: -1, verdict: merge.Passed}
	r.items = append(r.items, it)
	return it
}

// learn takes what an item is from an event that shows it: the first one, or the first that shows a call.
func (r *merger) learn(it *item, raw []byte) {
	if it.calls {
		return
	}
	parsed := wire.NewDecoder(Dialect).Item(raw)
	it.known, it.late = true, false
	if parsed.ID != "" {
		it.id = parsed.ID
	}
	if parsed.HasJudged() {
		it.call, it.calls = parsed.Parts[0].Call, true
		it.verdict = r.s.Verdict(it.call)
		r.ours = r.ours || it.verdict == merge.Hidden
	}
	r.flush()
}

func (r *merger) Release() {
	for _, it := range r.items {
		if it.verdict == merge.Held || it.late {
			it.known, it.verdict = true, r.s.Verdict(it.call)
			r.ours = r.ours || it.verdict == merge.Hidden // the terminal event may list what no other event has
		}
	}
	r.flush()
}

// flush sends the held events of the items that pass by now.
func (r *merger) flush() {
	parts := r.held
	r.held = nil
	for _, p := range parts {
		switch {
		case p.of.known && p.of.verdict == merge.Passed:
			r.send(p.b, p.of)
		case p.of.verdict != merge.Hidden:
			r.held = append(r.held, p)
		}
	}
}

// later reports whether this answer continues one that the client has begun to see.
func (r *merger) later() bool { return r.first >= 0 && r.s.Answer() > r.first }

// send sends an event on, with the client's numbers.
func (r *merger) send(b *merge.Block, of *item) {
	data := wire.Edit(b.Data, func(_ int, p wire.Child) ([]byte, bool) {
		switch string(p.Name) {
		case "sequence_number":
			return r.number(p.Value), true
		case "output_index":
			if of != nil {
				return r.placed(of, p.Value), true
			}
		case "response":
			return r.response(p.Value), true
		}
		return p.Value, true
	})
	if r.first < 0 {
		r.first = r.s.Answer()
	}
	r.s.Send(b, data)
}

// number returns the sequence number that the client gets in place of upstream's.
func (r *merger) number(raw []byte) []byte {
	n, err := strconv.Atoi(string(raw))
	switch {
	case err != nil:
		return raw
	case r.ours:
		n = r.seq
	}
	r.seq = n + 1
	return strconv.AppendInt(nil, int64(n), 10)
}

func (r *merger) Number() int { return r.seq }

// placed returns the output index that the client gets in place of upstream's. Its items stand in the order in which they
// began, since clients build their list that way.
func (r *merger) placed(it *item, raw []byte) []byte {
	if it.out < 0 {
		if it.out = r.place; !r.ours {
			it.out = it.index
		}
		r.place = max(r.place, it.out+1)
	}
	if n, ok := wire.Index(raw, -1); ok && n == it.out {
		return raw
	}
	return strconv.AppendInt(nil, int64(it.out), 10)
}

// response writes a response object with the identity of the first one.
func (r *merger) response(raw []byte) []byte {
	return wire.Edit(raw, func(_ int, p wire.Child) ([]byte, bool) {
		return r.identity(p), true
	})
}

func (r *merger) identity(p wire.Child) []byte {
	name := string(p.Name)
	if name == "tools" {
		return r.s.OwnTools(p.Value)
	}
	if name != "id" && name != "created_at" {
		return p.Value
	}
	switch first := r.head[name]; {
	case first == nil && len(p.Value) <= merge.MaxIdentity:
		r.head[name] = bytes.Clone(p.Value)
	case first != nil && r.later():
		return first
	}
	return p.Value
}

func (r *merger) Next() {
	r.prior = merge.ContinueUsage(r.prior, r.s.Usage())
	for _, o := range r.collect() {
		r.s.HoldToTheEnd(len(o.raw))
		r.shown = append(r.shown, o)
	}
	r.items, r.held = nil, nil
	r.ours = r.ours || r.first >= 0
}

// list takes the output that the terminal event lists. Items that no event has shown are judged like any other.
func (r *merger) list(raw []byte) {
	i := 0
	for p := range wire.Children(raw) {
		if i == wire.MaxIndex {
			break
		}
		it := r.match(i, p.Value)
		i++
		if it == nil {
			continue
		}
		r.learn(it, p.Value)
		it.final, r.listed = p.Value, true
	}
}

// match finds the item that is listed as the i-th: by its id, or else by its place.
func (r *merger) match(i int, raw []byte) *item {
	id := wire.Text(wire.Member(raw, "id"))
	k := slices.IndexFunc(r.items, func(it *item) bool { return it.final == nil && id != "" && it.id == id })
	if k < 0 {
		k = slices.IndexFunc(r.items, func(it *item) bool {
			return it.final == nil && it.index == i && (it.id == "" || id == "")
		})
	}
	if k < 0 {
		return r.begin(wire.MaxIndex + i) // no event names such an index
	}
	return r.items[k]
}

func (r *merger) End() {
	for i, b := range r.s.Terminal() {
		if !wire.IsObject(b.Data) {
			if i > 0 || !r.ours {
				r.s.Pass(b) // else it may list what the client must not see
			}
			continue
		}
		r.s.Send(b, wire.Edit(b.Data, func(_ int, p wire.Child) ([]byte, bool) {
			switch string(p.Name) {
			case "sequence_number":
				return r.number(p.Value), true
			case "response":
				return r.whole(p.Value), true
			}
			return p.Value, true
		}))
	}
	r.held = nil
}

// whole writes the response object of the terminal event: what the client saw, and the usage of all answers.
func (r *merger) whole(raw []byte) []byte {
	return wire.Edit(raw, func(_ int, p wire.Child) ([]byte, bool) {
		switch {
		case string(p.Name) == "usage":
			return merge.ContinueUsage(r.prior, p.Value), true
		case string(p.Name) == "output" && r.ours && r.listed && p.Value[0] == '[':
			seen := slices.Concat(r.shown, r.collect())
			slices.SortStableFunc(seen, func(a, b output) int { return cmp.Compare(a.place, b.place) })
			return rewriteList(p.Value, seen), true
		}
		return r.identity(p), true
	})
}

// rewriteList returns the list that holds these elements, as it is if it does already.
func rewriteList(list []byte, elements []output) []byte {
	i, same := 0, true
	for p := range wire.Children(list) {
		same = same && i < len(elements) && bytes.Equal(p.Value, elements[i].raw)
		i++
	}
	if same && i == len(elements) {
		return list
	}
	out := []byte{'['}
	for i, e := range elements {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e.raw...)
	}
	return append(out, ']')
}

// collect returns what the client has seen of this answer's output.
func (r *merger) collect() []output {
	var out []output
	for _, it := range r.items {
		raw := it.final
		if raw == nil {
			raw = it.done
		}
		if raw == nil || it.verdict != merge.Passed {
			continue
		}
		place := it.out
		if place < 0 {
			place = math.MaxInt // listed, but never streamed: it must not take the place of one that will be
		}
		out = append(out, output{place, raw})
	}
	return out
}

// Bodies puts the outputs of several answers together.
func (merging) Bodies(w *merge.Bodies) []byte {
	if wire.Member(w.Last(), "output") == nil {
		return w.Last()
	}
	var seen []output
	for i, body := range w.All() {
		for p := range wire.Children(wire.Member(body, "output")) {
			it := wire.NewDecoder(Dialect).Item(p.Value)
			if it.HasJudged() && w.Hides(i, it.Parts[0].Call) {
				continue
			}
			seen = append(seen, output{raw: p.Value})
		}
	}
	return w.Edit(func(p wire.Child) []byte {
		if string(p.Name) != "output" || p.Value[0] != '[' {
			return p.Value
		}
		return rewriteList(p.Value, seen)
	}, "id", "created_at")
}
