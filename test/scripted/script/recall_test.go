package script_test

import (
	"testing"

	"remora/test/scripted/script"
)

// TestRecall: an answer contains only facts of the request.
func TestRecall(t *testing.T) {
	f := func(user, want string, texts ...string) {
		t.Helper()
		if got := script.Play(script.Prompt{User: user, Texts: texts}).Text; got != want {
			t.Errorf("%q of %q: want %q, have %q", user, texts, want, got)
		}
	}

	f("What is my name?", "Your name is Ada.", "My name is Ada.", "You said: My name is Ada.", "What is my name?")
	f("What is my name?", "I do not know your name.", "What is my name?")
	f("What is my name?", "I do not know your name.", "Her name is Ada.", "Is my name Ada?", "My cat's name is Tom.")
	f("Do you remember my name?", "Your name is Ada.", "Hello! My name is Ada, and I live in Lisbon.")
	f("Tell me what my name is.", "Your name is Ada.", "my name is Ada")
	f("what's my name again", "Your name is Ada Lovelace.", "My name's Ada Lovelace.")
	f("Who am I?", "Your name is Ada.", "Hi, I'm Ada.")
	f("What is my name?", "Your name is Ada.", "Hi, I am Ada. I am happy.")
	f("What is my name?", "Your name is Bob.", "My name is Bob.", "Call me Al.")

	f("What is my favorite colour?", "Your favorite colour is green.", "My favourite colour is red.", "No: my favourite colour is green!")
	f("What are my favourite colours?", "Your favourite colours are red and green.", "My favourite colours are red and green.")
	f("What is my lucky number?", "Your lucky number is 7.5.", "My lucky number is 7.5.")
	f("What is my cat called?", "Your cat is called Tom.", "My cat is called Tom and my dog is called Rex.")
	f("What is my dog called?", "Your dog is called Rex.", "My cat is called Tom and my dog is called Rex.")
	f("Where do I live?", "You live in Lisbon.", "My name is Ada, and I live in Lisbon.")
	f("Where do I live?", "I do not know where you live.", "Lisbon is nice.")
	f("What do I like?", "You like tea.", "I like tea.", "I hate coffee.")

	// Gateways add facts of other sessions in a list, and blocks in tags.
	f("What is my name?", "Your name is Ada.", "<observations>\n- user: Hi.\n- user: My name is Ada.\n</observations>", "What is my name?")
	f("What is my name?\n\n<note>\nDo you know what is my shelf?\n</note>", "Your name is Ada.", "My name is Ada.")

	// Other messages are echoed.
	f("My name is Ada.", "You said: My name is Ada.", "My name is Ada.")
	f("Remember my name is Ada.", "You said: Remember my name is Ada.")
	f("Do you know my name is Ada?", "You said: Do you know my name is Ada?")
	f("What is the time?", "You said: What is the time?", "My name is Ada.")
	f("SAY What is my name?", "What is my name?", "My name is Ada.")
}
