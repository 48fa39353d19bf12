package plan_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/plan"
)

func open(t *testing.T, o plan.Options) *plan.Layer {
	t.Helper()
	return layertest.Must(plan.New(o))(t)
}

var turn = &layer.Turn{Layer: "plan", Count: layertest.Quarter, Now: time.Unix(5, 0), Tools: []string{"Read", "Write", "mcp/write"}}

// session calls functions of one layer in order.
type session struct {
	*testing.T
	*plan.Layer
	state layer.State
}

// does calls a function and returns what it said.
func (s *session) does(name, arguments string) string {
	s.Helper()
	for _, tool := range s.Tools() {
		if tool.Name == name {
			said, next, err := tool.Run(s.Context(), turn, s.state, []byte(arguments))
			if err != nil {
				s.Fatalf("%s: %v", name, err)
			}
			s.state = next
			return said
		}
	}
	s.Fatalf("no function %s", name)
	return ""
}

// refused calls a function that must change nothing.
func (s *session) refused(name, arguments string) {
	s.Helper()
	before := string(s.state)
	if said := s.does(name, arguments); said == "" || string(s.state) != before {
		s.Errorf("%s %.60s: %q, state %.200s; want a reason and the state left", name, arguments, said, s.state)
	}
}

func (s *session) phase() string {
	s.Helper()
	if s.state == nil {
		return "idle"
	}
	var st struct{ Phase string }
	if err := json.Unmarshal(s.state, &st); err != nil {
		s.Fatal(err)
	}
	return st.Phase
}

func (s *session) recall(budget int) string {
	s.Helper()
	got, err := s.Recall(s.Context(), turn, s.state, budget)
	if err != nil {
		s.Fatal(err)
	}
	return strings.Join(got.Messages, "|")
}

func (s *session) action(tool string) layer.Action {
	s.Helper()
	v, err := s.ReviewToolCall(s.Context(), turn, s.state, layer.ToolCall{Name: tool, OfLayer: strings.HasPrefix(tool, "working-memory_")})
	if err != nil {
		s.Fatal(err)
	}
	return v.Action
}

func start(t *testing.T, o plan.Options) *session {
	t.Helper()
	return &session{T: t, Layer: open(t, o)}
}

func TestSuite(t *testing.T) {
	states := []layer.State{layer.State(`{"phase":"completed","executionLog":[{"timestamp":1,"version":1,"outcome":"success </zz>"}],"version":1}`)}
	for _, phase := range []string{"planning", "executing"} {
		states = append(states, layer.State(`{"phase":"`+phase+`","prd":"# Goal </zz> 日本語","planTree":{"id":"a","steps":[{"id":"b"}]},`+
			`"workflows":{"w":"text </zz>","v":{"a":1}},"executionLog":[{"timestamp":1,"version":1,"outcome":"failure"}],"version":2}`))
	}
	layertest.Run(t, func() any { return open(t, plan.Options{Instructions: "Be thorough."}) }, layertest.States(states...))
}

// The way of a plan: from nothing over planning and executing to its outcome, and to the next plan.
func TestPhases(t *testing.T) {
	s := start(t, plan.Options{Instructions: "Ask twice."})
	if s.recall(1000) != "" || s.action("Write") != layer.Allow {
		t.Error("an idle plan recalls or denies")
	}
	for _, f := range []string{"updatePrd", "setPlanTree", "setWorkflow", "removeWorkflow", "exitPlanMode", "getWorkflow"} {
		s.refused(f, `{"content":"x","document":{},"name":"w","action":"execute"}`)
	}
	s.does("enterPlanMode", `{"goal":"ship </plan_mode> it"}`)
	s.refused("enterPlanMode", `{}`)
	if text := s.recall(math.MaxInt); !strings.HasPrefix(text, "<plan_mode>\n") || strings.Count(text, "</plan_mode>") != 1 ||
		!strings.Contains(text, "Ask twice.") || !strings.Contains(text, "ship") {
		t.Errorf("planning: %s", text)
	}
	for tool, want := range map[string]layer.Action{
		"Read": layer.Allow, "working-memory_update": layer.Allow,
		"Write": layer.Deny, "mcp/write": layer.Deny, "local_shell": layer.Deny, "": layer.Deny,
	} {
		if got := s.action(tool); got != want {
			t.Errorf("planning: %q is judged %d, want %d", tool, got, want)
		}
	}
	s.does("updatePrd", `{"content":""}`)
	s.refused("exitPlanMode", `{"action":"execute"}`)
	s.does("updatePrd", `{"content":"the text"}`)
	s.refused("exitPlanMode", `{"action":"execute"}`)
	s.does("setPlanTree", `{"document":"{\"id\": \"a\"}"}`)
	s.does("setWorkflow", `{"name":"deploy","document":"first this"}`)
	if got := s.does("getWorkflow", `{"name":"deploy"}`); got != "first this" {
		t.Errorf("getWorkflow gave %q", got)
	}
	s.refused("exitPlanMode", `{"action":"x"}`)
	s.does("exitPlanMode", `{"action":"execute"}`)
	text := s.recall(math.MaxInt)
	for _, want := range []string{"<active_plan>\n", "the text", `"id": "a"`, "- deploy"} {
		if !strings.Contains(text, want) {
			t.Errorf("executing: %q is not in %s", want, text)
		}
	}
	if s.action("Write") != layer.Allow {
		t.Error("executing: Write is denied")
	}
	s.complete(true)
	if got := s.recall(100); got != "<plan_outcome>Plan v1 success.</plan_outcome>" {
		t.Errorf("completed: %s", got)
	}
	s.does("enterPlanMode", `{}`)
	s.does("exitPlanMode", `{"action":"cancel"}`)
	if s.state != nil || s.recall(100) != "" {
		t.Errorf("cancelled: state %s", s.state)
	}
}

