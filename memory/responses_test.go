package memory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// respond plays one turn of the Responses dialect: input and output are JSON arrays, extra are more members.
func (l *lab) respond(input, extra, output string) (view []wire.Item, sent string) {
	l.t.Helper()
	body := fmt.Sprintf(`{"model":"m","input":%s%s}`, input, extra)
	req, err := wire.Parse(dialects.Responses, []byte(body))
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
	reply, err := wire.FoldBody(dialects.Responses, fmt.Appendf(nil, `{"id":"resp_%d","object":"response","status":"completed","output":%s}`, l.replies, output))
	if err != nil {
		l.t.Fatal(err)
	}
	turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply})
	l.wantShown(turn)
	return turn.View, string(forwarded)
}

// wantShown checks that a turn's view can be put together again: the same items, however each is spelled.
func (l *lab) wantShown(turn *memory.Turn) {
	l.t.Helper()
	shown, err := l.m.TurnView(context.Background(), scope, turn.ID)
	if err != nil || len(shown) != len(turn.View) {
		l.t.Errorf("turn %s: %d items are shown of %d, %v", turn.ID, len(shown), len(turn.View), err)
		return
	}
	for i, it := range turn.View {
		if it.Kind != wire.Reference && it.ContentHash() != shown[i].ContentHash() {
			l.t.Errorf("turn %s, item %d: shown is %s, sent was %s", turn.ID, i, shown[i].Raw, it.Raw)
		}
	}
}

