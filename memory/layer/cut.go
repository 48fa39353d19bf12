package layer

import "unicode/utf8"

// Cut returns the length in bytes of the longest beginning of text that, followed by closing, costs at most budget tokens. It
// ends between two characters. It is 0 if nothing fits, or not even closing.
func Cut(count func(string) int, text, closing string, budget int) int {
	n := Most(len(text), func(n int) bool {
		head := text[:boundary(text, n)]
		return Fits(count, head, budget) && Fits(count, head+closing, budget)
	})
	return boundary(text, n)
}

// boundary returns the last place at or before n where a character of text begins, or its end.
func boundary(text string, n int) int {
	if n >= len(text) {
		return len(text)
	}
	for back := 0; back < utf8.UTFMax && n > 0 && !utf8.RuneStart(text[n]); back++ {
		n--
	}
	return n
}

// CutMark stands where the rest of a text was left out.
const CutMark = "..."

// Clip returns a text of at most n bytes; of a longer one the beginning, to the last character that ends within n bytes, and
// CutMark.
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return Head(text, max(n, 0)) + CutMark
}

// BlockWithin is Block if that costs at most budget tokens. Otherwise the block has as much of the text's beginning as
// fits, followed by a mark; it is "" if nothing fits.
func BlockWithin(count func(string) int, tag, text string, budget int) string {
	block := Block(tag, text)
	if Fits(count, block, budget) {
		return block
	}
	opening, closing := "<"+tag+">\n", CutMark+"\n</"+tag+">"
	head := block[:len(block)-len("\n</")-len(tag)-len(">")]
	n := Cut(count, head, closing, budget)
	if n <= len(opening) {
		return ""
	}
	return head[:n] + closing
}
