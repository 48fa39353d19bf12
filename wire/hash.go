package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// hashVersion begins the bytes of every content hash. Hashes are stored for ever: a change to the hashed bytes needs a
// new version and a migration, and hash_test.go holds golden values that notice it.
const hashVersion = "remora item 2"

// maxParts is how many parts of one content are hashed by what they mean; the rest is hashed as it is spelled.
const maxParts = 1 << 14

// maxPooled is the largest scratch buffer that is kept for later use, in bytes.
const maxPooled = 1 << 20

// hashers is shared scratch space: one hash of an item in a long history would otherwise cost a copy of its text in
// garbage. A pool has no state that a caller could notice.
var hashers = sync.Pool{New: func() any { return new(Hasher) }}

// Meaning is the hash of what an item means, and of each of its parts.
type Meaning struct {
	Content Hash
	// Parts are the hashes of what a Chat message says and of each of its calls, in order; nil for an item with a single
	// part, whose hash is Content.
	Parts []Hash
}

// After returns the hash of the position after the item. Parts are linked one by one, so that a Chat message with calls leads
// to the same position as the message and the calls that are items of their own in another dialect.
func (m Meaning) After(parent Hash) Hash {
	if m.Parts == nil {
		return Chain(parent, m.Content)
	}
	for _, part := range m.Parts {
		parent = Chain(parent, part)
	}
	return parent
}

// ContentHash returns the truncated SHA-256 of what the item means, however it is spelled and in whichever dialect, so that an
// answer and its echo are equal. What counts: role (system and developer are one), text (a string equals a list of text parts),
// refusal, media by digest, tool names, call ids, arguments as canonical JSON, results. Ids, status, annotations, reasoning
// texts of Chat messages, cache marks and the like do not. A Reference hashes its id; Other, and the calls and results of hosted
// or built-in tools, their canonical JSON without id and status.
func (it Item) ContentHash() Hash {
	h, _ := hashers.Get().(*Hasher)
	defer h.free()
	h.item(it)
	return h.sum()
}

// Meaning returns the ContentHash and those of the item's parts.
func (it Item) Meaning() Meaning {
	h, _ := hashers.Get().(*Hasher)
	defer h.free()
	h.item(it)
	m := Meaning{Content: h.sum()}
	if len(h.parts) == 0 {
		return m
	}
	m.Parts = make([]Hash, 0, len(h.parts)+1)
	from := len(hashVersion)
	for _, end := range append(h.parts, len(h.b)) {
		m.Parts = append(m.Parts, h.sumPart(from, end))
		from = end
	}
	return m
}

// Chain returns the hash of a position: of everything before it, and of the content that stands there. The parent of the
// first position is the zero Hash.
func Chain(parent, content Hash) Hash {
	const version = "remora chain 1"
	var b [len(version) + 2*len(Hash{})]byte
	n := copy(b[:], version)
	n += copy(b[n:], parent[:])
	copy(b[n:], content[:])
	sum := sha256.Sum256(b[:])
	return Hash(sum[:len(Hash{})])
}

// Hasher writes the bytes that are hashed: fields of a tag, a length and content, which no two meanings share.
type Hasher struct {
	b       []byte
	parts   []int  // where in b parts begin, except the first
	args    []byte // text of the current arguments
	canon   canonicalizer
	dialect Dialect // of the item
}

// sum returns the hash of all that is written.
func (h *Hasher) sum() Hash {
	sum := sha256.Sum256(h.b)
	return Hash(sum[:len(Hash{})])
}

// sumPart returns the hash of a part, which is that of an item with nothing else in it.
func (h *Hasher) sumPart(from, end int) Hash {
	h.args = append(append(h.args[:0], hashVersion...), h.b[from:end]...)
	sum := sha256.Sum256(h.args)
	return Hash(sum[:len(Hash{})])
}

// free keeps the scratch space for another item.
func (h *Hasher) free() {
	if cap(h.b)+cap(h.args) <= maxPooled {
		hashers.Put(h)
	}
}

// Part begins the next part of the item, if something is written of the one before.
func (h *Hasher) Part() {
	last := len(hashVersion)
	if n := len(h.parts); n > 0 {
		last = h.parts[n-1]
	}
	if len(h.b) > last {
		h.parts = append(h.parts, len(h.b))
	}
}

