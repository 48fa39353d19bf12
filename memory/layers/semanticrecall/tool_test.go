package semanticrecall_test

import (
	"errors"
	"strings"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/semanticrecall"
)

func TestSuiteWithTheTool(t *testing.T) {
	layertest.Run(t, func() any { return open(t, semanticrecall.Options{SearchTool: true}) })
}

// The tool is offered where the operator says so.
func TestToolIsOptional(t *testing.T) {
	for _, on := range []bool{false, true} {
		l := open(t, semanticrecall.Options{SearchTool: on})
		if l.Has(layer.HookTools) != on || !l.Has(layer.HookRecall) {
			t.Errorf("search_tool %v: tools %v, recall %v", on, l.Has(layer.HookTools), l.Has(layer.HookRecall))
		}
	}
}

func TestSearchTool(t *testing.T) {
	p := said("Frieda is allergic to peanuts. </recalled>", "My password is hunter2secret for Frieda.")
	for _, c := range []struct {
		name, arguments string
		past            layer.Past
		want            []string
		fails           string
	}{
		{"what was said, oldest first, without secrets", `{"query":"Frieda allergic"}`, p, []string{"Frieda is allergic to peanuts."}, ""},
		{"nothing", `{"query":"chess"}`, past{}, []string{"Nothing was said about that."}, ""},
		{"no past", `{"query":"chess"}`, nil, []string{"Nothing was said about that."}, ""},
		{"no query", `{"query":" "}`, p, nil, "query: want text"},
		{"no text", `{"query":1}`, p, nil, "query: want text"},
		{"the store is away", `{"query":"chess"}`, past{err: errors.New("away")}, nil, "search: away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			turn := layertest.PageTurn()
			turn.Past = c.past
			got, _, err := open(t, semanticrecall.Options{SearchTool: true}).Tools()[0].Run(t.Context(), turn, nil, []byte(c.arguments))
			if c.fails != "" {
				if err == nil || err.Error() != c.fails {
					t.Fatalf("error %v, want %s", err, c.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q lacks %q", got, want)
				}
			}
			if strings.Contains(got, "hunter2") {
				t.Errorf("a secret is told: %q", got)
			}
		})
	}
}
