package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestAgentCompacts: a compaction keeps whole answers with the items after them, in both dialects.
func TestAgentCompacts(t *testing.T) {
	s, err := parse(strings.NewReader(recording), "file")
	if err != nil {
		t.Fatal(err)
	}
	summary := `{"role":"user","content":"so far"}`
	for _, c := range []struct {
		dialect wire.Dialect
		keep    int
		want    []string
	}{
		{dialects.Chat, 0, []string{summary}},
		{dialects.Chat, 1, []string{summary, "I run it.", "tool_calls", "ok", "seen"}},
		{dialects.Chat, 9, []string{summary, "go", "I run it.", "tool_calls", "ok", "seen"}},
		{dialects.Responses, 1, []string{summary, "I run it.", "c1", "c2", "ok", "seen"}},
	} {
		a := &agent{dialect: c.dialect, session: s[0]}
		first := s[0].steps[0]
		if err := a.take(first.input[0]); err != nil {
			t.Fatal(err)
		}
		a.answers++
		a.recall(&first)
		for _, in := range s[0].steps[1].input {
			if in.compact != nil {
				in.compact.Keep = c.keep
			}
			if err := a.take(in); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]bool, 0, len(c.want))
		for i, e := range a.history {
			got = append(got, i < len(c.want) && strings.Contains(string(e.raw), c.want[i]))
		}
		want := make([]bool, len(c.want))
		for i := range want {
			want[i] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, keep %d: %s\n%s", c.dialect, c.keep, diff, a.body())
		}
	}
}

// TestSame: any difference from the model's answer is detected, such as an additional call of a layer's tool.
func TestSame(t *testing.T) {
	s, err := parse(strings.NewReader(chatRecording), "file")
	if err != nil {
		t.Fatal(err)
	}
	want := &s[0].steps[0].answer
	for raw, ok := range map[string]bool{
		`{"role":"assistant","content":"I run it.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}}]}`:                                                                           true,
		`{"role":"assistant","content":"I run it.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}}]}`:                                                                                                                                                             false,
		`{"role":"assistant","content":"I ran it.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}}]}`:                                                                           false,
		`{"role":"assistant","content":"I run it.","tool_calls":[{"id":"c1","type":"function","function":{"name":"run","arguments":"{}"}},{"id":"c2","type":"function","function":{"name":"look","arguments":"{\"at\":1}"}},{"id":"x","type":"function","function":{"name":"layer","arguments":"{}"}}]}`: false,
	} {
		it := wiretest.Parse(t, dialects.Chat, raw)
		if same([]wire.Item{it}, want) != ok {
			t.Errorf("%s: want %v", raw, ok)
		}
	}
}
