package merge_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
	"remora/wire/sse"
)

// audit holds what must be true of any client's stream: one identity, roles once, numbers without gaps, JSON only,
// no hidden call; and that it folds to what the Merger says it does.
func audit(t *testing.T, p play, client string, s *Merger) {
	t.Helper()
	f := wire.NewFolder(p.dialect)
	f.Write([]byte(client))
	merged := s.Merged()
	if d := cmp.Diff(f.Reply(), merged); d != "" {
		t.Errorf("merged is not what the client folds:\n%s", d)
	}
	if p.options.Hide != nil && strings.Contains(client, "mem_") {
		t.Errorf("a hidden call shows: %s", client)
	}
	var e sse.Splitter
	ids, calls, places, done := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]string{}
	roles, seq := 0, 0
	for rest := []byte(client); ; {
		ev, n, ok := e.Next(rest)
		rest = rest[n:]
		if !ok {
			break
		}
		if ev.Kind != sse.Event {
			continue
		}
		if string(ev.Data) == "[DONE]" {
			continue
		}
		if !wire.Valid(ev.Data) {
			t.Errorf("no JSON: %s", ev.Data)
		}
		member := func(raw []byte, path ...string) []byte {
			for _, name := range path {
				raw = wire.Member(raw, name)
			}
			return raw
		}
		if p.dialect == dialects.Responses {
			if got := string(member(ev.Data, "sequence_number")); got != "" && got != strconv.Itoa(seq) {
				t.Errorf("event %d has number %s", seq, got)
			}
			seq++
			at := string(member(ev.Data, "output_index"))
			if string(ev.Name) == "response.output_item.added" {
				if at != strconv.Itoa(len(places)) {
					t.Errorf("item %d is at %s", len(places), at)
				}
				places[at] = true
			}
			if string(ev.Name) == "response.output_item.done" {
				done[at] = string(member(ev.Data, "item"))
			}
			if r := member(ev.Data, "response"); r != nil {
				ids[string(member(r, "id"))+string(member(r, "created_at"))] = true
				i := 0
				for o := range wire.Children(member(r, "output")) {
					if d, ok := done[strconv.Itoa(i)]; ok && d != string(o.Value) {
						t.Errorf("output %d at the end is %s, was %s", i, o.Value, d)
					}
					i++
				}
				if strings.HasSuffix(string(ev.Name), "completed") && i != len(places) {
					t.Errorf("%d items at the end, %d began", i, len(places))
				}
			}
			continue
		}
		if id := member(ev.Data, "id"); id != nil {
			ids[string(id)+string(member(ev.Data, "created"))+string(member(ev.Data, "model"))] = true
		}
		for c := range wire.Children(member(ev.Data, "choices")) {
			if string(member(c.Value, "index")) != "0" {
				continue
			}
			if member(c.Value, "delta", "role") != nil {
				roles++
			}
			for k := range wire.Children(member(c.Value, "delta", "tool_calls")) {
				at := string(member(k.Value, "index"))
				if !calls[at] && at != strconv.Itoa(len(calls)) {
					t.Errorf("call %d is at %s", len(calls), at)
				}
				calls[at] = true
			}
		}
	}
	if len(ids) > 1 || roles > 1 {
		t.Errorf("%d identities %v, %d roles", len(ids), ids, roles)
	}
	if len(calls) > 0 && roles == 0 && strings.Contains(p.answers[len(p.answers)-1], `"role"`) {
		t.Error("calls without the role of their message")
	}
}
