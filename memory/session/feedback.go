package session

import (
	"bytes"
	"slices"
	"strings"
)

// Programs write these about the model's last answer, as messages of the user's role.
var (
	feedbackBegins = words(
		"observation:",                                        // LlamaIndex's ReAct agent, smolagents, SWE-agent
		"correct your json only response",                     // Instructor
		"validation error found:", "validation errors found:", // Instructor
		"recall the function correctly, fix the errors",        // Instructor
		"please correct the function call; errors encountered", // Instructor for JavaScript
		"validation feedback:",                                 // Pydantic AI
		"the json object is invalid for the following reason",  // TypeChat
		"there is an issue with that response, please",         // zod-gpt
		"please respond with a call to the",                    // zod-gpt
		"exitcode:",                                            // AutoGen
		"i did it wrong. invalid format:",                      // CrewAI
	)
	feedbackEnds = words(
		"fix the errors and try again.",        // Pydantic AI
		"try a completely different approach.", // smolagents
	)
)

// words are texts as bytes, which are found in bytes without a copy.
func words(texts ...string) (list [][]byte) {
	for _, text := range texts {
		list = append(list, []byte(text))
	}
	return list
}

// isFeedback reports whether a program has written a message of the user's role about the model's last answer: it wants a correction,
// or gives the result of an action that the answer asks for. Such programs keep the steps of one question, and may keep nothing else.
func isFeedback(text string) bool {
	text = strings.TrimSpace(text)
	begins := func(begin []byte) bool {
		return len(text) >= len(begin) && strings.EqualFold(text[:len(begin)], string(begin))
	}
	ends := func(end []byte) bool {
		return len(text) >= len(end) && strings.EqualFold(text[len(text)-len(end):], string(end))
	}
	return slices.ContainsFunc(feedbackBegins, begins) || slices.ContainsFunc(feedbackEnds, ends)
}

// mayBeFeedback reports whether an item has such words near its beginning or its end. It costs the same for a long message, since it
// reads nothing between them.
func mayBeFeedback(raw []byte) bool {
	var lower [256]byte
	has := func(piece []byte, words [][]byte) bool {
		n := copy(lower[:], piece)
		for i, c := range lower[:n] {
			if 'A' <= c && c <= 'Z' {
				lower[i] = c + 'a' - 'A'
			}
		}
		return slices.ContainsFunc(words, func(w []byte) bool { return bytes.Contains(lower[:n], w) })
	}
	return has(raw, feedbackBegins) || has(raw[max(0, len(raw)-len(lower)):], feedbackEnds)
}
