package session

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"

	"remora/memory/recordcodec"
	"remora/wire"
	"remora/wire/dialects"
)

// Names of a session's values within its group (see cache.Group).
const (
	headName           = "head"
	itemPrefix         = "i" // + sequence number, 8 bytes big endian: one item
	chainPrefix        = "x" // + chain hash: the place at the end of the chain
	textPrefix         = "c" // + content hash of an input item: the latest place after such an item
	idPrefix           = "d" // + item id: the target of an item_reference
	replyPrefix        = "p" // + response id: the place after that response
	carryPrefix        = "q" // + response id: items of that response that upstream has not seen
	shownPrefix        = "o" // + response id: the layers' latest blocks as of that response
	turnPrefix         = "t" // + turn id: the turn record
	systemPromptPrefix = "v" // + hash of the system prompt: one version of the system prompt
	blockPrefix        = "b" // + hash: the text of a block that a layer recalled
	mediaPrefix        = "m" // + digest: a large string of items
)

const (
	// RecordVersion is the format in which sessions are stored. Other formats are not read.
	RecordVersion = 8
	// ringSize is the number of recent items in the head, by content, to recognise a client that trims its history.
	ringSize = 128
	// maxTails is the number of other ends of the transcript in the head.
	maxTails = 16
	// maxOpenCalls is the number of unanswered calls of the head line in the head.
	maxOpenCalls = 256
	// maxBlocks is the number of stored blocks that the head lists.
	maxBlocks = 32
	// maxBegun is the number of runs whose beginning is in the head.
	maxBegun = 4
	// maxHabits is the number of kinds of clients whose habit is in the head.
	maxHabits = 8
	// maxTailCalls is the number of unanswered calls of another end in the head.
	maxTailCalls = 8
)

// otherVersion is the ErrCorrupt for a session in another format than RecordVersion.
type otherVersion byte

func (v otherVersion) Error() string {
	return fmt.Sprintf("read session: another version of Remora wrote it: it has format %d, this one reads %d: see \"Transcripts\" in docs/operations.md, or delete it", byte(v), RecordVersion)
}

// Is makes it an ErrCorrupt.
func (otherVersion) Is(target error) bool { return target == ErrCorrupt }

// ErrCorrupt is returned if a stored value is damaged.
var ErrCorrupt = errors.New("stored record is corrupt")

// idName makes a value's name from an id of upstream or a caller: any bytes, any length.
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
	Units uint64 // number of units (parts of items) up to here
	// Compaction is the sequence number of the last compaction up to here, 0 for none.
	Compaction uint64
}

// after returns the position after one more item.
func (p position) after(m mark) position {
	if m.onChain {
		p.Chain = m.After(p.Chain)
	}
	p.Units += m.units
	return p
}

func (p *position) fields(c *recordcodec.Codec) {
	c.Uvarint(&p.Seq)
	c.Hash(&p.Chain)
	c.Uvarint(&p.Units)
	c.Uvarint(&p.Compaction)
}

// stored returns the position as that of a stored item, which has a sequence number.
func (p position) stored(seq uint64, it wire.Item, flags itemFlags) position {
	if p.Seq = seq; it.Kind == wire.Compaction && flags&(flagSummary|flagHidden) == 0 {
		p.Compaction = seq
	}
	return p
}

// unitsBetween returns how many units to is after from, 0 if it is before.
func unitsBetween(from, to position) int {
	return int(min(to.Units-min(to.Units, from.Units), math.MaxInt32))
}

// head is the part of a session that its next turn needs, read in one round trip.
type head struct {
	Pos          position
	SystemPrompt wire.Hash    // system prompt of the head line
	NextSeq      uint64       // the next sequence number to give
	Turns        uint64       // turns on the head line
	LastTurn     string       // id of the turn that moved the head last
	Answered     bool         // the head line holds an answer
	Line         uint64       // the line that is the conversation; see plan.line
	Lines        uint64       // how many lines there are
	TurnsApart   uint64       // turns of the latest line that stands alone since the head moved, without other activity
	SentHistory  bool         // a request of the head line had a history, since the line began: see incoming.hasHistory
	Habits       habits       // of the clients of the session, the latest last
	Offer        offer        // of the latest turn on the head line
	Forked       bool         // there may be items after the head: an input without an answer, a longer branch
	Summary      wire.Hash    // the end of the stored items that the client put before its history
	Ring         ring         // the last items of the head line, oldest first
	Open         openCalls    // ids of unanswered calls on the head line
	Tails        tails        // other ends, latest last
	Blocks       []wire.Hash  // stored blocks, the latest used at the end; only some, and those of an import
	Run          uint64       // the id of the run at the end of the head line, 0 if unknown
	Begun        []position   // beginnings of runs whose first request had only new items, latest last
	LastEmpty    string       // id of the latest turn that stored no item, empty for none: see turnrecord.Record.Before
	Pending      pendingTurns // turns that are not in the log yet
	Writer       uint64       // the process that wrote an answer last
	Streak       byte         // how many times in a row, up to steadyTurns
}

