package steering

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire/dialects"
)

func turn(ask layer.Model) *layer.Turn {
	return &layer.Turn{
		ID: "t1", Thread: "s-1", Resource: "r-1", Model: "gpt-4o", Now: time.Unix(0, 0), Dialect: dialects.Chat,
		Count: layertest.Quarter, Ask: ask,
	}
}

func ofTurn(t *layer.Turn, id string) *layer.Turn {
	t.ID = id
	return t
}

// model answers with its texts in turn, the last one again and again, and counts how often it was asked.
type model struct {
	answers []string
	err     error
	asked   int
	prompt  string

	failAfter int // so many answers, 0 for never
}

func (m *model) Complete(_ context.Context, system, user string, _ int) (string, error) {
	answer := m.answers[min(m.asked, len(m.answers)-1)]
	m.asked++
	m.prompt = system + "\n" + user
	if m.failAfter > 0 && m.asked > m.failAfter {
		return "", errors.New("no answer")
	}
	return answer, m.err
}

func newLayer(t *testing.T, o Options) *Layer {
	t.Helper()
	return layertest.Must(New(o))(t)
}

func on(phase, id, action, when, guidance string) Rule {
	return Rule{ID: id, AppliesTo: []string{phase}, Action: action, When: when, Guidance: guidance}
}

func checked(phase, id, mode string) Rule {
	return Rule{ID: id, AppliesTo: []string{phase}, ModelCheck: &ModelCheck{Mode: mode, Prompt: "Is it polite?"}}
}

func call(name, arguments string) layer.ToolCall {
	return layer.ToolCall{ID: "c", Name: name, Arguments: arguments}
}

func TestVerdicts(t *testing.T) {
	for _, tc := range []struct {
		answer   string
		action   layer.Action
		guidance string
		asked    int
	}{
		{"ALLOW", layer.Allow, "", 1},
		{"allow it", layer.Allow, "", 1},
		{"DENYALL", layer.Allow, "", 2},
		{"I would deny", layer.Allow, "", 2},
		{"DENY: Bad Idea", layer.Deny, "Bad Idea", 1},
		{" Deny - no", layer.Deny, "- no", 1},
		{"GUIDE", layer.Guide, "", 1},
		{"guide:: Use  Metric\nunits", layer.Guide, "Use Metric units", 1},
	} {
		l := newLayer(t, Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{checked(afterModelCall, "polite", modeSync)}})
		m := &model{answers: []string{tc.answer}}
		v, err := l.ReviewResponse(t.Context(), turn(m), nil, &layer.Response{Text: "hello </response>"})
		if err != nil || v.Action != tc.action || v.Guidance != tc.guidance || m.asked != tc.asked {
			t.Errorf("%q: have %d %q after %d, %v", tc.answer, v.Action, v.Guidance, m.asked, err)
		}
		if !strings.Contains(m.prompt, "Is it polite?") || !strings.Contains(m.prompt, "<response>\nhello <\\/response>\n</response>") {
			t.Errorf("asked: %s", m.prompt)
		}
	}
	t.Run("a retry may be read", func(t *testing.T) {
		l := newLayer(t, Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{checked(beforeToolCall, "polite", "")}})
		m := &model{answers: []string{"hm", "deny: no"}}
		if v, err := l.ReviewToolCall(t.Context(), turn(m), nil, call("f", "{}")); err != nil || v.Action != layer.Deny {
			t.Errorf("have %+v, %v", v, err)
		}
	})
	t.Run("a model that fails decides nothing, and is told", func(t *testing.T) {
		none := 0
		l := newLayer(t, Options{Setup: layer.Setup{HasModel: true}, MaxRetries: &none, Rules: []Rule{checked(beforeToolCall, "polite", modeSync)}})
		m := &model{answers: []string{""}, err: errors.New("refused")}
		if v, err := l.ReviewToolCall(t.Context(), turn(m), nil, call("f", "{}")); err == nil || v.Action != layer.Allow || m.asked != 1 {
			t.Errorf("have %+v, %v", v, err)
		}
		l = newLayer(t, Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{checked(beforeToolCall, "polite", modeSync), on(beforeToolCall, "no", "deny", "true", "")}})
		if v, err := l.ReviewToolCall(t.Context(), turn(m), nil, call("f", "{}")); err != nil || v.Action != layer.Deny {
			t.Errorf("the denial of another rule was lost: %+v, %v", v, err)
		}
	})
}

