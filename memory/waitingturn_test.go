package memory

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/inmemory"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestSpooledAnswerIsWhole: each field of an answer returns from a record.
func TestSpooledAnswerIsWhole(t *testing.T) {
	t.Parallel()
	it := wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":"hi"}`)
	want := &Answer{
		Reply: wire.Reply{
			Choices: [][]wire.Item{{it}}, ID: "\xff", Model: "m", Finish: "f", Usage: []byte(`{"input_tokens":1}`), Used: wire.Usage{Input: 1}, Complete: true, Truncated: true,
			Error:      []byte(`{"e":1}`),
			OtherNames: map[int][]string{}, Unclear: "-", // for a judge, who has judged
		},
		HTTPStatus: 200, Aborted: 1, Provider: "p", Model: "n", Later: true,
	}
	mustBeSet(t, *want, want.Reply)
	b, err := json.Marshal(newWaitingAnswer(want))
	if err != nil {
		t.Fatal(err)
	}
	var stored waitingAnswer
	if err := json.Unmarshal(b, &stored); err != nil {
		t.Fatal(err)
	}
	got, err := stored.answer(dialects.Chat)
	if err != nil {
		t.Fatal(err)
	}
	want.Reply.OtherNames, want.Reply.Unclear = nil, ""
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(wire.Item{})); diff != "" {
		t.Errorf("-said +read:\n%s", diff)
	}
}

// TestSpooledCallIsWhole: each field of a call that its replay needs returns from a record.
func TestSpooledCallIsWhole(t *testing.T) {
	t.Parallel()
	store := inmemory.New(cache.Options{})
	m := New(store, nil, Options{})
	t.Cleanup(func() {
		m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	req := wiretest.Request(t, dialects.Chat, string(body))
	want := Call{
		Scope:   Scope{Tenant: "\xff", Session: "s\xff", Resource: "r\xff", Execution: "e\xff", Parent: "p\xff"},
		Request: req, History: HistoryServer, Side: "title\xff", Retry: true, Resends: true, Provider: "p",
		MaxTokens:  1,                         // for the view, which is made
		Unkept:     true,                      // nothing of such a turn is written
		Lasting:    true,                      // the record has its own memory
		Credential: Credential{Provider: "p"}, // never stored
	}
	mustBeSet(t, want, want.Scope)
	kept := want
	kept.MaxTokens, kept.Unkept, kept.Lasting, kept.Credential = 0, false, false, Credential{}
	turn, err := m.Begin(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	written, _ := newWaitingTurn(&turn.writer, &Answer{HTTPStatus: 200})
	turn.Commit(Answer{HTTPStatus: 200})
	b, err := written.encode()
	if err != nil {
		t.Fatal(err)
	}
	read, err := decodeWaitingTurn(b)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := resumeTurn(m, read, read.Values)
	if err != nil {
		t.Fatal(err)
	}

	got := w.call
	if string(got.Request.Body) != string(body) || got.Request.Dialect != dialects.Chat {
		t.Errorf("request %s", got.Request.Body)
	}
	got.Request = req
	if diff := cmp.Diff(kept, got, cmp.Comparer(func(a, b *wire.Request) bool { return a == b })); diff != "" {
		t.Errorf("-said +read:\n%s", diff)
	}
	if w.ID != turn.ID || !w.started.Equal(turn.started) || w.group != turn.group {
		t.Errorf("turn %s of %s began %s, want %s of %s, %s", w.ID, w.group, w.started, turn.ID, turn.group, turn.started)
	}
}

// mustBeSet fails where a field of the structs is zero: then a new one is not part of the test.
func mustBeSet(t *testing.T, structs ...any) {
	t.Helper()
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("the test does not set %s of %T", v.Type().Field(i).Name, s)
			}
		}
	}
}
