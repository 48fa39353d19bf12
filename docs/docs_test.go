// Package docs_test compares docs/layers.md with the code that it describes.
package docs_test

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/cmd/proxy/proxytest"
	"remora/memory/layer"
	"remora/memory/layer/fileref"
	"remora/memory/layer/history"
	"remora/memory/layer/observe"
	"remora/memory/layer/plan"
	"remora/memory/layer/reminder"
	"remora/memory/layer/static"
	"remora/memory/layer/steering"
	"remora/memory/layer/taskstate"
	"remora/memory/layer/temporal"
	"remora/memory/layer/toolmemory"
	"remora/memory/layer/webhook"
	"remora/memory/layer/working"
	"remora/memory/view"
	"remora/wire"
)

// kind is a section of the page.
type kind struct {
	options  any
	defaults *layer.Defaults
	block    func(t *testing.T) []string // what the section shows, nil for nothing
}

func kinds() map[string]kind {
	of := func(options any, d layer.Defaults, block func(t *testing.T) []string) kind {
		return kind{options, &d, block}
	}
	return map[string]kind{
		"working_memory":       of(working.Options{}, working.Defaults(), workingBlock),
		"observational_memory": of(observe.Options{}, observe.Defaults(), observeBlock),
		"temporal_memory":      of(temporal.Options{}, temporal.Defaults(), temporalBlock),
		"steering":             of(steering.Options{}, steering.Defaults(), nil),
		"static_content":       of(static.Options{}, static.Defaults(), staticBlock),
		"task_state":           of(taskstate.Options{}, taskstate.Defaults(), nil),
		"plan_memory":          of(plan.Options{}, plan.Defaults(), nil),
		"tool_memory":          of(toolmemory.Options{}, toolmemory.Defaults(), nil),
		"history_manager":      of(history.Options{}, history.Defaults(), historyBlock),
		"reminder":             of(reminder.Options{}, reminder.Defaults(), reminderBlock),
		"file_reference":       of(fileref.Options{}, fileref.Defaults(), nil),
		"http":                 of(webhook.Options{}, webhook.Defaults(), nil),
		"history_window":       {options: view.Window{}},
	}
}

// sections are the texts of layers.md by their headings.
func sections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("layers.md")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for s := range strings.SplitSeq(string(text), "\n## ") {
		name, rest, _ := strings.Cut(s, "\n")
		found[name] = rest
	}
	return found
}

func blocks(section, language string) []string {
	var found []string
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(section, -1) {
		found = append(found, m[1])
	}
	return found
}

// tags are the options of a struct; nested ones are those of the structs in its lists.
func tags(t reflect.Type) (own, nested []string) {
	for f := range t.Fields() {
		tag := f.Tag.Get("mapstructure")
		if tag == "" || tag == "-" {
			continue
		}
		own = append(own, tag)
		e := f.Type
		for e.Kind() == reflect.Slice || e.Kind() == reflect.Pointer {
			e = e.Elem()
		}
		if e.Kind() == reflect.Struct {
			a, b := tags(e)
			nested = append(append(nested, a...), b...)
		}
	}
	return own, nested
}

func place(d *layer.Defaults) string {
	budget := fmt.Sprintf("%v to %v tokens", d.Budget.Min(), d.Budget.Max())
	if d.Budget.Min() == 0 && math.IsInf(d.Budget.Max(), 1) {
		budget = "auto"
	}
	where := map[bool]string{false: "anchored", true: "live"}[d.Live]
	scope := []string{"", "execution", "thread", "resource", "global"}[d.Scope]
	return fmt.Sprintf("Slot %d, scope %s, budget %s, %s.", d.Slot, scope, budget, where)
}

func TestLayers(t *testing.T) {
	documented := sections(t)
	for name, k := range kinds() {
		t.Run(name, func(t *testing.T) {
			section, ok := documented[name]
			if !ok {
				t.Fatal("has no section")
			}
			if k.defaults != nil && !strings.Contains(section, place(k.defaults)) {
				t.Errorf("does not say %q", place(k.defaults))
			}
			own, nested := tags(reflect.TypeOf(k.options))
			var rows []string
			for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
				rows = append(rows, m[1])
			}
			if diff := cmp.Diff(own, rows); diff != "" {
				t.Errorf("options (-code +page):\n%s", diff)
			}
			for _, n := range nested {
				if !strings.Contains(section, "`"+n+"`") {
					t.Errorf("does not explain %s", n)
				}
			}
			shown := blocks(section, "text")
			if k.block == nil {
				if len(shown) > 0 {
					t.Errorf("shows a block that no test makes")
				}
				return
			}
			if diff := cmp.Diff(k.block(t), shown); diff != "" {
				t.Errorf("block (-code +page):\n%s", diff)
			}
		})
	}
}

