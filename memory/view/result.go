package view

import (
	"fmt"
	"unicode/utf8"

	"remora/wire"
)

// What a byte of text costs in [ShortenResult], in twelfths of a token.
const (
	tokenCost = 12
	asciiCost = 3
	otherCost = 4
)

// ShortenResult returns a tool result with at most limit tokens of text: its beginning and its end, and between them a
// mark with the number of characters left out (a limit smaller than the mark leaves only the mark). Text parts of which
// nothing stays are left out; other parts and all other bytes stay. A result that is short enough, any other item, and
// any item if limit is 0 or less is returned unchanged.
//
// A token is four bytes of ASCII or three of anything else, for every model: so the same result is shortened to the
// same bytes in every turn, before and after a vocabulary is loaded, and the prompt cache stays valid. Time is linear
// in the item, and constant if it has at most three bytes per token.
func ShortenResult(it wire.Item, limit int) wire.Item {
	if it.Kind != wire.ToolResult || limit <= 0 || (len(it.Raw)+2)/3 <= limit {
		return it
	}
	name := it.Dialect.Rules().Result // of the member that holds the texts
	var texts []string
	wire.EditTexts(it.Raw, name, isText, func(text string) (string, bool) {
		texts = append(texts, text)
		return text, true
	})
	if !shorten(texts, limit*tokenCost) {
		return it
	}
	i := -1
	raw := wire.EditTexts(it.Raw, name, isText, func(string) (string, bool) { // false where nothing is left
		i++
		return texts[i], texts[i] != ""
	})
	short, err := wire.ParseItem(it.Dialect, raw)
	if err != nil || short.Kind != wire.ToolResult {
		return it
	}
	return short
}

// ShortenResults puts [ShortenResult] in the place of each item.
func ShortenResults(items []wire.Item, limit int) {
	if limit <= 0 {
		return
	}
	for i, it := range items {
		items[i] = ShortenResult(it, limit)
	}
}

// shorten cuts the texts of one result, as if they were one, to a cost. It returns false if they do not cost more.
func shorten(texts []string, limit int) bool {
	total, chars := 0, 0
	for _, text := range texts {
		total += textCost(text)
		chars += utf8.RuneCountInString(text)
	}
	if total <= limit {
		return false
	}
	room := max(0, limit-textCost(markOf(chars)))
	head, tail := room-room/2, room/2
	heads, tails, kept := make([]int, len(texts)), make([]int, len(texts)), 0
	before := 0
	for i, text := range texts {
		cost := textCost(text)
		heads[i] = prefix(text, head-before)
		tails[i] = max(heads[i], suffix(text, tail-(total-before-cost)))
		kept += utf8.RuneCountInString(text[:heads[i]]) + utf8.RuneCountInString(text[tails[i]:])
		before += cost
	}
	mark := markOf(chars - kept)
	for i, text := range texts {
		if heads[i] < tails[i] {
			texts[i] = text[:heads[i]] + mark + text[tails[i]:]
			mark = "" // once, where the cut begins
		}
	}
	return true
}

func markOf(chars int) string { return fmt.Sprintf("\n[... %d characters left out ...]\n", chars) }

func textCost(text string) int {
	cost := 0
	for i := range len(text) {
		cost += byteCost(text[i])
	}
	return cost
}

func byteCost(c byte) int {
	if c < utf8.RuneSelf {
		return asciiCost
	}
	return otherCost
}

// prefix returns how many bytes of text, in whole characters, cost at most limit.
func prefix(text string, limit int) int {
	n := 0
	for ; n < len(text) && byteCost(text[n]) <= limit; n++ {
		limit -= byteCost(text[n])
	}
	for n < len(text) && n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return n
}

// suffix returns the start of the longest suffix of text, in whole characters, that costs at most limit.
func suffix(text string, limit int) int {
	n := len(text)
	for ; n > 0 && byteCost(text[n-1]) <= limit; n-- {
		limit -= byteCost(text[n-1])
	}
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n++
	}
	return n
}

// isText reports whether a member of an element has text: that of a text part, or those of a shell's output.
func isText(_ []byte, name string) bool {
	return name == "text" || name == "stdout" || name == "stderr"
}
