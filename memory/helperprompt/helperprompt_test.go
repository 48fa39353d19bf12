package helperprompt

import (
	"strings"
	"testing"
)

// TestIsOrder: programs end a history with orders of their own. A user who speaks of titles and conversations is none.
func TestIsOrder(t *testing.T) {
	for text, want := range map[string]bool{
		"Please generate a four to five word title summarizing our conversation without any lead-in.":                true,
		"Generate a concise, 5-word-or-less title for the conversation, using its same language.":                    true,
		"Summarize the discussion briefly in 200 words or less to use as a prompt for future context.":               true,
		"Create a summary of the conversation above:":                                                                true,
		"Summarize the conversation so far, as described in the prompt instructions.":                                true,
		"Suggest three follow-up questions for this chat.":                                                           true,
		"Please write a short summary of the discussion with my landlord: he wants the flat back in May.":            false,
		"Generate a short title for my novel about a chat between two spies.":                                        false,
		"My sister moved to Lisbon after our conversation.":                                                          false,
		"I had a long discussion with Tom. Write him a short mail.":                                                  false,
		"Summarize the conversation so far. " + strings.Repeat("I said that the parcel had not come. ", maxOrder/37): false,
	} {
		if got := IsOrder(text); got != want {
			t.Errorf("%.60q: %v", text, got)
		}
	}
}

// TestTitles: what chat apps ask for a title with, without a system prompt, and with no more than the user's first message. A user's
// own words are none.
func TestTitles(t *testing.T) {
	for said, want := range map[string]string{
		`Summarize in a 10-word Title. Give the title only. Here is the message: "my name is Ada"`:                               "title",
		"Generate a short title (max 10 words) for the following user query. Respond with only the title.\n\nmy name is Ada":     "title",
		"Generate a concise title, in 6 words or less, summarising this message. Message: my name is Ada":                        "title",
		"Based on the chat history, give this conversation a name.\nKeep it short - 10 characters max, no quotes.\nUse English.": "title",
		"Summarize this text in 10 words, and give it a title: my name is Ada":                                                   "",
		"What is a good title for a song about Ada?":                                                                             "",
	} {
		if got := Kind("", said); got != want {
			t.Errorf("%.60q is %q, want %q", said, got, want)
		}
		if want != "" && !Mentions([]byte(said)) {
			t.Errorf("%.60q is not looked at", said)
		}
	}
}

// Agents order summaries of the conversation at any length, users in a few words.
func TestOrdersSummary(t *testing.T) {
	long := strings.Repeat(" Include each file that you have read or changed, with the reason.", 100)
	for text, want := range map[string]bool{
		"Your task is to create a detailed summary of the conversation so far, paying close attention to the user's requests." + long: true,
		"The current conversation is running out of context. Create a comprehensive summary of the conversation so far." + long:       true,
		"Summarize our chat, please.":                                     true,
		"Write a title of at most five words for the conversation above.": false,
		"Write a summary of the README of this repository.":               false,
		"Fix the test of the chat page." + long:                           false,
		"":                                                                false,
	} {
		if got := OrdersSummary(text); got != want {
			t.Errorf("%.60s: %v", text, got)
		}
	}
}

// The instructions of agents that compact, and of a chat page.
func TestInstructionsOrderSummary(t *testing.T) {
	for text, want := range map[string]bool{
		"You summarize agent sessions. You get a conversation, and produce a structured summary of it, with all files that were changed.":                  true,
		"You are the part that summarizes internal chat history. When it grows too large, you are asked to distill it." + strings.Repeat(" Keep it.", 500): true,
		"You are a support agent. Answer in the language of the conversation, in a friendly way.":                                                          false,
		"You edit files.": false,
	} {
		if got := InstructionsOrderSummary(text); got != want {
			t.Errorf("%.60s: %v", text, got)
		}
	}
}
