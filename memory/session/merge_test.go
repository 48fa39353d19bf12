package session

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// What is remembered of items must be what hashing them again gives, also where an item stands in several places, or
// was seen in none of a conversation before.
func TestRememberedHashesAreExact(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) wire.Item {
		raw := fmt.Sprintf(rapid.SampledFrom([]string{
			`{"role":"user","content":"%d"}`,
			`{"role":"assistant","content":"%d"}`,
			`{"type":"function_call_output","call_id":"c","output":"%d"}`,
			`{"type":"reasoning","id":"r%d","summary":[]}`,
			`{"type":"item_reference","id":"known%d"}`,
		}).Draw(t, "item"), rapid.IntRange(0, 2).Draw(t, "n"))
		return wiretest.Parse(t, dialects.Responses, raw)
	})
	refs := map[string]reference{
		"known0": {Kind: wire.Message, Content: wire.Hash{1}},
		"known1": {Kind: wire.Reasoning, Content: wire.Hash{2}},
	}
	rapid.Check(t, func(t *rapid.T) {
		known := newHashCache()
		for range 6 {
			if rapid.Bool().Draw(t, "alone") {
				known.meaning(item.Draw(t, "answer"))
			}
			in := &incoming{refs: refs, hashes: known, items: rapid.SliceOfN(item, 0, 6).Draw(t, "items")}
			in.marks, in.ends = make([]mark, len(in.items)), make([]position, len(in.items))
			in.hash()
			var want position
			for i, it := range in.items {
				content := it.ContentHash()
				ref, resolved := refs[it.ID]
				if resolved = resolved && it.Kind == wire.Reference; resolved {
					content = ref.Content
				}
				wantMark := mark{Meaning: wire.Meaning{Content: content}, units: 1, onChain: it.Kind != wire.Reasoning && (!resolved || ref.Kind != wire.Reasoning)}
				if wantMark.onChain {
					want.Chain = wire.Chain(want.Chain, content)
				}
				want.Units++
				if diff := cmp.Diff([]any{wantMark, want}, []any{in.marks[i], in.ends[i]}, cmp.AllowUnexported(mark{})); diff != "" {
					t.Fatalf("%s: %s", it.Raw, diff)
				}
			}
		}
	})
}

// A history that says the end of the head line is only taken for a trimmed one, without asking the index, where that end is
// not said before.
func TestEndsOnce(t *testing.T) {
	line := func(n int) (h head) {
		for i := range n {
			h.Ring = append(h.Ring, echo{Content: uint64(i), Seq: uint64(i)})
		}
		return h
	}
	long := line(ringSize)
	again := line(ringSize)
	again.Ring[3], again.Ring[4] = again.Ring[ringSize-2], again.Ring[ringSize-1]
	apart := line(ringSize)
	apart.Ring[3], apart.Ring[6] = apart.Ring[ringSize-2], apart.Ring[ringSize-1]
	for name, c := range map[string]struct {
		h    head
		want bool
	}{
		"once": {long, true}, "twice": {again, false}, "its items apart": {apart, true}, "a line that is remembered as a whole": {line(ringSize - 1), false}, "none": {},
	} {
		if got := c.h.Ring.endsOnce(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A program that keeps its history as text sends its last message with the answer in it.
func TestExtends(t *testing.T) {
	t.Parallel()
	const prompt, answer = "Answer the question as well as you can.\n\nCurrent conversation:\n\nHuman: Who are you?\nAI:", "A bee."
	for _, test := range []struct {
		name, message, earlier string
		want                   bool
	}{
		{"the answer behind it", prompt + " A bee.\nHuman: And you?\nAI:", prompt, true},
		{"other white space", strings.ReplaceAll(prompt, "\n\n", "\n") + " A bee.\nHuman: And you?\nAI:", prompt, true},
		{"the answer within it", prompt + "\nA bee.\nObservation: it flies\n(reminder: answer in JSON)", prompt + "\n(reminder: answer in JSON)", true},
		{"an answer that begins like what follows it", prompt + "A bee. A wasp. A bee", prompt + "A bee", true},
		{"another text behind it", prompt + " A wasp.", prompt, false},
		{"other words before the answer", strings.Replace(prompt, "you", "they", 1) + " A bee.", prompt, false},
		{"the same message", prompt, prompt, false},
		{"a short one", "Who are you? A bee.", "Who are you?", false},
	} {
		if got := extends(test.message, test.earlier, answer); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	if extends(prompt+" A bee.", prompt, "") {
		t.Error("an exchange without an answer was extended")
	}
}

// TestRepeatedReferencesAreReadOnce: a small request cannot make the store read a large item many times.
func TestRepeatedReferencesAreReadOnce(t *testing.T) {
	l := newLab(t)
	enter := func(turn, provider, input string) *Entry {
		req := wiretest.Request(t, dialects.Responses, `{"model":"m","input":[`+input+`]}`)
		e, _, err := l.log.Enter(t.Context(), turn, time.Unix(1, 0), Call{Scope: scope, Request: req, Provider: provider}, Want{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	const question = `{"role":"user","content":"1"}`
	reply := wiretest.Answer(t, dialects.Responses, `{"id":"r","status":"completed","output":[{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"a long answer"}]}]}`)
	if err := commit(enter("turn1", "first", question), &Answer{HTTPStatus: 200, Provider: "first", Reply: reply}); err != nil {
		t.Fatal(err)
	}

	const times = 20
	input := question + strings.Repeat(`,{"type":"item_reference","id":"msg_1"}`, times) + `,{"role":"user","content":"2"}`
	for _, provider := range []string{"first", "second"} {
		e := enter("turn2", provider, input)
		l.reads = nil
		c, err := e.History.Conversation(t.Context(), 100)
		if err != nil {
			t.Fatal(err)
		}
		items, err := e.History.WithTargets(t.Context(), c.Items)
		if err != nil {
			t.Fatal(err)
		}
		read := 0
		for _, names := range l.reads {
			for _, name := range names {
				if name == itemName(2) {
					read++
				}
			}
		}
		if read != 1 || items[1].Kind != wire.Message {
			t.Errorf("%s: the item is read %d times, and the first reference is %v", provider, read, items[1].Kind)
		}
	}
}
