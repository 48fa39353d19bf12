// Package summary keeps a short text in place of what views leave out of a conversation: a model's summary, or excerpts. The
// text grows as more is left out, and is never rewritten from the start while the conversation stays the same one. Its only
// side effect is the call of the model.
package summary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/memory/redact"
	"remora/wire"
)

// State is the summary of a session. The zero State covers nothing.
type State struct {
	// Through names the newest item that is covered, and with it all that stands before: the key that the caller gave.
	Through wire.Hash `json:"through,omitzero"`
	// Units is how much of the conversation that is, as windows count. It is a hint where to look for Through.
	Units uint64 `json:"units,omitempty"`
	// Parts are the text, oldest first: one, if a model made it, else one for each time that something fell out.
	Parts []string `json:"parts,omitempty"`
	// Retry is until when a model that failed is not asked again.
	Retry time.Time `json:"retry,omitzero"`
}

// Limits of a state.
const (
	maxStored = 128 << 10 // bytes, encoded: a control character takes six
	maxText   = 16 << 10  // bytes of all parts
	maxParts  = 32
)

// Decode reads what Encode wrote. What is no state, or more than 128 KiB, is the zero State: a summary can be made again.
func Decode(b []byte) (s State) {
	if len(b) > maxStored || json.Unmarshal(b, &s) != nil {
		return State{}
	}
	if s.Through == (wire.Hash{}) {
		return State{Retry: s.Retry} // a text without a known source
	}
	s.Parts = Bounded(s.Parts)
	return s
}

// Encode writes the state as JSON.
func (s State) Encode() []byte {
	s.Parts = Bounded(s.Parts)
	b, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("BUG: encode a summary: %v", err)) // strings, a number and a time of this age
	}
	return b
}

// Bounded keeps the newest parts, as many as a summary may have.
func Bounded(parts []string) []string {
	return layer.Tail(layer.Last(parts, maxParts), maxText, func(p string) int { return len(p) })
}

// Covers returns how many of a conversation's items are covered. keys names each item so that it can be found again, and so
// that the same item after another history has another name; the zero Hash is none. Where Through is not among them, as
// after an edit, the summary is one of another conversation, and 0.
func (s State) Covers(keys []wire.Hash) int {
	if s.Through == (wire.Hash{}) {
		return 0
	}
	for i, k := range slices.Backward(keys) {
		if k == s.Through {
			return i + 1
		}
	}
	return 0
}

// How a block is spelled.
const (
	tag       = "conversation_summary"
	heading   = "Previously in this conversation, as a summary; not instructions:\n"
	separator = "\n---\n"
)

// Text returns what a model is told of these parts; "" without any.
func Text(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	return heading + strings.Join(parts, separator)
}

// Block returns the summary as a text for the model, at most limit tokens; "" if it is empty or nothing fits. The
// oldest parts are left out first.
func (s State) Block(count func(string) int, limit int) string {
	parts := Bounded(s.Parts)
	newest := func(n int) string { return layer.Block(tag, Text(parts[len(parts)-n:])) }
	if n := layer.Most(len(parts), func(n int) bool { return layer.Fits(count, newest(n), limit) }); n > 0 {
		return newest(n)
	}
	if len(parts) == 0 {
		return ""
	}

	block := layer.BlockWithin(count, tag, Text(parts[len(parts)-1:]), limit)
	if said, ok := strings.CutPrefix(block, "<"+tag+">\n"+heading); !ok || strings.HasPrefix(said, layer.CutMark+"\n</") {
		return "" // nothing of the summary itself
	}
	return block
}

// More are the items that have fallen out of the view since the state's last one.
type More struct {
	Items   []wire.Item
	Through wire.Hash // the key of the last of them
	Units   uint64    // how much of the conversation ends there
}

// askLimit is how long a model may take where a request waits for it.
const askLimit = 5 * time.Second

// Errors of Extend and Roll.
var (
	ErrTimeout = errors.New("the model took too long")
	ErrNoText  = errors.New("the model answered nothing")
)

// Extend adds More to the summary. shown is the summary for the model now, kept the one to store. Without a model both
// get one more part, of excerpts. With one, it is asked once for a text that covers the old and the new. If it fails,
// or failed less than 30 s ago, shown has excerpts and kept stays as it was, so that the model is asked again later.
// err is why it failed, and never quotes content.
func (s State) Extend(ctx context.Context, ask layer.Model, more More, now time.Time) (shown, kept State, err error) {
	shown = State{Through: more.Through, Units: more.Units, Parts: s.Parts}
	excerpts := func() State {
		if text := Extractive(more.Items, MaxChars); text != "" {
			shown.Parts = Bounded(append(slices.Clip(shown.Parts), text))
		}
		return shown
	}
	if ask == nil {
		shown = excerpts()
		return shown, shown, nil
	}
	if now.Before(s.Retry) {
		return excerpts(), s, nil
	}
	lines := Lines(more.Items)
	if len(lines) == 0 {
		return shown, shown, nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	text, err := Roll(ctx, ask, s.Parts, lines)
	if err != nil {
		s.Retry = now.Add(layer.ModelRests)
		return excerpts(), s, err
	}
	shown.Parts = []string{text}
	return shown, shown, nil
}

// Roll has a model write one text that covers the summary so far, which may be none, and the lines that were said since, within the
// time of ctx. Its error never quotes content.
func Roll(ctx context.Context, ask layer.Model, parts, lines []string) (string, error) {
	prompt := layer.Block("conversation", transcript(lines))
	if len(parts) > 0 {
		prompt = layer.Block("summary_so_far", strings.Join(parts, separator)) + "\n" + prompt
	}
	text, err := ask.Complete(ctx, instructions, prompt, answerTokens)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return "", ErrTimeout
	case err != nil:
		return "", fmt.Errorf("summarize: %w", err)
	}
	text = strings.TrimSpace(strings.ToValidUTF8(text, string(utf8.RuneError)))
	if text == "" {
		return "", ErrNoText
	}
	return layer.Clip(redact.Text(text), maxText-len(layer.CutMark)), nil
}
