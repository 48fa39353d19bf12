package e2e

import (
	"fmt"
	"testing"

	"remora/test/scripted"
)

// TestOrdinaryClients: with the default configuration and all dialects, upstream gets the conversation that an ordinary client
// means.
func TestOrdinaryClients(t *testing.T) {
	t.Parallel()
	g := startGate(t, "", scripted.Options{})
	system := func(text string) string { return fmt.Sprintf(`{"role":"system","content":%q},`, text) }
	model := func(text string) string { return fmt.Sprintf(`,{"role":"assistant","content":%q},`, text) }
	const hi, yo = "assistant You said: Hi", "assistant You said: Yo"
	server := []string{"X-History: server"}
	for _, c := range []struct {
		name  string
		turns []sending
	}{
		{"an agent that compacts its history", []sending{
			{items: system("Agent") + user("Hi"), want: []string{"system Agent", "user Hi"}},
			{items: system("Agent") + user("Hi") + model("You said: Hi") + user("Yo"), want: []string{"system Agent", "user Hi", hi, "user Yo"}},
			{items: system("Agent") + user("Summary"), want: []string{"system Agent", "user Summary"}, memory: "ok;items=2;sent=2;"},
			{items: system("Agent") + user("Summary") + model("You said: Summary") + user("On"), want: []string{
				"system Agent", "user Summary", "assistant You said: Summary", "user On",
			}, memory: "ok;items=4;sent=4;"},
			{items: system("Agent") + user("Another"), want: []string{"system Agent", "user Another"}},
		}},
		{"a service with a date in its prompt, and a hand-off", []sending{
			{items: system("Monday") + user("Hi"), want: []string{"system Monday", "user Hi"}},
			{items: system("Tuesday") + user("Yo"), want: []string{"system Tuesday", "user Hi", hi, "user Yo"}, memory: "ok;items=4;sent=4;"},
			{items: system("Refunds") + user("Me"), want: []string{"system Refunds", "user Hi", hi, "user Yo", yo, "user Me"}, memory: "ok;"},
			{items: user("Bye"), want: []string{"system Refunds", "user Hi", hi, "user Yo", yo, "user Me", "assistant You said: Me", "user Bye"}},
		}},
		{"a chat page that asks for titles", []sending{
			{items: system("Write a short title for this chat.") + user("Hi"), want: []string{"system Write a short title for this chat.", "user Hi"}, memory: "side;items=2;"},
			{items: user("Hi"), want: []string{"user Hi"}, memory: "ok;"},
			{items: user("Yo"), want: []string{"user Hi", hi, "user Yo"}, memory: "ok;"},
			{items: system("Write a short title for this chat.") + user("Yo"), want: []string{"system Write a short title for this chat.", "user Yo"}, memory: "side;"},
			{items: user("Bye"), want: []string{"user Hi", hi, "user Yo", yo, "user Bye"}, memory: "ok;items=5;"},
		}},
		{"a client that demands the transcript and resends it", []sending{
			{items: user("Hi"), headers: []string{"X-History: server"}, want: []string{"user Hi"}},
			{items: user("Hi") + model("You said: Hi") + user("Yo"), headers: []string{"X-History: server"}, want: []string{"user Hi", hi, "user Yo"}, memory: "ok;items=3;"},
			{items: user("Hi") + model("You said: Hi") + user("Yo") + model("You said: Yo") + user("Bye"), headers: []string{"X-History: server"}, want: []string{
				"user Hi", hi, "user Yo", yo, "user Bye",
			}, memory: "ok;items=5;"},
		}},
		{"one that asks again, as its answer got lost", []sending{
			{items: user("Hi"), headers: server, want: []string{"user Hi"}},
			{items: user("Hi") + model("You said: Hi") + user("Yo"), headers: server, want: []string{"user Hi", hi, "user Yo"}},
			{items: user("Hi") + model("You said: Hi") + user("Yo"), headers: server, want: []string{"user Hi", hi, "user Yo", yo, "user Yo"}},
			{items: user("Hi") + model("You said: Hi") + user("Yo") + model("You said: Yo") + user("Bye"), headers: server, want: []string{
				"user Hi", hi, "user Yo", yo, "user Yo", yo, "user Bye",
			}},
		}},
		{"one that changes the white space around answers", []sending{
			{items: user("Hi"), headers: server, want: []string{"user Hi"}},
			{items: user("Hi") + model("You said: Hi\n") + user("Yo"), headers: server, want: []string{"user Hi", hi, "user Yo"}},
			{items: user("Hi") + model("You said: Hi\n") + user("Yo") + model("You said: Yo") + user("Me"), headers: server, want: []string{
				"user Hi", hi, "user Yo", yo, "user Me",
			}},
			{items: user("Hi") + model("You said: Hi\n") + user("Yo") + model("You said: Yo") + user("Me") + model(" You said: Me") + user("Bye"), headers: server, want: []string{
				"user Hi", hi, "user Yo", yo, "user Me", "assistant You said: Me", "user Bye",
			}},
		}},
		{"one whose user edits a message", []sending{
			{items: user("Hi"), headers: server, want: []string{"user Hi"}},
			{items: user("Hi") + model("You said: Hi") + user("Yo"), headers: server, want: []string{"user Hi", hi, "user Yo"}},
			{items: user("Hi") + model("You said: Hi") + user("Me"), headers: server, want: []string{"user Hi", hi, "user Yo", yo, "user Me"}},
			{items: user("Hi") + model("You said: Hi") + user("Me") + model("You said: Me") + user("Bye"), headers: server, want: []string{
				"user Hi", hi, "user Yo", yo, "user Me", "assistant You said: Me", "user Bye",
			}},
			{items: user("Hi") + model("You said: Hi") + user("Me") + model("You said: Me") + user("Bye") + model("You said: Bye") + user("Go"), headers: server, want: []string{
				"user Hi", hi, "user Yo", yo, "user Me", "assistant You said: Me", "user Bye", "assistant You said: Bye", "user Go",
			}},
		}},
	} {
		for _, d := range dialects {
			t.Run(c.name+" "+d.String(), func(t *testing.T) {
				for _, s := range c.turns {
					s.play(t, g, d, t.Name(), "")
				}
			})
		}
	}
	g.sound(t)
}
