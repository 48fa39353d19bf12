// Package turnrecord is what a transcript keeps of a turn beside its items: what it was, how its view was chosen, and
// what layers did in it.
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

// Record is what is kept of a turn, as JSON.
type Record struct {
	ID         string          `json:"id"`
	Time       time.Time       `json:"time"`
	Status     string          `json:"status"`
	Open       bool            `json:"open,omitempty"` // the answer was still to come when this was written
	Relation   string          `json:"relation"`
	Resource   string          `json:"resource,omitempty"`  // where it is not the session itself
	Execution  string          `json:"execution,omitempty"` // the agent run: named by the client, or made of the round's user message
	ParentID   string          `json:"parent_session,omitempty"`
	Dialect    string          `json:"dialect"`
	Model      string          `json:"model,omitempty"`
	Side       string          `json:"side,omitempty"`
	HTTPStatus int             `json:"http_status,omitempty"`
	Cut        string          `json:"cut,omitempty"`
	Degraded   bool            `json:"degraded,omitempty"`
	Lead       string          `json:"lead,omitempty"`
	Parent     uint64          `json:"parent"`
	Tip        uint64          `json:"tip"`              // the last item of the input: the line that ends there is the conversation
	Input      []uint64        `json:"input,omitempty"`  // sequence numbers of the new items
	Output     [][]uint64      `json:"output,omitempty"` // sequence numbers of the answer's items, per choice
	ResponseID string          `json:"response_id,omitempty"`
	Finish     string          `json:"finish,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
	View       View            `json:"view"`
	Hidden     []uint64        `json:"hidden,omitempty"` // sequence numbers of the new items that the client does not see
	Blocks     []BlockRef      `json:"blocks,omitempty"` // what layers put into the view, in its order
	Layers     []LayerNote     `json:"layers,omitempty"`
	// Before is the id of the latest turn before this one that, like this one, stored no item when it was written: the
	// first of the chain, to which nothing leads otherwise, begins at the head.
	Before string `json:"before,omitempty"`
}

// View says how the view was chosen from the conversation: the line that ends with the turn's input.
type View struct {
	Conversation int            `json:"conversation"` // items, without the leading ones
	Sent         int            `json:"sent"`
	From         int            `json:"from"`             // the first item that the window kept
	Pinned       *int           `json:"pinned,omitempty"` // an item kept before that
	Windowed     int            `json:"windowed,omitempty"`
	Orphans      int            `json:"orphans,omitempty"`
	LeftOut      []view.LeftOut `json:"left_out,omitempty"`
	// Items are the leading 8 bytes of the content hashes of what was sent, without the leading items, in its order:
	// with them the view can be put together again (see transcript.Log.TurnView).
	Items []byte `json:"items,omitempty"`
	// Lead is the hash of the leading items that were sent.
	Lead   string `json:"lead,omitempty"`
	Stored bool   `json:"stored,omitempty"` // the stored history was put before the client's items
	// ToolResult is how many tokens of a tool result were sent at most, 0 for all (view.ShortenResult).
	ToolResult int `json:"tool_result_max_tokens,omitempty"`
	// Tokens is what the view cost, nil where no layer or budget had to do with it.
	Tokens *Tokens `json:"tokens,omitempty"`
	// Epoch is why an epoch of the prompt cache begins with this view (memory/anchor), empty if it goes on.
	Epoch string `json:"epoch,omitempty"`
}

// Tokens is what a view cost, in tokens (case 84). What each layer had of it stands with the layers of the turn.
type Tokens struct {
	System  int `json:"system"` // the leading items
	Tools   int `json:"tools"`  // the client's and those of layers; always a quarter of their bytes
	History int `json:"history"`
	Layers  int `json:"layers"` // always counted
	Total   int `json:"total"`
	// Estimated tells that System and History are a quarter of their bytes: the view fitted whatever it cost, so that
	// nothing had to be counted.
	Estimated bool `json:"estimated,omitempty"`
}

// LayerNote is how a layer fared in a turn.
type LayerNote struct {
	ID     string `json:"id"`
	Tokens int    `json:"tokens,omitempty"` // of its blocks in the view
	Items  int    `json:"items,omitempty"`  // how many messages these are
	Ms     int64  `json:"ms"`               // milliseconds spent in its hooks up to the commit
	Error  string `json:"error,omitempty"`  // why it was left out; never content
	// Notes are figures that the layer tells of the turn, by name: numbers, texts and truths.
	Notes map[string]any `json:"notes,omitempty"`
}

// BlockRef is how a turn record names a block.
type BlockRef struct {
	Layer  string `json:"layer"`
	Slot   int    `json:"slot"`
	Tokens int    `json:"tokens"`
	Live   bool   `json:"live,omitempty"`
	Round  bool   `json:"round,omitempty"`
	System bool   `json:"system,omitempty"` // it was a system message, not a developer's
	Hash   string `json:"hash"`
}

// Size is about how many bytes AppendTo writes.
func (r *Record) Size() int { return 640 + len(r.Usage) + 4*len(r.View.Items)/3 }

// AppendTo appends the record as encoding/json would read it back. It is written by hand since it is part of every
// commit: reflection made up a twentieth of a turn.
func (r *Record) AppendTo(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendText(b, r.ID)
	b = append(b, `,"time":"`...)
	b = r.Time.AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	for _, f := range []struct{ name, value string }{
		{"status", r.Status},
		{"relation", r.Relation},
		{"resource", r.Resource},
		{"execution", r.Execution},
		{"parent_session", r.ParentID},
		{"dialect", r.Dialect},
		{"model", r.Model},
		{"side", r.Side},
		{"cut", r.Cut},
		{"lead", r.Lead},
		{"response_id", r.ResponseID},
		{"finish", r.Finish},
		{"before", r.Before},
	} {
		if f.value != "" {
			b = appendText(appendName(b, f.name), f.value)
		}
	}
	if r.HTTPStatus != 0 {
		b = strconv.AppendInt(appendName(b, "http_status"), int64(r.HTTPStatus), 10)
	}
	if r.Open {
		b = append(appendName(b, "open"), "true"...)
	}
	if r.Degraded {
		b = append(appendName(b, "degraded"), "true"...)
	}
	b = strconv.AppendUint(appendName(b, "parent"), r.Parent, 10)
	b = strconv.AppendUint(appendName(b, "tip"), r.Tip, 10)
	if len(r.Input) > 0 {
		b = appendSeqs(appendName(b, "input"), r.Input)
	}
	if len(r.Output) > 0 {
		b = append(appendName(b, "output"), '[')
		for i, seqs := range r.Output {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendSeqs(b, seqs)
		}
		b = append(b, ']')
	}
	if len(r.Usage) > 0 {
		b = append(appendName(b, "usage"), r.Usage...)
	}
	b = r.appendNotes(b)
	return append(r.View.appendTo(appendName(b, "view")), '}')
}

