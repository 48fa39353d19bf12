package wire

import "remora/wire/sse"

// Codec is the code of a dialect; its data is in Rules. A codec embeds [Opaque] for the features that its dialect lacks.
type Codec interface {
	// Read reads an object of a list of items. It must set Dialect and Raw. Without Parts the item gets one part of its Kind.
	Read(d *Decoder, raw []byte) Item
	// Input returns the object with the model's input for a call, which is given by its index in Parts.
	Input(it Item, part int) []byte
	// Function defines a tool; Result answers a call with a content, which is JSON.
	Function(name, description string, parameters []byte) []byte
	Result(c Call, content []byte) []byte
	// Portable is Item.Portable for an upstream that is not the item's own.
	Portable(it Item, r Reach) (Item, bool)

	// Keep returns an item with some of its parts, by their index. WithoutText returns it without its text, with its calls.
	// AsInput implements Item.AsInput for all but messages of others than the assistant.
	Keep(it Item, keep []bool) []byte
	WithoutText(it Item) []byte
	AsInput(it Item, kept func(Audio) bool) (Item, bool)
	// WithCallIDs replaces the ids of calls that the parts make or answer: ids are by index in Parts, "" for no change.
	WithCallIDs(it Item, ids []string) []byte

	// Hash writes a message, a call or a reasoning in a form that does not depend on its spelling.
	Hash(h *Hasher, it Item)

	// ReadPart reads a part of a content, and returns false for one without a counterpart. AppendPart encodes one that is not text.
	ReadPart(raw []byte) (ContentPart, bool)
	AppendPart(dst []byte, p ContentPart) []byte
	// ReadCalls reads the calls of an item. MakeCalls makes items of calls.
	ReadCalls(it Item) []SaidCall
	MakeCalls(calls []SaidCall) [][]byte

	// Stream folds an answer that is streamed. Whole reads one that is not: the object at the scanner's place, whose failure tells
	// that it is malformed.
	Stream() Stream
	Whole(m *Meta, s *Scanner) (choices [][]Item, complete bool)
	// Ambiguities looks at one answer that is judged.
	Ambiguities() Ambiguities
}

// Stream is the fold of one streamed answer.
type Stream interface {
	// Begun checks an incomplete event: the terminal one may have begun, or be known to be complete.
	Begun(name, data []byte) (begun, ended bool)
	// Lost takes the name of an event that was too large, Event any other. Both report whether it was the terminal one. The
	// effect, which may be nil, is valid until the next event.
	Lost(name []byte) (last bool)
	Event(m *Meta, b *sse.Block) (e Effect, last bool)
	// Stop stops collecting: the answer is too large.
	Stop()
	// Reply fills in the answer so far. line is the incomplete line.
	Reply(r *Reply, line []byte)
}

// Effect describes how one event of a stream changes an answer, as the dialect's fold has read it. Code that rewrites the stream
// acts on the same reading.
type Effect interface {
	// Keep is the effect for longer than its event, of which b is a copy.
	Keep(b *sse.Block) Effect
}

// Ambiguities finds what clients may read in another way than the fold, in one answer.
type Ambiguities interface {
	// Event takes in an event and says why the answer is unclear now, "" where it is not.
	Event(b *sse.Block, e Effect) (why string)
	// Unclear says why not every reading of the calls is one of the answer's items, "" where all are.
	Unclear(choices [][]Item) string
}

// Opaque is the codec of the zero Dialect: it understands nothing, and leaves all as it is.
type Opaque struct{}

var _ Codec = Opaque{}

// Read returns an item that nothing is known of.
func (Opaque) Read(d *Decoder, raw []byte) Item { return Item{Dialect: d.Dialect(), Raw: raw} }

// Input returns nil.
func (Opaque) Input(Item, int) []byte { return nil }

// Function returns nil.
func (Opaque) Function(string, string, []byte) []byte { return nil }

// Result returns nil.
func (Opaque) Result(Call, []byte) []byte { return nil }

// Portable returns the item.
func (Opaque) Portable(it Item, _ Reach) (Item, bool) { return it, true }

// Keep returns the item.
func (Opaque) Keep(it Item, _ []bool) []byte { return it.Raw }

// WithCallIDs returns the item.
func (Opaque) WithCallIDs(it Item, _ []string) []byte { return it.Raw }

// WithoutText returns the item.
func (Opaque) WithoutText(it Item) []byte { return it.Raw }

// AsInput returns the item, and false for a message without text.
func (Opaque) AsInput(it Item, _ func(Audio) bool) (Item, bool) {
	return it, it.Kind != Message || it.HasContent()
}

// Hash writes the item as it is.
func (Opaque) Hash(h *Hasher, it Item) { h.Opaque(it.Raw) }

// ReadPart returns false.
func (Opaque) ReadPart([]byte) (ContentPart, bool) { return ContentPart{}, false }

// AppendPart appends nothing.
func (Opaque) AppendPart(dst []byte, _ ContentPart) []byte { return dst }

// ReadCalls returns none.
func (Opaque) ReadCalls(Item) []SaidCall { return nil }

// MakeCalls returns none.
func (Opaque) MakeCalls([]SaidCall) [][]byte { return nil }

// Stream returns a fold of nothing.
func (Opaque) Stream() Stream { return opaqueStream{} }

// Whole returns an answer without choices.
func (Opaque) Whole(_ *Meta, s *Scanner) ([][]Item, bool) { return nil, s.value() }

// Ambiguities finds none.
func (Opaque) Ambiguities() Ambiguities { return noAmbiguities{} }

type opaqueStream struct{}

func (opaqueStream) Begun(_, _ []byte) (begun, ended bool)         { return false, false }
func (opaqueStream) Lost([]byte) (last bool)                       { return false }
func (opaqueStream) Event(*Meta, *sse.Block) (e Effect, last bool) { return nil, false }
func (opaqueStream) Stop()                                         {}
func (opaqueStream) Reply(*Reply, []byte)                          {}

type noAmbiguities struct{}

func (noAmbiguities) Event(*sse.Block, Effect) string { return "" }
func (noAmbiguities) Unclear([][]Item) string         { return "" }
