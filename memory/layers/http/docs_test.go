package http

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
)

const docs = "../../../docs/"

// examples are the two JSON blocks of each section of docs/custom-layer.md that is called like a hook.
func examples(t *testing.T) map[string][2]string {
	t.Helper()
	text := layertest.Must(os.ReadFile(docs + "custom-layer.md"))(t)
	found := map[string][2]string{}
	block := regexp.MustCompile("(?s)```json\n(.*?)```")
	for section := range strings.SplitSeq(string(text), "\n### ") {
		name, rest, _ := strings.Cut(section, "\n")
		if blocks := block.FindAllStringSubmatch(rest, -1); len(blocks) == 2 {
			found[name] = [2]string{blocks[0][1], blocks[1][1]}
		}
	}
	return found
}

// TestDocumentedMessages: each hook sends the request that docs/custom-layer.md shows, and makes of the answer there
// what the page says.
func TestDocumentedMessages(t *testing.T) {
	documented := examples(t)
	turn, ctx := testTurn(), t.Context()
	notes := layer.State(`{"notes":["a"]}`)
	user := func(text string) wire.Item { return message(t, wire.User, text) }
	asked, said := user("Which tea do I like?"), message(t, wire.Assistant, "Green tea.")
	weather := layer.ToolCall{ID: "call_1", Name: "get_weather", Arguments: `{"city":"Oslo"}`}
	ended := layer.Outcome{Result: layer.Success, Execution: "e1", Thread: "chat-7"}
	for _, tt := range []struct {
		hook string
		call func(l *Layer) (any, error)
		want any
	}{
		{layer.HookRecall, func(l *Layer) (any, error) {
			return l.Recall(ctx, turn, layer.State(`{"notes":["I like green tea."]}`), 2000)
		}, layer.Recalled{
			Messages: []string{"<memory>\nI like green tea.\n</memory>"},
			State:    layer.State(`{"notes":["I like green tea."],"used":1}`),
		}},
		{layer.HookStore, func(l *Layer) (any, error) {
			return l.Store(ctx, turn, nil, &layer.Response{
				Items: []wire.Item{said}, Input: []wire.Item{asked}, Calls: []layer.ToolCall{weather}, Text: "Green tea.",
			})
		}, layer.State(`{"notes":["I like green tea."]}`)},
		{layer.HookInit, func(l *Layer) (any, error) { return l.Init(ctx, turn, nil) }, layer.State(`{"notes":[]}`)},
		{layer.HookAppendItems, func(l *Layer) (any, error) {
			return l.AppendItems(ctx, turn, nil, []wire.Item{user("hi"), user("pin 1234")})
		}, layer.Appended{Items: []wire.Item{user("hi"), user("[a number was removed]")}, Rerender: true}},
		{layer.HookProjectHistory, func(l *Layer) (any, error) {
			return l.ProjectHistory(ctx, turn, nil, []wire.Item{user("hi"), user("bye")})
		}, []wire.Item{user("bye")}},
		{layer.HookReviewToolCall, func(l *Layer) (any, error) {
			return l.ReviewToolCall(ctx, turn, nil, weather)
		}, layer.Verdict{Action: layer.Deny, Guidance: "Ask for the country first."}},
		{layer.HookReviewResponse, func(l *Layer) (any, error) {
			return l.ReviewResponse(ctx, turn, nil, &layer.Response{Items: []wire.Item{said}, Text: "Green tea.", Done: true})
		}, layer.Verdict{Action: layer.Guide, Guidance: "Say it in one full sentence.", State: layer.State(`{"guided":1}`)}},
		{layer.HookSpawn, func(l *Layer) (any, error) { return l.Spawn(ctx, turn, notes) }, layer.State(`{"notes":[]}`)},
		{layer.HookReturn, func(l *Layer) (any, error) {
			return l.Return(ctx, turn, notes, layer.State(`{"notes":["b"]}`), ended)
		}, layer.State(`{"notes":["a","b"]}`)},
		{layer.HookComplete, func(l *Layer) (any, error) { return l.Complete(ctx, turn, notes, ended) }, layer.State(nil)},
		{layer.HookDispose, func(l *Layer) (any, error) { return nil, l.Dispose(ctx, turn, notes) }, nil},
		{layer.HookTools, func(l *Layer) (any, error) {
			result, next, err := l.Tools()[0].Run(ctx, turn, notes, []byte(`{"text":"a"}`))
			return []string{result, string(next)}, err
		}, []string{"0 notes are left.", `{"notes":[]}`}},
	} {
		t.Run(tt.hook, func(t *testing.T) {
			example := documented[tt.hook]
			var sent []byte
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				sent, _ = io.ReadAll(r.Body)
				_, _ = io.WriteString(w, example[1])
			})
			have := layertest.Must(tt.call(open(t, allHooks(url))))(t)
			if diff := cmp.Diff(tt.want, have); diff != "" {
				t.Errorf("result (-want +have):\n%s", diff)
			}
			if diff := cmp.Diff(decodeExample(t, example[0]), decodeSent(t, sent, example[0])); diff != "" {
				t.Errorf("request (-documented +sent):\n%s", diff)
			}
		})
		delete(documented, tt.hook)
	}
	for name := range documented {
		t.Errorf("docs/custom-layer.md describes %q, which is no hook", name)
	}
}

