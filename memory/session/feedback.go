package session

import "strings"

// maxFeedback is how many bytes of the beginning and the end of a message are looked at.
const maxFeedback = 128

// isFeedback reports whether a message of the user's role is what a program tells the model about its last answer: that it has to be
// corrected, or what the action that it describes has given. Such programs keep the steps of one question, and may keep nothing else.
func isFeedback(text string) bool {
	first := strings.ToLower(strings.TrimSpace(text[:min(len(text), maxFeedback)]))
	beginnings := [...]string{
		"observation:",                                        // LlamaIndex's ReAct agent, smolagents, SWE-agent
		"correct your json only response",                     // Instructor
		"validation error found:", "validation errors found:", // Instructor
		"recall the function correctly, fix the errors",        // Instructor
		"please correct the function call; errors encountered", // Instructor for JavaScript
		"validation feedback:",                                 // Pydantic AI
		"the json object is invalid for the following reason",  // TypeChat
		"there is an issue with that response, please",         // zod-gpt
	}
	for _, b := range beginnings {
		if strings.HasPrefix(first, b) {
			return true
		}
	}
	last := strings.ToLower(strings.TrimSpace(text[max(0, len(text)-maxFeedback):]))
	return strings.HasSuffix(last, "fix the errors and try again.") || // Pydantic AI
		strings.HasSuffix(last, "try a completely different approach.") // smolagents
}
