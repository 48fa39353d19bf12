// Package helperprompt recognises small things that chat pages and agents ask the model about a conversation, under its id: a
// title, tags, follow-up questions, a standalone question for a search, a summary. Their prompts differ in every word but share a form:
// near the beginning one sentence orders such a thing, and says that it is about a conversation.
package helperprompt

import (
	"bytes"
	"slices"
	"strings"
	"unicode"
)

// kind is one of the things that are asked for.
type kind struct {
	name string
	// things name the result, orders ask for it. One sentence has a word of each.
	things, orders []string
	// limits are words of which the prompt has one, none for any prompt.
	limits []string
	// material reports whether the request has to bring the conversation that it is about. A title is asked for by the
	// user's first message, however short; a request for a summary that does not hold the text is about the stored conversation.
	material bool
}

// kinds is a list of constants.
func kinds() []kind {
	ask := []string{
		"generate", "generates", "generating", "generator", "create", "creates", "creating", "write", "provide", "produce", "suggest",
		"suggests", "propose", "craft", "crafting", "extract", "summarize", "summarise", "summarizes", "summarises", "summarizing", "summarising",
		"output",
	}
	return []kind{
		{
			name: "title", things: []string{"title", "titles", "titling", "titler"}, orders: append(ask, "titling", "titler"),
			limits: []string{"short", "concise", "brief", "word", "words", "character", "characters", "only", "generator", "titling", "pithy"},
		},
		{name: "tags", things: []string{"tags", "tag"}, orders: ask, material: true},
		{name: "follow_ups", things: []string{"follow", "followup", "followups", "suggestions"}, orders: append(ask, "predict"), material: true},
		{name: "search_queries", things: []string{"queries"}, orders: ask, material: true},
		{
			name: "question", things: []string{"question", "message", "query"}, orders: []string{"rephrase", "rewrite", "formulate", "reformulate", "condense"},
			limits: []string{"standalone", "alone"}, material: true,
		},
		{name: "emoji", things: []string{"emoji"}, orders: ask, material: true},
		{
			name: "summary", things: []string{
				"summary", "summaries", "summarize", "summarise", "summarizes", "summarises", "summarizing", "summarising",
				"summarizer", "description",
			},
			orders: append(ask, "tasked", "task"), material: true,
		},
	}
}

// openings are beginnings of prompts in the user's role that have another form or bring too little of the conversation, and what
// they order.
func openings() map[string]string {
	return map[string]string{
		"name the conversation based on the chat records":                                         "title", // Chatbox
		"based on the chat history, give this conversation a name":                                "title", // Chatbox
		"summarize in a 10-word title":                                                            "title", // Jan
		"generate a short title (max 10 words) for the following user query":                      "title", // Jan
		"generate a concise title, in 6 words or less, summarising this message":                  "title", // Msty
		"given the following... please reply with a title for the chat":                           "title", // Continue
		"analyze this conversation and provide:\n1. the detected language":                        "title", // LibreChat
		"please generate a concise title (max 40 characters) for a conversation that starts with": "title", // LibreChat
		"your task is to reflect the speaker's likely facial expression":                          "emoji", // Open WebUI
		"### task:\ngenerate a detailed prompt for am image generation task":                      "image_prompt",
		"### task:\nyou are an autocompletion system":                                             "completion",
		"you have been provided with a set of responses from various models":                      "merged_answers",
	}
}

// choosesTools reports whether instructions order a choice of tools in text, as Open WebUI does before each message.
func choosesTools(instructions string) bool {
	beginning := strings.TrimLeft(instructions[:min(len(instructions), maxInstructions)], " \n")
	return strings.HasPrefix(beginning, "Available Tools:") && strings.Contains(instructions, "Return only the JSON object")
}

const (
	// maxWords is how many words of a prompt are looked at, maxBytes how much of it at most.
	maxWords = 90
	maxBytes = 2048
	// maxInstructions is the length in bytes above which instructions belong to an agent, even with a helper's words.
	maxInstructions = 16 << 10
	// minMaterial is how many bytes of a conversation a request brings at least to be about that.
	minMaterial = 160
	// maxOrder is how long a prompt is at most that orders something about the history beside it, in bytes.
	maxOrder = 1200
)

// Mentions reports whether the beginning of a text has a word of a helper's prompt, as few texts have. It reads nothing but bytes,
// which may be JSON.
func Mentions(text []byte) bool {
	text = text[:min(len(text), 2*maxBytes)]
	parts := [...]string{
		"versation", "Chat", "chat", "ssion", "hread", "ialog", // "ssion" of a session or a discussion
		"itle", "Tools:", "utocompletion", "et of responses",
	}
	return slices.ContainsFunc(parts[:], func(part string) bool { return bytes.Contains(text, []byte(part)) })
}