// isEmpty reports whether nothing of the session is stored but turns that wait for others: it begins with the next write.
func (h *head) isEmpty() bool { return h.NextSeq == 0 }

// items returns the highest sequence number that an item has, 0 without items.
func (h *head) items() uint64 { return max(h.NextSeq, 1) - 1 }

// awaitsResults reports whether the conversation waits for results. A program that demands a call, to get data, sends none.
func (h *head) awaitsResults() bool { return len(h.Open) > 0 && h.Offer.Format != formatCall }

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

// size returns the approximate size of the head in bytes.
func (h *head) size() int {
	n := 192 + len(h.Ring)*12 + len(h.Tails)*56 + len(h.Begun)*48 + len(h.Habits)*10
	for i := range h.Tails {
		n += 8 * len(h.Tails[i].Open)
	}
	n += 48 * len(h.Pending)
	return n
}

func (h *head) encode() []byte {
	c := newRecord(h.size())
	h.fields(&c)
	return c.Data
}

func decodeHead(b []byte) (*head, error) {
	c := recordcodec.NewReader(b)
	var version byte
	if c.Byte(&version); version != RecordVersion {
		return nil, otherVersion(version)
	}
	h := new(head)
	h.fields(&c)
	return h, endRecord(&c, "head")
}

func (h *head) fields(c *recordcodec.Codec) {
	h.Pos.fields(c)
	c.Hash(&h.SystemPrompt)
	c.Uvarint(&h.NextSeq)
	c.Uvarint(&h.Turns)
	c.Text(&h.LastTurn)
	c.Bool(&h.Answered)
	c.Bool(&h.Forked)
	c.Bool(&h.SentHistory)
	c.Uvarint(&h.Line)
	c.Uvarint(&h.Lines)
	c.Uvarint(&h.TurnsApart)
	for i := range recordcodec.Len(c, &h.Habits, maxHabits) {
		dialectCode(c, &h.Habits[i].Dialect)
		c.Uint64(&h.Habits[i].Client)
		c.Bool(&h.Habits[i].Resends)
	}
	c.Uvarint(&h.Offer.Tools)
	c.Uint64(&h.Offer.Model)
	c.Uint64(&h.Offer.Client)
	c.Byte(&h.Offer.Format)
	c.Hash(&h.Summary)
	for i := range recordcodec.Len(c, &h.Ring, ringSize) {
		c.Uint64(&h.Ring[i].Content)
		c.Uvarint(&h.Ring[i].Seq)
	}
	for i := range recordcodec.Len(c, &h.Open, maxOpenCalls) {
		c.Text(&h.Open[i])
	}
	for i := range recordcodec.Len(c, &h.Tails, maxTails) {
		t := &h.Tails[i]
		t.Pos.fields(c)
		c.Hash(&t.SystemPrompt)
		c.Bool(&t.Side)
		c.Uvarint(&t.Line)
		c.Uvarint(&t.Turns)
		for call := range recordcodec.Len(c, &t.Open, maxTailCalls) {
			c.Uint64(&t.Open[call])
		}
	}
	for i := range recordcodec.Len(c, &h.Blocks, maxBlocks) {
		c.Hash(&h.Blocks[i])
	}
	c.Uint64(&h.Run)
	for i := range recordcodec.Len(c, &h.Begun, maxBegun) {
		h.Begun[i].fields(c)
	}
	c.Text(&h.LastEmpty)
	c.Uint64(&h.Writer)
	c.Byte(&h.Streak)
	for i := range recordcodec.Len(c, &h.Pending, maxPending) {
		c.Text(&h.Pending[i].Turn)
		c.Uint64(&h.Pending[i].Owner)
		c.Bool(&h.Pending[i].Parked)
	}
}

// remember adds an item of the head line to the ring and the list of open calls.
func (h *head) remember(it wire.Item, m mark, seq uint64) {
	if m.onChain {
		h.Ring.add(m.Content, seq)
	}
	if it.Kind == wire.ToolResult && h.Open.has(it.Answers()) {
		h.Tails.answered(h.Line, it.Answers())
	}
	h.Open.note(it)
}

// clone returns a copy whose ring has room for more items.
func (h *head) clone(more int) *head {
	c := *h
	c.Ring = append(make([]echo, 0, len(h.Ring)+min(max(0, more), ringSize)), h.Ring...)
	c.Open, c.Tails = slices.Clone(h.Open), slices.Clone(h.Tails) // other lists are replaced, not changed
	c.Pending = slices.Clone(h.Pending)
	return &c
}

