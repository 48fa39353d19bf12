package view_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// chatMessages makes Chat messages of a notation: s, d, u, a and a text; c is a message with a call, r its result.
func chatMessages(t wiretest.TB, notation string) []wire.Item {
	var items []wire.Item
	for word := range strings.FieldsSeq(notation) {
		kind, text, _ := strings.Cut(word, ":")
		role := map[string]string{"s": "system", "d": "developer", "u": "user", "a": "assistant", "c": "assistant", "r": "tool"}[kind]
		m := map[string]any{"role": role, "content": text}
		switch kind {
		case "c":
			m["tool_calls"] = []any{map[string]any{"id": text, "type": "function", "function": map[string]any{"name": "f", "arguments": "{}"}}}
			m["content"] = nil
		case "r":
			m["tool_call_id"] = text
		}
		raw, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, wiretest.Parse(t, dialects.Chat, string(raw)))
	}
	return items
}

// blocks are messages as what layers say at a place.
func blocks(at view.Block, messages []wire.Item) (list []view.Block) {
	for _, it := range messages {
		b := at
		b.Role, b.Texts = it.Role, []string{it.Text()}
		list = append(list, b)
	}
	return list
}

// notation is the inverse. An empty line within a text is a plus. What is said beside a call stands before it, with an ampersand.
func notation(items []wire.Item) string {
	var words []string
	for _, it := range items {
		kind := map[wire.Role]string{wire.System: "s", wire.Developer: "d", wire.User: "u", wire.Assistant: "a", wire.RoleTool: "r"}[it.Role]
		text := it.Text()
		switch {
		case it.Kind == wire.ToolResult:
			kind, text = "r", it.Answers().ID
		case it.HasCalls():
			if kind = "c"; text != "" {
				kind = "a:" + text + "&c"
			}
			text = it.Parts[len(it.Parts)-1].Call.ID
		}
		words = append(words, strings.NewReplacer("\n\n", "+", " ", "_").Replace(kind+":"+text))
	}
	return strings.Join(words, " ")
}

