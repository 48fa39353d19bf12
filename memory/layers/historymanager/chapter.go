package historymanager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"remora/memory/layer"
	"remora/memory/summary"
	"remora/wire"
)

// chapter is the summary of what fell out of one conversation.
type chapter struct {
	Conversation string `json:"conversation"`
	// Parts are the summary, oldest first: one if a model made it, else excerpts.
	Parts []string `json:"parts,omitempty"`
	// Pending are the lines that the summary does not have yet, oldest first.
	Pending []string `json:"pending,omitempty"`
	// Retry is until when a model that failed is not asked again, in milliseconds since 1970.
	Retry int64 `json:"retry,omitempty"`
}

func (c *chapter) empty() bool { return len(c.Parts) == 0 && len(c.Pending) == 0 }

// size returns the size of the chapter in bytes.
func (c *chapter) size() (n int) {
	for _, text := range c.Parts {
		n += len(text) + entryBytes
	}
	return n + c.waiting()
}

// waiting returns the bytes of pending lines.
func (c *chapter) waiting() (n int) {
	for _, line := range c.Pending {
		n += len(line) + 1
	}
	return n
}

// due reports whether enough lines are pending to ask a model.
func (c *chapter) due() bool { return len(c.Pending) >= batchLines || c.waiting() >= batchBytes }

// bound drops the oldest parts and lines beyond the limits.
func (c *chapter) bound() {
	c.Parts = summary.Bounded(cleaned(c.Parts, maxSummary))
	c.Pending = layer.Tail(cleaned(c.Pending, maxLine), maxPending, func(line string) int { return len(line) + 1 })
	c.Pending = layer.Last(c.Pending, maxLines)
}

// linesOf returns the texts of items as stored lines.
func linesOf(items []wire.Item) []string { return cleaned(summary.Lines(items), maxLine) }

// cleaned are the texts that are not empty, each of them clean.
func cleaned(texts []string, limit int) []string {
	var kept []string
	for _, text := range texts {
		if text = clean(text, limit); text != "" {
			kept = append(kept, text)
		}
	}
	return kept
}

// excerpt returns an excerpt of the pending lines; "" if there are none.
func (c *chapter) excerpt() string {
	return clean(summary.Excerpts(c.Pending, maxExcerpt), maxSummary)
}

// roll lets the turn's model write one text that covers the summary and all pending lines.
func (c *chapter) roll(ctx context.Context, t *layer.Turn) (string, error) {
	text, err := summary.Roll(ctx, t.Ask, c.Parts, c.Pending)
	if text = clean(text, maxSummary); err == nil && text == "" {
		err = summary.ErrNoText
	}
	if err != nil {
		return "", fmt.Errorf("summarize: %w", err)
	}
	return text, nil
}

// rolled replaces the summary and its oldest n lines by the model's text. A model that failed is left alone for a while instead.
func (c *chapter) rolled(t *layer.Turn, text string, fault error, n int, did change) change {
	if fault != nil {
		c.Retry = t.Now.Add(layer.ModelRests).UnixMilli()
		return did
	}
	*c = chapter{Conversation: c.Conversation, Parts: []string{text}, Pending: slices.Clone(c.Pending[n:])}
	did.closed, did.rolled = c.Parts, true
	return did
}

// close turns pending lines into parts of excerpts, except the last lines, which may grow: a part has as many lines as fit
// maxChars.
func (c *chapter) close(maxChars int) (closed []string) {
	for {
		n, size := 0, 0
		for n < len(c.Pending) && (n == 0 || size+len(summary.Excerpts(c.Pending[n:n+1], maxChars)) <= maxChars) {
			size += len(summary.Excerpts(c.Pending[n:n+1], maxChars)) + 1
			n++
		}
		if n == len(c.Pending) {
			return closed
		}
		closed = append(closed, c.part(n, maxChars)...)
	}
}

// fold turns all pending lines into one part of excerpts.
func (c *chapter) fold(maxChars int) []string { return c.part(len(c.Pending), maxChars) }

// part makes a part of the oldest n lines.
func (c *chapter) part(n, maxChars int) []string {
	text := clean(summary.Excerpts(c.Pending[:n], maxChars), maxSummary)
	c.Pending = slices.Clone(c.Pending[n:])
	if text == "" {
		return nil
	}
	c.Parts = summary.Bounded(append(slices.Clip(c.Parts), text))
	return []string{text}
}

// render returns the text for the model that fits: the summary followed by the pending lines, by excerpts of them or of the
// newest of them; else only the newest parts of the summary. It never leaves out the newest part. shown are the same texts in
// their stored form.
func (c *chapter) render(maxChars int, fits func(string) bool) (text string, shown []string) {
	if c.empty() {
		return "", nil
	}
	for lines := c.Pending; len(lines) > 0; lines = lines[(len(lines)+1)/2:] {
		for _, waiting := range []string{strings.Join(lines, "\n"), summary.Excerpts(lines, len(lines)*maxChars)} {
			if waiting == "" {
				continue
			}
			all := append(slices.Clip(c.Parts), waiting)
			if text = summary.Text(all); fits(text) {
				return text, append(all, c.excerpt())
			}
		}
	}
	for parts := c.Parts; len(parts) > 1; parts = parts[1:] {
		if text = summary.Text(parts); fits(text) {
			return text, parts
		}
	}
	last := c.Parts
	if len(last) == 0 {
		last = []string{c.excerpt()}
	}
	if last = last[len(last)-1:]; last[0] == "" {
		return "", nil
	}
	return summary.Text(last), last
}
