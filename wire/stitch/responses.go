package stitch

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"remora/wire"
)

// responses stitches streams of Responses events.
type responses struct {
	s *Stitcher
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
	// ours tells that numbers and places are no longer upstream's.
	ours   bool
	listed bool   // some answer listed its output at its end
	prior  []byte // usage of the answers before
}

// item is an item of this answer's output.
type item struct {
	index int // upstream's
	out   int // the client's, -1 before its first event has gone out
	known bool
	late  bool // events are held since nobody knows what it is
	calls bool // it is a call
	call  wire.Call
	fate  fate
	id    string
	done  []byte // the item as its last event has it
	final []byte // the item as the end of the answer lists it
}

// part is a held event of an item.
type part struct {
	b  *block
	of *item
}

// output is an item that the client has seen.
type output struct {
	place int
	raw   []byte
}

func newResponses(s *Stitcher) *responses {
	return &responses{s: s, first: -1, head: make(map[string][]byte), opened: make(map[string]int)}
}

// happening is what an event says of itself.
type happening struct {
	typ      string
	response []byte
	item     []byte
	at       []byte
	id       string // of the item that it is about
}

func readEvent(b *block) (h happening) {
	for p := range wire.Parts(b.data) {
		switch string(p.Name) {
		case "type":
			h.typ = wire.Text(p.Value)
		case "response":
			h.response = p.Value
		case "item":
			h.item = p.Value
		case "output_index":
			h.at = p.Value
		case "item_id":
			h.id = wire.Text(p.Value)
		}
	}
	if h.typ == "" {
		h.typ = string(b.name)
	}
	if id := wire.Text(wire.Member(h.item, "id")); id != "" {
		h.id = id
	}
	return h
}

func terminal(typ string) bool {
	switch typ {
	case "response.completed", "response.incomplete", "response.failed", "error":
		return true
	}
	return false
}

func (r *responses) event(b *block) {
	h := readEvent(b)
	switch {
	case terminal(h.typ), terminal(string(b.name)):
		r.s.terminate(b)
		r.list(wire.Member(readEvent(b).response, "output"))
	case opaque(b.data):
		if !r.s.o.guards() || h.item == nil || r.harmless(h) {
			r.s.pass(b)
		}
	case h.at != nil || h.item != nil || isInput(h.typ):
		r.itemEvent(b, h)
	case h.typ == "response.created" || h.typ == "response.in_progress" || h.typ == "response.queued":
		if answer, ok := r.opened[h.typ]; ok && answer < r.s.answer {
			return
		}
		r.opened[h.typ] = r.s.answer
		r.send(b, nil)
	default:
		r.send(b, nil)
	}
}

// itemEvent takes an event of an output item.
func (r *responses) itemEvent(b *block, h happening) {
	it := r.about(h)
	if it == nil {
		if !r.s.o.guards() {
			r.send(b, nil)
		}
		return
	}
	if h.item != nil {
		r.learn(it, h.item)
		if h.typ == "response.output_item.done" && it.fate != hidden {
			it.done = bytes.Clone(h.item)
			r.s.held += len(it.done)
		}
	}
	if !it.known && r.s.o.guards() && isInput(h.typ) {
		it.late = true
		r.hold(b, it)
		return
	}
	switch {
	case it.known && it.fate == hidden:
		r.ours = true
	case it.known && it.fate != passed:
		r.hold(b, it)
	default:
		r.send(b, it)
	}
}

// harmless tells that an event which can't be rewritten shows nothing that the client must not see.
func (r *responses) harmless(h happening) bool {
	it := r.about(h)
	if it == nil {
		return false
	}
	r.learn(it, h.item)
	return it.known && it.fate == passed
}

// isInput tells that only a call's items have events of this type.
func isInput(typ string) bool {
	return strings.HasPrefix(typ, "response.function_call_arguments.") || strings.HasPrefix(typ, "response.custom_tool_call_input.")
}

func (r *responses) hold(b *block, it *item) {
	r.ours = true
	r.held = append(r.held, part{r.s.keep(b), it})
}