func TestForms(t *testing.T) {
	for name, c := range map[string]struct {
		system, items              string
		anchored, run, live        string
		after                      string
		joined, one, alternate, no string
		repaired                   [4]int // of joined to no
		inside                     string // behind the second item
		continues                  bool
		carried                    int
	}{
		"nothing to do": {
			items: "u:1 a:1 u:2", joined: "u:1 a:1 u:2", one: "u:1 a:1 u:2", alternate: "u:1 a:1 u:2", no: "u:1 a:1 u:2",
		},
		"the client's one system message": {
			system: "s:x", items: "u:1", joined: "s:x u:1", one: "s:x u:1", alternate: "s:x u:1", no: "u:x+1", repaired: [4]int{3: 2},
		},
		"blocks alone": {
			items: "u:1", anchored: "s:b1 s:b2", joined: "s:b1+b2 u:1", one: "s:b1+b2 u:1", alternate: "s:b1+b2 u:1", no: "u:b1+b2+1",
			repaired: [4]int{3: 1},
		},
		"blocks behind the client's": {
			system: "s:x", items: "u:1", anchored: "s:b1 s:b2", run: "s:r", live: "s:l",
			joined: "s:x s:b1+b2 u:1 u:r u:l", one: "s:x+b1+b2 u:1 u:r u:l", alternate: "s:x+b1+b2 u:1+r+l", no: "u:x+b1+b2+1+r+l",
			repaired: [4]int{0, 1, 2, 2},
		},
		"a developer's": {
			system: "d:x", items: "u:1", anchored: "d:b", joined: "d:x d:b u:1", one: "s:x+b u:1", alternate: "s:x+b u:1", no: "u:x+b+1",
			repaired: [4]int{0, 1, 1, 2},
		},
		"several of the client's, one of them late": {
			system: "s:x s:y", items: "u:1 a:1 s:z u:2", joined: "s:x s:y u:1 a:1 s:z u:2", one: "s:x+y u:1 a:1 u:z u:2",
			alternate: "s:x+y u:1 a:1 u:z+2", no: "u:x+y+1 a:1 u:z+2", repaired: [4]int{0, 3, 4, 5},
		},
		"live blocks behind a result": {
			items: "u:1 c:k r:k", live: "s:l", joined: "u:1 c:k r:k u:l", one: "u:1 c:k r:k u:l", alternate: "u:1+l c:k r:k", no: "u:1+l c:k r:k",
			repaired: [4]int{0, 0, 1, 1},
		},
		"an update inside": {
			items: "u:1 a:1 u:2", inside: "s:i", joined: "u:1 a:1 u:i u:2", one: "u:1 a:1 u:i u:2", alternate: "u:1 a:1 u:i+2", no: "u:1 a:1 u:i+2",
			repaired: [4]int{0, 0, 1, 1},
		},
		"advice": {
			items: "u:1", after: "a:no s:better", joined: "u:1 a:no u:better", one: "u:1 a:no u:better", alternate: "u:1 a:no u:better", no: "u:1 a:no u:better",
		},
		"advice on a call": {
			items: "u:1", after: "c:k r:k s:better", joined: "u:1 c:k r:k u:better", one: "u:1 c:k r:k u:better", alternate: "u:1+better c:k r:k",
			no: "u:1+better c:k r:k", repaired: [4]int{0, 0, 1, 1},
		},
		"a user who interrupts": {
			items: "u:1 c:k r:k u:2", joined: "u:1 c:k r:k u:2", one: "u:1 c:k r:k u:2", alternate: "u:1 c:k r:k a:(no_answer) u:2",
			no: "u:1 c:k r:k a:(no_answer) u:2",
		},
		"a window that begins with an answer": {
			system: "s:x", items: "a:1 u:2", joined: "s:x a:1 u:2", one: "s:x a:1 u:2", alternate: "s:x u:(continue) a:1 u:2", no: "u:x a:1 u:2",
			repaired: [4]int{3: 1},
		},
		"a window that begins with a call": {
			system: "s:x", items: "c:k r:k a:1 u:2", joined: "s:x c:k r:k a:1 u:2", one: "s:x c:k r:k a:1 u:2",
			alternate: "s:x u:(continue) c:k r:k a:1 u:2", no: "u:x c:k r:k a:1 u:2", repaired: [4]int{3: 1},
		},
		"answers and questions in a row": {
			items: "u:1 u:2 a:1 a:2 u:3", joined: "u:1 u:2 a:1 a:2 u:3", one: "u:1 u:2 a:1 a:2 u:3", alternate: "u:1+2 a:1+2 u:3", no: "u:1+2 a:1+2 u:3",
			repaired: [4]int{0, 0, 4, 4},
		},
		"a call behind an answer": {
			items: "u:1 a:1 c:k r:k a:2 a:3 c:l r:l a:4 u:5", joined: "u:1 a:1 c:k r:k a:2 a:3 c:l r:l a:4 u:5", one: "u:1 a:1 c:k r:k a:2 a:3 c:l r:l a:4 u:5",
			alternate: "u:1 a:1&c:k r:k a:2+3&c:l r:l a:4 u:5", no: "u:1 a:1&c:k r:k a:2+3&c:l r:l a:4 u:5", repaired: [4]int{0, 0, 5, 5},
		},
		"a call behind an answer, and a live block": {
			items: "u:1 a:1 c:k r:k", live: "s:l", joined: "u:1 a:1 c:k r:k u:l", one: "u:1 a:1 c:k r:k u:l", alternate: "u:1+l a:1&c:k r:k",
			no: "u:1+l a:1&c:k r:k", repaired: [4]int{0, 0, 3, 3},
		},
		"a window that begins with an answer and a call": {
			items: "a:1 c:k r:k u:2", joined: "a:1 c:k r:k u:2", one: "a:1 c:k r:k u:2", alternate: "u:(continue) a:1&c:k r:k a:(no_answer) u:2",
			no: "u:(continue) a:1&c:k r:k a:(no_answer) u:2", repaired: [4]int{0, 0, 2, 2},
		},
		"an answer that upstream has not seen, and a call": {
			items: "a:1 c:k r:k u:2", carried: 2, continues: true, joined: "a:1 c:k r:k u:2", one: "a:1 c:k r:k u:2", alternate: "a:1&c:k r:k u:2",
			no: "a:1&c:k r:k u:2",
		},
		"behind what upstream keeps": {
			items: "u:2", anchored: "s:b", continues: true, joined: "u:b u:2", one: "u:b u:2", alternate: "u:b+2", no: "u:b+2", repaired: [4]int{0, 0, 1, 1},
		},
		"results for what upstream keeps": {
			items: "r:k", live: "s:l", continues: true, joined: "r:k u:l", one: "r:k u:l", alternate: "r:k u:l", no: "r:k u:l",
		},
		"results and a question": {
			items: "r:k u:2", anchored: "s:b", live: "s:l", continues: true, joined: "r:k u:b u:2 u:l", one: "r:k u:b u:2 u:l",
			alternate: "r:k u:b+2+l", no: "r:k u:b+2+l", repaired: [4]int{0, 0, 1, 1},
		},
		"what upstream has not seen": {
			system: "d:x", items: "r:h a:1 u:2", carried: 2, anchored: "s:b", continues: true, joined: "r:h a:1 d:x u:b u:2",
			one: "r:h a:1 u:x u:b u:2", alternate: "r:h a:1 u:x+b+2", no: "r:h a:1 u:x+b+2", repaired: [4]int{0, 1, 2, 2},
		},
		"a hidden result beside the client's": {
			items: "r:h r:k u:2", carried: 1, anchored: "s:b", continues: true, joined: "r:h r:k u:b u:2", one: "r:h r:k u:b u:2",
			alternate: "r:h r:k u:b+2", no: "r:h r:k u:b+2", repaired: [4]int{0, 0, 1, 1},
		},
	} {
		m := view.Messages{
			Dialect: dialects.Chat, System: chatMessages(t, c.system), Items: chatMessages(t, c.items), After: chatMessages(t, c.after),
			Blocks: slices.Concat(blocks(view.Block{}, chatMessages(t, c.anchored)), blocks(view.Block{Place: view.AfterUser()}, chatMessages(t, c.run)), blocks(view.Block{Place: view.End()}, chatMessages(t, c.live))),
		}
		if c.continues {
			m.Continue(c.carried)
		}
		if c.inside != "" {
			m.Blocks = append(m.Blocks, blocks(view.Block{Place: view.Inside(2)}, chatMessages(t, c.inside))...)
		}
		for form, want := range map[view.Form]string{view.Joined: c.joined, view.OneSystem: c.one, view.Alternate: c.alternate, view.NoSystem: c.no} {
			sent := m.As(form)
			if got := notation(sent.Items); got != want {
				t.Errorf("%s, %s: %s, want %s", name, form, got, want)
			}
			if sent.Repaired != c.repaired[form-1] {
				t.Errorf("%s, %s: %d items repaired, want %d", name, form, sent.Repaired, c.repaired[form-1])
			}
		}
	}
}