func decodeExample(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// decodeSent leaves out what the page shows only once.
func decodeSent(t *testing.T, sent []byte, example string) map[string]any {
	t.Helper()
	v := decodeExample(t, string(sent))
	for _, key := range []string{"version", "turn"} {
		if !strings.Contains(example, `"`+key+`":`) {
			delete(v, key)
		}
	}
	return v
}

// TestExampleServer runs docs/examples/notes.mjs as the page says.
func TestExampleServer(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed")
	}
	url := startNode(t, docs+"examples/notes.mjs")
	o := allHooks(url)
	o.Hooks, o.Now = []string{layer.HookRecall, layer.HookStore}, nil
	o.Tools[0].Parameters = `{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`
	l, ctx, turn := open(t, o), t.Context(), testTurn()
	var state layer.State
	for _, query := range []string{"Hello!", "Remember that I like </memory> green tea.", "Remember: I live in Oslo", "Remember: I live in Oslo"} {
		turn.Query = query
		next := layertest.Must(l.Store(ctx, turn, state, &layer.Response{Text: "Fine."}))(t)
		state = next
	}
	recall := func(want string) {
		t.Helper()
		got, err := l.Recall(ctx, turn, state, 100)
		if err != nil || strings.Join(got.Messages, "|") != want {
			t.Errorf("have %q (%v), want %q", got.Messages, err, want)
		}
	}
	recall("<memory>\nThe user asked to remember:\nI like <\\/memory> green tea.\nI live in Oslo\n</memory>")
	result, state2, err := l.Tools()[0].Run(ctx, turn, state, []byte(`{"text":"Oslo"}`))
	if err != nil || result != "1 notes are left." {
		t.Errorf("have %q (%v)", result, err)
	}
	state = state2
	recall("<memory>\nThe user asked to remember:\nI like <\\/memory> green tea.\n</memory>")
	o.Secret = "another"
	if _, err := open(t, o).Recall(ctx, turn, state, 100); err == nil {
		t.Error("the server takes a wrong signature")
	}
}

// startNode starts a script on a free port and returns the URL that it prints.
func startNode(t *testing.T, script string) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "node", script, "0")
	cmd.Env = append(os.Environ(), "LAYER_SECRET=k3y")
	cmd.Stderr = os.Stderr
	out := layertest.Must(cmd.StdoutPipe())(t)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait() // it was killed
	})
	line := layertest.Must(bufio.NewReader(out).ReadString('\n'))(t)
	return strings.TrimSpace(strings.TrimPrefix(line, "listening on "))
}
