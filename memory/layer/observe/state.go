package observe

import (
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"remora/memory/layer"
)

// Who said something.
const (
	byUser      = "user"
	byAssistant = "assistant"
	byTool      = "tool"
)

// entry is one text that waits to be distilled.
type entry struct {
	By   string `json:"by"`
	Text string `json:"text"`
}

// perEntry is what an entry costs beside its text, in bytes: many empty ones must not fill the state either.
const perEntry = 24

// state is what the layer keeps.
type state struct {
	Observations []string `json:"observations"`
	Buffer       []entry  `json:"buffer"`
	BufferTokens int      `json:"bufferTokens"`
	Version      int      `json:"version"`
	// Lost is how many texts were given up since the last distillation, because the buffer is bounded.
	Lost int `json:"lost,omitempty"`
}

func decode(b []byte) (state, error) {
	if len(b) == 0 {
		return state{}, nil
	}
	var st state
	if json.Unmarshal(b, &st) != nil || st.BufferTokens < 0 || st.Version < 0 || st.Lost < 0 {
		return state{}, errors.New("state: want observations, buffer, bufferTokens and version")
	}
	return st.shared(), nil
}

// encode writes the state as JSON. What is no UTF-8 is replaced.
func (st *state) encode() layer.State {
	size := 128
	for _, o := range st.Observations {
		size += len(o) + len(o)/16 + 4
	}
	for _, e := range st.Buffer {
		size += len(e.Text) + len(e.Text)/16 + 32
	}
	b := append(make([]byte, 0, size), `{"observations":`...)
	b = list(b, st.Observations, quoted)
	b = list(append(b, `,"buffer":`...), st.Buffer, func(b []byte, e entry) []byte {
		b = quoted(append(b, `{"by":`...), e.By)
		return append(quoted(append(b, `,"text":`...), e.Text), '}')
	})
	b = strconv.AppendInt(append(b, `,"bufferTokens":`...), int64(st.BufferTokens), 10)
	b = strconv.AppendInt(append(b, `,"version":`...), int64(st.Version), 10)
	if st.Lost > 0 {
		b = strconv.AppendInt(append(b, `,"lost":`...), int64(st.Lost), 10)
	}
	return append(b, '}')
}

// list appends a JSON array, or null where there is no list.
func list[T any](b []byte, all []T, add func([]byte, T) []byte) []byte {
	if all == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, v := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = add(b, v)
	}
	return append(b, ']')
}

func quoted(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text) // its error says that something was replaced
	return b
}

// shared is the state as it can be given to several: whoever appends to a list gets one of their own.
func (st state) shared() state {
	st.Observations, st.Buffer = slices.Clip(st.Observations), slices.Clip(st.Buffer)
	return st
}

// gather puts a text at the end of the buffer and drops the oldest ones while there are more than limit bytes. Whoever
// shares the state sees nothing of it.
func (st *state) gather(e entry, tokens, limit int) {
	e.Text = strings.ToValidUTF8(e.Text, "\uFFFD") // as it will be read again
	st.Buffer = append(st.Buffer, e)
	st.BufferTokens = min(st.BufferTokens, math.MaxInt32) + tokens
	size := 0
	for i, e := range slices.Backward(st.Buffer) {
		size += len(e.Text) + perEntry
		if size > limit && i < len(st.Buffer)-1 {
			st.Buffer = st.Buffer[i+1:]
			st.Lost = min(st.Lost, math.MaxInt32) + i + 1
			return
		}
	}
}

// add ends a distillation: what it found goes behind what was known, and the newest are kept (case 32). Whoever shares
// the state sees nothing of it.
func (st *state) add(distilled []string, limit int) {
	st.Buffer, st.BufferTokens, st.Lost = []entry{}, 0, 0
	st.Observations = append(make([]string, 0, len(st.Observations)+len(distilled)), st.Observations...)
	for _, o := range distilled {
		if o = line(o, maxLine); o != "" {
			st.Observations = append(st.Observations, strings.Clone(o)) // not with all of the text that it was said in
		}
	}
	st.share("tool: ", max(1, limit/4))
	st.share("assistant: ", max(1, limit/2))
	if n := len(st.Observations) - limit; n > 0 {
		st.Observations = st.Observations[n:]
	}
	size := 0
	for i, o := range slices.Backward(st.Observations) {
		if size += len(o); size > maxObserved {
			st.Observations = st.Observations[i+1:]
			break
		}
	}
	st.Version++
}

// share keeps of the observations with a prefix the newest few: one long loop of tools must not drive out what the user
// said.
func (st *state) share(prefix string, most int) {
	extra := -most
	for _, o := range st.Observations {
		if strings.HasPrefix(o, prefix) {
			extra++
		}
	}
	st.Observations = slices.DeleteFunc(st.Observations, func(o string) bool {
		gone := extra > 0 && strings.HasPrefix(o, prefix)
		if gone {
			extra--
		}
		return gone
	})
}

// line is text as one line of at most limit characters: runs of white space and control characters become one space,
// and what is cut ends in "...".
func line(text string, limit int) string {
	text = layer.OneLine(text)
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	runes := []rune(text)[:limit-3]
	cut := string(runes)
	if i := strings.LastIndexByte(cut, ' '); i > len(cut)/2 {
		cut = cut[:i]
	}
	return cut + "..."
}