// TestContinuedAnswerIsJoined: a client began an answer, and the model went on in the middle of the sentence.
func TestContinuedAnswerIsJoined(t *testing.T) {
	for _, c := range []struct{ began, goesOn, want string }{
		{`"The answer is"`, `" 42 indeed"`, `"The answer is 42 indeed"`},
		{`"One:"`, `"\n- two"`, `"One:\n- two"`},
		{`"\u0041"`, `"\u0020b\/"`, `"\u0041\u0020b\/"`},
		{`"One."`, `"Two."`, `"One.\n\nTwo."`},
		{`[{"type":"text","text":"One"}]`, `" two"`, `[{"type":"text","text":"One"},{"type":"text","text":" two"}]`},
	} {
		var items []wire.Item
		for _, raw := range []string{`{"role":"user","content":"q"}`, `{"role":"assistant","content":` + c.began + `}`, `{"role":"assistant","content":` + c.goesOn + `}`} {
			items = append(items, wiretest.Parse(t, dialects.Chat, raw))
		}
		sent := (&view.Messages{Dialect: dialects.Chat, Items: items}).As(view.Alternate).Items
		if got := string(sent[len(sent)-1].Raw); len(sent) != 2 || got != `{"role":"assistant","content":`+c.want+`}` {
			t.Errorf("%s and %s become %s", c.began, c.goesOn, got)
		}
	}

	for _, c := range []struct{ said, next, want string }{
		{`"content":"","reasoning_content":"t"`, `"content":null,"tool_calls":[{"id":"k"}]`, `"content":null,"tool_calls":[{"id":"k"}]`},
		{`"content":"One."`, `"content":" two","tool_calls":[{"id":"k"}],"x":1`, `"content":"One. two","tool_calls":[{"id":"k"}],"x":1`},
		{`"content":null,"refusal":"No."`, `"tool_calls":[{"id":"k"}]`, `"tool_calls":[{"id":"k"}],"content":"No."`},
		{`"content":"One."`, `"content":null,"refusal":"No."`, `"content":"One.\n\nNo."`},
		{`"content":"One."`, `"content":[{"type":"text","text":"Two."}],"tool_calls":[{"id":"k"}]`, `"content":[{"type":"text","text":"One."},{"type":"text","text":"Two."}],"tool_calls":[{"id":"k"}]`},
	} {
		m := view.Messages{Dialect: dialects.Chat, Items: chatMessages(t, "u:q")}
		for _, members := range []string{c.said, c.next} {
			m.Items = append(m.Items, wiretest.Parse(t, dialects.Chat, `{"role":"assistant",`+members+`}`))
		}
		sent := m.As(view.Alternate).Items
		if got := string(sent[len(sent)-1].Raw); len(sent) != 2 || got != `{"role":"assistant",`+c.want+`}` {
			t.Errorf("%s and %s become %s", c.said, c.next, got)
		}
	}

	sent := (&view.Messages{Dialect: dialects.Chat, Items: []wire.Item{
		wire.NewMessage(dialects.Chat, wire.User, "One."), wire.NewMessage(dialects.Chat, wire.User, " Two."),
	}}).As(view.Alternate).Items
	if got := sent[0].Text(); got != "One.\n\n Two." {
		t.Errorf("two messages of the user become %q", got)
	}
}

