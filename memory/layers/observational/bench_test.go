package observational

import (
	"strings"
	"testing"

	"remora/memory/layer"
)

// BenchmarkExtractive measures the extractive observer on one answer, by content.
func BenchmarkExtractive(b *testing.B) {
	const prose = "Lisbon has seven hills, and most visitors start in Alfama. The tram 28 runs every 12 minutes from Martim Moniz. " +
		"You can also walk, which takes longer but shows more of the old town. I would start early, since the lanes fill up by noon. " +
		"If the weather turns, the tile museum is a good choice; its cloister alone makes the detour worthwhile. " +
		"Bring water and shoes that hold on to polished stone! For dinner there are many small places behind the cathedral. "
	known := []observation{
		{By: layer.ByUser, Text: "My name is Ana and my cat is called Miso."}, {By: layer.ByUser, Text: "We ship on Fridays."}, {By: layer.ByUser, Text: "Budget: 4000 EUR"},
	}
	for range 9 {
		known = append(known, observation{By: layer.ByAssistant, Text: "The deployment of service 14 was approved and starts on 3 May 2027."})
	}
	for _, tc := range []struct {
		name string
		said []layer.Heard
	}{
		{"fact", []layer.Heard{{By: layer.ByUser, Text: "Hi! My name is Ana and I live in Lisbon."}, {By: layer.ByAssistant, Text: "Nice to meet you, Ana! How can I help?"}}},
		{"question", []layer.Heard{{By: layer.ByUser, Text: "Can you tell me how the garbage collector of Go decides when to run a cycle?"}}},
		{"tool dump", []layer.Heard{{By: layer.ByTool, Text: "[" + strings.Repeat(`{"id": 4711, "name": "Bob", "paid": true},`, 190) + "{}]"}}},
		{"tool note", []layer.Heard{{By: layer.ByTool, Text: "The order 4711 was shipped on 2 March.\nIt is expected in Porto next week."}}},
		{"prose", []layer.Heard{{By: layer.ByAssistant, Text: strings.Repeat(prose, 4)}}},
		{"user prose", []layer.Heard{{By: layer.ByUser, Text: strings.Repeat(prose, 4)}}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			s := state{Observations: known, Buffer: layer.Buffer{Texts: tc.said}}
			t := turn(nil)
			b.ReportAllocs()
			for b.Loop() {
				extractive(t, &s)
			}
		})
	}
}