// TestRecordOfALongViewIsShort: the record of a small turn does not grow with its view, and the view can be shown.
func TestRecordOfALongViewIsShort(t *testing.T) {
	const rounds = 2000
	for name, c := range map[string]struct {
		drop string // what the client does not resend
		most int    // bytes of the record of a turn
	}{
		"with reasoning":    {"", 20000}, // 2,000 items off the chain
		"without reasoning": {"reasoning", 1500},
	} {
		l := newLab(t, memory.Options{})
		var list []string
		add := func(items ...string) {
			for _, it := range items {
				if c.drop == "" || !strings.Contains(it, `"type":"`+c.drop) {
					list = append(list, it)
				}
			}
		}
		number := func(item string, i int) string {
			return strings.NewReplacer("c1", fmt.Sprint("c", i), "rs_1", fmt.Sprint("rs_", i), "gAAA", fmt.Sprint("g", i)).Replace(item)
		}
		add(userHi)
		for i := range rounds {
			add(number(reason1, i), number(call1, i), number(result1, i))
		}
		l.respond("["+strings.Join(list, ",")+"]", "", "["+done1+"]")
		add(done1, `{"role":"user","content":"and now?"}`)
		l.respond("["+strings.Join(list, ",")+"]", "", "["+done1+"]")
		records := l.records()
		size := len(records[len(records)-1].AppendTo(nil))
		if t.Logf("%s: %d items, %d bytes", name, len(list), size); size > c.most {
			t.Errorf("%s: the record of a turn behind %d items has %d bytes, want %d at most", name, len(list), size, c.most)
		}
	}
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
	err := l.m.Walk(context.Background(), scope, func(line1 memory.ExportLine) error {
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

// The AI SDK sends an approval behind a reference to its request, and programs' calls behind one to the program.
func TestAnswersOfReferences(t *testing.T) {
	for id, pair := range map[string][2]string{
		"mcpr_1": {
			`{"type":"mcp_approval_request","id":"mcpr_1","name":"rm","server_label":"s","arguments":"{}"}`,
			`{"type":"mcp_approval_response","approval_request_id":"mcpr_1","approve":true}`,
		},
		"prog_1": {`{"type":"program","id":"prog_1","call_id":"call_p","code":"x"}`, `{"type":"program_output","call_id":"call_p","output":"x"}`},
	} {
		l := newLab(t, memory.Options{})
		l.respond("["+userHi+"]", "", "["+pair[0]+"]")
		input := "[" + userHi + `,{"type":"item_reference","id":"` + id + `"},` + pair[1] + "]"
		if view, sent := l.respond(input, "", "["+done1+"]"); len(view) != 3 || !strings.Contains(sent, input) {
			t.Errorf("forwarded %s", sent)
		}
	}
}

// A client that sends only new items gets developer messages put back, but not the member instructions, which is its
// own (docs/sessions.md).
func TestInstructionsHoldForTheirRequest(t *testing.T) {
	l := newLab(t, memory.Options{})
	const rules = `{"role":"developer","content":"rules"}`
	l.respond("["+rules+","+userHi+"]", `,"instructions":"Be kind."`, "["+done1+"]")
	_, sent := l.respond(`[{"role":"user","content":"go on"}]`, "", "["+done1+"]")
	if want := `{"model":"m","input":[` + rules + "," + userHi + "," + done1 + `,{"role":"user","content":"go on"}]}`; sent != want {
		t.Errorf("forwarded %s", sent)
	}
}

// With previous_response_id, upstream knows calls that the request does not show: outputs of these stay.
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
	known := memory.Response{Session: scope.Session}
	if r, err := l.m.Response(context.Background(), scope.Tenant, "resp_2"); err != nil || r != known {
		t.Errorf("resp_2 is known as %+v, %v", r, err)
	}
	if r, err := l.m.Response(context.Background(), "another tenant", "resp_2"); err != nil || r != (memory.Response{}) {
		t.Errorf("resp_2 is known to another tenant as %+v, %v", r, err)
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

// TestUnsealedReasoningGoesToWhoKeptIt: reasoning without its sealed content is an id. It goes back where upstream has kept
// the answer and is asked by a request that may use what it keeps. Otherwise it stays out of what the proxy puts before a
// request, and where upstream has kept the answer, so do the ids that would need it. An image is only an id, too, but no other id
// needs it. The transcript has all of it.
func TestUnsealedReasoningGoesToWhoKeptIt(t *testing.T) {
	const (
		bare    = `{"type":"reasoning","id":"rs_2","summary":[]}`
		again   = `{"type":"reasoning","id":"rs_4","summary":[]}`
		empty   = `{"type":"reasoning","id":"rs_3","summary":[],"encrypted_content":null}`
		search  = `{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`
		image   = `{"type":"image_generation_call","id":"ig_1","status":"completed","result":"AA=="}`
		stores  = `,"store":true`
		not     = `,"store":false`
		unnamed = `{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}","status":"completed"}`
	)
	for _, tt := range []struct {
		first, then string
		answer      []string
		want        []string
	}{
		{"", "", []string{bare, empty, reason1, call1}, []string{bare, empty, reason1, call1}},
		{stores, "", []string{bare, call1}, []string{bare, call1}},
		{"", stores, []string{bare, search, again, call1}, []string{bare, search, again, call1}},
		{"", not, []string{bare, call1}, []string{unnamed}},
		{"", not, []string{reason1, call1}, []string{reason1, call1}},
		{"", not, []string{bare, search, again, call1}, []string{unnamed}},
		{"", not, []string{search, call1}, []string{search, call1}},
		{not, "", []string{bare, call1}, []string{unnamed}},
		{not, not, []string{bare, call1}, []string{unnamed}},
		{not, "", []string{reason1, call1}, []string{reason1, call1}},
		{not, not, []string{bare, empty, reason1, call1}, []string{reason1, call1}},
		{"", "", []string{search, image, call1}, []string{search, image, call1}},
		{"", not, []string{search, image, call1}, []string{search, call1}},
		{not, "", []string{search, image, call1}, []string{search, call1}},
		{not, not, []string{reason1, search, image, call1}, []string{reason1, search, call1}},
		{not, not, []string{bare, search, image, call1}, []string{unnamed}},
	} {
		l := newLab(t, memory.Options{})
		l.respond("["+userHi+"]", tt.first, "["+strings.Join(tt.answer, ",")+"]")
		view, _ := l.respond("["+result1+"]", tt.then, "["+done1+"]")
		if diff := cmp.Diff(slices.Concat([]string{userHi}, tt.want, []string{result1}), raws(view)); diff != "" {
			t.Errorf("%q answers %q, then %q: -want +got:\n%s", tt.first, tt.answer, tt.then, diff)
		}
		if line, _ := l.stored(); len(line) != len(tt.answer)+3 {
			t.Errorf("%q answers %q: the transcript has %q", tt.first, tt.answer, line)
		}
	}
}

// TestCompactionBeforeTheWindow: what replaces all before it is sent with every later request of a client that sends only what is
// new, however far the window has gone on.
func TestCompactionBeforeTheWindow(t *testing.T) {
	const compaction = `{"type":"compaction","id":"cmp_1","encrypted_content":"all before"}`
	l := newLab(t, memory.Options{Shape: memory.Shape{Window: &view.Window{MaxItems: 8, EvictBatch: 1, InFlight: view.InFlightKeep}}})
	l.respond("["+userItem(0)+"]", "", "["+answerItem(0, "a")+"]")
	l.respond("["+compaction+","+userItem(1)+"]", "", "["+answerItem(1, "a")+"]")
	for n := 2; n < 20; n++ {
		view, _ := l.respond("["+userItem(n)+"]", "", "["+answerItem(n, "a")+"]")
		if got := string(view[0].Raw); got != compaction || len(view) > 9 {
			t.Fatalf("turn %d: %d items, the first is %s", n, len(view), got)
		}
	}
	if err := l.importable(scope); err != nil {
		t.Error(err)
	}
}

// mood is a layer that recalls the given texts.
type mood struct{ says []string }

func (m *mood) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{Messages: m.says}, nil
}

// TestHeldConversationsAreToldWhatChanges: upstream keeps earlier blocks, so only a block that differs from the layer's
// last one is sent, even if an older one was the same; and this is counted from the response that the client continues.
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

// TestAnswersOfSeveralPartsOutliveAnOutage: what upstream does not know of an answer by the id that its client has, and by
// which id it keeps the end, is there after the store was down.
func TestAnswersOfSeveralPartsOutliveAnOutage(t *testing.T) {
	t.Parallel()
	l, store := newOutage(t)
	l.m.Close()
	l.m = memory.New(store, &queue{}, patient(memory.Options{
		RetryDelay: time.Second, Now: store.clock,
		Shape: memory.Shape{Layers: layersOf(t, notebook(t, layer.Thread))},
	}))
	begin := func(body string) *memory.Turn {
		t.Helper()
		req := wiretest.Request(t, dialects.Responses, body)
		turn, err := l.m.Begin(t.Context(), memory.Call{Scope: scope, Request: req})
		if err != nil {
			t.Fatal(err)
		}
		return turn
	}
	reply := func(id, output string) wire.Reply {
		t.Helper()
		r := wiretest.Answer(t, dialects.Responses, fmt.Sprintf(`{"id":%q,"object":"response","status":"completed","output":[%s]}`, id, output))
		return r
	}

	turn := begin(`{"model":"m","input":"hi"}`)
	turn.Review(t.Context(), reply("resp_1", `{"type":"function_call","id":"fc_1","call_id":"c1","name":"working-memory_update","arguments":"{}"}`))
	turn.Review(t.Context(), reply("resp_2", done1))
	store.set(true)
	turn.Commit(memory.Answer{HTTPStatus: 200, Reply: reply("resp_1", done1)})
	store.over()

	begin(`{"model":"m","input":"more"}`).Commit(memory.Answer{HTTPStatus: 200, Reply: reply("resp_3", done1)}) // waits for what was spooled
	if r, err := l.m.Response(t.Context(), scope.Tenant, "resp_1"); err != nil || r != (memory.Response{Session: scope.Session, Last: "resp_2"}) {
		t.Errorf("resp_1 is known as %+v, %v", r, err)
	}
	next := begin(`{"model":"m","input":"on","previous_response_id":"resp_1"}`)
	sent := ""
	for _, it := range next.View {
		sent += string(it.Raw)
	}
	if !strings.Contains(sent, `"function_call_output"`) || !strings.Contains(sent, "done") || next.Previous != "" {
		t.Errorf("upstream is sent %s behind %q", sent, next.Previous)
	}
}

// TestAnswerMadeInTheBackground: the question is in the next view, and the answer once somebody has fetched it, whichever
// process served the turn, and whether the store was there at the time.
func TestAnswerMadeInTheBackground(t *testing.T) {
	queued := memory.Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp_1", Finish: "queued"}}
	finished := func(t *testing.T) memory.Answer {
		t.Helper()
		it := wiretest.Parse(t, dialects.Responses, `{"type":"message","role":"assistant","content":"1"}`)
		return memory.Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp_1", Finish: "completed", Complete: true, Choices: [][]wire.Item{{it}}}}
	}
	ask := func(r *replica) {
		r.t.Helper()
		req, err := wire.Parse(dialects.Responses, []byte(`{"model":"m","background":true,"input":"1"}`))
		if err != nil {
			r.t.Fatal(err)
		}
		turn, err := r.m.Begin(r.t.Context(), memory.Call{Scope: scope, Request: req})
		if err != nil {
			r.t.Fatal(err)
		}
		turn.Forwarded()
		turn.Commit(queued)
	}
	fetch := func(r *replica, a memory.Answer) {
		r.t.Helper()
		known, err := r.m.Response(r.t.Context(), scope.Tenant, "resp_1")
		if err != nil {
			r.t.Fatal(err)
		}
		if late := r.m.Late(scope.Tenant, "resp_1", known); late != nil {
			late.Commit(a)
		}
	}
	for name, outage := range map[string]bool{"": false, "while the store was away": true} {
		t.Run(name, func(t *testing.T) {
			withReplicas(t, 2, func(r []*replica) {
				a, b := r[0], r[1]
				a.link.cut(outage)
				ask(a)
				a.link.cut(false)
				time.Sleep(30 * time.Second)
				b.wantAnswer("u:2", "a:2", "u:1 u:2", memory.StatusOK)
				fetch(b, queued)
				other := finished(t)
				other.Reply.ID = "resp_2"
				fetch(b, other)
				b.wantLine(scope, "u:1 u:2 a:2")
				for range 2 { // clients poll, and more than one may
					fetch(b, finished(t))
				}
				b.wantLine(scope, "u:1 u:2 a:2 a:1")
				a.wantAnswer("u:3", "a:3", "u:1 u:2 a:2 a:1 u:3", memory.StatusOK)
			})
		})
	}
}

// TestAnswerMadeInTheBackgroundIsFetchedAgain: where its session could not be written, the next fetch stores the answer.
func TestAnswerMadeInTheBackgroundIsFetchedAgain(t *testing.T) {
	mem, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &tapped{Store: mem}
	l := &lab{t: t, m: memory.New(store, nil, patient(memory.Options{})), store: store}
	defer func() {
		l.m.Close()
		if err := mem.Close(); err != nil {
			t.Error(err)
		}
	}()
	req := wiretest.Request(t, dialects.Responses, `{"model":"m","background":true,"input":"1"}`)
	turn, err := l.m.Begin(t.Context(), memory.Call{Scope: scope, Request: req})
	if err != nil {
		t.Fatal(err)
	}
	turn.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp_1", Finish: "queued"}})
	it := wiretest.Parse(t, dialects.Responses, `{"type":"message","role":"assistant","content":"1"}`)
	session := scope.Group()
	losesSession := func(b cache.Batch) error {
		if b.Group == session {
			return cache.OnShard("a", errors.New("connection refused"))
		}
		return nil
	}
	for _, loses := range []func(cache.Batch) error{losesSession, nil} {
		store.onBatch = loses
		known, err := l.m.Response(t.Context(), scope.Tenant, "resp_1")
		if err != nil {
			t.Fatal(err)
		}
		late := l.m.Late(scope.Tenant, "resp_1", known)
		if late == nil {
			t.Fatal("the answer is not waited for any more")
		}
		late.Commit(memory.Answer{HTTPStatus: 200, Reply: wire.Reply{ID: "resp_1", Finish: "completed", Complete: true, Choices: [][]wire.Item{{it}}}})
	}
	l.wantLine(scope, "u:1 a:1")
}