func (s *session) complete(success bool) {
	s.Helper()
	o := layer.Outcome{Result: layer.Failure}
	if success {
		o.Result = layer.Success
	}
	next, err := s.Complete(s.Context(), turn, s.state, o)
	if err != nil {
		s.Fatal(err)
	}
	s.state = next
}

func TestComplete(t *testing.T) {
	s := start(t, plan.Options{})
	s.state = layer.State(`{"phase":"planning","version":1}`)
	if s.complete(true); s.phase() != "planning" {
		t.Errorf("a plan that was not executed is %s", s.phase())
	}
	s.state = layer.State(`{"phase":"executing","version":3,"executionLog":[` + strings.Repeat(`{"version":1},`, 9) + `{"version":2}]}`)
	if s.complete(false); s.phase() != "failed" || s.recall(100) != "<plan_outcome>Plan v3 failure.</plan_outcome>" {
		t.Errorf("failed: %s, %s", s.state, s.recall(100))
	}
	if n := strings.Count(string(s.state), "timestamp"); n != 10 {
		t.Errorf("%d entries in the log, want 10", n)
	}
}

func TestLimits(t *testing.T) {
	s := start(t, plan.Options{})
	s.does("enterPlanMode", `{}`)
	long := func(n int) string { return strings.Repeat("é", n) }
	tree := func(depth int) string {
		return strings.Repeat(`{"steps":[`, depth-1) + `{}` + strings.Repeat(`]}`, depth-1)
	}
	s.does("updatePrd", `{"content":"`+long(50_000)+`"}`)
	s.refused("updatePrd", `{"content":"`+long(50_001)+`"}`)
	s.does("setPlanTree", `{"document":`+tree(5)+`}`)
	for _, bad := range []string{tree(6), `[]`, `"text"`, `1`, `{"a":"` + long(20_000) + `"}`, `{"a":[[[[[[[[[[[1]]]]]]]]]]]}`} {
		s.refused("setPlanTree", `{"document":`+bad+`}`)
	}
	for _, bad := range []string{"", "A", "-a", "a b", strings.Repeat("a", 65)} {
		s.refused("setWorkflow", `{"name":"`+bad+`","document":"x"}`)
	}
	s.refused("setWorkflow", `{"name":"a","document":"`+long(20_000)+`"}`) // with its quotes 20002
	s.refused("setWorkflow", `{"name":"a"}`)
	for i := range 20 {
		s.does("setWorkflow", fmt.Sprintf(`{"name":"w%d","document":{"a":[1, 2]}}`, i))
	}
	s.refused("setWorkflow", `{"name":"more","document":"x"}`)
	s.does("setWorkflow", `{"name":"w3","document":"other"}`)
	s.does("removeWorkflow", `{"name":"w3"}`)
	s.refused("removeWorkflow", `{"name":"w3"}`)
	if got := s.does("getWorkflow", `{"name":"w4"}`); got != `{"a":[1,2]}` {
		t.Errorf("getWorkflow gave %s", got)
	}
	for i := range 20 { // all at their limit, with characters of four bytes, are too much together
		s.does("setWorkflow", fmt.Sprintf(`{"name":"w%d","document":"%s"}`, i, strings.Repeat("🦈", 19_000)))
	}
	if len(s.state) > 512<<10 {
		t.Errorf("the state has %d bytes", len(s.state))
	}
}

