package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"sync"
)

// hashVersion begins the bytes of every content hash. Hashes are stored for ever: a change of what is hashed needs a
// new version and a migration, and hash_test.go holds golden values that notice it.
const hashVersion = "remora item 1"

// maxParts is how many parts of one content are hashed by what they mean; the rest is hashed as it is spelled.
const maxParts = 1 << 14

// maxPooled is the largest scratch buffer that is kept for later use, in bytes.
const maxPooled = 1 << 20

// hashers is shared scratch space: one hash of an item in a long history would otherwise cost a copy of its text in
// garbage. A pool has no state that a caller could notice.
var hashers = sync.Pool{New: func() any { return new(hasher) }}

// ContentHash is the truncated SHA-256 of what the item means, however it is spelled, so that an answer and its echo
// are equal. DESIGN.md section 4 lists what counts: role, text (a string equals a list of text parts), refusal, media
// by digest, tool names, call ids, arguments as canonical JSON, results. Ids, status, annotations, reasoning texts of
// Chat messages, cache marks and the like do not. A Reference hashes its id; Other, and the calls and results of
// hosted or built-in tools, their canonical JSON without id and status.
func (it Item) ContentHash() Hash {
	h, _ := hashers.Get().(*hasher)
	h.b = append(h.b[:0], hashVersion...)
	h.item(it)
	sum := sha256.Sum256(h.b)
	if cap(h.b)+cap(h.args) <= maxPooled {
		hashers.Put(h)
	}
	return Hash(sum[:len(Hash{})])
}

// Chain is the hash of a position: of everything before it, and of the content that stands there. The parent of the
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

