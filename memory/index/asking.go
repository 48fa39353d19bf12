package index

import "strings"

// Maximum lengths of what is searched for, in bytes.
const (
	MaxQuestion = 4 << 10 // of a message: the beginning of a longer one states its topic
	maxAsking   = 600     // of a paragraph that asks
)

// Questions returns the texts to search for, given a user message: the message, preceded by the asking paragraph of a long one.
// People write a sentence above or below pasted text, whose words would find nothing.
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

// lastParagraph returns the last paragraph, after fenced code.
func lastParagraph(text string) string {
	if at := strings.LastIndex(text, fence); at >= 0 {
		text = text[at+len(fence):]
	}
	if at := strings.LastIndex(text, "\n\n"); at >= 0 {
		text = text[at:]
	}
	return strings.TrimSpace(text)
}

// firstParagraph returns the first paragraph, before fenced code.
func firstParagraph(text string) string {
	text, _, _ = strings.Cut(text, fence)
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.TrimSpace(text)
}
