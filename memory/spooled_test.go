package memory

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
)

// TestSpooledAnswerIsWhole: each field of an answer returns from a record.
func TestSpooledAnswerIsWhole(t *testing.T) {
	t.Parallel()
	it, err := wire.ParseItem(dialects.Chat, []byte(`{"role":"assistant","content":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	want := &Answer{
		Reply: wire.Reply{
			Choices: [][]wire.Item{{it}}, ID: "\xff", Model: "m", Finish: "f", Usage: []byte(`{"u":1}`), Complete: true, Truncated: true,
			Error:      []byte(`{"e":1}`),
			OtherNames: map[int][]string{}, Unclear: "-", // for a judge, who has judged
		},
		HTTPStatus: 200, Aborted: 1, Provider: "p", Model: "n", Later: true,
	}
	for _, v := range []reflect.Value{reflect.ValueOf(*want), reflect.ValueOf(want.Reply)} {
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Fatalf("the test does not set %s", v.Type().Field(i).Name)
			}
		}
	}
	b, err := json.Marshal(newSpooledReply(want))
	if err != nil {
		t.Fatal(err)
	}
	var stored spooledReply
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
