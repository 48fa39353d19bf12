package index

import "strings"

// Lengths of what is asked, in bytes.
const (
	MaxQuestion = 4 << 10 // of a message: what is longer is no question, and its beginning says what it is about
	maxAsking   = 600     // of a paragraph that asks
)

// Questions returns what to search for, given a message of the user: the message, and, before it, the paragraph of a long one that asks. People
// put a sentence above what they paste, or below it, and by the words of the paste nothing would be found.
func Questions(message string) []string {
	message = strings.TrimSpace(message)
	whole := strings.TrimSpace(head(message, MaxQuestion))
	if len(message) <= maxAsking {
		return []string{whole}
	}
	for _, paragraph := range [...]string{lastParagraph(message), firstParagraph(message)} {
		if len(paragraph) <= maxAsking && Asks(paragraph) {
			return []string{paragraph, whole}
		}
	}
	return []string{whole}
}

const fence = "```"

// lastParagraph is the one at the end, behind code in fences.
func lastParagraph(text string) string {
	if at := strings.LastIndex(text, fence); at >= 0 {
		text = text[at+len(fence):]
	}
	if at := strings.LastIndex(text, "\n\n"); at >= 0 {
		text = text[at:]
	}
	return strings.TrimSpace(text)
}

// firstParagraph is the one at the beginning, before code in fences.
func firstParagraph(text string) string {
	text, _, _ = strings.Cut(text, fence)
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.TrimSpace(text)
}
