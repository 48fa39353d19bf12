package layer

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"remora/memory/redact"
	"remora/wire"
)

// Speakers, as in Heard.By.
const (
	ByUser      = "user"
	ByAssistant = "assistant"
	ByTool      = "tool"
)

// Heard is a text that waits in a Buffer.
type Heard struct {
	By   string `json:"by"`
	Name string `json:"name,omitempty"` // of the user, among several
	Text string `json:"text"`
	Source
	// At is when it was said, in milliseconds since 1970: a model may read it days later.
	At int64 `json:"at,omitempty"`
}

// Time returns when a text was said, in the zone of the turn.
func (h Heard) Time(t *Turn) time.Time { return time.UnixMilli(h.At).In(t.Now.Location()) }

// Buffer is the part of a state with the texts that wait to be distilled, oldest first. Its methods never write into Texts: copies
// of the state share them.
type Buffer struct {
	Texts  []Heard `json:"buffer"`
	Tokens int     `json:"bufferTokens"` // of all texts since they were counted last, dropped ones included
}

// perText is the overhead of a text in bytes, so that many short texts cannot fill the state.
const perText = 96

// size returns how many bytes of a buffer's limit the text takes.
func (h Heard) size() int { return len(h.Text) + perText }

// Add appends the texts of users, models and tools that hears accepts, without secrets, and drops the oldest beyond a limit in
// bytes, but never the newest. Those of tools get half of the limit, so that a large result does not drive out what users said. Add
// reports whether there was any text, and how many were dropped.
//
// The newest are read first, and no more than the buffer holds: looking for secrets in the whole of a long history, most of
// which would be dropped at once, takes longer than everything else in its request. What is older is counted by its size.
func (b *Buffer) Add(t *Turn, items []wire.Item, limit int, hears func(by string) bool) (found bool, lost int) {
	var texts []Heard // the newest first
	size, ofTools, mostOfTools := 0, 0, limit/2
	for _, it := range slices.Backward(items) {
		by := speaker(it)
		if by == "" || !hears(by) {
			continue
		}
		most := limit
		if by == ByTool {
			most = max(0, mostOfTools-perText)
		}
		if size > limit || by == ByTool && ofTools > mostOfTools {
			const bytesPerToken = 4
			b.Tokens = min(b.Tokens, math.MaxInt32) + len(it.Raw)/bytesPerToken
			lost++
			continue
		}
		if text := redact.Text(Head(it.Said(), most)); text != "" {
			text = strings.ToValidUTF8(text, "\uFFFD") // as it will be read again
			h := Heard{By: by, Text: text, Source: Source{Digest(t.Thread), ItemName(it)}, At: t.Now.UnixMilli()}
			if by == ByUser {
				h.Name = SpeakerOf(it)
			}
			texts = append(texts, h)
			if size += h.size(); by == ByTool {
				ofTools += h.size()
			}
		}
	}
	if len(texts) == 0 {
		return false, lost
	}

	all := slices.Clip(b.Texts)
	for _, h := range slices.Backward(texts) {
		all = append(all, h)
		b.Tokens = min(b.Tokens, math.MaxInt32) + t.Count(h.Text)
	}
	left := mostOfTools
	b.Texts = Newest(all, func(h Heard) bool {
		if h.By == ByTool {
			left -= h.size()
		}
		return h.By != ByTool || left >= 0
	})
	b.Texts = Tail(b.Texts, limit, Heard.size)
	if len(b.Texts) == 0 {
		b.Texts = all[len(all)-1:]
	}
	return true, lost + len(all) - len(b.Texts)
}

// speaker returns who says an item, "" for system and developer messages and for items that say nothing.
func speaker(it wire.Item) string {
	switch {
	case it.Kind == wire.ToolResult:
		return ByTool
	case it.Kind == wire.Message && it.Role == wire.User:
		return ByUser
	case it.Kind == wire.Message && it.Role == wire.Assistant:
		return ByAssistant
	default:
		return ""
	}
}