// hasher writes the bytes that are hashed: fields of a tag, a length and content, which no two meanings share.
type hasher struct {
	b     []byte
	args  []byte // text of the arguments at hand
	canon canonicalizer
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
func (h *hasher) open(tag byte) int {
	h.b = append(h.b, tag, 0, 0, 0, 0, 0, 0, 0, 0)
	return len(h.b)
}

func (h *hasher) close(start int) {
	binary.LittleEndian.PutUint64(h.b[start-8:], uint64(len(h.b)-start)) //nolint:gosec // a length is never negative
}

func (h *hasher) field(tag byte, content string) {
	start := h.open(tag)
	h.b = append(h.b, content...)
	h.close(start)
}

// text writes a field of the text of a JSON string; an empty one, or another value, leaves no field.
func (h *hasher) text(tag byte, raw []byte) {
	content, _ := inside(raw)
	if len(content) == 0 {
		return
	}
	start := h.open(tag)
	h.b = appendText(h.b, content)
	h.close(start)
}

func (h *hasher) item(it Item) {
	switch it.Kind {
	case Message:
		h.message(it)
	case Reference:
		h.field(tagReference, it.ID)
	case Reasoning:
		h.reasoning(it)
	case ToolCall:
		h.toolCall(it)
	case ToolResult:
		h.toolResult(it)
	default:
		h.opaque(it.Raw)
	}
}

func (h *hasher) message(it Item) {
	var role, content, refusal, audio, name, toolCalls, functionCall []byte
	for p := range parts(it.Raw) {
		switch string(p.name) {
		case "role":
			role = p.value
		case "content":
			content = p.value
		case "refusal":
			refusal = p.value
		case "audio":
			audio = p.value
		case "name":
			name = p.value
		case "tool_calls":
			toolCalls = p.value
		case "function_call":
			functionCall = p.value
		}
	}
	start := h.open(tagRole)
	if r, ok := inside(role); ok {
		h.b = appendText(h.b, r)
	}
	h.close(start)
	if it.Role != Assistant {
		h.text(tagName, name)
	}
	h.content(content, refusal)
	if it.Role != Assistant || it.Dialect != Chat {
		return
	}
	// An answer's audio holds data and a transcript, its echo only the id.
	h.text(tagAudio, member(audio, "id"))
	s := scanner{b: toolCalls}
	for range s.each() {
		h.chatCall(&s)
	}
	if len(functionCall) > 0 && functionCall[0] == '{' {
		f := scanner{b: functionCall}
		c := rawCall{family: familyLegacy}
		c.read(&f, "arguments")
		c.id = nil
		h.call(c)
	}
}

// content writes texts, put together until media interrupt them, then the refusal, which is a part in one dialect and
// a member in the other.
func (h *hasher) content(raw, refusal []byte) {
	run := h.open(tagText)
	if c, ok := inside(raw); ok {
		h.b = appendText(h.b, c)
	} else if len(raw) > 0 && raw[0] == '[' {
		s, n := scanner{b: raw}, 0
		for range s.each() {
			if n++; n > maxParts { // each costs a digest: what nobody sends need not be cheap to ask for
				h.endRun(run)
				h.field(tagBytes, string(raw[s.i:]))
				run, s.i = h.open(tagText), len(raw)
				continue
			}
			run, refusal = h.part(&s, run, refusal)
		}
	} else if len(raw) > 0 && !isNull(raw) {
		run = h.media(raw, run)
	}
	h.endRun(run)
	h.text(tagRefusal, refusal)
}

// endRun closes the field of a text, or takes it back if it is empty.
func (h *hasher) endRun(run int) {
	if len(h.b) == run {
		h.b = h.b[:run-9]
		return
	}
	h.close(run)
}

// part writes one content part into the open run of text; media close it and open the next.
func (h *hasher) part(s *scanner, run int, refusal []byte) (nextRun int, nextRefusal []byte) {
	start := s.i
	if s.peek() == '"' {
		c, _ := inside(s.raw())
		h.b = appendText(h.b, c)
		return run, refusal
	}
	var typ, txt, ref []byte
	for name := range s.each() {
		switch string(name) {
		case "type":
			typ, _ = inside(s.raw())
		case "text":
			txt, _ = inside(s.raw())
		case "refusal":
			ref = s.raw()
		}
	}
	switch string(unescaped(typ)) {
	case "text", "input_text", "output_text":
		h.b = appendText(h.b, txt)
		return run, refusal
	case "refusal":
		return run, ref
	}
	return h.media(s.b[start:s.i], run), refusal
}

func (h *hasher) media(raw []byte, run int) (nextRun int) {
	h.endRun(run)
	start := len(h.b)
	if !h.canonical(raw, false) {
		h.b = append(h.b, raw...)
	}
	sum := sha256.Sum256(h.b[start:])
	h.b = h.b[:start]
	h.field(tagMedia, string(sum[:]))
	return h.open(tagText)
}

// rawCall is a call to be hashed; id, name and input are raw.
type rawCall struct {
	family          string
	id, name, input []byte
}

// chatCall reads an element of tool_calls and writes it.
func (h *hasher) chatCall(s *scanner) {
	start := s.i
	var c rawCall
	var id []byte
	for name := range s.each() {
		switch string(name) {
		case "id":
			id = s.raw()
		case "function":
			c.family = familyFunction
			c.read(s, "arguments")
		case "custom":
			c.family = familyCustom
			c.read(s, "input")
		}
	}
	if c.id = id; c.family != "" {
		h.call(c)
		return
	}
	h.text(tagID, id)
	h.opaque(s.b[start:s.i])
}

// read reads an object with the name of a tool, its input in the member called so, and in Responses the call's id.
func (c *rawCall) read(s *scanner, input string) {
	for name := range s.each() {
		switch string(name) {
		case "name":
			c.name = s.raw()
		case "call_id":
			c.id = s.raw()
		case input:
			c.input = s.raw()
		}
	}
}

func (h *hasher) call(c rawCall) {
	h.field(tagCall, c.family)
	h.text(tagID, c.id)
	h.text(tagName, c.name)
	if c.family == familyCustom {
		h.text(tagInput, c.input)
		return
	}
	h.arguments(c.input)
}

// arguments are JSON in a string. No arguments are spelled "" by some upstreams and {} by the clients that echo them.
func (h *hasher) arguments(raw []byte) {
	content, isString := inside(raw)
	if isString {
		h.args = appendText(h.args[:0], content)
		raw = h.args
	}
	start := h.open(tagArguments)
	switch {
	case len(raw) == 0 || !isString && isNull(raw):
		h.b = append(h.b, "{}"...)
	case !h.canonical(raw, true):
		h.b[start-9] = tagInput
		h.b = append(h.b, raw...)
	}
	h.close(start)
}

func (h *hasher) toolCall(it Item) {
	input := "arguments"
	switch c := it.Calls[0]; c.Family {
	case familyCustom:
		input = "input"
		fallthrough
	case familyFunction:
		s, raw := scanner{b: it.Raw}, rawCall{family: c.Family}
		raw.read(&s, input)
		h.call(raw)
	default:
		h.field(tagCall, c.Family)
		h.field(tagID, c.ID)
		h.opaque(it.Raw)
	}
}

func (h *hasher) toolResult(it Item) {
	h.field(tagResult, it.Answers.Family)
	h.field(tagID, it.Answers.ID)
	switch it.Answers.Family {
	case familyFunction, familyCustom, familyLegacy:
	default:
		h.opaque(it.Raw)
		return
	}
	if it.Answers.Name != "" {
		h.field(tagName, it.Answers.Name)
	}
	out := "output"
	if it.Dialect == Chat {
		out = "content"
	}
	h.content(member(it.Raw, out), nil)
}

// reasoning is what identifies a reasoning item best: encrypted content, else its texts, else its id.
func (h *hasher) reasoning(it Item) {
	encrypted := member(it.Raw, "encrypted_content")
	if c, ok := inside(encrypted); ok && len(c) > 0 {
		h.text(tagReasoning, encrypted)
		return
	}
	start := h.open(tagReasoning)
	said := false
	for _, name := range []string{"summary", "content"} {
		v := member(it.Raw, name)
		for range parts(v) {
			said = true
			break
		}
		if v != nil && !h.canonical(v, true) {
			h.b = append(h.b, v...)
		}
	}
	if !said {
		h.b = append(h.b[:start], it.ID...)
	}
	h.close(start)
}

// opaque writes a value that is not understood.
func (h *hasher) opaque(raw []byte) {
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
func (h *hasher) canonical(raw []byte, all bool) bool {
	h.canon.all = all
	out, ok := h.canon.append(h.b, raw)
	if ok {
		h.b = out
	}
	return ok
}
