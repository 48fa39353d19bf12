package transcript

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"remora/memory/pack"
	"remora/wire"
)

// Names of a session's values within its group (see cache.Group).
const (
	headName    = "head"
	itemPrefix  = "i" // + sequence number, 8 bytes big endian: one item
	chainPrefix = "x" // + chain hash: the place that the chain ends at
	textPrefix  = "c" // + content hash of an input item: the latest place after such an item
	idPrefix    = "d" // + item id: what an item_reference stands for
	replyPrefix = "p" // + response id: the place after that response
	carryPrefix = "q" // + response id: what upstream has not seen of that response
	toldPrefix  = "o" // + response id: what layers had told the model by that response
	turnPrefix  = "t" // + turn id: the turn record
	leadPrefix  = "v" // + lead hash: one version of the leading system items and instructions
	blockPrefix = "b" // + hash: the text of a block that a layer recalled
	mediaPrefix = "m" // + digest: a large string of items
)

const (
	recordVersion = 1
	// ringSize is how many items the head remembers by content, to recognise a client that trims its history.
	ringSize = 128
	// maxTails is how many other ends of the transcript the head remembers.
	maxTails = 16
	// maxOpenCalls is how many unanswered calls of the head line the head remembers.
	maxOpenCalls = 256
	// maxBlocks is how many blocks the head remembers to be stored.
	maxBlocks = 32
	// maxBegun is of how many runs the head remembers where they began.
	maxBegun = 4
)

// ErrCorrupt is returned where a stored value is not what was written there.
var ErrCorrupt = errors.New("stored record is corrupt")

// idName makes a value's name of an id that upstream or a caller chose: any bytes, any length.
func idName(prefix, id string) string {
	if len(id) <= 96 {
		return prefix + id
	}
	sum := sha256.Sum256([]byte(id))
	return prefix + "#" + string(sum[:])
}

func chainName(h wire.Hash) string { return chainPrefix + string(h[:]) }

func textName(h wire.Hash) string { return textPrefix + string(h[:]) }

// position is a place in the transcript: after the item seq.
type position struct {
	Seq   uint64 // 0: before the first item
	Chain wire.Hash
	Units uint64 // how many units stand up to here
}

// after is the position behind one more item.
func (p position) after(m mark) position {
	if m.onChain {
		p.Chain = wire.Chain(p.Chain, m.content)
	}
	p.Units += m.units
	return p
}

// unitsBetween is how many units to has more than from, 0 if it has fewer.
func unitsBetween(from, to position) int {
	return int(min(to.Units-min(to.Units, from.Units), math.MaxInt32))
}

// echo is what the head remembers of an item to recognise it again in a client's resent history.
type echo struct {
	Content uint64 // leading bytes of the content hash
	Seq     uint64
}

// tail is an end of the transcript other than the head: a branch, a side line, an input without an answer.
type tail struct {
	Pos   position
	Lead  wire.Hash
	Side  bool
	Turns uint64
}

// head is what a session's next turn needs to know, read in one round trip.
type head struct {
	Pos      position
	Lead     wire.Hash   // leading items of the head line
	NextSeq  uint64      // the next sequence number to give
	Turns    uint64      // turns on the head line
	LastTurn string      // id of the turn that moved the head last
	Answered bool        // the head line holds an answer
	Delta    bool        // the client has been seen to send only what is new
	Forked   bool        // there may be items behind the head: an input without an answer, a longer branch
	Aside    wire.Hash   // the end of what the client itself put before its history, as it was stored last
	Ring     []echo      // the last items of the head line, oldest first
	Open     []string    // ids of unanswered calls on the head line
	Tails    []tail      // other ends, latest last
	Blocks   []wire.Hash // blocks that are stored, those used last at the end; only some, and those of an import
	Run      uint64      // names the round that the head line ends with, 0 where that is not known
	Begun    []position  // where runs began whose first request was only what is new, the latest last
	Bare     string      // id of the latest turn that stored no item, empty for none: see turnrecord.Record.Before
}

// parseHash reads a hash in hex.
func parseHash(s string) (h wire.Hash, err error) {
	if n, err := hex.Decode(h[:], []byte(s[:min(len(s), 2*len(h))])); err != nil || n != len(h) || len(s) != 2*len(h) {
		return h, fmt.Errorf("want a hash of %d hex digits, have %q", 2*len(h), s)
	}
	return h, nil
}

// hexText is up to 16 bytes in hex.
func hexText(b []byte) string {
	var room [2 * len(wire.Hash{})]byte
	return string(hex.AppendEncode(room[:0], b))
}