// about is the item of an event: that of its output_index, or without one that of its id. It is nil where the index is
// none, or there are too many items.
func (r *responses) about(h happening) *item {
	n, ok := index(h.at, -1)
	if !ok {
		return nil
	}
	for _, it := range slices.Backward(r.items) {
		if it.index == n && n >= 0 || n < 0 && it.id == h.id {
			return it
		}
	}
	if n < 0 {
		n = 2*maxCalls + len(r.items) // no event names such an index
	}
	if it := r.begin(n); it != nil {
		it.id = h.id
		return it
	}
	return nil
}

func (r *responses) begin(n int) *item {
	if len(r.items) >= maxCalls {
		return nil
	}
	it := &item{index: n, out: -1, fate: passed}
	r.items = append(r.items, it)
	return it
}

// learn takes what an item is from an event that shows it: the first one, or the first that shows a call.
func (r *responses) learn(it *item, raw []byte) {
	if it.calls {
		return
	}
	parsed, err := wire.ParseItem(wire.Responses, raw)
	if err != nil {
		return
	}
	it.known = true
	if parsed.ID != "" {
		it.id = parsed.ID
	}
	if len(parsed.Calls) > 0 {
		it.call, it.calls = parsed.Calls[0], true
		it.fate = r.s.fate(it.call)
		r.ours = r.ours || it.fate == hidden
	}
	if it.late {
		r.flush()
	}
}

func (r *responses) release() {
	for _, it := range r.items {
		if it.fate == held || !it.known && it.late {
			it.known, it.fate = true, r.s.fate(it.call)
		}
	}
	r.flush()
}

// flush sends the held events of the items that pass by now.
func (r *responses) flush() {
	parts := r.held
	r.held = nil
	for _, p := range parts {
		switch {
		case p.of.known && p.of.fate == passed:
			r.send(p.b, p.of)
		case !p.of.known || p.of.fate != hidden:
			r.held = append(r.held, p)
		}
	}
}

// later tells that this answer continues one that the client has begun to see.
func (r *responses) later() bool { return r.first >= 0 && r.s.answer > r.first }

// send sends an event on, with the client's numbers.
func (r *responses) send(b *block, of *item) {
	data := wire.Edit(b.data, func(_ int, p wire.Part) ([]byte, bool) {
		switch string(p.Name) {
		case "sequence_number":
			return with(b.data, p, r.number(p.Value)), true
		case "output_index":
			if of != nil {
				return with(b.data, p, r.placed(of, p.Value)), true
			}
		case "response":
			return with(b.data, p, r.response(p.Value)), true
		}
		return b.data[p.Start:p.End], true
	})
	if r.first < 0 {
		r.first = r.s.answer
	}
	r.s.send(b, data)
}

// number is the sequence number that the client gets in place of upstream's.
func (r *responses) number(raw []byte) []byte {
	n, err := strconv.Atoi(string(raw))
	switch {
	case err != nil || n < 0:
		return raw
	case r.ours || r.later():
		n = r.seq
	}
	r.seq = n + 1
	return strconv.AppendInt(nil, int64(n), 10)
}

// placed is the output index that the client gets in place of upstream's. Its items stand in the order in which they
// began, since clients build their list that way.
func (r *responses) placed(it *item, raw []byte) []byte {
	if it.out < 0 {
		if it.out = r.place; !r.ours && !r.later() {
			it.out = it.index
		}
		r.place = max(r.place, it.out+1)
	}
	if n, ok := index(raw, -1); ok && n == it.out {
		return raw
	}
	return strconv.AppendInt(nil, int64(it.out), 10)
}

// response writes a response object with the identity of the first one.
func (r *responses) response(raw []byte) []byte {
	return wire.Edit(raw, func(_ int, p wire.Part) ([]byte, bool) {
		return with(raw, p, r.identity(p)), true
	})
}

func (r *responses) identity(p wire.Part) []byte {
	name := string(p.Name)
	if name == "tools" {
		return ownTools(p.Value, r.s.o.Hide)
	}
	if name != "id" && name != "created_at" {
		return p.Value
	}
	if r.later() && r.head[name] != nil {
		return r.head[name]
	}
	if !r.later() && r.head[name] == nil && len(p.Value) <= 4096 {
		r.head[name] = bytes.Clone(p.Value)
	}
	return p.Value
}

func (r *responses) next() {
	r.prior = bytes.Clone(addUsage(r.prior, r.s.Reply().Usage))
	for _, o := range r.collect() {
		r.s.kept += len(o.raw)
		r.shown = append(r.shown, o)
	}
	r.items, r.held = nil, nil
}