// TestFormsOfResponses: instructions are the client's system message.
func TestFormsOfResponses(t *testing.T) {
	raw := func(form view.Form, instructions string) string {
		item := func(s string) wire.Item { return wiretest.Parse(t, dialects.Responses, s) }
		m := view.Messages{
			Dialect: dialects.Responses, Instructions: []byte(instructions),
			System: []wire.Item{item(`{"role":"developer","content":[{"type":"input_text","text":"d"}]}`)},
			Items:  []wire.Item{item(`{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`)},
			Blocks: []view.Block{{Role: wire.Developer, Texts: []string{"b"}}, {Place: view.End(), Role: wire.Developer, Texts: []string{"l"}}},
		}
		sent := m.As(form)
		out := string(sent.Instructions)
		for _, it := range sent.Items {
			out += "\n" + string(it.Raw)
		}
		return out
	}
	const (
		user = `{"role":"user","content":[{"type":"input_image","image_url":"x"}]}`
		both = `{"role":"user","content":[{"type":"input_image","image_url":"x"},{"type":"input_text","text":"l"}]}`
	)
	for _, c := range []struct {
		form               view.Form
		instructions, want string
	}{
		{view.Joined, `"\ud800 i"`, "\n" + `{"role":"developer","content":[{"type":"input_text","text":"d"}]}` + "\n" + `{"role":"system","content":"b"}` + "\n" + user + "\n" + `{"role":"user","content":"l"}`},
		// What an odd string spells stays.
		{view.OneSystem, `"\ud800 i"`, `"\ud800 i\n\nd\n\nb"` + "\n" + user + "\n" + `{"role":"user","content":"l"}`},
		{view.Alternate, `"i"`, `"i\n\nd\n\nb"` + "\n" + both},
		{view.NoSystem, `"i"`, "null\n" + `{"role":"user","content":[{"type":"input_text","text":"i\n\nd\n\nb"},{"type":"input_image","image_url":"x"},{"type":"input_text","text":"l"}]}`},
		{view.OneSystem, ``, "\n" + `{"role":"system","content":[{"type":"input_text","text":"d"},{"type":"input_text","text":"b"}]}` + "\n" + user + "\n" + `{"role":"user","content":"l"}`},
	} {
		if diff := cmp.Diff(c.want, raw(c.form, c.instructions)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.form, diff)
		}
	}
}

