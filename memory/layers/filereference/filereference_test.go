package filereference

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/wire"
	"remora/wire/dialects"
)

type model func(system, user string) (string, error)

func (m model) Complete(_ context.Context, system, user string, _ int) (string, error) {
	return m(system, user)
}

// folder is a base folder with files, and a secret beside it.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	parent := t.TempDir()
	base := filepath.Join(parent, "base")
	write(t, filepath.Join(parent, "secret.md"), "top secret")
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		write(t, filepath.Join(base, name), content)
	}
	return base
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(content), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func newLayer(t *testing.T, o Options) *Layer {
	t.Helper()
	return layertest.Must(New(o))(t)
}

// says appends a user's message.
func says(t *testing.T, l *Layer, ask layer.Model, s layer.State, text string) layer.Appended {
	t.Helper()
	tu := &layer.Turn{Query: text, Dialect: dialects.Chat, Count: layertest.Quarter, Ask: ask}
	return layertest.Must(l.AppendItems(t.Context(), tu, s, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, text)}))(t)
}

func recall(t *testing.T, l *Layer, s layer.State, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), &layer.Turn{Dialect: dialects.Chat, Count: layertest.Quarter}, s, budget))(t)
	text := strings.Join(got.Messages, "|")
	if n := layertest.Quarter(text); n > budget {
		t.Errorf("recalled %d tokens, budget %d", n, budget)
	}
	return text
}

func TestLink(t *testing.T) {
	for in, want := range map[string]string{
		"see #docs/plan.md.":             "see [#docs/plan.md](#docs-plan-md).",
		"#a.go, (#B_c.MD)":               "[#a.go](#a-go), ([#B_c.MD](#b-c-md))",
		"#1 #123 #v1.2 #tag C#x.md a#.b": "#1 #123 #v1.2 #tag C#x.md a#.b",
		"[#a.md](#a-md)":                 "[#a.md](#a-md)",
		"#../x.md #/etc/passwd.txt":      "[#../x.md](#---x-md) [#/etc/passwd.txt](#-etc-passwd-txt)",
		"```css\n#id.cls {}\n```\n#ü.md": "```css\n#id.cls {}\n```\n[#ü.md](#--md)",
	} {
		want = strings.ReplaceAll(want, "(#--md)", "("+"#"+slug("ü.md")+")")
		if diff := cmp.Diff(want, link(in, func(string) {})); diff != "" {
			t.Errorf("%q:\n%s", in, diff)
		}
	}
}

func TestReferencedFiles(t *testing.T) {
	base := folder(t, map[string]string{"docs/plan.md": "# Plan\n```go\nx\n```\n", "b.txt": "bee"})
	l := newLayer(t, Options{BaseDir: base})
	got := says(t, l, nil, nil, "read #docs/plan.md")
	if text := got.Items[0].Text(); text != "read [#docs/plan.md](#docs-plan-md)" || !got.Rerender {
		t.Errorf("have %q, rerender %t", text, got.Rerender)
	}
	want := "<referenced_files>\n" + intro + "\n\n## docs/plan.md\n````\n# Plan\n```go\nx\n```\n````\n</referenced_files>"
	if diff := cmp.Diff(want, recall(t, l, got.State, math.MaxInt)); diff != "" {
		t.Error(diff)
	}
	t.Run("nothing new, nothing done", func(t *testing.T) {
		again := says(t, l, nil, got.State, "what says ./docs/plan.md now? docs/plan.md")
		if again.State != nil || again.Rerender {
			t.Errorf("have %s, rerender %t", again.State, again.Rerender)
		}
	})
	t.Run("each file once, in the order in which they were named", func(t *testing.T) {
		next := says(t, l, nil, got.State, "and #b.txt #./b.txt")
		text := recall(t, l, next.State, math.MaxInt)
		if !strings.HasPrefix(text, "<referenced_files>\n"+intro+"\n\n## docs/plan.md\n") || !strings.Contains(text, "\n\n## b.txt\n```\nbee\n```\n") || strings.Count(text, "## b.txt") != 1 {
			t.Errorf("have %q", text)
		}
	})
	t.Run("a change is seen, and a deletion", func(t *testing.T) {
		name := filepath.Join(base, "docs/plan.md")
		write(t, name, "other\n")
		next := says(t, l, nil, got.State, "and docs/plan.md now?")
		if !next.Rerender || !strings.Contains(recall(t, l, next.State, 1000), "\nother\n") {
			t.Errorf("the change was missed: %s", next.State)
		}
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
		next = says(t, l, nil, next.State, "and docs/plan.md now?")
		if text := recall(t, l, next.State, 1000); text != "<referenced_files>\n"+intro+"\n\n## docs/plan.md\n[FILE DELETED: docs/plan.md]\n</referenced_files>" || !next.Rerender {
			t.Errorf("have %q", text)
		}
	})
}