func (h *head) encode() []byte { return h.appendTo(make([]byte, 0, h.size())) }

// size is about how many bytes the head takes.
func (h *head) size() int { return 256 + len(h.Ring)*12 + (len(h.Tails)+len(h.Begun))*48 }

func (h *head) appendTo(b []byte) []byte {
	b = append(b, recordVersion)
	b = appendPosition(b, h.Pos)
	b = append(b, h.Lead[:]...)
	b = binary.AppendUvarint(b, h.NextSeq)
	b = binary.AppendUvarint(b, h.Turns)
	b = pack.AppendString(b, h.LastTurn)
	b = append(b, pack.Bit(h.Answered), pack.Bit(h.Delta), pack.Bit(h.Forked))
	b = append(b, h.Aside[:]...)
	b = binary.AppendUvarint(b, uint64(len(h.Ring)))
	for _, e := range h.Ring {
		b = binary.BigEndian.AppendUint64(b, e.Content)
		b = binary.AppendUvarint(b, e.Seq)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Open)))
	for _, id := range h.Open {
		b = pack.AppendString(b, id)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Tails)))
	for _, t := range h.Tails {
		b = appendPosition(b, t.Pos)
		b = append(b, t.Lead[:]...)
		b = append(b, pack.Bit(t.Side))
		b = binary.AppendUvarint(b, t.Turns)
	}
	b = binary.AppendUvarint(b, uint64(len(h.Blocks)))
	for _, block := range h.Blocks {
		b = append(b, block[:]...)
	}
	b = binary.BigEndian.AppendUint64(b, h.Run)
	b = binary.AppendUvarint(b, uint64(len(h.Begun)))
	for _, at := range h.Begun {
		b = appendPosition(b, at)
	}
	if h.Bare != "" {
		b = pack.AppendString(b, h.Bare)
	}
	return b
}

func decodeHead(b []byte) (head, error) {
	d := pack.Reader{Rest: b}
	if d.Byte() != recordVersion {
		return head{}, fmt.Errorf("read head: %w", ErrCorrupt)
	}
	h := head{
		Pos: readPosition(&d), Lead: d.Hash(), NextSeq: d.Uvarint(), Turns: d.Uvarint(), LastTurn: d.Text(),
		Answered: d.Byte() == 1, Delta: d.Byte() == 1, Forked: d.Byte() == 1, Aside: d.Hash(),
	}
	for n := d.Count(ringSize); n > 0; n-- {
		h.Ring = append(h.Ring, echo{Content: d.Uint64(), Seq: d.Uvarint()})
	}
	for n := d.Count(maxOpenCalls); n > 0; n-- {
		h.Open = append(h.Open, d.Text())
	}
	for n := d.Count(maxTails); n > 0; n-- {
		h.Tails = append(h.Tails, tail{Pos: readPosition(&d), Lead: d.Hash(), Side: d.Byte() == 1, Turns: d.Uvarint()})
	}
	if len(d.Rest) > 0 { // as in a head that an early version wrote without blocks
		for n := d.Count(maxBlocks); n > 0; n-- {
			h.Blocks = append(h.Blocks, d.Hash())
		}
	}
	if len(d.Rest) > 0 { // early versions did not name the run
		h.Run = d.Uint64()
	}
	if len(d.Rest) > 0 { // nor where runs began
		for n := d.Count(maxBegun); n > 0; n-- {
			h.Begun = append(h.Begun, readPosition(&d))
		}
	}
	if len(d.Rest) > 0 { // nor, like sessions where there is none, turns without an item
		h.Bare = d.Text()
	}
	if d.Bad {
		return head{}, fmt.Errorf("read head: %w", ErrCorrupt)
	}
	return h, nil
}

// remember takes one more item of the head line into the ring and into the list of open calls.
func (h *head) remember(it wire.Item, m mark, seq uint64) {
	if m.onChain {
		if len(h.Ring) >= ringSize {
			h.Ring = h.Ring[len(h.Ring)-ringSize+1:]
		}
		h.Ring = append(h.Ring, echo{Content: shortHash(m.content), Seq: seq})
	}
	h.noteCalls(it)
}

// noteCalls keeps account of the calls that wait for a result.
func (h *head) noteCalls(it wire.Item) {
	for _, call := range it.Calls {
		if key := openKey(call); key != "" && len(key) <= maxCallID && len(h.Open) < maxOpenCalls {
			h.Open = append(h.Open, key)
		}
	}
	if it.Kind == wire.ToolResult {
		if i := slices.Index(h.Open, openKey(it.Answers)); i >= 0 {
			h.Open = slices.Delete(h.Open, i, i+1)
		}
	}
}

