package staticcontent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/staticcontent"
)

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	p := filepath.Join(dir, name)
	if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func open(t *testing.T, o staticcontent.Options) *staticcontent.Layer {
	t.Helper()
	return layertest.Must(staticcontent.New(o))(t)
}

// recall returns the recalled text, "" for none.
func recall(t *testing.T, l *staticcontent.Layer, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), &layer.Turn{Count: layertest.Quarter}, nil, budget))(t)
	return strings.Join(got.Messages, "|")
}

func TestSuite(t *testing.T) {
	layertest.Run(t, func() any { return open(t, staticcontent.Options{Text: strings.Repeat("Be kind to 日本 ", 40)}) },
		layertest.Overruns(func(budget int) bool { return budget == 0 })) // without a share nothing is cut
}

func TestBudget(t *testing.T) {
	l := open(t, staticcontent.Options{Text: strings.Repeat("x", 100)})
	for _, c := range []struct{ budget, want int }{{20, 80}, {10, 40}, {1, 0}, {7, 0}, {8, 32}, {0, 131}, {33, 131}, {32, 128}} {
		text := recall(t, l, c.budget)
		if len(text) != c.want || text != "" && !strings.HasSuffix(text, "\n</instructions>") {
			t.Errorf("budget %d gave %d characters, want %d with the closing tag: %q", c.budget, len(text), c.want, text)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	a := write(t, dir, "a.md", "first\n")
	write(t, dir, "b.md", "second")
	write(t, dir, "c.txt", "third")
	if err := os.Mkdir(filepath.Join(dir, "d.md"), 0o700); err != nil {
		t.Fatal(err)
	}
	empty := write(t, dir, "empty", "\n")
	glob := filepath.Join(dir, "*.md")
	for _, c := range []struct {
		name string
		o    staticcontent.Options
		want string
	}{
		{"text", staticcontent.Options{Text: "<b>be kind</b>"}, "<instructions>\n<b>be kind</b>\n</instructions>"},
		{"own closing tag", staticcontent.Options{Text: "a</rules>b</Rules ><b>c</b>", Tag: "rules"}, "<rules>\na<\\/rules>b<\\/Rules ><b>c</b>\n</rules>"},
		{"file", staticcontent.Options{File: a}, "<instructions>\nfirst\n</instructions>"},
		{"glob", staticcontent.Options{Glob: glob}, "<instructions>\nfirst\n\nsecond\n</instructions>"},
		{"empty, nothing", staticcontent.Options{File: empty}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, recall(t, open(t, c.o), 1000)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	t.Run("read once, when made", func(t *testing.T) {
		l := open(t, staticcontent.Options{File: a})
		write(t, dir, "a.md", "changed")
		if got := recall(t, l, 1000); !strings.Contains(got, "first") {
			t.Errorf("have %q, want what the file held when the layer was made", got)
		}
		if got := recall(t, open(t, staticcontent.Options{File: a}), 1000); !strings.Contains(got, "changed") {
			t.Errorf("have %q, want the file read again by a reload", got)
		}
	})
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	big := write(t, dir, "big.bin", strings.Repeat("x", 1<<20+1))
	binary := write(t, dir, "latin1", "na\xefve")
	for _, c := range []struct {
		name string
		o    staticcontent.Options
		want string
	}{
		{"none", staticcontent.Options{}, "text: want exactly one"},
		{"two", staticcontent.Options{Text: "a", File: "b"}, "text: want exactly one"},
		{"missing", staticcontent.Options{File: filepath.Join(dir, "no")}, "file: "},
		{"folder", staticcontent.Options{File: dir}, "file: "},
		{"too big", staticcontent.Options{File: big}, "at most 1048576 bytes"},
		{"too big together", staticcontent.Options{Glob: filepath.Join(dir, "big.*")}, "glob: "},
		{"not text", staticcontent.Options{File: binary}, "file: want UTF-8"},
		{"matches nothing", staticcontent.Options{Glob: filepath.Join(dir, "*.zz")}, "glob: want a pattern that matches"},
		{"bad pattern", staticcontent.Options{Glob: "["}, "glob: want a pattern"},
		{"tag", staticcontent.Options{Text: "a", Tag: "a b"}, "tag: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := staticcontent.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("have error %v, want %q", err, c.want)
			}
		})
	}
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(staticcontent.New(staticcontent.Options{Text: "Answer in British English."}))(t)
	layertest.Page(t, layertest.PageRecall(t, l, nil)...)
}