// TestBlockBetweenLegacyCalls: calls of legacy functions get ids in Responses, which differ although a block parts equal ones.
func TestBlockBetweenLegacyCalls(t *testing.T) {
	var items []wire.Item
	for range 2 {
		items = append(items, wiretest.Parse(t, dialects.Chat, `{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`),
			wiretest.Parse(t, dialects.Chat, `{"role":"function","name":"f","content":"ok"}`))
	}
	m := view.Messages{Dialect: dialects.Responses, Items: items, Blocks: []view.Block{{Place: view.Inside(2), Role: wire.Developer, Texts: []string{"b"}}}}
	for form := view.AsIs; form <= view.NoSystem; form++ {
		sent := wire.ConvertAll(m.As(form).Items, dialects.Responses)
		first := slices.IndexFunc(sent, wire.Item.HasCalls)
		last := len(sent) - 2
		if first < 0 || sent[first].Parts[0].Call.ID == sent[last].Parts[0].Call.ID || wiretest.Check(dialects.Responses, sent) != nil {
			t.Errorf("%s: %s", form, notation(sent))
		}
	}
}

// TestFormsHold draws conversations: servers accept their form, no text is lost, calls keep their results, and a view
// that has a form already keeps its bytes.
func TestFormsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOfN(rapid.SampledFrom([]string{"s:x", "u:q", "a:w", "c:k r:k"}), 0, 12)
		m := view.Messages{
			Dialect: dialects.Chat, System: chatMessages(t, strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"s:l", "d:m"}), 0, 3).Draw(t, "system"), " ")),
			Items: chatMessages(t, strings.Join(words.Draw(t, "items"), " ")), After: chatMessages(t, rapid.SampledFrom([]string{"", "c:k r:k", "a:w s:n"}).Draw(t, "after")),
			Blocks: slices.Concat(
				blocks(view.Block{}, chatMessages(t, "s:b")[:rapid.IntRange(0, 1).Draw(t, "anchored")]),
				blocks(view.Block{Place: view.End()}, chatMessages(t, "s:o")[:rapid.IntRange(0, 1).Draw(t, "live")]),
			),
		}
		letters := func(items []wire.Item) map[rune]int {
			n := make(map[rune]int)
			for _, it := range items {
				for _, r := range strings.NewReplacer("(no answer)", "", "(continue)", "").Replace(it.Text()) {
					if r >= 'a' {
						n[r]++
					}
				}
			}
			return n
		}
		whole := m.As(view.AsIs)
		for form := view.Joined; form <= view.NoSystem; form++ {
			sent := m.As(form)
			if diff := cmp.Diff(letters(whole.Items), letters(sent.Items)); diff != "" {
				t.Fatalf("%s lost something (-as is +sent):\n%s", form, diff)
			}
			if got, want := strings.Count(notation(sent.Items), "c:k r:k"), strings.Count(notation(whole.Items), "c:k r:k"); got != want {
				t.Fatalf("%s: %d calls with results, want %d: %s", form, got, want, notation(sent.Items))
			}
			turns := 0
			for i, it := range sent.Items {
				system := it.Role == wire.System || it.Role == wire.Developer
				switch {
				case form >= view.Alternate && i > 0 && it.Role == wire.Assistant && sent.Items[i-1].Role == wire.Assistant:
					t.Fatalf("%s: two answers in a row: %s", form, notation(sent.Items))
				case form >= view.OneSystem && system && (i > 0 || it.Role != wire.System || form == view.NoSystem):
					t.Fatalf("%s: a system message at %d: %s", form, i, notation(sent.Items))
				case form >= view.Alternate && !system && it.Kind == wire.Message && !it.HasCalls():
					if (it.Role == wire.User) != (turns%2 == 0) {
						t.Fatalf("%s: message %d is out of turn: %s", form, i, notation(sent.Items))
					}
					turns++
				}
			}
			again := (&view.Messages{Dialect: dialects.Chat, System: sent.Items[:wire.SystemItems(sent.Items)], Items: sent.Items[wire.SystemItems(sent.Items):]}).As(form)
			if again.Repaired > 0 || notation(again.Items) != notation(sent.Items) {
				t.Fatalf("%s changes what has the form: %s, %s", form, notation(sent.Items), notation(again.Items))
			}
		}
	})
}
