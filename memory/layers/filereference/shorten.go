package filereference

import (
	"fmt"
	"slices"
	"strings"

	"remora/memory/layer"
)

// fenceFor is a fence that nothing in the content closes.
func fenceFor(content string) string {
	longest, run := 2, 0
	for i := range len(content) {
		if content[i] != '`' {
			run = 0
			continue
		}
		if run++; run > longest {
			longest = run
		}
	}
	return strings.Repeat("`", longest+1)
}

// maxBytesPerToken is more than any vocabulary packs into one token. A longer text exceeds the budget without being
// counted.
const maxBytesPerToken = 128

// shorten cuts content to budget tokens: its first lines, up to three fifths of the budget, a note with the number of missing
// lines, and its last lines; "" if not even the note fits.
func shorten(t *layer.Turn, content string, budget int) string {
	if budget <= 0 {
		return ""
	}
	if budget >= len(content)/maxBytesPerToken && t.Count(content) <= budget {
		return content
	}
	lines := strings.SplitAfter(content, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	note := func(missing int) string { return fmt.Sprintf("... [truncated %d lines] ...\n", missing) }
	// Lines are counted one by one, and cost at most a little more than together. Should they cost less, because some
	// vocabulary splits at their ends, the whole is counted and taken with less.
	for room := budget; room > 0; room = room * 4 / 5 {
		left := room - t.Count(note(len(lines)))
		if left < 0 {
			return ""
		}
		head := fit(t, lines, left*3/5)
		reversed := slices.Clone(lines[head:])
		slices.Reverse(reversed)
		tail := fit(t, reversed, left-left*3/5)
		text := strings.Join(lines[:head], "") + note(len(lines)-head-tail) + strings.Join(lines[len(lines)-tail:], "")
		if t.Count(text) <= budget {
			return text
		}
	}
	return ""
}

// fit is how many lines from the first on cost at most budget tokens.
func fit(t *layer.Turn, lines []string, budget int) int {
	for i, l := range lines {
		if budget < len(l)/maxBytesPerToken {
			return i
		}
		if budget -= t.Count(l); budget < 0 {
			return i
		}
	}
	return len(lines)
}