// TestExamples has the proxy check each piece of YAML of both pages.
func TestExamples(t *testing.T) {
	bin := proxytest.Build(t)
	check := func(t *testing.T, text string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), bin, "--check", "--config", file)
		cmd.Env = append(os.Environ(), "LAYER_SECRET=k3y")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s\n%s", err, out, text)
		}
	}
	page, err := os.ReadFile("custom-layer.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range blocks(string(page), "yaml") {
		t.Run("custom-layer.md", func(t *testing.T) { check(t, text) })
	}
	for name := range kinds() {
		t.Run(name, func(t *testing.T) {
			found := blocks(sections(t)[name], "yaml")
			if len(found) != 1 {
				t.Fatalf("want one piece of YAML, have %d", len(found))
			}
			check(t, "memory:\n  layers:\n    "+strings.ReplaceAll(strings.TrimRight(found[0], "\n"), "\n", "\n    ")+"\n")
		})
	}
}

func turn() *layer.Turn {
	return &layer.Turn{
		ID: "1", Thread: "a", Resource: "ann", Execution: "e", Dialect: wire.Chat, Model: "gpt-5",
		Now: time.Date(2026, 3, 5, 9, 7, 0, 0, time.UTC), Count: func(s string) int { return (len(s) + 3) / 4 },
		Note: func(string, any) {},
	}
}

// recalled is what a layer recalls, each message with a line end.
func recalled(t *testing.T, l layer.Recaller, err error, s layer.State) []string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Recall(t.Context(), turn(), s, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, m := range r.Messages {
		texts = append(texts, m+"\n")
	}
	return texts
}

func workingBlock(t *testing.T) []string {
	t.Helper()
	l, err := working.New(working.Options{})
	if err != nil {
		t.Fatal(err)
	}
	_, s, err := l.Tools()[0].Run(t.Context(), turn(), nil, []byte(`{"name":"Ann","city":"Oslo"}`))
	return recalled(t, l, err, s)
}

func observeBlock(t *testing.T) []string {
	t.Helper()
	l, err := observe.New(observe.Options{})
	if err != nil {
		t.Fatal(err)
	}
	said := []wire.Item{layer.NewText(wire.Chat, wire.User, "My name is Ann and I prefer green tea.")}
	a, err := l.AppendItems(t.Context(), turn(), nil, said)
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.Store(t.Context(), turn(), a.State, &layer.Response{Input: said, Text: "Noted.", Done: true})
	return recalled(t, l, err, s)
}

func historyBlock(t *testing.T) []string {
	t.Helper()
	l, err := history.New(history.Options{EnableLongTermMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	about := turn()
	about.Query = "Where does Ann live?"
	r, err := l.Recall(t.Context(), about, layer.State(`{"version":1,
		"summaries":[{"conversation":"a","text":"[user] My cat is called Whiskers.\n[assistant] A fine name."}],
		"memories":[{"type":"fact","content":"Ann lives in Oslo","at":0}]}`), 1000)
	if err != nil || len(r.Messages) != 1 {
		t.Fatal(r, err)
	}
	return []string{r.Messages[0] + "\n"}
}

func temporalBlock(t *testing.T) []string {
	t.Helper()
	l, err := temporal.New(temporal.Options{TimeZone: "UTC"})
	return recalled(t, l, err, nil)
}

func staticBlock(t *testing.T) []string {
	t.Helper()
	l, err := static.New(static.Options{Text: "Answer in British English."})
	return recalled(t, l, err, nil)
}

func reminderBlock(t *testing.T) []string {
	t.Helper()
	l, err := reminder.New(reminder.Options{Reminders: []reminder.Reminder{{Text: "Keep answers short.", EveryUserTurns: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	a, err := l.AppendItems(t.Context(), turn(), nil, []wire.Item{layer.NewText(wire.Chat, wire.User, "Hi")})
	return recalled(t, l, err, a.State)
}
