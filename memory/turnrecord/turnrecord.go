// Package turnrecord defines the record of a turn, which a transcript keeps beside its items: the request, how its view was
// chosen, and what layers did.
package turnrecord

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	"remora/memory/view"
)

// Statuses of a turn record.
const (
	Complete   = "complete"   // the answer is whole
	Incomplete = "incomplete" // the answer, or its rest, has not come: yet, if the turn is open, or ever
	Failed     = "failed"     // upstream answered with an error
)

// Record describes a turn, stored as JSON.
type Record struct {
	ID           string          `json:"id"`
	Time         time.Time       `json:"time"`
	Status       string          `json:"status"`
	Open         bool            `json:"open,omitempty"`  // the answer was still to come when this was written
	Later        bool            `json:"later,omitempty"` // upstream makes it in the background, and no client has fetched it yet
	Relation     string          `json:"relation"`
	Resource     string          `json:"resource,omitempty"`  // empty for none
	Execution    string          `json:"execution,omitempty"` // the agent run: named by the client, or made of the run's user message
	ParentID     string          `json:"parent_session,omitempty"`
	Dialect      string          `json:"dialect"`
	Model        string          `json:"model,omitempty"`
	Rule         string          `json:"rule,omitempty"`  // why the request was placed there (docs/sessions.md)
	Alone        bool            `json:"alone,omitempty"` // nothing was put before it, and the conversation stayed where it was
	Side         string          `json:"side,omitempty"`  // of a side request: what it was for
	HTTPStatus   int             `json:"http_status,omitempty"`
	Cut          string          `json:"cut,omitempty"`
	Degraded     bool            `json:"degraded,omitempty"`
	SystemPrompt string          `json:"system_prompt,omitempty"`
	Parent       uint64          `json:"parent"`
	Tip          uint64          `json:"tip"`              // the last item of the input: the line that ends there is the conversation
	Input        []uint64        `json:"input,omitempty"`  // sequence numbers of the new items
	Output       [][]uint64      `json:"output,omitempty"` // sequence numbers of the answer's items, per choice
	ResponseID   string          `json:"response_id,omitempty"`
	Finish       string          `json:"finish,omitempty"`
	Usage        json.RawMessage `json:"usage,omitempty"`
	View         View            `json:"view"`
	Hidden       []uint64        `json:"hidden,omitempty"` // sequence numbers of the new items that the client does not see
	Blocks       []BlockRef      `json:"blocks,omitempty"` // what layers put into the view, in its order
	Layers       []LayerNote     `json:"layers,omitempty"`
	// Before is the id of the latest turn before this one that, like this one, stored no item when it was written: the
	// first of the chain, to which nothing leads otherwise, begins at the head.
	Before string `json:"before,omitempty"`
}

// View describes how the view was chosen from the conversation: the line that ends with the turn's input.
type View struct {
	Conversation int            `json:"conversation"` // items, without the system prompt
	Sent         int            `json:"sent"`
	From         int            `json:"from"`             // the first item that the window kept
	Pinned       *int           `json:"pinned,omitempty"` // an item kept before that
	Windowed     int            `json:"windowed,omitempty"`
	Orphans      int            `json:"orphans,omitempty"`
	Repaired     int            `json:"repaired,omitempty"` // of the client's own items, those left out as orphans or sent in another form
	LeftOut      []view.LeftOut `json:"left_out,omitempty"`
	// Items name what was sent, without the system prompt, in its order: with them the view can be put together again
	// (see session.Log.TurnView).
	Items []Span `json:"items,omitempty"`
	// SystemPrompt is the hash of the system prompt that was sent.
	SystemPrompt string `json:"system_prompt,omitempty"`
	Stored       bool   `json:"stored,omitempty"` // the stored history was put before the client's items
	// ToolResult is how many tokens of a tool result were sent at most, 0 for all (view.ShortenResult).
	ToolResult int `json:"tool_result_max_tokens,omitempty"`
	// Tokens is the cost of the view, nil if no layer or budget was involved.
	Tokens *Tokens `json:"tokens,omitempty"`
	// PrefixReason is why a prefix version begins with this view (view.Prefix), empty if it does not.
	PrefixReason string `json:"new_prefix,omitempty"`
	// Messages names the form in which the view was sent (view.Form), empty for as it is.
	Messages string `json:"messages,omitempty"`
	// Portable: stored items were sent in the form that any provider accepts.
	Portable bool `json:"portable,omitempty"`
	// Own: and so were answers that the client had resent.
	Own bool `json:"portable_own,omitempty"`
	// NoCalls: these have no calls and no results, since the request offered no tools.
	NoCalls bool `json:"no_calls,omitempty"`
	// NoMedia: words were sent in place of pictures, files and sounds that the model had answered.
	NoMedia bool `json:"no_media,omitempty"`
	// Mended names the changes to calls in the view (view.Mend).
	Mended []string `json:"mended,omitempty"`
	// Continues: upstream keeps what stands before the view.
	Continues bool `json:"continues,omitempty"`
	// Carried are how many of the view's items upstream had not seen of the answer that it went on from.
	Carried int `json:"carried,omitempty"`
}

