package memory_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/plan"
	"remora/memory/layers/taskstate"
	"remora/memory/pipeline"
	"remora/wire"
	"remora/wire/dialects"
)

// worker notes how what its session works on, and what children of it worked on, ended. It has a tool by which the model
// says so.
type worker struct{ told chan<- string }

func (w worker) Complete(_ context.Context, t *layer.Turn, _ layer.State, o layer.Outcome) (layer.State, error) {
	w.told <- t.Thread + " " + string(o.Result)
	return layer.State(`{}`), nil
}

func (w worker) Store(context.Context, *layer.Turn, layer.State, *layer.Response) (layer.State, error) {
	return layer.State(`{}`), nil
}

func (w worker) Return(_ context.Context, t *layer.Turn, parent, _ layer.State, o layer.Outcome) (layer.State, error) {
	w.told <- o.Thread + " returns to " + t.Thread + " " + string(o.Result)
	return parent, nil
}

func (w worker) Tools() []layer.Tool {
	return []layer.Tool{{Name: "done", Run: func(_ context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
		t.Complete(layer.Result(strings.Trim(string(arguments), `{}":`)))
		return "ok", s, nil
	}}}
}

// calls has the model call a layer's tool, and answer when it has the result.
func (l *lab) calls(c memory.Call, words, tool, arguments string) {
	l.t.Helper()
	turn := l.begin(c, words)
	it, err := wire.ParseItem(dialects.Chat, []byte(`{"role":"assistant","content":null,"tool_calls":[{"id":"h","type":"function","function":{"name":"`+tool+`","arguments":`+string(wire.AppendString(nil, arguments))+`}}]}`))
	if err != nil {
		l.t.Fatal(err)
	}
	if next := turn.Review(context.Background(), wire.Reply{Complete: true, ID: "c1", Choices: [][]wire.Item{{it}}}); !next.GoesOn {
		l.t.Fatalf("the model was not asked again: %+v", next)
	}
	last := answer(l.t, "a:done")
	turn.Review(context.Background(), last.Reply)
	turn.Commit(last)
}

// TestEndsOfWork: the end of a run is a checkpoint: layers hear "answered", and a child session gives nothing back. Its work
// ends when the model says so by a tool, or by the completion endpoint, and then it gives back once.
func TestEndsOfWork(t *testing.T) {
	t.Parallel()
	told := make(chan string, 16)
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
		pipeline.Layer{ID: "w", Kind: "test", Scope: layer.Thread, Impl: worker{told}})}})
	child := memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "child", Resource: "r", Parent: "parent"}}
	heard := func(what string, want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-told:
				if got != w {
					t.Fatalf("%s: layers were told %q, want %q", what, got, w)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: layers were not told %q", what, w)
			}
		}
	}

	l.turnOf(in("parent", "r"), "u:go", "a:on")
	heard("the parent answers", "parent answered")
	l.turnOf(child, "u:1", "c:x")
	heard("a client's tool")
	l.turnOf(child, "u:1 c:x r:x", "a:1")
	heard("the child answers", "child answered")
	l.calls(child, "u:1 c:x r:x a:1 u:2", "w_done", `{"success":""}`)
	heard("the model is done", "child success", "child returns to parent success")
	if err := l.m.Complete(t.Context(), child.Scope, false); err != nil {
		t.Fatal(err)
	}
	heard("the endpoint", "child failure", "child returns to parent failure")

	// The first request of a child has named its parent; the others need not.
	l.turnOf(memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "second", Parent: "parent"}}, "u:1", "a:1")
	heard("the second child answers", "second answered")
	again := memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "second"}}
	l.calls(again, "u:1 a:1 u:2", "w_done", `{"success":""}`)
	heard("its model is done", "second success", "second returns to parent success")
	l.turnOf(again, "u:1 a:1 u:2 a:done u:3", "a:3")
	heard("it goes on", "second answered")
	if err := l.m.Complete(t.Context(), again.Scope, true); err != nil {
		t.Fatal(err)
	}
	heard("the endpoint", "second success", "second returns to parent success")
	l.m.Close()
	if len(told) > 0 {
		t.Errorf("layers were told %q as well", <-told)
	}
}

