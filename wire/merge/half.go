package merge

import (
	"remora/wire"
	"remora/wire/sse"
)

// Codec is implemented by the wire.Codec of each dialect.
type Codec interface {
	// Merge returns the dialect's half of a Merger, which writes to c.
	Merge(c Client) Half
	// Bodies makes one body of several answers that were not streamed.
	Bodies(b *Bodies) []byte
}

func codecOf(d wire.Dialect) Codec { return d.Codec().(Codec) } //nolint:forcetypeassert // each dialect has one

// Half is the part of a Merger that depends on the dialect.
type Half interface {
	// Event handles an event; those behind the terminal one are not given to it.
	Event(b *Block)
	// Release sends the held calls that Verdict passes now, and drops the others.
	Release()
	// End sends everything held back until the end.
	End()
	// Next begins the next upstream answer.
	Next()
}

// Block is a block of the stream on its way to the client.
type Block struct {
	sse.Block
	Effect wire.Effect // of what it says on this upstream answer; nil where it was not read
	cut    bool        // the stream ended within it
	// shown: bytes made of it have gone to the client. kept: Raw is a copy that is still needed.
	shown, kept bool
}

// Verdict is the decision on a call.
type Verdict uint8

// Verdicts.
const (
	Unnamed Verdict = iota // held until its name is known
	Passed
	Held
	Hidden
)

// Client is the client's side of a Merger: a Half writes to it.
type Client struct{ s *Merger }

// Guards reports whether some calls are kept from the client, or held back until they are judged.
func (c Client) Guards() bool { return c.s.o.guards() }

// Judges reports whether calls are held back until they are judged.
func (c Client) Judges() bool { return c.s.o.judges() }

// Answer returns the number of the current upstream answer, from 0.
func (c Client) Answer() int { return c.s.answer }

// Usage returns the usage object of the current upstream answer as JSON, nil before it came.
func (c Client) Usage() []byte { return c.s.Reply().Usage }

// Pass sends a block to the client with the bytes it came with.
func (c Client) Pass(b *Block) { c.s.pass(b) }

// Send sends a block to the client with other data; its event name stays.
func (c Client) Send(b *Block, data []byte) { c.s.send(b, data) }

// Keep copies what the block refers to, so that it may be used after the call of Event. The copy counts as held.
func (c Client) Keep(b *Block) *Block { return c.s.keep(b) }

// Terminate holds a block back until the end of the client's answer.
func (c Client) Terminate(b *Block) { c.s.terminate(b) }

// Terminal returns the blocks of the current upstream answer that Terminate holds back, in their order.
func (c Client) Terminal() []*Block { return c.s.terminal }

// Hold counts n more bytes that are held of the current upstream answer, until the next one.
func (c Client) Hold(n int) { c.s.held += n }

// HoldToTheEnd counts n more bytes that are held until the end of the client's answer.
func (c Client) HoldToTheEnd(n int) { c.s.kept += n }

// Verdict returns the decision on a call whose name is known: Passed, Held or Hidden.
func (c Client) Verdict(call wire.Call) Verdict { return c.s.verdict(call) }

// DropUnjudged notes that a call was dropped because no layer judges it: see Merger.Unjudged.
func (c Client) DropUnjudged() { c.s.unjudged = true }

// OwnTools returns a list of tools without the hidden ones.
func (c Client) OwnTools(list []byte) []byte { return ownTools(list, c.s.o.Hide) }

// Empty reports whether a value stands for nothing.
func Empty(raw []byte) bool {
	switch string(raw) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}
