package wire

import "remora/wire/sse"

// Codec is the part of a dialect that is code; everything that can be data is in its Rules. A codec embeds [Opaque] for
// the features that its dialect lacks.
type Codec interface {
	// Read is the item that an object in a list of items is. It has to set Dialect and Raw. Without Parts it gets one, of its
	// own Kind.
	Read(d *Decoder, raw []byte) Item
	// Input is the object of an item that holds what the model wrote for a call, which is given by its index in Parts.
	Input(it Item, part int) []byte
	// Function defines a tool; Result answers a call.
	Function(name, description string, parameters []byte) []byte
	Result(c Call, text string) []byte
	// Portable is Item.Portable for an upstream that is not the item's own.
	Portable(it Item, r Reach) (Item, bool)

	// Keep is an item that keeps some of its parts, by their index. WithoutText is one without what it says beside its calls.
	// AsInput is Item.AsInput for a message of the assistant.
	Keep(it Item, keep []bool) []byte
	WithoutText(it Item) []byte
	AsInput(it Item, kept func(Audio) bool) (Item, bool)
	// ObjectArguments is the item with the arguments of each function call as [ObjectArguments] returns them.
	ObjectArguments(it Item) []byte
	// WithCallIDs names the calls anew that the parts make or answer: ids are by index in Parts, "" for one that stays.
	// WithReasoning puts text where models write what they think, unless there is something. WithSignature signs the first
	// call with the placeholder that its API documents for calls of another model, unless it is signed.
	WithCallIDs(it Item, ids []string) []byte
	WithReasoning(it Item, text string) []byte
	WithSignature(it Item) []byte
	// WithToolNames is the item with other names of the tools that it calls or answers; one for which rename returns the same stays.
	WithToolNames(it Item, rename func(name string) string) []byte
	// WithoutNull leaves out a content that is null.
	WithoutNull(it Item) []byte

	// Hash writes what a message, a call or a reasoning means, so that it is the same however it is spelled.
	Hash(h *Hasher, it Item)

	Converter

	// Stream folds an answer that is streamed, Whole one that is not.
	Stream() Stream
	Whole(m *Meta, body []byte) (choices [][]Item, complete bool)
	// Judge looks at one answer that is judged.
	Judge() Judge
}

// Converter splits items into parts, and builds items from parts of other dialects. A part without a counterpart is an
// error that names it.
type Converter interface {
	// ReadPart reads a part of a content, AppendPart spells one that is no text.
	ReadPart(raw []byte) (ContentPart, error)
	AppendPart(dst []byte, p ContentPart) []byte
	// ReadCalls reads the calls of an item. MakeCalls makes items of calls.
	ReadCalls(it Item) []SaidCall
	MakeCalls(calls []SaidCall) [][]byte
	// ReadAnswered is the id of the call that a result answers, as JSON. MakeResult makes a result of it; content is JSON.
	ReadAnswered(it Item) ([]byte, error)
	MakeResult(id []byte, custom bool, content []byte) []byte
}

// Stream is the fold of one streamed answer.
type Stream interface {
	// Begun looks at an event that has not ended: the terminal one may have begun, or be known to be whole.
	Begun(name, data []byte) (begun, ended bool)
	// Lost takes the name of an event that was too large, Event any other. Both report whether it was the terminal one. The
	// effect, which may be nil, is valid until the next event.
	Lost(name []byte) (last bool)
	Event(m *Meta, b *sse.Block) (e Effect, last bool)
	// Stop ends the collecting: the answer is too large.
	Stop()
	// Reply fills in what the answer says by now. line is the one that has not ended.
	Reply(r *Reply, line []byte)
}

// Effect describes how one event of a stream changes an answer, as the dialect's fold has read it. Code that rewrites the stream
// acts on the same reading.
type Effect interface {
	// Keep is the effect for longer than its event, of which b is a copy.
	Keep(b *sse.Block) Effect
}