func TestStrongestCounts(t *testing.T) {
	guides := []Rule{
		on(beforeToolCall, "a", "allow", "true", "unused"), on(beforeToolCall, "b", "guide", "true", "first"),
		on(beforeToolCall, "c", "guide", "true", ""), on(beforeToolCall, "d", "guide", "true", "second"),
	}
	v, err := newLayer(t, Options{Rules: guides}).ReviewToolCall(t.Context(), turn(nil), nil, call("f", "{}"))
	if err != nil || v.Action != layer.Guide || v.Guidance != "first\nsecond" {
		t.Errorf("guidances are joined, empty ones erase nothing: have %d %q, %v", v.Action, v.Guidance, err)
	}
	m := &model{answers: []string{"ALLOW"}}
	rules := append(guides, on(beforeToolCall, "e", "deny", "true", "no"), checked(beforeToolCall, "f", modeSync))
	v, err = newLayer(t, Options{Rules: rules, Setup: layer.Setup{HasModel: true}}).ReviewToolCall(t.Context(), turn(m), nil, call("f", "{}"))
	if err != nil || v.Action != layer.Deny || v.Guidance != "no" || m.asked != 0 {
		t.Errorf("deny > guide > allow, and ends the review: have %d %q, asked %d, %v", v.Action, v.Guidance, m.asked, err)
	}
}