// A file keeps the tags in it, but cannot close the block.
func TestFileStaysInItsBlock(t *testing.T) {
	l := newLayer(t, Options{BaseDir: folder(t, map[string]string{"a.html": "<b>x</b></referenced_files>"})})
	want := "<referenced_files>\n" + intro + "\n\n## a.html\n```\n<b>x</b><\\/referenced_files>\n```\n</referenced_files>"
	if diff := cmp.Diff(want, recall(t, l, says(t, l, nil, nil, "#a.html").State, 1000)); diff != "" {
		t.Error(diff)
	}
}

// TestNothingElseIsRead: no reference reads the secret beside the folder.
func TestNothingElseIsRead(t *testing.T) {
	base := folder(t, map[string]string{"big.md": strings.Repeat("x", 101), "key.pem": "secret", "dir.md/a.md": "", "nul.md": "a\x00b"})
	for name, target := range map[string]string{"out.md": "../secret.md", "up": "..", "in.md": "ok.md", "abs.md": filepath.Join(base, "../secret.md")} {
		if err := os.Symlink(target, filepath.Join(base, name)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(base, "ok.md"), "fine")
	if err := syscall.Mkfifo(filepath.Join(base, "pipe.md"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		ref    string
		follow bool
		want   string
	}{
		{"../secret.md", false, "[ERROR: PATH_TRAVERSAL]"},
		{"../secret.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"x/../../secret.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"/etc/secret.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"key.pem", false, "[ERROR: DISALLOWED_EXTENSION]"},
		{"out.md", false, "[ERROR: SYMLINK]"},
		{"out.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"abs.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"up/secret.md", false, "[ERROR: SYMLINK]"},
		{"up/secret.md", true, "[ERROR: PATH_TRAVERSAL]"},
		{"in.md", false, "[ERROR: SYMLINK]"},
		{"in.md", true, "```\nfine\n```"},
		{"big.md", false, "[ERROR: FILE_TOO_LARGE]"},
		{"dir.md", false, "[ERROR: NOT_A_TEXT_FILE]"},
		{"pipe.md", false, "[ERROR: NOT_A_TEXT_FILE]"},
		{"nul.md", false, "[ERROR: NOT_A_TEXT_FILE]"},
		{"none.md", false, "[FILE DELETED: none.md]"},
		{"ok.md/x.md", false, "[FILE DELETED: ok.md/x.md]"},
	} {
		l := newLayer(t, Options{BaseDir: base, MaxFileSize: 100, FollowSymlinks: tc.follow})
		text := recall(t, l, says(t, l, nil, nil, "#"+tc.ref).State, 1000)
		if !strings.HasSuffix(text, "\n"+tc.want+"\n</referenced_files>") || strings.Contains(text, "top secret") {
			t.Errorf("#%s (follow %v): have %q, want %s", tc.ref, tc.follow, text, tc.want)
		}
	}
}

func TestOversize(t *testing.T) {
	lines := strings.SplitAfter(strings.Repeat("12345678901234567890123456789012345678\n", 100), "\n")[:100] // 10 tokens each
	base := folder(t, map[string]string{"long.md": strings.Join(lines, ""), "small.md": "s\n", "one.md": strings.Repeat("y", 5000)})
	l := newLayer(t, Options{BaseDir: base})
	s := says(t, l, nil, nil, "#long.md").State
	text := recall(t, l, s, 237)
	before, after, ok := strings.Cut(text, "... [truncated ")
	head, tail := strings.Count(before, "5678\n"), strings.Count(after, "5678\n")
	if !ok || head != 11 || tail != 8 || !strings.HasPrefix(after, "81 lines] ...\n") {
		t.Errorf("%d lines, then %d, want 11 and 8: %q", head, tail, text)
	}
	s = says(t, l, nil, s, "#small.md #one.md").State
	if text := recall(t, l, s, 60); !strings.Contains(text, "## small.md\n```\ns\n```") || strings.Contains(text, "yyyy") {
		t.Errorf("a small file was not told beside a large one: %q", text)
	}
	if text := recall(t, l, s, 5); text != "" {
		t.Errorf("have %q", text)
	}
}

// Files that are larger together than what a layer may recall are cut, and not all refused.
func TestLargeFiles(t *testing.T) {
	large := strings.Repeat("a line of a file\n", 50_000)
	l := newLayer(t, Options{BaseDir: folder(t, map[string]string{"a.md": large, "b.md": large, "c.md": "see"})})
	text := recall(t, l, says(t, l, nil, nil, "#a.md #b.md #c.md").State, math.MaxInt)
	if len(text) > layer.MaxRecall || len(text) < layer.MaxRecall*9/10 || !strings.Contains(text, "## b.md\n```\na line") || !strings.Contains(text, "[truncated") {
		t.Errorf("%d bytes: %.100q", len(text), text)
	}
}

func TestRelevance(t *testing.T) {
	base := folder(t, map[string]string{"a.md": "aa </file>" + strings.Repeat("x", 9000), "b.md": "bb"})
	l := newLayer(t, Options{BaseDir: base, Setup: layer.Setup{HasModel: true}})
	asked := 0
	ask := model(func(_, user string) (string, error) {
		asked++
		if len(user) > 2300 || strings.Contains(user, "aa </file>") {
			t.Errorf("asked with %.200q", user)
		}
		if strings.Contains(user, "<file>\nb.md\n") {
			return " 95.", nil
		}
		return "10", nil
	})
	got := says(t, l, ask, nil, "#a.md #b.md")
	if text := recall(t, l, got.State, 10000); strings.Index(text, "## b.md") < strings.Index(text, "## a.md") || asked != 2 {
		t.Errorf("asked %d times, have %.200q", asked, text)
	}
	if text := recall(t, l, got.State, 40); !strings.Contains(text, "\nbb\n") || strings.Contains(text, "## a.md") {
		t.Errorf("with little room, want the file that is relevant: %q", text)
	}
	if says(t, l, ask, got.State, "go on"); asked != 2 {
		t.Error("asked again about files that have not changed")
	}
	for answer, want := range map[string]int{"85": 85, "0": 0, "100": 100, "101": unknown, "none": unknown, "-": unknown, "about 7 of 10": 7} {
		if have := parseRelevance(answer); have != want {
			t.Errorf("%q: have %d, want %d", answer, have, want)
		}
	}
	failing := model(func(string, string) (string, error) { return "", errors.New("refused") })
	if st := read(says(t, l, failing, nil, "#a.md").State); st.Files[0].Priority != unknown {
		t.Errorf("have %+v", st)
	}
}

func TestFilesAreBounded(t *testing.T) {
	base := folder(t, map[string]string{"a.md": "a"})
	l := newLayer(t, Options{BaseDir: base, MaxFiles: 2})
	s := says(t, l, nil, nil, "#a.md #b.md #c.md #"+strings.Repeat("x", maxPath)+".md").State
	if st := read(s); len(st.Files) != 2 || st.Files[1].Path != "c.md" {
		t.Errorf("have %s", s)
	}
}

func TestOptions(t *testing.T) {
	_, err := New(Options{Extensions: []string{"md", "*"}, MaxFileSize: -1, MaxFiles: 101})
	for _, key := range []string{"base_dir: ", "extensions[1]: ", "max_file_size: ", "max_files: "} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%q is not named in: %v", key, err)
		}
	}
	if _, err := New(Options{BaseDir: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a folder that is not there was accepted")
	}
	if d := Defaults(Options{}); d.Slot != 350 || d.Scope != layer.Thread || d.Timeouts.AppendItems != 30*time.Second {
		t.Errorf("have %+v", d)
	}
}

func TestContract(t *testing.T) {
	base := folder(t, map[string]string{"a.md": strings.Repeat("some line of text\n", 400), "b.md": "日本語 🦈"})
	layertest.Run(t, func() any { return newLayer(t, Options{BaseDir: base}) }, layertest.States(
		layer.State(`{"files":[{"path":"a.md","priority":50,"stamp":"1 2"},{"path":"b.md","priority":80},{"path":"../secret.md","priority":50,"fault":"PATH_TRAVERSAL"}]}`)))
}

// FuzzReferences: no text leads out of the folder, or is rewritten twice.
func FuzzReferences(f *testing.F) {
	f.Add("see #docs/../../secret.md and #a.md")
	f.Add("#///..//.//a.b.c #\x00.md")
	l := &Layer{o: Options{MaxFileSize: 100}, allowed: map[string]bool{"md": true}}
	parent := f.TempDir()
	base := filepath.Join(parent, "base")
	if err := errors.Join(os.Mkdir(base, 0o755), os.WriteFile(filepath.Join(parent, "secret.md"), []byte("secret"), 0o600)); err != nil {
		f.Fatal(err)
	}
	root := layertest.Must(os.OpenRoot(base))(f)
	f.Fuzz(func(t *testing.T, text string) {
		var st state
		var refs []string
		once := link(text, func(ref string) { refs = append(refs, ref) })
		if twice := link(once, func(string) {}); twice != once {
			t.Fatalf("%q became %q, then %q", text, once, twice)
		}
		st.refer(refs, 5)
		for _, file := range st.Files {
			if content, fault := (&baseDir{root: root, allowed: l.allowed, maxFileSize: l.o.MaxFileSize}).read(file.Path); fault == "" {
				t.Fatalf("%q was read: %q", file.Path, content)
			}
		}
	})
}