// maxCallID is the length in bytes from which a call id is not remembered as open.
const maxCallID = 256

// openKey is how the head remembers a call that waits for its result: by its id, or, where the kind has none, by what
// pairs it instead. It is empty for a call that nothing can be matched with.
func openKey(c wire.Call) string {
	if c.Family == wire.FamilyLegacy {
		return c.Family + "\x00" + c.Name
	}
	return c.ID
}

// clone is a copy whose ring has room for more items.
func (h *head) clone(more int) *head {
	c := *h
	c.Ring = append(make([]echo, 0, len(h.Ring)+min(max(0, more), ringSize)), h.Ring...)
	c.Open, c.Tails = slices.Clone(h.Open), slices.Clone(h.Tails)
	return &c
}

// behindThought is the first item from i on that is new, where the head stands before it: if its line ends with reasoning,
// off the chain, since an answer was nothing else, what the request has of that is not.
func (h *head) behindThought(in *incoming, i int) int {
	if n := len(h.Ring); n == 0 || h.Ring[n-1].Seq >= h.Pos.Seq {
		return i
	}
	for i < len(in.items) && !in.marks[i].onChain {
		i++
	}
	return i
}

// begun notes where the run of an agent began. One that began with the conversation needs no note.
func (h *head) begun(at position) {
	if at.Seq == 0 {
		return
	}
	others := slices.DeleteFunc(slices.Clone(h.Begun), func(p position) bool { return p == at })
	h.Begun = append(others, at)[max(0, len(others)+1-maxBegun):]
}

func (h *head) addTail(t tail) {
	h.dropTail(t.Pos.Seq)
	if len(h.Tails) >= maxTails {
		h.Tails = slices.Delete(h.Tails, 0, len(h.Tails)-maxTails+1)
	}
	h.Tails = append(h.Tails, t)
}

// dropTail removes the end at seq and returns it, zero if there was none.
func (h *head) dropTail(seq uint64) tail {
	for i, t := range h.Tails {
		if t.Pos.Seq == seq && seq != 0 {
			h.Tails = slices.Delete(h.Tails, i, i+1)
			return t
		}
	}
	return tail{}
}

// reference is what is kept of an item under its id, for an item_reference to stand for.
type reference struct {
	Content wire.Hash
	Kind    wire.Kind
	Role    wire.Role
	Pair    wire.Call // the call that it makes or answers
}

func (r reference) encode() []byte {
	b := append(make([]byte, 0, 64), recordVersion, byte(r.Kind), byte(r.Role))
	b = append(b, r.Content[:]...)
	b = pack.AppendString(b, r.Pair.ID)
	b = pack.AppendString(b, r.Pair.Family)
	return pack.AppendString(b, r.Pair.Name)
}

func decodeReference(b []byte) (reference, error) {
	d := pack.Reader{Rest: b}
	if d.Byte() != recordVersion {
		return reference{}, fmt.Errorf("read reference: %w", ErrCorrupt)
	}
	r := reference{Kind: wire.Kind(d.Byte()), Role: wire.Role(d.Byte()), Content: d.Hash()}
	r.Pair = wire.Call{ID: d.Text(), Family: d.Text(), Name: d.Text()}
	if d.Bad {
		return reference{}, fmt.Errorf("read reference: %w", ErrCorrupt)
	}
	return r, nil
}

// place is what an index of the transcript points to.
type place struct {
	Pos  position
	Side bool
}

func (p place) encode() []byte { return p.appendTo(make([]byte, 0, placeBytes)) }

// placeBytes is about what a place takes.
const placeBytes = 32

func (p place) appendTo(b []byte) []byte {
	return appendPosition(append(b, recordVersion, pack.Bit(p.Side)), p.Pos)
}

func decodePlace(b []byte) (place, error) {
	d := pack.Reader{Rest: b}
	if d.Byte() != recordVersion {
		return place{}, fmt.Errorf("read place: %w", ErrCorrupt)
	}
	p := place{Side: d.Byte() == 1, Pos: readPosition(&d)}
	if d.Bad {
		return place{}, fmt.Errorf("read place: %w", ErrCorrupt)
	}
	return p, nil
}

func appendPosition(b []byte, p position) []byte {
	b = binary.AppendUvarint(b, p.Seq)
	b = append(b, p.Chain[:]...)
	return binary.AppendUvarint(b, p.Units)
}

func readPosition(d *pack.Reader) position {
	return position{Seq: d.Uvarint(), Chain: d.Hash(), Units: d.Uvarint()}
}