// groups returns the texts of each session and those of its tools' results separately, in the order in which they begin.
func (b *Buffer) groups() [][]Heard {
	type origin struct {
		session string
		tool    bool
	}
	at := make(map[origin]int)
	var groups [][]Heard
	for _, h := range b.Texts {
		o := origin{h.Session, h.By == ByTool}
		i, known := at[o]
		if !known {
			i = len(groups)
			at[o], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], h)
	}
	return groups
}

// Limits of Distil.
const (
	// distilMargin is how long before the hook's end Distil stops asking: what a hook returns too late is lost.
	distilMargin = 500 * time.Millisecond
	// maxFailures is how many questions in a row may fail: then the model is down.
	maxFailures = 2
)

// Distil asks a model about the texts of each session, and about those of its tools' results separately, so that the source of an
// answer is known without trusting the model. It ends before ctx does. The returned function removes the texts that the model has
// answered from the buffer as it is then, and passes each answer with its texts to learn. It reports whether there were any: texts
// that are no longer there, since their session was deleted or another replica was first, teach nothing. It also removes texts that
// the model refuses (see Model): it would refuse them again. It is nil if there is nothing to remove.
//
// The error is that of the texts that were not answered. Those that were not refused wait for the next time.
func Distil[A any](
	ctx context.Context, t *Turn, b *Buffer, ask func(ctx context.Context, texts []Heard) (A, error),
) (func(b *Buffer, learn func([]Heard, A)) bool, error) {
	if t.Ask == nil {
		return nil, errors.New("no model for this request")
	}
	if until, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until.Add(-distilMargin))
		defer cancel()
	}
	type group struct {
		texts   []Heard
		answer  A
		refused bool
	}
	var done []group
	var errs []error
	failures := 0
	for _, texts := range b.groups() {
		if failures == maxFailures {
			break
		}
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		answer, err := ask(ctx, texts)
		refused := err != nil && isRefused(err)
		failures++
		if err == nil || refused {
			done, failures = append(done, group{texts, answer, refused}), 0
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	if len(done) == 0 {
		return nil, errors.Join(errs...)
	}

	return func(b *Buffer, learn func([]Heard, A)) (changed bool) {
		for _, g := range done {
			if !b.remove(g.texts) {
				continue
			}
			if changed = true; !g.refused {
				learn(g.texts, g.answer)
			}
		}
		if changed {
			b.count(t)
		}
		return changed
	}, errors.Join(errs...)
}

// isRefused reports whether a model refuses a prompt, as Model says.
func isRefused(err error) bool {
	r, ok := errors.AsType[interface {
		error
		Refused() bool
	}](err)
	return ok && r.Refused()
}

// SourcesOf returns the source of what a model said of texts. Which of them it is about is not known. A view is cut at its
// beginning: without the last of them it has none.
func SourcesOf(texts []Heard) Sources { return Sources{texts[len(texts)-1].Source} }

// Transcript returns texts as a block for a model: a line for each, with its time and its speaker.
func Transcript(texts []Heard, timeOf func(Heard) string) string {
	lines := make([]string, len(texts))
	for i, h := range texts {
		text := OneLine(h.Text)
		if h.Name != "" {
			text = h.Name + ": " + text
		}
		lines[i] = "[" + timeOf(h) + "] " + h.By + ": " + text
	}
	return Block("transcript", strings.Join(lines, "\n"))
}

// remove removes texts, each of them once, and reports whether the buffer had any.
func (b *Buffer) remove(texts []Heard) bool {
	left := slices.Clone(b.Texts)
	for _, h := range texts {
		if i := slices.Index(left, h); i >= 0 {
			left = slices.Delete(left, i, i+1)
		}
	}
	removed := len(left) < len(b.Texts)
	b.Texts = left
	return removed
}

// count counts the tokens of the texts anew.
func (b *Buffer) count(t *Turn) {
	b.Tokens = 0
	for _, h := range b.Texts {
		b.Tokens += t.Count(h.Text)
	}
}

// Forget removes the texts of deleted sessions, for a Forgetter.
func (b *Buffer) Forget(t *Turn, gone func(session string) bool) {
	b.Texts = slices.DeleteFunc(slices.Clone(b.Texts), func(h Heard) bool { return gone(h.Session) })
	b.count(t)
}