// Kind returns what a request orders that has no history: "title", "tags", "follow_ups", "search_queries", "question", "emoji",
// "summary", "tools", "image_prompt", "completion" or "merged_answers", and "" for any other. said is the text of its messages.
func Kind(instructions, said string) string {
	if choosesTools(instructions) {
		return "tools"
	}
	if len(instructions) <= maxInstructions {
		if k := orderedBy(instructions); k.name != "" && (!k.material || len(said) >= minMaterial) {
			return k.name
		}
	}
	beginning := strings.ToLower(strings.TrimSpace(said[:min(len(said), maxBytes)]))
	for opening, name := range openings() {
		if strings.HasPrefix(beginning, opening) {
			return name
		}
	}
	// An order in words of the user could be the user's own: it counts where the conversation stands after it.
	if k := orderedBy(said); k.name != "" && len(said) >= minMaterial && holdsConversation(said) {
		return k.name
	}
	return ""
}

// KindOfHistory returns what instructions order about the history after them, "" for nothing.
func KindOfHistory(instructions string) string {
	if len(instructions) > maxOrder {
		return ""
	}
	return orderedBy(instructions).name
}

// OrdersSummary reports whether a message of the user's role orders a summary of the conversation that it ends, as IsOrder. What stands
// behind the order may be long.
func OrdersSummary(text string) bool {
	text = text[:min(len(text), maxOrder)]
	return orderedBy(text).name == "summary" && IsOrder(text)
}

// InstructionsOrderSummary reports whether instructions order a summary of the conversation after them. They may be long.
func InstructionsOrderSummary(instructions string) bool {
	return orderedBy(instructions).name == "summary"
}

// IsOrder reports whether a message of the user's role asks for a title, a summary, and the like, of the conversation that it
// ends: a program's order in the user's name, or a question that says nothing new.
func IsOrder(text string) bool {
	if len(text) > maxOrder {
		return false
	}
	k := orderedBy(text)
	if k.name == "" {
		return false
	}
	words := slices.Concat(sentencesOf(strings.ToLower(text))...)
	for i, w := range words {
		if !slices.Contains([]string{"conversation", "chat", "thread", "dialog", "dialogue", "discussion"}, w) {
			continue
		}
		if i > 0 && slices.Contains([]string{"our", "this", "above", "entire", "whole", "current"}, words[i-1]) ||
			i > 0 && k.limits != nil && words[i-1] == "the" || // of a title
			i+1 < len(words) && slices.Contains([]string{"above", "so", "history", "briefly"}, words[i+1]) {
			return true
		}
	}
	return false
}

// orderedBy finds what the beginning of a prompt orders about a conversation.
func orderedBy(prompt string) kind {
	prompt = strings.ToLower(prompt[:min(len(prompt), maxBytes)])
	subjects := []string{"conversation", "chat", "thread", "session", "dialog", "discussion"}
	if !slices.ContainsFunc(subjects, func(s string) bool { return strings.Contains(prompt, s) }) {
		return kind{} // as nearly all prompts do not: nothing more is read of them
	}

	sentences := sentencesOf(prompt)
	anywhere := slices.Concat(sentences...)
	if !anyOf(anywhere, append(subjects, "conversations", "chats", "dialogue")) {
		return kind{}
	}
	for _, k := range kinds() {
		ordered := slices.ContainsFunc(sentences, func(words []string) bool { return anyOf(words, k.things) && anyOf(words, k.orders) })
		if ordered && (k.limits == nil || anyOf(anywhere, k.limits)) {
			return k
		}
	}
	return kind{}
}

// sentencesOf are the words of a prompt's first sentences.
func sentencesOf(prompt string) (sentences [][]string) {
	words := 0
	for sentence := range strings.FieldsFuncSeq(prompt, func(r rune) bool { return strings.ContainsRune(".!?\n;", r) }) {
		list := strings.FieldsFunc(sentence, func(r rune) bool { return !unicode.IsLetter(r) })
		if words += len(list); words > maxWords && len(sentences) > 0 {
			break
		}
		sentences = append(sentences, list)
	}
	return sentences
}

func anyOf(words, wanted []string) bool {
	return slices.ContainsFunc(words, func(w string) bool { return slices.Contains(wanted, w) })
}

// holdsConversation reports whether a text has a conversation in it, by how prompts set one off from their own words.
func holdsConversation(text string) bool {
	text = strings.ToLower(text)
	marks := [...]string{
		"<chat_history", "chat history:", "<conversation", "conversation:", "<content", "<messages", "<dialog", "<transcript",
		"user:", "human:", "assistant:", "question:", "query:", "message:",
	}
	return slices.ContainsFunc(marks[:], func(mark string) bool { return strings.Contains(text, mark) })
}
