package fileref

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"remora/memory/layer"
)

const title = "# Referenced Files"

// Recall puts the files before the model, the most relevant first, each as it is now. One that does not fit is shown
// without its middle.
func (l *Layer) Recall(ctx context.Context, t *layer.Turn, s layer.State, budget int) (layer.Recalled, error) {
	st, err := decode(s)
	if err != nil || len(st.Files) == 0 {
		return layer.Recalled{}, err
	}
	root, err := os.OpenRoot(l.o.BaseDir)
	if err != nil {
		return layer.Recalled{}, errors.New("base_dir: cannot be opened")
	}
	defer root.Close()
	slices.SortStableFunc(st.Files, func(a, b file) int { return b.Priority - a.Priority })
	text, cost := title, t.Count(title)
	told := false
	for _, f := range st.Files {
		if ctx.Err() != nil {
			return layer.Recalled{}, ctx.Err()
		}
		// What is joined may cost a token more than its parts, so the whole is counted again.
		b := l.block(t, root, f, budget-cost-1)
		if b == "" {
			continue
		}
		next := text + "\n\n" + b
		if n := t.Count(next); n <= budget {
			text, cost, told = next, n, true
		}
	}
	if !told {
		return layer.Recalled{}, nil
	}
	return layer.Recalled{Messages: []string{text}, Tokens: cost}, nil
}

// block is what is told of one file within budget tokens, "" if that is too little to tell anything.
func (l *Layer) block(t *layer.Turn, root *os.Root, f file, budget int) string {
	head := "## " + f.Path + "\n"
	content, fault := l.read(root, f.Path)
	switch fault {
	case "":
	case faultDeleted:
		return head + "[FILE DELETED: " + f.Path + "]"
	default:
		return head + "[ERROR: " + fault + "]"
	}
	fence := fenceFor(content)
	head += fence + "\n"
	foot := fence
	if !strings.HasSuffix(content, "\n") && content != "" {
		foot = "\n" + fence
	}
	body := shorten(t, content, budget-t.Count(head)-t.Count(foot)-2)
	if body == "" && content != "" {
		return ""
	}
	return head + body + foot
}

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

// maxBytesPerToken is more than any vocabulary packs into one; what is larger need not be counted to be too large.
const maxBytesPerToken = 128

// shorten is content within budget tokens: whole, or its first lines up to three fifths of the budget and its last
// lines, with a note of how many are missing between them; "" if not even that note fits.
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
	// Lines are counted one by one, and cost at most a little more than together. Should they cost less, because some
	// vocabulary splits at their ends, the whole is counted and taken with less.
	for room := budget; room > 0; room = room * 4 / 5 {
		note := fmt.Sprintf("... [truncated %d lines] ...\n", len(lines))
		left := room - t.Count(note)
		if left < 0 {
			return ""
		}
		head := fit(t, lines, left*3/5)
		reversed := slices.Clone(lines[head:])
		slices.Reverse(reversed)
		tail := fit(t, reversed, left-left*3/5)
		text := strings.Join(lines[:head], "") + fmt.Sprintf("... [truncated %d lines] ...\n", len(lines)-head-tail) +
			strings.Join(lines[len(lines)-tail:], "")
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