// Judge looks for what clients may read in another way than the fold. It is of one answer.
type Judge interface {
	// Enter returns the place that the member of a name leads to on the way to a call, and false if no call depends on
	// it. Names are all names that it knows, at any place.
	Enter(p Place, name string) (Place, bool)
	Names() []string
	// Event takes in an event and says why the answer is unclear now, "" where it is not.
	Event(b *sse.Block, e Effect) (why string)
	// Unclear says why not every reading of the calls is one of the answer's items, "" where all are.
	Unclear(choices [][]Item) string
}

// Place is a kind of object or list on the way from the top of an answer to a call in it. A dialect numbers its own from 1 on.
type Place uint8

// Places of every dialect.
const (
	Top  Place = 0
	Leaf Place = 255
)

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
func (Opaque) Result(Call, string) []byte { return nil }

// Portable returns the item.
func (Opaque) Portable(it Item, _ Reach) (Item, bool) { return it, true }

// Keep returns the item.
func (Opaque) Keep(it Item, _ []bool) []byte { return it.Raw }

// ObjectArguments returns the item.
func (Opaque) ObjectArguments(it Item) []byte { return it.Raw }

// WithCallIDs returns the item.
func (Opaque) WithCallIDs(it Item, _ []string) []byte { return it.Raw }

// WithReasoning returns the item.
func (Opaque) WithReasoning(it Item, _ string) []byte { return it.Raw }

// WithSignature returns the item.
func (Opaque) WithSignature(it Item) []byte { return it.Raw }

// WithToolNames returns the item.
func (Opaque) WithToolNames(it Item, _ func(string) string) []byte { return it.Raw }

// WithoutNull returns the item.
func (Opaque) WithoutNull(it Item) []byte { return it.Raw }

// WithoutText returns the item.
func (Opaque) WithoutText(it Item) []byte { return it.Raw }

// AsInput returns the item, and false where it has no text.
func (Opaque) AsInput(it Item, _ func(Audio) bool) (Item, bool) { return it, it.HasContent() }

// Hash writes the item as it is.
func (Opaque) Hash(h *Hasher, it Item) { h.Opaque(it.Raw) }

// ReadPart returns an error.
func (Opaque) ReadPart([]byte) (ContentPart, error) { return ContentPart{}, errOpaque }

// AppendPart appends nothing.
func (Opaque) AppendPart(dst []byte, _ ContentPart) []byte { return dst }

// ReadCalls returns none.
func (Opaque) ReadCalls(Item) []SaidCall { return nil }

// MakeCalls returns none.
func (Opaque) MakeCalls([]SaidCall) [][]byte { return nil }

// ReadAnswered returns an error.
func (Opaque) ReadAnswered(Item) ([]byte, error) { return nil, errOpaque }

// MakeResult returns nil.
func (Opaque) MakeResult([]byte, bool, []byte) []byte { return nil }

// Stream returns a fold of nothing.
func (Opaque) Stream() Stream { return opaqueStream{} }

// Whole returns an answer without choices.
func (Opaque) Whole(*Meta, []byte) ([][]Item, bool) { return nil, true }

// Judge returns one to which everything is clear.
func (Opaque) Judge() Judge { return opaqueJudge{} }

type opaqueStream struct{}

func (opaqueStream) Begun(_, _ []byte) (begun, ended bool)         { return false, false }
func (opaqueStream) Lost([]byte) (last bool)                       { return false }
func (opaqueStream) Event(*Meta, *sse.Block) (e Effect, last bool) { return nil, false }
func (opaqueStream) Stop()                                         {}
func (opaqueStream) Reply(*Reply, []byte)                          {}

type opaqueJudge struct{}

func (opaqueJudge) Enter(Place, string) (Place, bool) { return Leaf, false }
func (opaqueJudge) Names() []string                   { return nil }
func (opaqueJudge) Event(*sse.Block, Effect) string   { return "" }
func (opaqueJudge) Unclear([][]Item) string           { return "" }
