package session

import (
	"bytes"
	"slices"
	"strings"
)

// isFeedback reports whether a program has written a message of the user's role about the model's last answer: it wants a correction,
// or gives the result of an action that the answer asks for. Such programs keep the steps of one question, and may keep nothing else.
func isFeedback(text string) bool {
	text = strings.TrimSpace(text)
	for _, begin := range [...]string{
		"observation:",                                        // LlamaIndex's ReAct agent, smolagents, SWE-agent
		"correct your json only response",                     // Instructor
		"validation error found:", "validation errors found:", // Instructor
		"recall the function correctly, fix the errors",        // Instructor
		"please correct the function call; errors encountered", // Instructor for JavaScript
		"validation feedback:",                                 // Pydantic AI
		"the json object is invalid for the following reason",  // TypeChat
		"there is an issue with that response, please",         // zod-gpt
	} {
		if len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], begin) {
			return true
		}
	}
	for _, end := range [...]string{
		"fix the errors and try again.",        // Pydantic AI
		"try a completely different approach.", // smolagents
	} {
		if len(text) >= len(end) && strings.EqualFold(text[len(text)-len(end):], end) {
			return true
		}
	}
	return false
}

// mayBeFeedback reports whether the beginning or the end of an item has a word for which isFeedback looks, as few have. Unlike that it
// costs the same for a long message, as it reads nothing but bytes.
func mayBeFeedback(raw []byte) bool {
	const ends = 256
	parts := [...]string{"bservation:", "rror", "alidation", "esponse", "nvalid for", "different approach"}
	return slices.ContainsFunc(parts[:], func(part string) bool {
		return bytes.Contains(raw[:min(len(raw), ends)], []byte(part)) || bytes.Contains(raw[max(0, len(raw)-ends):], []byte(part))
	})
}