// Span names items of a view that stand one after the other.
type Span struct {
	// End is where N items end that stand one after the other on the line: the first 8 bytes, in hex, of the chain hash
	// behind the last of them.
	End string `json:"end,omitempty"`
	N   int    `json:"n,omitempty"`
	// Off are the span's items that are not on the chain, such as reasoning, from the last one backwards: a varint of
	// how many on the chain stand between it and the one after it, or the end, and the first 4 bytes of its content
	// hash.
	Off []byte `json:"off,omitempty"`
	// Is are the first 8 bytes of the content hash of each item, where the span has no end.
	Is []byte `json:"is,omitempty"`
}

// Tokens is the cost of a view, in tokens. Layers' shares are with the layers of the turn.
type Tokens struct {
	System  int `json:"system"` // the system prompt
	Tools   int `json:"tools"`  // the client's and those of layers; always a quarter of their bytes
	History int `json:"history"`
	Layers  int `json:"layers"` // always counted
	Total   int `json:"total"`
	// Estimated: System and History are a quarter of their bytes, since the view fitted without counting.
	Estimated bool `json:"estimated,omitempty"`
}

// LayerNote is how a layer fared in a turn.
type LayerNote struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`   // what people call it
	Tokens int    `json:"tokens,omitempty"` // of its blocks in the view
	Items  int    `json:"items,omitempty"`  // how many messages these are
	Ms     int64  `json:"ms"`               // milliseconds spent in its hooks up to the commit
	Error  string `json:"error,omitempty"`  // why it was left out; never content
	// Notes are what the layer reports about the turn, by name: numbers, texts and truth values.
	Notes map[string]any `json:"notes,omitempty"`
}

// BlockRef is how a turn record names one text of a block.
type BlockRef struct {
	view.Block        // without its texts; once placed, At counts items of the view's history
	System     bool   `json:"system,omitempty"` // it was a system message, not a developer's
	Hash       string `json:"hash"`             // of the text
}

// Size is about how many bytes AppendTo writes.
func (r *Record) Size() int {
	n := 560 + len(r.Usage) + len(r.Model) + len(r.Resource) + len(r.ParentID) + len(r.ResponseID) + 96*len(r.Layers) + 144*len(r.Blocks)
	for _, s := range r.View.Items {
		n += 48 + 4*(len(s.Off)+len(s.Is))/3
	}
	return n
}

// AppendTo appends the record as encoding/json would read it back. It is written by hand since it is part of every
// commit: reflection made up a twentieth of a turn.
func (r *Record) AppendTo(b []byte) []byte {
	o := object(append(b, '{'))
	o.text("id", r.ID)
	o.member("time")
	o = append(r.Time.AppendFormat(append(o, '"'), time.RFC3339Nano), '"')
	o.text("status", r.Status)
	o.text("relation", r.Relation)
	o.text("rule", r.Rule)
	o.text("resource", r.Resource)
	o.text("execution", r.Execution)
	o.text("parent_session", r.ParentID)
	o.text("dialect", r.Dialect)
	o.text("model", r.Model)
	o.text("side", r.Side)
	o.text("cut", r.Cut)
	o.text("system_prompt", r.SystemPrompt)
	o.text("response_id", r.ResponseID)
	o.text("finish", r.Finish)
	o.text("before", r.Before)
	o.number("http_status", r.HTTPStatus)
	o.flag("open", r.Open)
	o.flag("later", r.Later)
	o.flag("alone", r.Alone)
	o.flag("degraded", r.Degraded)
	o.member("parent")
	o = appendSeq(o, r.Parent)
	o.member("tip")
	o = appendSeq(o, r.Tip)
	o = appendList(o, "input", r.Input, appendSeq)
	o = appendList(o, "output", r.Output, appendSeqs)
	if len(r.Usage) > 0 {
		o.member("usage")
		o = append(o, r.Usage...)
	}
	o = appendList(o, "hidden", r.Hidden, appendSeq)
	o = appendRare(o, "blocks", r.Blocks)
	o = appendList(o, "layers", r.Layers, appendLayer)
	o.member("view")
	return append(r.View.appendTo(o), '}')
}

func (v *View) appendTo(b []byte) []byte {
	o := object(append(b, '{'))
	o.count("conversation", v.Conversation)
	o.count("sent", v.Sent)
	o.count("from", v.From)
	o.number("windowed", v.Windowed)
	o.number("orphans", v.Orphans)
	o.number("tool_result_max_tokens", v.ToolResult)
	o.number("repaired", v.Repaired)
	if v.Pinned != nil {
		o.count("pinned", *v.Pinned)
	}
	o.text("new_prefix", v.PrefixReason)
	if v.Tokens != nil {
		o.member("tokens")
		o = v.Tokens.appendTo(o)
	}
	o.text("system_prompt", v.SystemPrompt)
	o.text("messages", v.Messages)
	o.flag("portable", v.Portable)
	o.flag("portable_own", v.Own)
	o.flag("no_calls", v.NoCalls)
	o.flag("no_media", v.NoMedia)
	o = appendList(o, "mended", v.Mended, appendText)
	o.flag("continues", v.Continues)
	o.number("carried", v.Carried)
	o.flag("stored", v.Stored)
	o = appendList(o, "items", v.Items, appendSpan)
	o = appendRare(o, "left_out", v.LeftOut)
	return append(o, '}')
}

func appendLayer(b []byte, l LayerNote) []byte {
	o := object(append(b, '{'))
	o.member("id")
	o = appendText(o, l.ID)
	o.text("name", l.Name)
	o.number("tokens", l.Tokens)
	o.number("items", l.Items)
	o.member("ms")
	o = strconv.AppendInt(o, l.Ms, 10)
	o.text("error", l.Error)
	if len(l.Notes) > 0 {
		if text, err := json.Marshal(l.Notes); err == nil { // numbers, texts and truth values: it can't fail
			o.member("notes")
			o = append(o, text...)
		}
	}
	return append(o, '}')
}

func appendSpan(b []byte, s Span) []byte {
	o := object(append(b, '{'))
	o.text("end", s.End)
	o.number("n", s.N)
	o.bytes("off", s.Off)
	o.bytes("is", s.Is)
	return append(o, '}')
}

func (v *Tokens) appendTo(b []byte) []byte {
	o := object(append(b, '{'))
	o.count("system", v.System)
	o.count("tools", v.Tools)
	o.count("history", v.History)
	o.count("layers", v.Layers)
	o.count("total", v.Total)
	o.flag("estimated", v.Estimated)
	return append(o, '}')
}

// object is the beginning of a JSON object. Its methods append a member; all but count and member leave out the zero value.
type object []byte

// member begins a member, whose value follows.
func (o *object) member(name string) {
	b := *o
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	*o = append(append(append(b, '"'), name...), `":`...)
}

