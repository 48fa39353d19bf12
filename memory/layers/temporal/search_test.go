package temporal

import (
	"encoding/json"
	"testing"
	"time"

	"remora/memory/layer"
)

// TestSearch: a query finds facts by a time in it and by its words.
func TestSearch(t *testing.T) {
	now := time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC) // a Thursday
	all := []dated{
		{"2025-12-24", fact{Text: "Ann was in Oslo for Christmas."}},
		{"2026-02-20T10:00:00Z", fact{Text: "Ann bought a bicycle."}},
		{"2026-02-25", fact{Text: "The bicycle was stolen."}},
		{"2026-03-02", fact{Text: "Ann moved to Bergen."}},
		{"2026-03-04", fact{Text: "Ann met Priya."}},
		{"2026-03-13", fact{Text: "Ann flies to Lisbon."}},
	}
	for _, c := range []struct{ query, want string }{
		{"bicycle", `{"facts":["[2026-02-25] The bicycle was stolen.","[2026-02-20T10:00:00Z] Ann bought a bicycle."]}`},
		{"Where did Ann move?", `{"facts":["[2026-03-02] Ann moved to Bergen.","[2026-03-13] Ann flies to Lisbon.","[2026-03-04] Ann met Priya.","[2026-02-20T10:00:00Z] Ann bought a bicycle.","[2025-12-24] Ann was in Oslo for Christmas."]}`},
		{"yesterday", `{"facts":["[2026-03-04] Ann met Priya."],"date":"2026-03-04"}`},
		{"what happened 1 day ago", `{"facts":["[2026-03-04] Ann met Priya."],"date":"2026-03-04"}`},
		{"this week", `{"facts":["[2026-03-02] Ann moved to Bergen.","[2026-03-04] Ann met Priya."],"date":"2026-03-02/2026-03-08"}`},
		{"2026-02", `{"facts":["[2026-02-20T10:00:00Z] Ann bought a bicycle.","[2026-02-25] The bicycle was stolen."],"date":"2026-02-01/2026-02-28"}`},
		{"what was stolen last month?", `{"facts":["[2026-02-25] The bicycle was stolen."],"date":"2026-02-01/2026-02-28"}`},
		{"on monday", `{"facts":["[2026-03-02] Ann moved to Bergen."],"date":"2026-03-02"}`},
		{"next Friday", `{"facts":["[2026-02-20T10:00:00Z] Ann bought a bicycle.","[2026-02-25] The bicycle was stolen.","[2026-03-02] Ann moved to Bergen.","[2026-03-04] Ann met Priya.","[2026-03-13] Ann flies to Lisbon."],"date":"2026-03-06","fuzzy":true}`},
		{"2026-12-31", `{"facts":["[2026-02-20T10:00:00Z] Ann bought a bicycle.","[2026-02-25] The bicycle was stolen.","[2026-03-02] Ann moved to Bergen.","[2026-03-04] Ann met Priya.","[2026-03-13] Ann flies to Lisbon."],"date":"2026-12-31","fuzzy":true}`},
	} {
		b, err := json.Marshal(search(all, c.query, now))
		if err != nil || string(b) != c.want {
			t.Errorf("%q: got %s, want %s", c.query, b, c.want)
		}
	}
	if b, _ := json.Marshal(search(nil, "yesterday", now)); string(b) != `{"facts":[],"date":"2026-03-04"}` {
		t.Errorf("without facts: %s", b)
	}
}

// Without a model there is never a fact: no tool is offered that could find none.
func TestSearchIsOfferedWithAModel(t *testing.T) {
	for _, thinks := range []bool{false, true} {
		if l := newLayer(t, Options{Setup: layer.Setup{HasModel: thinks}}); l.Has(layer.HookTools) != thinks {
			t.Errorf("with a model %v: tools %v", thinks, !thinks)
		}
	}
}