func TestExpressions(t *testing.T) {
	big := fmt.Sprintf(`{"command":%q}`, strings.Repeat("a", 200))
	for _, tc := range []struct {
		when, name, arguments string
		want                  bool
	}{
		{`tool.name == "shell" && tool.arguments.command.contains("rm -rf")`, "shell", `{"command":"rm -rf /"}`, true},
		{`tool.name == "shell" && tool.arguments.command.contains("rm -rf")`, "shell", `{"command":"ls"}`, false},
		{`tool.arguments.command.matches("(?i)^RM")`, "shell", `{"command":"rm x"}`, true},
		{`tool.arguments.amount > 100`, "pay", `{"amount":100.5}`, true},
		{`tool.arguments.amount == 5`, "pay", `{"amount":5}`, true},
		{`has(tool.arguments.path) && !tool.arguments.path.startsWith("/tmp/")`, "write", `{"path":"/etc/x"}`, true},
		{`tool.arguments.paths.exists(p, p.endsWith(".env"))`, "read", `{"paths":["a","b.env"]}`, true},
		{`tool.input.contains("DROP TABLE")`, "sql", `DROP TABLE users`, true},
		{`session == "s-1" && resource == "r-1" && model.startsWith("gpt-")`, "f", ``, true},
		{`tool.arguments.command.contains("x")`, "other", `{"path":"y"}`, false}, // a member that is not there
		{`tool.arguments.command.contains("x")`, "other", ``, false},
		{`tool.arguments.command.contains("x")`, "other", `null`, false},
		// what some clients read in another way denies
		{`tool.arguments.command.contains("x")`, "other", `not JSON`, true},
		{`tool.arguments.command.contains("x")`, "other", `"{}"`, true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"command":"rm",}`, true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"command":"rm`, true},
		{`tool.arguments.command.contains("rm")`, "shell", "{\"command\":\"ls\nrm\"}", true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"command":"rm","n":1e400}`, true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"command":"rm","command":"ls"}`, true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"command":"ls","Command":"rm"}`, true},
		{`tool.arguments.command.contains("rm")`, "shell", `{"Command":"rm"}`, true},
		{`tool.input.contains("rm -rf")`, "shell", `{"command":"rm \u002drf /"}`, true},
		{`tool.input.contains("/etc/")`, "read", `{"path":"\/etc\/x"}`, true},
		{`tool.input.contains("\\n")`, "write", `{"text":"a\nb"}`, true}, // as it is written
		{`tool.name == "pay" && tool.arguments.amount > 9`, "shell", `{"amount":`, false},
		{`tool.arguments.amount > 100`, "pay", `{"amount":"many"}`, true}, // a type that breaks the expression denies
		{`tool.arguments.l.all(a, tool.arguments.l.all(b, tool.arguments.l.all(c, a + b + c >= 0.0)))`, "f", `{"l":[` + strings.Repeat("1,", 400) + `1]}`, true},
		{`tool.arguments.command.size() > 100`, "f", big, true},
	} {
		l := newLayer(t, Options{Rules: []Rule{on(beforeToolCall, "r", "deny", tc.when, "no")}})
		v, err := l.ReviewToolCall(t.Context(), turn(nil), nil, call(tc.name, tc.arguments))
		if err != nil || (v.Action == layer.Deny) != tc.want {
			t.Errorf("%s on %.60s: denied %v, want %v (%v)", tc.when, tc.arguments, v.Action == layer.Deny, tc.want, err)
		}
	}
	asked := checked(beforeToolCall, "r", modeSync) // an escape does not make a call one that is allowed without asking
	asked.When, asked.Action = `tool.input.contains("harmless")`, "allow"
	m := &model{answers: []string{"DENY"}}
	l := newLayer(t, Options{Rules: []Rule{asked}, Setup: layer.Setup{HasModel: true}})
	if v, err := l.ReviewToolCall(t.Context(), turn(m), nil, call("f", `{"a":"h\u0061rmless"}`)); err != nil || v.Action != layer.Deny {
		t.Errorf("have %+v, %v", v, err)
	}

	custom := layer.ToolCall{ID: "c", Name: "patch", Arguments: "{ no JSON", Custom: true}
	l = newLayer(t, Options{Rules: []Rule{on(beforeToolCall, "r", "deny", `tool.arguments.command.contains("x")`, "no")}})
	if v, err := l.ReviewToolCall(t.Context(), turn(nil), nil, custom); err != nil || v.Action != layer.Allow {
		t.Errorf("text for a custom tool: have %+v, %v", v, err)
	}
	l = newLayer(t, Options{Rules: []Rule{
		on(afterModelCall, "words", "guide", `response.text.contains("as an AI")`, "plainly"),
		on(afterModelCall, "calls", "deny", `response.calls.exists(c, c.name == "pay" && c.arguments.amount > 9)`, "too much"),
	}})
	r := &layer.Response{Text: "I, as an AI, pay", Calls: []layer.ToolCall{call("pay", `{"amount":9}`)}}
	if v, err := l.ReviewResponse(t.Context(), turn(nil), nil, r); err != nil || v.Action != layer.Guide || v.Guidance != "plainly" {
		t.Errorf("have %+v, %v", v, err)
	}
	for _, arguments := range []string{`{"amount":10}`, `{"amount":10,}`, `{"Amount":10}`} {
		r.Calls[0].Arguments = arguments
		if v, err := l.ReviewResponse(t.Context(), turn(nil), nil, r); err != nil || v.Action != layer.Deny || v.Guidance != "too much" {
			t.Errorf("%s: have %+v, %v", arguments, v, err)
		}
	}
}

func TestExpressionAndModel(t *testing.T) {
	guard := checked(beforeToolCall, "guard", modeSync)
	guard.When = `tool.name == "pay"` // no action: says when the model is asked
	both := checked(beforeToolCall, "both", modeSync)
	both.When, both.Action = `tool.name == "pay"`, "allow" // decides there, and leaves the rest to the model
	for _, tc := range []struct {
		rule  Rule
		tool  string
		asked int
	}{{guard, "pay", 1}, {guard, "read", 0}, {both, "pay", 0}, {both, "read", 1}} {
		m := &model{answers: []string{"ALLOW"}}
		l := newLayer(t, Options{Rules: []Rule{tc.rule}, Setup: layer.Setup{HasModel: true}})
		if _, err := l.ReviewToolCall(t.Context(), turn(m), nil, call(tc.tool, "{}")); err != nil || m.asked != tc.asked {
			t.Errorf("%s on %s: asked %d times, want %d (%v)", tc.rule.ID, tc.tool, m.asked, tc.asked, err)
		}
	}
}

func TestAsyncVerdicts(t *testing.T) {
	l := newLayer(t, Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{checked(afterModelCall, "polite", modeAsync), checked(beforeToolCall, "safe", modeAsync)}})
	if l.Has(layer.HookReviewResponse) || l.Has(layer.HookReviewToolCall) || !l.Has(layer.HookStore) {
		t.Error("nothing should be held back for rules that nobody waits for")
	}
	m := &model{answers: []string{"GUIDE: say please", "deny"}}
	s, err := l.Store(t.Context(), turn(m), nil, &layer.Response{Text: "give", Calls: []layer.ToolCall{call("f", "{}"), call("g", "{}")}})
	if err != nil || m.asked != 3 {
		t.Fatalf("asked %d times, %v", m.asked, err)
	}
	got, err := l.Recall(t.Context(), ofTurn(turn(nil), "1"), s, 500)
	want := "<steering_feedback>\n[polite] say please\n[safe] Please adjust your response.\n[safe] Please adjust your response.\n</steering_feedback>"
	if diff := cmp.Diff([]string{want}, got.Messages); diff != "" || err != nil {
		t.Fatal("verdicts of asynchronous rules:", diff, err)
	}
	again, err := l.Recall(t.Context(), ofTurn(turn(nil), "2"), got.State, 500)
	if diff := cmp.Diff(got.Messages, again.Messages); diff != "" || err != nil {
		t.Errorf("not told again after a request that failed: %s, %v", diff, err)
	}
	unshown := ofTurn(turn(nil), "2")
	unshown.Unshown = true
	for _, c := range []struct {
		answered *layer.Turn
		told     int
	}{{ofTurn(turn(nil), "1"), 1}, {unshown, 1}, {ofTurn(turn(nil), "2"), 0}} {
		c.answered.Ask = &model{answers: []string{"allow"}}
		next := layertest.Must(l.Store(t.Context(), c.answered, again.State, &layer.Response{}))(t)
		if later, err := l.Recall(t.Context(), ofTurn(turn(nil), "3"), next, 500); err != nil || len(later.Messages) != c.told {
			t.Errorf("after an answer of turn %s: told %q, %v", c.answered.ID, later.Messages, err)
		}
	}
	t.Run("what does not fit is told later", func(t *testing.T) {
		first, err := l.Recall(t.Context(), turn(nil), s, layertest.Quarter(want)-1)
		if err != nil || len(first.Messages) != 1 {
			t.Fatal(first, err)
		}
		stored := layertest.Must(l.Store(t.Context(), turn(&model{answers: []string{"allow"}}), first.State, &layer.Response{}))(t)
		rest, err := l.Recall(t.Context(), turn(nil), stored, 500)
		if err != nil || len(rest.Messages) != 1 || strings.Count(first.Messages[0]+rest.Messages[0], "[safe]") != 2 {
			t.Errorf("have %q then %q, %v", first.Messages, rest.Messages, err)
		}
	})
	t.Run("a check that fails loses no other verdict", func(t *testing.T) {
		m := &model{answers: []string{"GUIDE: say please", "neither"}, failAfter: 1}
		s, err := l.Store(t.Context(), turn(m), nil, &layer.Response{Text: "give", Calls: []layer.ToolCall{call("f", "{}")}})
		if err == nil || len(read(s).Queue) != 1 {
			t.Errorf("have %s, and the error %v", s, err)
		}
	})
	t.Run("a turn asks a bounded number of times", func(t *testing.T) {
		m := &model{answers: []string{"allow"}}
		calls := make([]layer.ToolCall, 100)
		if _, err := l.Store(t.Context(), turn(m), nil, &layer.Response{Calls: calls}); err != nil || m.asked != maxAsked {
			t.Errorf("asked %d times, %v", m.asked, err)
		}
	})
}

func TestHooksThatAreNeeded(t *testing.T) {
	l := newLayer(t, Options{Rules: []Rule{on(beforeToolCall, "r", "deny", "true", ""), on(afterModelCall, "q", "allow", "true", "")}})
	for hook, want := range map[string]bool{
		layer.HookReviewToolCall: true, layer.HookReviewResponse: false, layer.HookStore: false, layer.HookRecall: false,
		layer.HookComplete: true,
	} {
		if l.Has(hook) != want {
			t.Errorf("%s: have %v, want %v", hook, !want, want)
		}
	}
	if d := Defaults(Options{Rules: []Rule{checked(afterModelCall, "a", modeAsync)}}); d.Scope != layer.Thread {
		t.Error("verdicts for the next turn need the scope thread")
	}
	if d := Defaults(Options{}); d.Scope != layer.Execution {
		t.Error("want the scope execution")
	}
}

func TestOptions(t *testing.T) {
	retries := -1
	for _, tc := range []struct {
		name string
		o    Options
		want []string
	}{
		{"keys", Options{MaxRetries: &retries}, []string{"max_retries: ", "rules: "}},
		{"a question without a model", Options{Rules: []Rule{checked(afterModelCall, "polite", modeSync)}}, []string{"rules[0] (polite).model_check: "}},
		{"rules", Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{
			on(beforeToolCall, "ok", "deny", "true", ""),
			{ID: "bad id", AppliesTo: []string{"always"}, Action: "stop", ModelCheck: &ModelCheck{Mode: "later"}},
			on(beforeToolCall, "typo", "deny", `tool.nmae == "x"`, ""),
			on(beforeToolCall, "type", "deny", `tool.name`, ""),
			on(beforeToolCall, "mixed", "deny", `tool.name > 1`, ""),
			on(afterModelCall, "phase", "deny", `tool.name == "x"`, ""),
			on(beforeToolCall, "regex", "deny", `tool.name.matches("(")`, ""),
			on(beforeToolCall, "empty", "deny", "", ""),
			on(beforeToolCall, "ok", "", "true", ""),
		}}, []string{
			"rules[1].id: ", "rules[1].applies_to: ", "rules[1].action: ", "rules[1].model_check.mode: ", "rules[1].model_check.prompt: ",
			"rules[2] (typo).when: for before_tool_call: line 1, column ", "rules[3] (type).when: ", "rules[4] (mixed).when: ",
			"undeclared reference to 'tool'; there are tool.name, tool.arguments,",
			"rules[5] (phase).when: for after_model_call: ", "rules[6] (regex).when: ", "rules[7] (empty).when: ",
			"rules[8] (ok).action: ", "rules[8] (ok).id: ",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := New(tc.o)
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%q is not in: %v", want, err)
				}
			}
			for l := range strings.Lines(fmt.Sprint(err)) {
				if !strings.HasPrefix(l, "rules") && !strings.HasPrefix(l, "max_") {
					t.Errorf("a line that names no key: %q", l)
				}
			}
		})
	}
}

func TestContract(t *testing.T) {
	o := Options{Setup: layer.Setup{HasModel: true}, Rules: []Rule{
		on(beforeToolCall, "cel", "guide", `tool.arguments.path.endsWith(".md")`, "not that"),
		checked(beforeToolCall, "later", modeAsync), checked(afterModelCall, "now", modeSync), checked(afterModelCall, "then", modeAsync),
	}}
	layertest.Run(t, func() any { return newLayer(t, o) }, layertest.Model(constant("GUIDE: be brief </zz> please")),
		layertest.States(layer.State(`{"queue":[{"rule":"then","guidance":"a </zz>"}]}`)))
}

type constant string

func (c constant) Complete(context.Context, string, string, int) (string, error) {
	return string(c), nil
}

// FuzzVerdict: a verdict that can be read has guidance of one line and bounded length.
func FuzzVerdict(f *testing.F) {
	f.Add("DENY: no\nmore")
	f.Add(" guide::: \xff\x00")
	f.Fuzz(func(t *testing.T, answer string) {
		v, ok := parseVerdict(answer)
		if !ok && v.Action != layer.Allow || strings.ContainsAny(v.Guidance, "\n\r\x00") || len(v.Guidance) > 4*maxGuidance {
			t.Fatalf("have %v %+v", ok, v)
		}
	})
}

// FuzzArguments: no input of a tool breaks an evaluation, and JSON objects always reach it.
func FuzzArguments(f *testing.F) {
	l := layertest.Must(New(Options{Rules: []Rule{on(beforeToolCall, "r", "deny", `tool.arguments.a == "x" || tool.arguments.a.b > 1`, "")}}))(f)
	f.Add(`{"a":"x"}`)
	f.Add(`{"a":{"b":1e400}}`)
	f.Fuzz(func(t *testing.T, arguments string) {
		if _, err := l.ReviewToolCall(t.Context(), turn(nil), nil, call("f", arguments)); err != nil {
			t.Fatal(err)
		}
	})
}
