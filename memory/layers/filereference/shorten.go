package filereference

import (
	"fmt"
	"slices"
	"strings"
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

// shorten cuts content to a budget in the unit of count, such as tokens or bytes. It returns the first lines, up to three fifths of
// the budget, a note with the number of missing lines, and the last lines; "" if not even the note fits.
func shorten(count func(string) int, content string, budget int) string {
	if budget <= 0 {
		return ""
	}
	if budget >= len(content)/maxBytesPerToken && count(content) <= budget {
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
		left := room - count(note(len(lines)))
		if left < 0 {
			return ""
		}
		head := fit(count, lines, left*3/5)
		reversed := slices.Clone(lines[head:])
		slices.Reverse(reversed)
		tail := fit(count, reversed, left-left*3/5)
		text := strings.Join(lines[:head], "") + note(len(lines)-head-tail) + strings.Join(lines[len(lines)-tail:], "")
		if count(text) <= budget {
			return text
		}
	}
	return ""
}

// fit returns how many lines from the first on cost at most budget.
func fit(count func(string) int, lines []string, budget int) int {
	for i, l := range lines {
		if budget < len(l)/maxBytesPerToken {
			return i
		}
		if budget -= count(l); budget < 0 {
			return i
		}
	}
	return len(lines)
}
