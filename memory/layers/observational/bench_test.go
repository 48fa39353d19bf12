package observational

import (
	"strings"
	"testing"
)

// BenchmarkExtractive measures the extractive observer on one answer, by content.
func BenchmarkExtractive(b *testing.B) {
	const prose = "Lisbon has seven hills, and most visitors start in Alfama. The tram 28 runs every 12 minutes from Martim Moniz. " +
		"You can also walk, which takes longer but shows more of the old town. I would start early, since the lanes fill up by noon. " +
		"If the weather turns, the tile museum is a good choice; its cloister alone makes the detour worthwhile. " +
		"Bring water and shoes that hold on to polished stone! For dinner there are many small places behind the cathedral. "
	known := []observation{
		{By: byUser, Text: "My name is Ana and my cat is called Miso."}, {By: byUser, Text: "We ship on Fridays."}, {By: byUser, Text: "Budget: 4000 EUR"},
	}
	for range 9 {
		known = append(known, observation{By: byAssistant, Text: "The deployment of service 14 was approved and starts on 3 May 2027."})
	}
	for _, tc := range []struct {
		name string
		said []entry
	}{
		{"fact", []entry{{By: byUser, Text: "Hi! My name is Ana and I live in Lisbon."}, {By: byAssistant, Text: "Nice to meet you, Ana! How can I help?"}}},
		{"question", []entry{{By: byUser, Text: "Can you tell me how the garbage collector of Go decides when to run a cycle?"}}},
		{"tool dump", []entry{{By: byTool, Text: "[" + strings.Repeat(`{"id": 4711, "name": "Bob", "paid": true},`, 190) + "{}]"}}},
		{"tool note", []entry{{By: byTool, Text: "The order 4711 was shipped on 2 March.\nIt is expected in Porto next week."}}},
		{"prose", []entry{{By: byAssistant, Text: strings.Repeat(prose, 4)}}},
		{"user prose", []entry{{By: byUser, Text: strings.Repeat(prose, 4)}}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := state{Observations: known, Buffer: tc.said}
			t := turn(nil)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := extractive(b.Context(), t, &s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
