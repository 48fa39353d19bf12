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
