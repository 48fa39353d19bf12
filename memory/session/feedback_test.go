package session

import (
	"fmt"
	"strings"
	"testing"
)

// TestFeedback: what programs say about an answer, in their words. A user's own words are none.
func TestFeedback(t *testing.T) {
	long := strings.Repeat("{\"loc\": [\"age\"], \"msg\": \"Field required\"},\n", 20)
	for text, want := range map[string]bool{
		"Observation: 4": true,
		"Correct your JSON ONLY RESPONSE, based on the following errors:\n" + long:                                                                                  true,
		"Please correct the function call; errors encountered:\n Validation error: Required at \"age\"":                                                             true,
		"Validation Error found:\n" + long + "Recall the function correctly, fix the errors":                                                                        true,
		"Validation feedback:\nThe city is unknown.\n\nFix the errors and try again.":                                                                               true,
		"1 validation error:\n```json\n" + long + "\n```\n\nFix the errors and try again.":                                                                          true,
		"The JSON object is invalid for the following reason:\n\"\"\"\nage is missing\n\"\"\"":                                                                      true,
		"Error:\nno such file\nNow let's retry: take care not to repeat previous errors! If you have retried several times, try a completely different approach.\n": true,
		"Please respond with a call to the print function":                                                                                                          true,
		"exitcode: 0 (execution succeeded)\nCode output: \n4\n":                                                                                                     true,
		"I did it wrong. Invalid Format: I missed the 'Action:' after 'Thought:'. I will do right next, and don't use a tool I have already used.\n":                true,
		"There is an error in line 4, please correct it.":                                                                                                           false,
		"My observation: it rains.":                                        false,
		"What does \"Fix the errors and try again.\" mean in Pydantic AI?": false,
		"": false,
	} {
		if got := isFeedback(text); got != want {
			t.Errorf("%.60q: %v", text, got)
		}
		if raw := fmt.Sprintf(`{"role":"user","content":%q}`, text); want && !mayBeFeedback([]byte(raw)) {
			t.Errorf("%.60q is not looked at", text)
		}
	}
}
