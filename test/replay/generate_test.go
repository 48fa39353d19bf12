package main

import (
	"bytes"
	"os"
	"testing"

	"remora/wire"
)

// TestSampleIsGenerated: the sample equals the generator's output. To update it: go run ./test/replay -small -generate >
// test/replay/sessions/sample.jsonl.
func TestSampleIsGenerated(t *testing.T) {
	have, err := os.ReadFile("sessions/sample.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	if err := writeSessions(&want, []profile{sampleProfile()}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, want.Bytes()) {
		t.Error("sessions/sample.jsonl is not what -small -generate prints")
	}
	if len(have) > 1<<20 {
		t.Errorf("the sample has %d bytes", len(have))
	}
}

// TestSessionsLookLikeRecordedOnes: the generated sessions have the proportions of recorded ones.
func TestSessionsLookLikeRecordedOnes(t *testing.T) {
	all, err := generated(0)
	if err != nil {
		t.Fatal(err)
	}
	small, err := sample()
	if err != nil {
		t.Fatal(err)
	}
	items, calls, users, asked, compactions := 0, 0, 0, 0, 0
	for _, s := range append(all, small...) {
		i, c, u := s.items()
		if s.name != small[0].name {
			items, calls, users, asked = items+i, calls+c, users+u, asked+len(s.steps)
		}
		parallel, largest := 0, 0
		for _, st := range s.steps {
			if len(st.answer.Calls) > 1 {
				parallel++
			}
			for _, in := range st.input {
				if in.compact != nil {
					compactions++
				} else if in.item.Kind == wire.ToolResult {
					largest = max(largest, len(in.item.Text()))
				}
			}
		}
		if i < 390 || u < 4 || parallel < 5 || largest < 50<<10 || largest > 220<<10 {
			t.Errorf("%s: %d items, %d user texts, %d answers with parallel calls, largest result %d bytes", s.name, i, u, parallel, largest)
		}
	}
	inLoop := 1 - float64(users)/float64(asked)
	if items < 2400 || items > 2550 || calls < 900 || calls > 1000 || users != 24 || compactions != 5 || inLoop < 0.96 {
		t.Errorf("%d items, %d calls, %d user texts, %d compactions, %.3f inside a loop", items, calls, users, compactions, inLoop)
	}
}