// appendNotes appends what layers did, which few turns have.
func (r *Record) appendNotes(b []byte) []byte {
	if len(r.Hidden) > 0 {
		b = appendSeqs(appendName(b, "hidden"), r.Hidden)
	}
	if len(r.Blocks)+len(r.Layers) == 0 {
		return b
	}
	for _, f := range []struct {
		name  string
		value any
		want  bool
	}{{"blocks", r.Blocks, len(r.Blocks) > 0}, {"layers", r.Layers, len(r.Layers) > 0}} {
		if !f.want {
			continue
		}
		if text, err := json.Marshal(f.value); err == nil { // numbers and strings: it can't fail
			b = append(appendName(b, f.name), text...)
		}
	}
	return b
}

func (v *View) appendTo(b []byte) []byte {
	b = append(b, '{')
	for _, f := range []struct {
		name  string
		value int
		want  bool
	}{
		{"conversation", v.Conversation, true},
		{"sent", v.Sent, true},
		{"from", v.From, true},
		{"windowed", v.Windowed, v.Windowed != 0},
		{"orphans", v.Orphans, v.Orphans != 0},
		{"tool_result_max_tokens", v.ToolResult, v.ToolResult != 0},
	} {
		if f.want {
			b = strconv.AppendInt(appendName(b, f.name), int64(f.value), 10)
		}
	}
	if v.Pinned != nil {
		b = strconv.AppendInt(appendName(b, "pinned"), int64(*v.Pinned), 10)
	}
	if v.Epoch != "" {
		b = appendText(appendName(b, "epoch"), v.Epoch)
	}
	if v.Tokens != nil {
		b = v.Tokens.appendTo(appendName(b, "tokens"))
	}
	if v.Lead != "" {
		b = appendText(appendName(b, "lead"), v.Lead)
	}
	if v.Stored {
		b = append(appendName(b, "stored"), "true"...)
	}
	if len(v.Items) > 0 {
		b = append(appendName(b, "items"), '"')
		b = append(base64.StdEncoding.AppendEncode(b, v.Items), '"')
	}
	if len(v.LeftOut) > 0 {
		out, err := json.Marshal(v.LeftOut)
		if err == nil { // numbers and strings: it can't fail
			b = append(appendName(b, "left_out"), out...)
		}
	}
	return append(b, '}')
}

func (v *Tokens) appendTo(b []byte) []byte {
	b = append(b, '{')
	for _, f := range []struct {
		name  string
		value int
	}{{"system", v.System}, {"tools", v.Tools}, {"history", v.History}, {"layers", v.Layers}, {"total", v.Total}} {
		b = strconv.AppendInt(appendName(b, f.name), int64(f.value), 10)
	}
	if v.Estimated {
		b = append(appendName(b, "estimated"), "true"...)
	}
	return append(b, '}')
}

func appendName(b []byte, name string) []byte {
	if b[len(b)-1] != '{' {
		b = append(b, ',')
	}
	return append(append(append(b, '"'), name...), `":`...)
}

// appendText appends a JSON string. Most texts need no escapes; the others take the long way.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(s)
			if err != nil {
				quoted = []byte(`""`)
			}
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendSeqs(b []byte, seqs []uint64) []byte {
	b = append(b, '[')
	for i, n := range seqs {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, n, 10)
	}
	return append(b, ']')
}
