// Package docs_test compares the pages with the code that they describe.
package docs_test

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/view"
	"remora/test/kit"
)

// The options of history_window in layers.md are those of the code. The pages of the other kinds are compared in
// memory/layers.
func TestWindowOptions(t *testing.T) {
	page, err := os.ReadFile("layers.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## history_window\n")
	section, _, _ = strings.Cut(section, "\n## ")

	var options, rows []string
	for f := range reflect.TypeFor[view.Window]().Fields() {
		if key := f.Tag.Get("mapstructure"); key != "" && key != "-" {
			options = append(options, key)
		}
	}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		rows = append(rows, m[1])
	}
	if diff := cmp.Diff(options, rows); diff != "" {
		t.Errorf("options (-code +page):\n%s", diff)
	}
}

// The proxy accepts each piece of YAML of the pages about layers.
func TestExamples(t *testing.T) {
	for _, name := range []string{"custom-layer.md", "layers.md"} {
		page, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)\n```").FindAllStringSubmatch(string(page), -1) {
			text := m[1]
			if strings.HasPrefix(text, "- ") { // one entry of the list
				text = "memory:\n  layers:\n    " + strings.ReplaceAll(text, "\n", "\n    ")
			}
			t.Run(name, func(t *testing.T) {
				kit.CheckConfig(t, text+"\n", "LAYER_SECRET=k3y")
			})
		}
	}
}