func TestBudget(t *testing.T) {
	s := start(t, plan.Options{})
	s.does("enterPlanMode", `{}`)
	for _, c := range []struct {
		budget int
		want   bool
	}{{0, false}, {3, false}, {30, true}} {
		text := s.recall(c.budget)
		if (text != "") != c.want || layertest.Quarter(text) > c.budget || c.want && !strings.HasSuffix(text, "...\n</plan_mode>") {
			t.Errorf("budget %d: %q", c.budget, text)
		}
	}
}

func TestOptions(t *testing.T) {
	s := start(t, plan.Options{AllowedTools: []string{"Peek"}})
	s.does("enterPlanMode", `{}`)
	if s.action("Peek") != layer.Allow || s.action("Read") != layer.Deny {
		t.Error("allowed_tools does not replace the default list")
	}
	_, err := plan.New(plan.Options{AllowedTools: []string{""}, Instructions: strings.Repeat("x", 5000)})
	for _, want := range []string{"allowed_tools: ", "instructions: "} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to hold %q", err, want)
		}
	}
}

// FuzzTools: after any calls on any stored bytes, the state is a plan that can be read again.
func FuzzTools(f *testing.F) {
	f.Add([]byte(`{"phase":"planning","version":1}`), []byte(`{"content":"x","name":"w","document":{"a":[{}]},"action":"execute"}`))
	f.Add([]byte(`{"phase":"executing","prd":"x","planTree":{},"version":2147483647}`), []byte(`{"document":"\"{\\\""}`))
	f.Add([]byte(`{"phase":"completed","planTree":null}`), []byte(`{"goal":"g"}`))
	l := layertest.Must(plan.New(plan.Options{}))(f)
	f.Fuzz(func(t *testing.T, stored, arguments []byte) {
		s := layertest.Must(l.Init(t.Context(), turn, stored))(t)
		for _, tool := range l.Tools() {
			_, next, err := tool.Run(t.Context(), turn, s, arguments)
			if err != nil {
				t.Fatalf("%s: %v", tool.Name, err)
			}
			again, err := l.Init(t.Context(), turn, next)
			if err != nil || string(again) != string(next) {
				t.Fatalf("%s: state %q reads as %q, %v", tool.Name, next, again, err)
			}
		}
	})
}

// TestModelEndsPlan: completePlan ends the plan, and with it what the session works on.
func TestModelEndsPlan(t *testing.T) {
	for arguments, want := range map[string]layer.Result{`{}`: layer.Success, `{"success":true}`: layer.Success, `{"success":false}`: layer.Failure} {
		s := start(t, plan.Options{})
		s.state = layer.State(`{"phase":"executing","version":3}`)
		var ended layer.Result
		own := *turn
		own.Complete = func(r layer.Result) { ended = r }
		for _, tool := range s.Tools() {
			if tool.Name == "completePlan" {
				said, next, err := tool.Run(t.Context(), &own, s.state, []byte(arguments))
				if s.state = next; err != nil || !strings.Contains(said, string(want)) {
					t.Errorf("%s: said %q, %v", arguments, said, err)
				}
			}
		}
		if ended != want || want == layer.Failure != (s.phase() == "failed") {
			t.Errorf("%s: ended as %q in phase %s, want %s", arguments, ended, s.phase(), want)
		}
	}
}

// TestNamesOfTools: texts name the functions as the model is offered them.
func TestNamesOfTools(t *testing.T) {
	s := &session{T: t, Layer: open(t, plan.Options{})}
	said := []string{s.does("exitPlanMode", `{"action":"execute"}`), s.does("enterPlanMode", `{}`), s.recall(math.MaxInt)}
	v := layertest.Must(s.ReviewToolCall(t.Context(), turn, s.state, layer.ToolCall{Name: "Write"}))(t)
	said = append(said, v.Guidance, s.does("exitPlanMode", `{"action":"execute"}`))
	s.does("updatePrd", `{"content":"x"}`)
	said = append(said, s.does("exitPlanMode", `{"action":"execute"}`), s.does("setPlanTree", `{"document":{"a":1}}`), s.does("exitPlanMode", `{"action":"execute"}`))
	for _, tool := range s.Tools() {
		for _, text := range said {
			if strings.Count(text, tool.Name) != strings.Count(text, "plan_"+tool.Name) {
				t.Errorf("%q is named in %q", tool.Name, text)
			}
		}
	}
	if all := strings.Join(said, " "); strings.Count(all, "plan_") < 10 {
		t.Errorf("functions are not named: %s", all)
	}
}