// Tags of the fields.
const (
	tagRole      = 'M'
	tagText      = 'T'
	tagRefusal   = 'R'
	tagMedia     = 'P' // digest of the part's canonical JSON
	tagAudio     = 'A'
	tagCall      = 'C' // its content is the family; id, name and input follow
	tagResult    = 'O'
	tagID        = 'I'
	tagName      = 'N'
	tagArguments = 'J' // canonical JSON
	tagInput     = 'S' // text that is no JSON
	tagReference = 'F'
	tagReasoning = 'E'
	tagOpaque    = 'G'
	tagBytes     = 'B' // not even JSON
)

// open begins a field; close ends it and sets its length.
func (h *Hasher) open(tag byte) int {
	h.b = append(h.b, tag, 0, 0, 0, 0, 0, 0, 0, 0)
	return len(h.b)
}

func (h *Hasher) close(start int) {
	binary.LittleEndian.PutUint64(h.b[start-8:], uint64(len(h.b)-start)) //nolint:gosec // a length is never negative
}

func (h *Hasher) field(tag byte, content string) {
	start := h.open(tag)
	h.b = append(h.b, content...)
	h.close(start)
}

// text writes a field of the text of a JSON string; an empty one, or another value, leaves no field.
func (h *Hasher) text(tag byte, raw []byte) {
	content, _ := Inside(raw)
	if len(content) == 0 {
		return
	}
	start := h.open(tag)
	h.b = AppendText(h.b, content)
	h.close(start)
}

func (h *Hasher) item(it Item) {
	h.b, h.parts, h.dialect = append(h.b[:0], hashVersion...), h.parts[:0], it.Dialect
	switch it.Kind {
	case Message, ToolCall, Reasoning:
		it.Dialect.Codec().Hash(h, it)
	case Reference:
		h.field(tagReference, it.ID)
	case ToolResult:
		h.result(it)
	default:
		h.Opaque(it.Raw)
	}
}

// Role begins a message by its role, a JSON string. Clients spell one instruction as system's or as developer's, by the model.
func (h *Hasher) Role(raw []byte) {
	start := h.open(tagRole)
	if r, ok := Inside(raw); ok {
		h.b = AppendText(h.b, r)
	}
	if string(h.b[start:]) == "developer" {
		h.b = append(h.b[:start], "system"...)
	}
	h.close(start)
}

// Name adds the name of the message's author, a JSON string.
func (h *Hasher) Name(raw []byte) { h.text(tagName, raw) }

// Audio is the id of a sound, as a JSON string.
func (h *Hasher) Audio(raw []byte) { h.text(tagAudio, raw) }

// ID writes the id of an opaque call, as a JSON string. The call itself follows as Opaque.
func (h *Hasher) ID(raw []byte) { h.text(tagID, raw) }

// Content writes texts, put together until media interrupt them, then the refusal, which is a part in one dialect and
// a member in the other.
func (h *Hasher) Content(raw, refusal []byte) {
	run := h.open(tagText)
	if c, ok := Inside(raw); ok {
		h.b = AppendText(h.b, c)
	} else if len(raw) > 0 && raw[0] == '[' {
		s, n := Scanner{b: raw}, 0
		for range s.Each() {
			if n++; n > maxParts { // each costs a digest; no real client sends so many
				h.endRun(run)
				h.field(tagBytes, string(raw[s.i:]))
				run, s.i = h.open(tagText), len(raw)
				continue
			}
			run, refusal = h.part(&s, run, refusal)
		}
	} else if len(raw) > 0 && !IsNull(raw) {
		run = h.media(raw, run)
	}
	h.endRun(run)
	h.text(tagRefusal, refusal)
}

// endRun closes the field of a text, or takes it back if it is empty.
func (h *Hasher) endRun(run int) {
	if len(h.b) == run {
		h.b = h.b[:run-9]
		return
	}
	h.close(run)
}

// part writes one content part into the open run of text; media close it and open the next.
func (h *Hasher) part(s *Scanner, run int, refusal []byte) (nextRun int, nextRefusal []byte) {
	start := s.i
	if s.Peek() == '"' {
		c, _ := Inside(s.Raw())
		h.b = AppendText(h.b, c)
		return run, refusal
	}
	var typ, txt, ref []byte
	for name := range s.Each() {
		switch string(name) {
		case "type":
			typ, _ = Inside(s.Raw())
		case "text":
			txt, _ = Inside(s.Raw())
		case "refusal":
			ref = s.Raw()
		}
	}
	switch string(Unescaped(typ)) {
	case "text", "input_text", "output_text":
		h.b = AppendText(h.b, txt)
		return run, refusal
	case "refusal":
		return run, ref
	}
	return h.media(s.b[start:s.i], run), refusal
}