func (o *object) text(name, value string) {
	if value != "" {
		o.member(name)
		*o = appendText(*o, value)
	}
}

func (o *object) number(name string, value int) {
	if value != 0 {
		o.count(name, value)
	}
}

func (o *object) count(name string, value int) {
	o.member(name)
	*o = strconv.AppendInt(*o, int64(value), 10)
}

func (o *object) flag(name string, value bool) {
	if value {
		o.member(name)
		*o = append(*o, "true"...)
	}
}

func (o *object) bytes(name string, value []byte) {
	if len(value) > 0 {
		o.member(name)
		*o = append(base64.StdEncoding.AppendEncode(append(*o, '"'), value), '"')
	}
}

// appendRare appends a list that few turns have; nothing for an empty one.
func appendRare[T any](o object, name string, list []T) object {
	if len(list) == 0 {
		return o
	}
	if text, err := json.Marshal(list); err == nil { // numbers and strings: it can't fail
		o.member(name)
		o = append(o, text...)
	}
	return o
}

// appendList appends a list; nothing for an empty one.
func appendList[T any](o object, name string, list []T, element func([]byte, T) []byte) object {
	if len(list) == 0 {
		return o
	}
	o.member(name)
	return appendElements(o, list, element)
}

// escaped has the bytes that a JSON string may not hold as they are, and those outside of ASCII.
var escaped = func() (table [256]bool) { //nolint:gochecknoglobals // a constant table
	for c := range table {
		table[c] = c < ' ' || c >= 0x7f || c == '"' || c == '\\'
	}
	return table
}()

// appendText appends a JSON string. Most texts need no escapes; the others take the long way.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if escaped[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				quoted = []byte(`""`)
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendElements[T any](b []byte, list []T, element func([]byte, T) []byte) []byte {
	b = append(b, '[')
	for i, v := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = element(b, v)
	}
	return append(b, ']')
}

func appendSeqs(b []byte, seqs []uint64) []byte { return appendElements(b, seqs, appendSeq) }

func appendSeq(b []byte, n uint64) []byte { return strconv.AppendUint(b, n, 10) }
