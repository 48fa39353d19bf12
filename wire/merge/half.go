package merge

import (
	"bytes"
	"strings"

	"remora/wire"
	"remora/wire/sse"
)

// Codec is implemented by the wire.Codec of each dialect.
type Codec interface {
	// Merge returns the dialect's half of a Merger, which writes to c.
	Merge(c *Client) Half
	// Bodies makes one body of several answers that were not streamed.
	Bodies(b *Bodies) []byte
}

func codecOf(d wire.Dialect) Codec { return d.Codec().(Codec) } //nolint:forcetypeassert // each dialect has one

// Half is the part of a Merger that depends on the dialect.
type Half interface {
	// Event handles an event. It does not get those after the terminal one.
	Event(b *Block)
	// Release sends the held calls that Verdict passes now, and drops the others.
	Release()
	// End sends everything held back until the end.
	End()
	// Next begins the next upstream answer.
	Next()
	// Number returns the sequence number of the client's next event, 0 in a dialect whose events have none.
	Number() int
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

// Client is the client's side of a Merger: what it has got, and what is held back. A Half writes to it.
type Client struct {
	o        Options
	got      *wire.Folder // what the client has got
	out      []byte       // what it gets next
	kept     int          // bytes that are kept until the end
	open     bool         // the client's stream stands within an event that was cut
	unjudged bool         // a call was dropped because no layer judges it
	round
}

// round is the current upstream answer, and what is held back of it.
type round struct {
	upstream *wire.Folder
	answer   int                  // its number, from 0
	released bool                 // what was held of it may go
	allow    func(wire.Call) bool // which of its calls may, nil for all
	terminal []*Block             // from the event on that ends it
	held     int                  // bytes that are held of it
}

// Guards reports whether some calls are kept from the client, or held back until they are judged.
func (c *Client) Guards() bool { return c.o.Hide != nil || c.Judges() }

// Judges reports whether calls are held back until they are judged.
func (c *Client) Judges() bool { return c.o.HoldCalls || c.o.HoldAll }

// Answer returns the number of the current upstream answer, from 0.
func (c *Client) Answer() int { return c.answer }

// Text returns the text of the first choice that the client has got so far.
func (c *Client) Text() string {
	var text strings.Builder
	if choices := c.got.Reply().Choices; len(choices) > 0 {
		for i := range choices[0] {
			text.WriteString(choices[0][i].Text())
		}
	}
	return text.String()
}

// Usage returns the usage object of the current upstream answer as JSON, nil before it came.
func (c *Client) Usage() []byte { return c.upstream.Reply().Usage }

// Pass sends a block to the client with the bytes it came with.
func (c *Client) Pass(b *Block) { c.Send(b, b.Data) }

// Send sends a block to the client with other data; its event name stays.
func (c *Client) Send(b *Block, data []byte) {
	if c.open {
		c.say([]byte("\n\n"))
	}
	from := len(c.out)
	if bytes.Equal(data, b.Data) {
		c.out = append(c.out, b.Raw...)
	} else {
		c.out = b.AppendWith(c.out, data)
	}
	if b.cut {
		c.got.Write(c.out[from:])
	} else {
		c.got.Take(&sse.Block{Name: b.Name, Data: data, Kind: b.Kind})
	}
	b.shown, c.open = true, b.cut
}

// say gives the client bytes that are not a whole block.
func (c *Client) say(p []byte) {
	c.out = append(c.out, p...)
	c.got.Write(p)
}

// MaxIdentity is the size in bytes up to which a member that identifies an answer, such as its id, is kept for later rounds.
const MaxIdentity = 4096

// give returns what the client gets next.
func (c *Client) give() []byte {
	out := c.out
	c.out = nil
	return out
}

// Keep copies what the block refers to, so that it may be used after the call of Event. The copy counts as held.
func (c *Client) Keep(b *Block) *Block {
	if !b.kept {
		b.Block, b.kept = sse.Parse(bytes.Clone(b.Raw), b.Kind), true
		if b.Effect != nil {
			b.Effect = b.Effect.Keep(&b.Block)
		}
		c.held += len(b.Raw)
	}
	return b
}

// Terminate holds a block back until the end of the client's answer.
func (c *Client) Terminate(b *Block) { c.terminal = append(c.terminal, c.Keep(b)) }

// Terminal returns the blocks of the current upstream answer that Terminate holds back, in their order.
func (c *Client) Terminal() []*Block { return c.terminal }

// Hold counts n more bytes that are held of the current upstream answer, until the next one.
func (c *Client) Hold(n int) { c.held += n }

// HoldToTheEnd counts n more bytes that are held until the end of the client's answer.
func (c *Client) HoldToTheEnd(n int) { c.kept += n }

// Verdict returns the decision on a call whose name is known: Passed, Held or Hidden.
func (c *Client) Verdict(call wire.Call) Verdict {
	switch {
	case c.o.Hide != nil && call.Family != wire.FamilyApproval && c.o.Hide(call.Name): // a tool of an MCP server may have the same name
		return Hidden
	case !c.released && c.o.HoldCalls:
		return Held
	case c.allow != nil && !c.allow(call):
		return Hidden
	}
	return Passed
}

// DropUnjudged notes that a call was dropped because no layer judges it: see Merger.Unjudged.
func (c *Client) DropUnjudged() { c.unjudged = true }

// OwnTools returns a list of tools without the hidden ones.
func (c *Client) OwnTools(list []byte) []byte { return ownTools(list, c.o.Hide) }

// Empty reports whether a value stands for nothing.
func Empty(raw []byte) bool {
	switch string(raw) {
	case "null", `""`, "[]", "{}":
		return true
	}
	return false
}
