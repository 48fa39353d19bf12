package layers_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layers"
	"remora/test/kit"
)

var update = flag.Bool("update", false, "write the lists of kinds into the files that have one")

// TestPages compares each kind's page with its code.
func TestPages(t *testing.T) {
	for _, k := range layers.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			page := readFile(t, k.Folder+"/README.md")
			if !strings.HasPrefix(page, "# "+k.Name+"\n\n"+place(k)+"\n") {
				t.Errorf("want a page that begins with\n# %s\n\n%s", k.Name, place(k))
			}

			options, nested := keys(reflect.TypeOf(k.Options()).Elem())
			var rows []string
			for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(page, -1) {
				rows = append(rows, m[1])
			}
			if diff := cmp.Diff(options, rows); diff != "" {
				t.Errorf("options (-code +page):\n%s", diff)
			}
			for _, n := range nested {
				if !strings.Contains(page, "`"+n+"`") {
					t.Errorf("the page does not explain %s", n)
				}
			}

			if strings.Contains(page, "```text\n") && !tested(t, k.Folder) {
				t.Error("the page shows a block: a test of the package must compare it, by layertest.Page")
			}
		})
	}
}

// layers.md has the id of each kind that its name does not tell: rules and headers of answers have ids.
func TestIDs(t *testing.T) {
	_, row, _ := strings.Cut(readFile(t, "../../docs/layers.md"), "| `id` |")
	row, _, _ = strings.Cut(row, "\n")
	for _, k := range layers.Kinds() {
		id := k.Defaults(k.Options()).ID
		if named := strings.Contains(row, "`"+id+"`"); named == (id == strings.ReplaceAll(k.Name, "_", "-")) {
			t.Errorf("%s has the id %s, which is named: %v", k.Name, id, named)
		}
	}
}

// place returns the sentence that says where a kind's block stands by default.
func place(k layers.Kind) string {
	d := k.Defaults(k.Options())
	return fmt.Sprintf("Slot %d, scope %s, budget %s, %s.", d.Slot, scope(d), tokens(d), where(d))
}

func scope(d layer.Defaults) string {
	return []string{"", "execution", "thread", "resource", "global"}[d.Scope]
}

func tokens(d layer.Defaults) string {
	if d.Budget.Min() == 0 && math.IsInf(d.Budget.Max(), 1) {
		return "auto"
	}
	return fmt.Sprintf("%v to %v tokens", d.Budget.Min(), d.Budget.Max())
}

func where(d layer.Defaults) string {
	if d.Placement.Live() {
		return "live"
	}
	return "anchored"
}

// keys returns the configuration keys of a struct, and the keys of structs in its lists.
func keys(t reflect.Type) (own, nested []string) {
	for f := range t.Fields() {
		key := f.Tag.Get("mapstructure")
		if key == "" || key == "-" {
			continue
		}
		own = append(own, key)
		e := f.Type
		for e.Kind() == reflect.Slice || e.Kind() == reflect.Pointer {
			e = e.Elem()
		}
		if e.Kind() == reflect.Struct {
			a, b := keys(e)
			nested = append(append(nested, a...), b...)
		}
	}
	return own, nested
}

// tested reports whether a test of a folder compares the blocks of its page.
func tested(t *testing.T, folder string) bool {
	t.Helper()
	tests, err := filepath.Glob(folder + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range tests {
		if strings.Contains(readFile(t, test), "layertest.Page(t") {
			return true
		}
	}
	return false
}

// The proxy accepts the piece of YAML on each page.
func TestPagesYAML(t *testing.T) {
	for _, k := range layers.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			found := regexp.MustCompile("(?s)```yaml\n(.*?)\n```").FindAllStringSubmatch(readFile(t, k.Folder+"/README.md"), -1)
			if len(found) != 1 {
				t.Fatalf("want one piece of YAML, have %d", len(found))
			}

			kit.CheckConfig(t, "memory:\n  layers:\n    "+strings.ReplaceAll(found[0][1], "\n", "\n    ")+"\n", "LAYER_SECRET=k3y")
		})
	}
}

// TestListsOfKinds compares the files that list all kinds with the table. With -update, as in `make generate`, it writes
// them.
func TestListsOfKinds(t *testing.T) {
	const sample = "../../config.yaml"
	var on, off, table strings.Builder
	table.WriteString("| kind | what it does | where its block stands |\n|---|---|---|\n")
	for _, k := range layers.Kinds() {
		text := readFile(t, k.Folder+"/sample.yaml")
		about, rest, _ := strings.Cut(text, "\n")
		about, isComment := strings.CutPrefix(strings.TrimSpace(about), "# ")
		samples := &on
		if strings.HasPrefix(rest, "#") {
			samples = &off
		}
		if !isComment || !strings.HasPrefix(strings.TrimPrefix(rest, "#"), "- kind: "+k.Name+"\n") {
			t.Fatalf("%s/sample.yaml: want a comment line that says what the kind does, then #- kind: %s, without the # if it is on", k.Folder, k.Name)
		}

		for line := range strings.Lines(text) {
			samples.WriteString("    " + line)
		}
		fmt.Fprintf(&table, "| [`%s`](../memory/layers/%s/README.md) | %s | %s |\n", k.Name, k.Folder, about,
			strings.TrimSuffix(place(k), "."))
	}

	const others = "      # Every other kind, with its options and their defaults.\n"
	lists(t, sample, "      # The next two bring back what the window has cut off.\n", others, on.String())
	lists(t, sample, others, "\nlog:\n", off.String())
	lists(t, "../../docs/layers.md", "<!-- kinds -->\n", "<!-- end of kinds -->\n", table.String())

	const chart = "../../helm/remora/files/config.yaml"
	if want := readFile(t, sample); readFile(t, chart) != want {
		write(t, chart, want)
	}
}

// lists compares what stands in a file between two texts.
func lists(t *testing.T, file, begin, end, want string) {
	t.Helper()
	text := readFile(t, file)
	before, rest, ok := strings.Cut(text, begin)
	have, after, found := strings.Cut(rest, end)
	if !ok || !found {
		t.Fatalf("%s: want the kinds between %q and %q", file, begin, end)
	}
	if have != want {
		write(t, file, before+begin+want+end+after)
	}
}

// write updates a file, or fails with the command that does.
func write(t *testing.T, file, text string) {
	t.Helper()
	if !*update {
		t.Errorf("%s is not up to date: make generate", file)
		return
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