func (h *Hasher) media(raw []byte, run int) (nextRun int) {
	h.endRun(run)
	start := len(h.b)
	if !h.neutral(raw) && !h.canonical(raw, false) {
		h.b = append(h.b, raw...)
	}
	sum := sha256.Sum256(h.b[start:])
	h.b = h.b[:start]
	h.field(tagMedia, string(sum[:]))
	return h.open(tagText)
}

// neutral writes an image or a file as no dialect spells it, and nothing (false) for anything else.
func (h *Hasher) neutral(raw []byte) bool {
	part, ok := h.dialect.Codec().ReadPart(raw)
	if !ok {
		return false
	}
	switch part.Kind {
	case PartImage:
		url, ok := Inside(part.Value)
		if !ok {
			return false
		}
		h.b = append(AppendText(append(h.b, "image "...), url), 0)
		if detail, _ := Inside(part.Detail); string(Unescaped(detail)) != "auto" { // which is what no detail means
			h.b = AppendText(h.b, detail)
		}
		return true
	case PartFile:
		start := len(h.b)
		h.b = append(h.b, "file "...)
		if h.canonical(part.Value, false) {
			return true
		}
		h.b = h.b[:start]
	case PartText, PartAlike:
	}
	return false
}

// HashedCall is a call to be hashed; ID, Name and Input are raw.
type HashedCall struct {
	Family          string
	ID, Name, Input []byte
}

// Call writes a call.
func (h *Hasher) Call(c HashedCall) {
	h.field(tagCall, c.Family)
	h.text(tagID, c.ID)
	h.text(tagName, c.Name)
	if c.Family == FamilyCustom {
		h.text(tagInput, c.Input)
		return
	}
	h.arguments(c.Input)
}

// arguments are JSON in a string. No arguments are spelled "" by some upstreams and {} by the clients that echo them.
func (h *Hasher) arguments(raw []byte) {
	content, isString := Inside(raw)
	if isString {
		h.args = AppendText(h.args[:0], content)
		raw = h.args
	}
	start := h.open(tagArguments)
	switch {
	case len(raw) == 0 || !isString && IsNull(raw):
		h.b = append(h.b, "{}"...)
	case !h.canonical(raw, true):
		h.b[start-9] = tagInput
		h.b = append(h.b, raw...)
	}
	h.close(start)
}

// CallAsIs writes a call of a kind of tool whose input is unknown.
func (h *Hasher) CallAsIs(c Call, raw []byte) {
	h.field(tagCall, c.Family)
	h.field(tagID, c.ID)
	h.Opaque(raw)
}

func (h *Hasher) result(it Item) {
	answers := it.Answers()
	family := answers.Family
	if family == FamilyCustom { // which a Chat result does not say
		family = FamilyFunction
	}
	h.field(tagResult, family)
	h.field(tagID, answers.ID)
	if family != FamilyFunction && family != FamilyLegacy {
		h.Opaque(it.Raw)
		return
	}
	if answers.Name != "" {
		h.field(tagName, answers.Name)
	}
	h.Content(Member(it.Raw, it.Dialect.Rules().Result), nil)
}

// Reasoning writes what identifies a reasoning best: the encrypted content, else texts, else the id.
func (h *Hasher) Reasoning(encrypted []byte, texts [][]byte, id string) {
	if c, ok := Inside(encrypted); ok && len(c) > 0 {
		h.text(tagReasoning, encrypted)
		return
	}
	start := h.open(tagReasoning)
	said := false
	for _, v := range texts {
		said = said || HasChildren(v)
		if v != nil && !h.canonical(v, true) {
			h.b = append(h.b, v...)
		}
	}
	if !said {
		h.b = append(h.b[:start], id...)
	}
	h.close(start)
}

// Opaque writes a value that is not understood.
func (h *Hasher) Opaque(raw []byte) {
	start := h.open(tagOpaque)
	h.canon.dropID = true
	if !h.canonical(raw, false) {
		h.b[start-9] = tagBytes
		h.b = append(h.b, raw...)
	}
	h.canon.dropID = false
	h.close(start)
}

// canonical appends raw's canonical JSON; it appends nothing and returns false where raw is no JSON or has too many
// members. Unless all is set, members of the top level that clients drop when they echo are left out.
func (h *Hasher) canonical(raw []byte, all bool) bool {
	h.canon.all = all
	out, ok := h.canon.append(h.b, raw)
	if ok {
		h.b = out
	}
	return ok
}
