package session

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// What helpers ask for is recognised in the words of many programs, and what users ask for is not taken for it.
func TestHelperPrompts(t *testing.T) {
	const talk = "USER: My bread does not rise, what can I do?\nASSISTANT: Is the yeast fresh, and is the water warm but not hot?\nUSER: It is a year old.\nASSISTANT: Then buy a new one."
	for _, c := range []struct{ system, user, want string }{
		{"You are a title generator. Answer with a thread title and nothing else.", "hi", "title"},
		{"Write a brief title for this chat, in the user's language.", "hi", "title"},
		{"You name chats.", "hi", ""},
		{"Craft a pithy title for a chatbot conversation from the text that follows.", "hi", "title"},
		{"Tell if this begins a new conversation topic. If so, extract a title of two words.", "hi", "title"},
		{"", "### Task:\nSuggest 3 follow-up questions for this chat.\n" + talk, "follow_ups"},
		{"", "Generate 3 broad tags for the conversation:\n" + talk, "tags"},
		{"Generate tags for the conversation.", "tags please", ""}, // of the stored one
		{"You are tasked with summarizing conversations.", talk, "summary"},
		{"You are tasked with summarizing conversations.", "now", ""},
		{"", "Summarize this conversation in 200 words.\n" + talk, "summary"},
		{"", "Summarize our conversation", ""},
		{"", "Analyze this conversation and provide:\n1. The detected language of the conversation\n2. A concise title in the detected language (5 words " +
			"or less, no punctuation or quotation)\n\nUser: hi\nAI: hello", "title"},
		{"", "Please generate a concise title (max 40 characters) for a conversation that starts with:\nUser: hi\nAssistant: hello\n\nTitle:", "title"},
		{"", "Name the conversation based on the chat records.\nPlease provide a concise name, within 10 characters.", "title"},
		{"", "Given the following... please reply with a title for the chat that is 3-4 words in length.\n\nHello!", "title"},
		{"", "Your task is to reflect the speaker's likely facial expression through a fitting emoji.\n\nMessage: \"hi\"", "emoji"},
		{"", "Analyze this conversation and provide: the names of both. " + talk, ""},
		{"Name the conversation based on the chat records when the user asks for it.", "hi", ""},
		{"", "Generate a title for this conversation", ""},
		{"", "Write a short title for my novel.\n" + strings.Repeat("It was a dark night. ", 20), ""},
		{"You are a helpful assistant in a chat.", "What is the title of the book?", ""},
		{"You are a support agent. Be brief. You see the conversation so far.", "Where is my parcel?", ""},
		{"This is a summary of the chat history as a recap: bread, yeast, water.", "And rolls?", ""},
		{"", "This session is continued from a conversation that ran out of context. " + talk, ""},
		{strings.Repeat("You write code. ", 1500) + "Generate a short title for the conversation.", "hi", ""},
	} {
		for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
			body := fmt.Sprintf(`{"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, c.system, c.user)
			if d == dialects.Responses {
				body = fmt.Sprintf(`{"instructions":%q,"input":[{"role":"user","content":[{"type":"input_text","text":%q}]}]}`, c.system, c.user)
			}
			for _, tools := range []string{"", `"tools":[],`, `"tools":[{"type":"function","function":{"name":"f"}}],`} {
				req := wiretest.Request(t, d, "{"+tools+body[1:])
				want := c.want
				if strings.Contains(tools, "name") {
					want = "" // helpers have no tools
				}
				if got := helperPrompt(req, newIncoming(&Call{Request: req}, &state{head: new(head)}, newHashCache())); got != want {
					t.Errorf("%s %q, %.60q: %q, want %q", d, c.system[:min(len(c.system), 60)], c.user, got, want)
				}
			}
		}
	}
}

// A question that comes again after its answer broke off is asked again; what users say twice is said twice.
func TestQuestionsThatAreAskedAgain(t *testing.T) {
	for said, want := range map[string]bool{
		"How do I bake bread?": true, "Where is my parcel?": true, "Extraordinarily-long-word": true, "tell me !drop !long": true,
		"go on": false, "Go on, please!": false, "please continue": false, "yes": false, "weiter": false, "続けて": false, "": false,
	} {
		req := wiretest.Request(t, dialects.Chat, fmt.Sprintf(`{"messages":[{"role":"user","content":%q}]}`, said))
		h := new(head)
		in := newIncoming(&Call{Request: req}, &state{head: h}, newHashCache())
		if in.mayAskAgain(h) {
			t.Errorf("%q is asked again, and was never asked", said)
		}
		h.Ring.add(in.marks[0].Content, 1)
		if got := in.mayAskAgain(h); got != want {
			t.Errorf("%q is asked again: %v", said, got)
		}
	}
}

func TestSharedPassages(t *testing.T) {
	letters := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%03d ", i)
		}
		return b.String()
	}
	long := letters(400)
	for _, c := range []struct {
		answer, said string
		want         bool
	}{
		{long, "You said: " + long[501:501+quotedRunes] + "?", true},
		{long, "You said: " + long[501:501+quotedRunes-1] + "?", false},
		{long[:quotedRunes], long[:quotedRunes], true},
		{long, strings.ReplaceAll(long, "0", "9"), false},
		{"short", "short", false},
		{strings.Repeat("ä", 64), strings.Repeat("ä", 64), true},
		{strings.Repeat("ä", 40), strings.Repeat("ä", 40), false}, // more than 64 bytes, fewer than 64 letters
		{strings.Repeat("na ", 200), strings.Repeat("na ", 30), true},
	} {
		if got := sharesPassage(c.answer, c.said, "something else"); got != c.want {
			t.Errorf("%.20q in %.40q: %v", c.answer, c.said, got)
		}
		if sharesPassage(c.answer, c.said, "before "+c.said) {
			t.Errorf("%.20q in %.40q: the user has said it before", c.answer, c.said)
		}
	}
}

// What a request offers is read once, and is the same for tools in another order.
func TestOffers(t *testing.T) {
	o := New(nil, 0)
	offerOf := func(d wire.Dialect, more string) offer {
		list := "messages"
		if d == dialects.Responses {
			list = "input"
		}
		req := wiretest.Request(t, d, fmt.Sprintf(`{"model":"m",%q:[]%s}`, list, more))
		return o.offers.of(req)
	}
	ab := offerOf(dialects.Chat, `,"tools":[{"function":{"name":"a"}},{"function":{"name":"b"}}]`)
	if again := offerOf(dialects.Chat, `,"tools":[{"function":{"name":"b"}},{"function":{"name":"a"}}]`); again != ab || ab.Tools != 2 {
		t.Errorf("%+v and %+v", ab, again)
	}
	if again := offerOf(dialects.Chat, `,"tools":[{"function":{"name":"a"}},{"function":{"name":"b"}}]`); again != ab {
		t.Errorf("%+v, and remembered %+v", ab, again)
	}
	none := offerOf(dialects.Chat, "")
	if empty := offerOf(dialects.Chat, `,"tools":[]`); empty != none {
		t.Errorf("without tools %+v, with none %+v", none, empty)
	}
	var kinds []uint64
	for _, other := range []offer{ab, none, offerOf(dialects.Responses, ""), offerOf(dialects.Chat, `,"functions":[{"name":"a"}]`)} {
		if slices.Contains(kinds, other.Client) {
			t.Errorf("two clients are one: %+v", other)
		}
		kinds = append(kinds, other.Client)
	}
	for more, want := range map[string]byte{
		`,"response_format":{"type":"text"}`: formatText, `,"response_format":{"type":"json_object"}`: formatObject,
		`,"response_format":{"type":"json_schema","json_schema":{}}`: formatSchema, `,"response_format":{"type":"grammar"}`: formatOther,
	} {
		if got := offerOf(dialects.Chat, more).Format; got != want {
			t.Errorf("%s is %d, want %d", more, got, want)
		}
	}
	if got := offerOf(dialects.Responses, `,"text":{"format":{"type":"json_schema"}}`).Format; got != formatSchema {
		t.Errorf("of Responses: %d", got)
	}
}
