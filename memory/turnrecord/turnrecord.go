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
	// SystemPrompt is the hash of the system prompt that were sent.
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

// Span names items of a view that stand one behind the other.
type Span struct {
	// End is where N items end that stand one behind the other on the line: the first 8 bytes, in hex, of the chain hash
	// behind the last of them.
	End string `json:"end,omitempty"`
	N   int    `json:"n,omitempty"`
	// Off are the span's items that are not on the chain, such as reasoning, from the last one backwards: a varint of
	// how many on the chain stand between it and the one behind it, or the end, and the first 4 bytes of its content
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
	n := 640 + len(r.Usage)
	for _, s := range r.View.Items {
		n += 48 + 4*(len(s.Off)+len(s.Is))/3
	}
	return n
}

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
		{"rule", r.Rule},
		{"resource", r.Resource},
		{"execution", r.Execution},
		{"parent_session", r.ParentID},
		{"dialect", r.Dialect},
		{"model", r.Model},
		{"side", r.Side},
		{"cut", r.Cut},
		{"system_prompt", r.SystemPrompt},
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
	if r.Later {
		b = append(appendName(b, "later"), "true"...)
	}
	if r.Alone {
		b = append(appendName(b, "alone"), "true"...)
	}
	if r.Degraded {
		b = append(appendName(b, "degraded"), "true"...)
	}
	b = strconv.AppendUint(appendName(b, "parent"), r.Parent, 10)
	b = strconv.AppendUint(appendName(b, "tip"), r.Tip, 10)
	b = appendList(b, "input", r.Input, appendSeq)
	b = appendList(b, "output", r.Output, appendSeqs)
	if len(r.Usage) > 0 {
		b = append(appendName(b, "usage"), r.Usage...)
	}
	b = r.appendNotes(b)
	return append(r.View.appendTo(appendName(b, "view")), '}')
}

// appendNotes appends what layers did, which few turns have.
func (r *Record) appendNotes(b []byte) []byte {
	b = appendList(b, "hidden", r.Hidden, appendSeq)
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
		{"repaired", v.Repaired, v.Repaired != 0},
	} {
		if f.want {
			b = strconv.AppendInt(appendName(b, f.name), int64(f.value), 10)
		}
	}
	if v.Pinned != nil {
		b = strconv.AppendInt(appendName(b, "pinned"), int64(*v.Pinned), 10)
	}
	if v.PrefixReason != "" {
		b = appendText(appendName(b, "new_prefix"), v.PrefixReason)
	}
	if v.Tokens != nil {
		b = v.Tokens.appendTo(appendName(b, "tokens"))
	}
	if v.SystemPrompt != "" {
		b = appendText(appendName(b, "system_prompt"), v.SystemPrompt)
	}
	if v.Messages != "" {
		b = appendText(appendName(b, "messages"), v.Messages)
	}
	if v.Portable {
		b = append(appendName(b, "portable"), "true"...)
	}
	if v.Own {
		b = append(appendName(b, "portable_own"), "true"...)
	}
	if v.NoCalls {
		b = append(appendName(b, "no_calls"), "true"...)
	}
	if v.NoMedia {
		b = append(appendName(b, "no_media"), "true"...)
	}
	b = appendList(b, "mended", v.Mended, appendText)
	if v.Continues {
		b = append(appendName(b, "continues"), "true"...)
	}
	if v.Carried > 0 {
		b = strconv.AppendInt(appendName(b, "carried"), int64(v.Carried), 10)
	}
	if v.Stored {
		b = append(appendName(b, "stored"), "true"...)
	}
	b = appendList(b, "items", v.Items, appendSpan)
	if len(v.LeftOut) > 0 {
		out, err := json.Marshal(v.LeftOut)
		if err == nil { // numbers and strings: it can't fail
			b = append(appendName(b, "left_out"), out...)
		}
	}
	return append(b, '}')
}

func appendSpan(b []byte, s Span) []byte {
	b = append(b, '{')
	if s.End != "" {
		b = appendText(appendName(b, "end"), s.End)
	}
	if s.N != 0 {
		b = strconv.AppendInt(appendName(b, "n"), int64(s.N), 10)
	}
	for _, f := range []struct {
		name  string
		value []byte
	}{{"off", s.Off}, {"is", s.Is}} {
		if len(f.value) > 0 {
			b = append(appendName(b, f.name), '"')
			b = append(base64.StdEncoding.AppendEncode(b, f.value), '"')
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

// appendList appends a member that is a list; nothing for an empty one.
func appendList[T any](b []byte, name string, list []T, element func([]byte, T) []byte) []byte {
	if len(list) == 0 {
		return b
	}
	return appendElements(appendName(b, name), list, element)
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