// TestParentHasResultsAtOnce: when the client sees the end of a child's work, the next request of the parent has its results.
func TestParentHasResultsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan string, 16)
		l := newLab(t, memory.Options{CommitWait: time.Second, Shape: memory.Shape{Layers: layersOf(t,
			pipeline.Layer{ID: "w", Kind: "test", Scope: layer.Thread, Impl: slowWorker{worker{told}}})}})
		child := memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "child", Parent: "parent"}}
		l.turnOf(in("parent", ""), "u:go", "a:on")
		for _, results := range []string{"first", "second"} {
			l.calls(child, "u:"+results, "w_done", `{"success":""}`)
			for len(told) > 1 {
				<-told
			}
			if got, want := <-told, "child returns to parent success"; got != want {
				t.Errorf("%s: when the client had the answer, layers had heard %q, want %q", results, got, want)
			}
		}
		l.m.Close()
	})
}

// slowWorker is a worker that takes a while to return results, less than a commit may take.
type slowWorker struct{ worker }

func (w slowWorker) Return(ctx context.Context, t *layer.Turn, parent, child layer.State, o layer.Outcome) (layer.State, error) {
	time.Sleep(time.Second / 2)
	return w.worker.Return(ctx, t, parent, child, o)
}

// TestParentOfASessionThatBeginsInAnOutage: the child gives back at its end although only its first request has named the parent.
func TestParentOfASessionThatBeginsInAnOutage(t *testing.T) {
	told := make(chan string, 16)
	l, store := newOutage(t)
	l.m.Reshape(memory.Shape{Layers: layersOf(t, pipeline.Layer{ID: "w", Kind: "test", Scope: layer.Thread, Impl: worker{told}})})
	child := memory.Call{Scope: memory.Scope{Tenant: "tenant", Session: "child", Parent: "parent"}}
	store.set(true)
	turn := l.begin(child, "u:1")
	turn.Commit(answer(t, "a:1"))
	store.over()
	child.Scope.Parent = ""
	l.turnOf(child, "u:1 a:1 u:2", "a:2")
	if err := l.m.Complete(t.Context(), child.Scope, true); err != nil {
		t.Fatal(err)
	}
	l.m.Close()
	close(told)
	var heard []string
	for what := range told {
		heard = append(heard, what)
	}
	if want := "child returns to parent success"; !slices.Contains(heard, want) {
		t.Errorf("layers were told %q, want %q", heard, want)
	}
}

// TestPlansOutliveAnswers: a plan that is being executed, and a task, go on when the model answers with a text, and end when
// it calls their tools.
func TestPlansOutliveAnswers(t *testing.T) {
	t.Parallel()
	p, err := plan.New(plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	task, err := taskstate.New(taskstate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l := newLab(t, memory.Options{Shape: memory.Shape{Layers: layersOf(t,
		pipeline.Layer{ID: "plan", Kind: "plan_memory", Scope: layer.Thread, Impl: p},
		pipeline.Layer{ID: "task", Kind: "task_state", Scope: layer.Thread, Impl: task},
	)}})
	shown := func() string {
		t.Helper()
		turn := l.begin(memory.Call{}, "u:show")
		turn.Commit(answer(t, "a:shown"))
		return strings.Join(raws(turn.View), "\n")
	}
	for _, step := range [][2]string{
		{"plan_enterPlanMode", `{"goal":"g"}`},
		{"plan_updatePrd", `{"content":"Move the files."}`},
		{"plan_setPlanTree", `{"document":{"step":1}}`},
		{"plan_exitPlanMode", `{"action":"execute"}`},
	} {
		l.calls(memory.Call{}, "u:"+step[0], step[0], step[1])
	}
	for range 2 {
		l.turn("u:and-now", "a:working")
		if got := shown(); !strings.Contains(got, "active_plan") || strings.Contains(got, "__outcome") || !strings.Contains(got, `\"outcome\": \"answered\"`) {
			t.Fatalf("after an answer: %s", got)
		}
	}
	l.calls(memory.Call{}, "u:finish", "plan_completePlan", `{}`)
	if got := shown(); !strings.Contains(got, "Plan v1 success.") || strings.Contains(got, "__outcome") { // the user has gone on
		t.Errorf("after completePlan: %s", got)
	}
}