// afterReasoning returns the first new item from i on, after the head. If the head line ends with reasoning, which is off the
// chain, the request's copy of it is not new.
func (h *head) afterReasoning(in *incoming, i int) int {
	if n := len(h.Ring); n == 0 || h.Ring[n-1].Seq >= h.Pos.Seq {
		return i
	}
	for i < len(in.items) && !in.marks[i].onChain {
		i++
	}
	return i
}

// endAt returns the end with a chain hash: -1 for the head, else the index of the latest such tail.
func (h *head) endAt(chain wire.Hash) (tail int, ok bool) {
	if h.Pos.Seq != 0 && chain == h.Pos.Chain {
		return -1, true
	}
	for i, t := range slices.Backward(h.Tails) {
		if t.Pos.Chain == chain {
			return i, true
		}
	}
	return 0, false
}

// wrote records the process that wrote the session last, and its streak.
func (h *head) wrote(owner uint64) {
	if h.Writer != owner {
		h.Writer, h.Streak = owner, 0
	}
	h.Streak = min(h.Streak+1, steadyTurns)
}

// countApart counts a turn on a line that stands alone.
func (h *head) countApart(line uint64) {
	for _, t := range slices.Backward(h.Tails) {
		if !t.Side && t.Line != h.Line {
			if t.Line != line {
				h.TurnsApart = 0
			}
			break
		}
	}
	h.TurnsApart++
}

// begun records the beginning of an agent's run, unless it is the beginning of the conversation.
func (h *head) begun(at position) {
	if at.Seq == 0 {
		return
	}
	others := slices.DeleteFunc(slices.Clone(h.Begun), func(p position) bool { return p == at })
	h.Begun = append(others, at)[max(0, len(others)+1-maxBegun):]
}

// reference is stored under an item's id, for an item_reference to resolve to.
type reference struct {
	Content wire.Hash
	Kind    wire.Kind
	Role    wire.Role
	Pair    wire.Call // the call that it makes or answers
	Size    uint32    // of what a model reads of it, in bytes

	Provider string // that made the item, "" if unknown
	Seq      uint64 // of the item in the transcript
}

func (r *reference) fields(c *recordcodec.Codec) {
	c.Byte((*byte)(&r.Kind))
	c.Byte((*byte)(&r.Role))
	c.Hash(&r.Content)
	c.Text(&r.Pair.ID)
	c.Text(&r.Pair.Family)
	c.Text(&r.Pair.Name)
	size := uint64(r.Size)
	if c.Count(&size, math.MaxUint32); c.Reading {
		r.Size = uint32(size) //nolint:gosec // not more
	}
	c.Text(&r.Provider)
	c.Uvarint(&r.Seq)
}

// replyPosition is stored under the id of a response: the position after it.
type replyPosition struct {
	linePosition
	Provider string // that gave the response, "" if unknown
}

func (p *replyPosition) fields(c *recordcodec.Codec) {
	p.linePosition.fields(c)
	c.Text(&p.Provider)
}

// linePosition is a position with its line: a value of the transcript's indexes.
type linePosition struct {
	Pos  position
	Line uint64
	Side bool // it was stored as a side request's
}

// encode is the function encode for the record that is written most: it allocates nothing else.
func (p *linePosition) encode() []byte {
	const usual = 32 // bytes
	c := newRecord(usual)
	p.fields(&c)
	return c.Data
}

func (p *linePosition) fields(c *recordcodec.Codec) {
	c.Bool(&p.Side)
	c.Uvarint(&p.Line)
	p.Pos.fields(c)
}

// record is a stored value. Its fields visits its parts.
type record interface{ fields(c *recordcodec.Codec) }

// encode writes a record.
func encode(r record) []byte {
	const usual = 48 // bytes
	c := newRecord(usual)
	r.fields(&c)
	return c.Data
}

// decode reads a record of the present version. Its bytes are shared. what is for the error.
func decode[T any, R interface {
	*T
	record
}](b []byte, what string) (v T, err error) {
	c := beginRecord(b)
	R(&v).fields(&c)
	return v, endRecord(&c, what)
}

// newRecord begins to write a record of about size bytes.
func newRecord(size int) recordcodec.Codec {
	c := recordcodec.NewWriter(size)
	version := byte(RecordVersion)
	c.Byte(&version)
	return c
}

// beginRecord begins to read a record of the present version. Read its fields, and then call endRecord.
func beginRecord(b []byte) recordcodec.Codec {
	c := recordcodec.NewReader(b)
	var version byte
	c.Byte(&version)
	c.Bad = version != RecordVersion
	return c
}

// endRecord returns an error if a record is damaged or has another version.
func endRecord(c *recordcodec.Codec, what string) error {
	if c.Bad {
		return fmt.Errorf("read %s: %w", what, ErrCorrupt)
	}
	return nil
}

// dialectCode visits a dialect, as its code.
func dialectCode(c *recordcodec.Codec, d *wire.Dialect) {
	code := d.Code()
	if c.Byte(&code); c.Reading {
		*d = dialects.ByCode(code)
	}
}
