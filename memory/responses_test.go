package memory_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/wire"
)

// respond plays one turn of the Responses dialect: input and output are JSON arrays, extra are more members.
func (l *lab) respond(input, extra, output string) (view []wire.Item, sent string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"model":"m","input":%s%s}`, input, extra)
	req, err := wire.Parse(wire.Responses, []byte(body))
	if err != nil {
		l.t.Fatal(err)
	}
	turn, err := l.m.Begin(context.Background(), memory.Call{Scope: scope, Request: req})
	if err != nil {
		l.t.Fatal(err)
	}
	forwarded, err := req.With(turn.View)
	if err != nil {
		l.t.Fatal(err)
	}
	l.replies++
	reply, err := wire.FoldBody(wire.Responses, fmt.Appendf(nil, `{"id":"resp_%d","object":"response","status":"completed","output":%s}`, l.replies, output))
	if err != nil {
		l.t.Fatal(err)
	}
	turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
	return turn.View, string(forwarded)
}

// An answer that is nothing but reasoning is stored once, though its client sends it again.
func TestAnswersOfReasoningAlone(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.respond("["+userHi+"]", "", "["+reason1+"]")
	next := `{"role":"user","content":"go on"}`
	l.respond("["+userHi+","+reason1+","+next+"]", "", "["+done1+"]")
	l.respond("["+userHi+","+reason1+","+next+","+done1+","+userHi+"]", "", "["+reason1+","+call1+"]")
	l.respond("["+userHi+","+reason1+","+next+","+done1+","+userHi+","+reason1+","+call1+","+result1+"]", "", "["+done1+"]")
	if line, all := l.stored(); all != 9 || len(line) != 9 {
		t.Errorf("%d items stored, %d of them the conversation, want 9: %s", all, len(line), line)
	}
}

// stored is the raw head line and the number of all stored items.
func (l *lab) stored() (line []string, all int) {
	l.t.Helper()
	err := l.m.Walk(context.Background(), scope, func(line1 memory.Line) error {
		if line1.Item != nil {
			all++
			if line1.Item.OnHead {
				line = append(line, string(line1.Item.JSON)+string(line1.Item.Raw))
			}
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return line, all
}

const (
	userHi  = `{"role":"user","content":"hi"}`
	reason1 = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}`
	call1   = `{"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\": 1}","status":"completed"}`
	result1 = `{"type":"function_call_output","call_id":"c1","output":"one"}`
	done1   = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"done","annotations":[],"logprobs":[]}]}`
)

func TestResponsesFullReplay(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.respond("["+userHi+"]", "", "["+reason1+","+call1+"]")
	_, sent := l.respond("["+userHi+","+reason1+","+call1+","+result1+"]", "", "["+done1+"]")
	if want := `{"model":"m","input":[` + userHi + "," + reason1 + "," + call1 + "," + result1 + "]}"; sent != want {
		t.Errorf("forwarded %s", sent)
	}
	// The client echoes the answer as SDKs do: without id and status, its text as a plain string, arguments re-spelled,
	// and leaves the reasoning out.
	echo := `{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"}`
	l.respond("["+userHi+","+echo+","+result1+`,{"role":"assistant","content":"done"},{"role":"user","content":"thanks"}]`, "", "[]")
	line, all := l.stored()
	if all != 6 || len(line) != 5 || line[4] != done1 {
		t.Errorf("%d items, line %s", all, strings.Join(line, "\n"))
	}
}

func TestReferencesStandForStoredItems(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.respond("["+userHi+"]", "", "["+reason1+","+call1+"]")
	input := "[" + userHi + `,{"type":"item_reference","id":"rs_1"},{"type":"item_reference","id":"fc_1"},` + result1 + "]"
	view, sent := l.respond(input, "", "["+done1+"]")
	if len(view) != 4 || !strings.Contains(sent, input) {
		t.Errorf("forwarded %s", sent)
	}
	if line, all := l.stored(); all != 5 || len(line) != 5 {
		t.Errorf("%d items stored, line:\n%s", all, strings.Join(line, "\n"))
	}
}

// A client that sends only what is new gets the developer's messages put back, and not the member instructions, which is
// its own (docs/sessions.md).
func TestInstructionsHoldForTheirRequest(t *testing.T) {
	l := newLab(t, memory.Options{})
	const rules = `{"role":"developer","content":"rules"}`
	l.respond("["+rules+","+userHi+"]", `,"instructions":"Be kind."`, "["+done1+"]")
	_, sent := l.respond(`[{"role":"user","content":"go on"}]`, "", "["+done1+"]")
	if want := `{"model":"m","input":[` + rules + "," + userHi + "," + done1 + `,{"role":"user","content":"go on"}]}`; sent != want {
		t.Errorf("forwarded %s", sent)
	}
}

// Case 25, and DESIGN section 4 on outputs whose call is elsewhere.
func TestOutputsWhoseCallIsElsewhereAreForwarded(t *testing.T) {
	f := func(name, input, extra string) {
		t.Helper()
		l := newLab(t, memory.Options{})
		if _, sent := l.respond(input, extra, "["+done1+"]"); sent != `{"model":"m","input":`+input+extra+`}` {
			t.Errorf("%s: forwarded %s", name, sent)
		}
	}
	f("previous_response_id", "["+result1+"]", `,"previous_response_id":"resp_elsewhere"`)
	f("conversation", "["+result1+"]", `,"conversation":"conv_1"`)
	f("prompt template", "["+result1+"]", `,"prompt":{"id":"pmpt_1"}`)
	f("item_reference", `[{"type":"item_reference","id":"fc_9"},`+result1+"]", "")
	f("no call id", `[{"type":"function_call_output","output":"x"},`+userHi+"]", "")
}

func TestPreviousResponseIsTheParent(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.respond("["+userHi+"]", "", "["+call1+"]")                                                // resp_1
	l.respond("["+result1+"]", `,"previous_response_id":"resp_1"`, "["+done1+"]")               // resp_2
	l.respond(`"and another"`, `,"previous_response_id":"resp_2"`, "[]")                        // resp_3: no output
	view, _ := l.respond(`"from the first"`, `,"previous_response_id":"resp_1"`, "["+done1+"]") // a branch
	if len(view) != 1 {
		t.Errorf("the stored history was put before items whose history upstream holds")
	}
	line, all := l.stored()
	if want := 7; all != want || len(line) != 4 || line[1] != call1 {
		t.Errorf("%d items, want %d; line:\n%s", all, want, strings.Join(line, "\n"))
	}
	session, err := l.m.SessionOf(context.Background(), scope.Tenant, "resp_2")
	if err != nil || session != scope.Session {
		t.Errorf("session of resp_2: %q, %v", session, err)
	}
	if session, err = l.m.SessionOf(context.Background(), "another tenant", "resp_2"); err != nil || session != "" {
		t.Errorf("another tenant's session of resp_2: %q, %v", session, err)
	}
}

func TestStringInputContinuesTheStoredHistory(t *testing.T) {
	l := newLab(t, memory.Options{})
	l.respond(`"hi"`, "", "["+done1+"]")
	_, sent := l.respond(`"more"`, "", "["+done1+"]")
	want := `{"model":"m","input":[{"role":"user","content":"hi"},` + done1 + `,{"role":"user","content":"more"}]}`
	if sent != want {
		t.Errorf("forwarded\n%s\nwant\n%s", sent, want)
	}
}

// Reasoning without its sealed content is refused by an upstream that does not store: it is not put before what a client
// sends, and the transcript keeps it.
func TestUnsealedReasoningIsNotSentBack(t *testing.T) {
	const (
		bare  = `{"type":"reasoning","id":"rs_2","summary":[]}`
		empty = `{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":null}`
	)
	for extra, want := range map[string][]string{
		`,"store":false`: {userHi, reason1, call1, result1},
		`,"store":true`:  {userHi, bare, empty, reason1, call1, result1},
		``:               {userHi, bare, empty, reason1, call1, result1},
	} {
		l := newLab(t, memory.Options{})
		l.respond("["+userHi+"]", extra, "["+bare+","+empty+","+reason1+","+call1+"]")
		view, _ := l.respond("["+result1+"]", extra, "["+done1+"]")
		if diff := cmp.Diff(want, raws(view)); diff != "" {
			t.Errorf("with %q: -want +got:\n%s", extra, diff)
		}
		if line, _ := l.stored(); len(line) != 7 {
			t.Errorf("with %q the transcript has %q", extra, line)
		}
	}
}

// mood is a layer that says whatever it is told to.
type mood struct{ says []string }

func (m *mood) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{Messages: m.says}, nil
}

// TestHeldConversationsAreToldWhatChanges: upstream keeps what it was told, so that only what a layer says otherwise than
// the last time is said again, also where it says what it said before that; and by the response that a client goes on from.
func TestHeldConversationsAreToldWhatChanges(t *testing.T) {
	m := &mood{}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
		pipeline.Layer{ID: "mood", Kind: "test", Slot: 100, Scope: layer.Thread, Impl: m},
		pipeline.Layer{ID: "other", Kind: "test", Slot: 200, Scope: layer.Thread, Impl: &mood{says: []string{"other"}}})}})
	for i, c := range []struct {
		from  int // the response that is gone on from, 0 for none
		says  string
		wants string
	}{
		{0, "A", "A other"}, // resp_1
		{1, "A", ""},
		{2, "B", "B"},
		{3, "A", "A"},
		{4, "A", ""},
		{5, "A B", "A B"}, // two messages
		{6, "B", "B"},
		{1, "B", "B"},       // a branch that has not heard of it
		{8, "B", ""},        // and now has
		{1, "A", ""},        // and another one
		{0, "B", "B other"}, // from the beginning
		{11, "", ""},
		{12, "B", ""},
	} {
		m.says = strings.Fields(c.says)
		extra := ""
		if c.from > 0 {
			extra = fmt.Sprintf(`,"previous_response_id":"resp_%d"`, c.from)
		}
		view, _ := l.respond(fmt.Sprintf(`[{"role":"user","content":"question %d"}]`, i), extra, "["+done1+"]")
		var told []string
		for _, it := range view {
			if it.Role == wire.Developer {
				told = append(told, it.Text())
			}
		}
		if got := strings.Join(told, " "); got != c.wants {
			t.Errorf("resp_%d, from resp_%d: the layer says %q, the model is told %q, want %q", i+1, c.from, c.says, got, c.wants)
		}
	}
}
