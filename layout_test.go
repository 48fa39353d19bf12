package remora_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// The layout of this repository, as ARCHITECTURE.md draws it. Only the standard library is used, so that these checks
// also guard machines without the linter. A new package gets its row in arrows, a new dependency its reason in RATIONALE.md.

const module = "remora"

// arrows lists which of our packages each package imports, tests left out. No other import is allowed.
var arrows = []struct {
	pkg     string
	imports []string
}{
	{".", nil},
	{"address", nil},
	{"cache", nil},
	{"secret", nil},
	{"test/scripted/script", nil},
	{"wire/sse", nil},
	{"wire", []string{"wire/sse"}},
	{"wire/merge", []string{"wire", "wire/sse"}},
	{"wire/chat", []string{"wire", "wire/merge", "wire/sse"}},
	{"wire/responses", []string{"wire", "wire/merge", "wire/sse"}},
	{"wire/dialects", []string{"wire", "wire/chat", "wire/responses"}},

	{"telemetry/seldom", nil},
	{"telemetry", []string{"address", "secret", "telemetry/seldom", "wire"}},
	{"cache/<store>", []string{"address", "cache"}},
	{"cache/spool", []string{"cache"}},
	{"cache/encrypted", []string{"cache", "cache/spool", "secret"}},
	{"cache/stores", []string{"cache", "cache/<store>"}},
	{"cache/storetest", []string{"cache"}},
	{"memory/layer/schema", nil},
	{"memory/lru", nil},
	{"memory/recordcodec", []string{"wire"}},
	{"memory/redact", nil},
	{"memory/helperprompt", nil},
	{"memory/index", nil},
	{"memory/wordvectors", nil},
	{"memory/media", []string{"memory/recordcodec", "wire"}},
	{"memory/turnqueue", []string{"cache", "cache/spool"}},
	{"memory/tokens", []string{"wire"}},
	{"providers", []string{"address", "secret"}},
	{"test/scripted", []string{"memory/lru", "test/scripted/script"}},

	{"memory/layer", []string{"memory/lru", "memory/redact", "wire"}},
	{"memory/ownwords", []string{"memory/layer"}},
	{"memory/view", []string{"memory/layer", "wire"}},
	{"memory/turnrecord", []string{"memory/view"}},
	{"providers/models", []string{"providers"}},
	{"providers/retry", []string{"providers", "wire"}},
	{"providers/complete", []string{"providers", "secret", "wire"}},

	{"memory/layer/layertest", []string{"memory/layer", "wire", "wire/dialects"}},
	{"memory/layers/<kind>", []string{"address", "memory/index", "memory/layer", "memory/layer/schema", "memory/ownwords", "memory/redact", "memory/summary", "memory/view", "secret", "wire"}},
	{"memory/layers", []string{"memory/layer", "memory/layers/<kind>"}},
	{"memory/summary", []string{"memory/layer", "memory/redact", "wire"}},
	{"memory/session", []string{"cache", "memory/helperprompt", "memory/lru", "memory/media", "memory/recordcodec", "memory/turnrecord", "memory/view", "wire", "wire/dialects"}},
	{"memory/pipeline", []string{"memory/layer", "memory/layer/schema", "memory/lru", "memory/tokens", "memory/view", "secret", "telemetry/seldom", "wire", "wire/dialects"}},

	{"memory/replicas", []string{"cache", "memory/session", "memory/turnqueue", "memory/turnrecord"}},
	{"memory/past", []string{"cache", "memory/index", "memory/layer", "memory/lru", "memory/pipeline", "memory/redact", "memory/session", "wire"}},
	{"memory", []string{"cache", "memory/layer", "memory/lru", "memory/past", "memory/pipeline", "memory/replicas", "memory/turnqueue", "memory/summary", "memory/session", "memory/tokens", "memory/turnrecord", "memory/view", "wire", "wire/dialects"}},

	{"admin", nil},
	{"proxy", []string{"memory", "memory/view", "providers", "proxy/limit", "proxy/listener", "providers/retry", "secret", "telemetry", "telemetry/seldom", "wire", "wire/dialects", "wire/breakpoint", "wire/merge"}},
	{"proxy/listener", nil},
	{"proxy/limit", []string{"cache"}},
	{"cmd/remora/demo", []string{"test/process", "memory", "test/scripted", "wire", "wire/dialects"}},

	{"cmd/remora", cmdImports},
	{"test/bench", []string{"test/process"}},
	{"test/replay", []string{"test/process", "memory", "memory/tokens", "test/scripted", "wire", "wire/dialects", "wire/wiretest"}},
	{"test/recallfit", []string{"memory/index", "test/process", "test/recall/corpus"}},
	{"test/recall/corpus", nil},
	{"test/recall", []string{"test/process", "test/recall/corpus", "test/scripted", "test/scripted/script"}},
	{"wire/breakpoint", []string{"wire"}},
	{"wire/wiretest", []string{"wire"}},
	{"test/process", nil}, // runs the binary, knows only its command line
	{"test/kit", []string{"test/process"}},
	{"test/golden", nil}, // plays files through a proxy that its tests start
}

// cmdImports are the packages that the program wires together.
var cmdImports = []string{
	".", "address", "admin", "cache", "cache/<store>", "cache/encrypted", "cache/spool", "cache/stores", "cmd/remora/demo", "memory", "memory/layer", "memory/layers",
	"memory/layers/<kind>", "memory/pipeline", "memory/tokens", "memory/view", "memory/wordvectors", "providers", "providers/models", "providers/complete", "providers/retry", "test/scripted", "proxy", "proxy/limit",
	"secret", "telemetry", "wire",
}

var bannedNames = []string{"common", "helpers", "internal", "lib", "misc", "pkg", "schemas", "types", "util", "utils"}

// source is one Go file of ours.
type source struct {
	path  string // slashes, from the root
	test  bool
	file  *ast.File
	files *token.FileSet
	size  int // lines
}

func (s source) pkg() string { return path.Dir(s.path) }

// lines returns how many lines a declaration has.
func (s source) lines(n ast.Node) int {
	return s.files.Position(n.End()).Line - s.files.Position(n.Pos()).Line + 1
}

func sources(t *testing.T) []source {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parsed = sync.OnceValues(func() (all []source, err error) { //nolint:gochecknoglobals // all tests read the same files
	err = filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			// A folder with its own go.mod is another module, such as the SDK tests, which pull in clients.
			_, nested := os.Stat(filepath.Join(p, "go.mod"))
			if p != "." && (nested == nil || strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" || d.Name() == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(p) != ".go" {
			return nil
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, p, data, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(p), strings.HasSuffix(p, "_test.go"), file, files, strings.Count(string(data), "\n")})
		return nil
	})
	return all, err
})

func imports(s source) []string {
	var paths []string
	for _, i := range s.file.Imports {
		p, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			panic(err)
		}
		paths = append(paths, p)
	}
	return paths
}

// room returns the row of arrows that a package is in. All kinds of layers share one, and all stores.
func room(pkg string) string {
	switch folder, name := path.Split(pkg); {
	case folder == "memory/layers/":
		return "memory/layers/<kind>"
	case folder == "cache/" && !slices.Contains([]string{"encrypted", "spool", "stores", "storetest"}, name):
		return "cache/<store>"
	}
	return pkg
}

func TestImportsAreListed(t *testing.T) {
	allowed, used := map[string][]string{}, map[string]bool{}
	for _, a := range arrows {
		allowed[a.pkg] = a.imports
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		from := room(s.pkg())
		list, known := allowed[from]
		if !known {
			t.Errorf("%s: package %s has no row in arrows of layout_test.go", s.path, s.pkg())
			continue
		}
		for _, i := range imports(s) {
			to, ours := strings.CutPrefix(i+"/", module+"/")
			if to = room(path.Clean(to)); !ours {
				continue
			}
			used[from+" "+to] = true
			if !slices.Contains(list, to) {
				t.Errorf("%s imports %s; arrow %s -> %s is not in layout_test.go", s.path, i, from, to)
			}
		}
	}
	for from, list := range allowed {
		for _, to := range list {
			if !used[from+" "+to] {
				t.Errorf("arrow %s -> %s of layout_test.go: no such import", from, to)
			}
		}
	}
}

// TestLargestParts prints the ten largest files, functions and types, for `make layout` and reviews. Nothing fails here: a
// part may be long if it reads from top to bottom, and a type with many methods is a question, not an error.
func TestLargestParts(t *testing.T) {
	files, functions, methods := map[string]int{}, map[string]int{}, map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		files[s.path] = s.size
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}

			name := s.pkg() + "." + f.Name.Name
			if f.Recv != nil {
				receiver := s.pkg() + "." + receiverName(f.Recv.List[0].Type)
				methods[receiver]++
				name = receiver + "." + f.Name.Name
			}
			functions[name] = s.lines(f)
		}
	}

	for _, part := range []struct {
		name  string
		sizes map[string]int
	}{{"files, lines", files}, {"functions, lines", functions}, {"types, methods", methods}} {
		names := slices.SortedFunc(maps.Keys(part.sizes), func(a, b string) int {
			return cmp.Or(part.sizes[b]-part.sizes[a], strings.Compare(a, b))
		})
		t.Logf("largest %s:", part.name)
		for _, n := range names[:min(10, len(names))] {
			t.Logf("%6d %s", part.sizes[n], n)
		}
	}
}

// TestMethodsStandTogether: the methods of a type are in one file, or in two.
func TestMethodsStandTogether(t *testing.T) {
	files := map[string][]string{} // by type
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			name := s.pkg() + "." + receiverName(f.Recv.List[0].Type)
			if !slices.Contains(files[name], s.path) {
				files[name] = append(files[name], s.path)
			}
		}
	}
	for name, in := range files {
		if len(in) > 2 {
			t.Errorf("the methods of %s are in %d files: %s; put them together, or make two types of it", name, len(in), strings.Join(in, ", "))
		}
	}
}

// receiverName returns the name of a method's type, without the pointer and type parameters.
func receiverName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiverName(e.X)
	case *ast.IndexExpr:
		return receiverName(e.X)
	case *ast.IndexListExpr:
		return receiverName(e.X)
	case *ast.Ident:
		return e.Name
	}
	panic(fmt.Sprintf("BUG: receiver of type %T", e))
}

func TestPackageNames(t *testing.T) {
	documented := map[string]bool{}
	for _, s := range sources(t) {
		for _, name := range append(strings.Split(s.pkg(), "/"), s.file.Name.Name) {
			if slices.Contains(bannedNames, name) {
				t.Errorf("%s: %q says nothing about what is inside", s.path, name)
			}
		}
		if !s.test {
			documented[s.pkg()] = documented[s.pkg()] || s.file.Doc != nil
		}
	}
	for pkg, ok := range documented {
		if !ok {
			t.Errorf("%s has no package comment", pkg)
		}
	}
}

// TestDependenciesAreArgued: RATIONALE.md names each module that go.mod requires for our own code.
func TestDependenciesAreArgued(t *testing.T) {
	rationale := readFile(t, "RATIONALE.md")
	found := regexp.MustCompile(`(?m)^(?:require )?\t?(\S+\.\S+) v\S+$`).FindAllStringSubmatch(readFile(t, "go.mod"), -1)
	if len(found) == 0 {
		t.Error("go.mod requires nothing")
	}
	for _, m := range found {
		if !regexp.MustCompile(regexp.QuoteMeta(m[1]) + `(?:[^/\w-]|$)`).MatchString(rationale) {
			t.Errorf("RATIONALE.md does not say why we depend on %s", m[1])
		}
	}
}

// TestConfigKeysAreDocumented compares words: every mapstructure tag stands in config.yaml, with its default or
// commented out as `#key:`, and every key there is a tag. That the file decodes is tested in cmd/remora.
func TestConfigKeysAreDocumented(t *testing.T) {
	tags := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test {
			collectTags(s.file, tags)
		}
	}
	text := readFile(t, "config.yaml")
	keys := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		if regexp.MustCompile(`^\s*# |^\s*#$`).MatchString(line) {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:^\s*#?(?:- )?|[{,] ?)([a-z_]+):(?: |$)`).FindAllStringSubmatch(line, -1) {
			keys[m[1]] = true
		}
	}
	for tag := range tags {
		if !keys[tag] {
			t.Errorf("config.yaml does not have the key %q", tag)
		}
	}
	for key := range keys {
		if !tags[key] && key != "kind" { // of a layer: read before its options are
			t.Errorf("config.yaml has %q, which no option is called", key)
		}
	}
}

func collectTags(file *ast.File, tags map[string]bool) {
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.Field)
		if !ok || field.Tag == nil {
			return true
		}
		text, err := strconv.Unquote(field.Tag.Value)
		if err != nil {
			return true
		}
		name, _, _ := strings.Cut(reflect.StructTag(text).Get("mapstructure"), ",")
		if name != "" && name != "-" {
			tags[name] = true
		}
		return true
	})
}

// TestLinksResolve checks the links of all guides, and that the sections which they and comments name exist.
func TestLinksResolve(t *testing.T) {
	var docs []string
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*.md", "helm/*/*.md", "memory/layers/*/*.md", "test/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, found...)
	}
	if len(docs) < 20 {
		t.Fatalf("only %d guides: %v", len(docs), docs)
	}

	link := regexp.MustCompile(`\]\(([^)]*)\)`)
	for _, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(withoutCode(readFile(t, doc)), -1) {
			to, section, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") {
				if u, err := url.Parse(m[1]); err != nil || u.Scheme != "https" || !strings.Contains(u.Host, ".") || strings.ContainsAny(m[1], " <>\"") {
					t.Errorf("%s links to %s, which is no https URL (%v)", doc, m[1], err)
				}
				continue
			}
			target := doc
			if to != "" {
				target = filepath.Join(filepath.Dir(doc), to)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", doc, to, err)
			} else if section != "" && !slices.Contains(sections(t, target), section) {
				t.Errorf("%s links to %s, which has no section %s", doc, target, section)
			}
		}
	}

	cited := regexp.MustCompile(`\b([\w/-]+\.md)#([\w-]+)`)
	for _, s := range sources(t) {
		for _, m := range cited.FindAllStringSubmatch(prose(s), -1) {
			if !slices.Contains(sections(t, m[1]), m[2]) {
				t.Errorf("%s cites section %s of %s, which does not exist", s.path, m[2], m[1])
			}
		}
	}
}

// withoutCode is a guide without its fenced blocks.
func withoutCode(text string) string {
	return regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(text, "")
}

// sections are the names by which links reach the headings of a guide.
func sections(t *testing.T, doc string) []string {
	t.Helper()
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(withoutCode(readFile(t, doc)), -1) {
		name := regexp.MustCompile(`[^\w\s-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(strings.TrimSpace(name), " ", "-"))
	}
	return names
}

// TestNothingCitesNotes: a comment or the name of a test says what it means. Numbers of cases, decisions and issues, and
// names of notes that are not in the repository, say nothing to its reader.
func TestNothingCitesNotes(t *testing.T) {
	notes := regexp.MustCompile(`\bSEMANTICS\b|\bDESIGNS?\.md|\bHOUSE\b|\bSTYLE\b|\b(?:[Cc]ases?|[Dd]ecisions?|[Pp]romises?) D?\d+\b`)
	number := regexp.MustCompile(`\bD\d{1,2}\b|\b[Ii]ssues? #?\d+`) // strings may have such numbers as data
	for _, s := range sources(t) {
		if s.path == "layout_test.go" {
			continue
		}
		if m := cmp.Or(notes.FindString(prose(s)), notes.FindString(texts(s)), number.FindString(prose(s))); m != "" {
			t.Errorf("%s cites %q: say in words what matters, or cite a section of docs/semantics.md", s.path, m)
		}
	}
	for _, pattern := range []string{"*.md", "*.yaml", "docs/*.md", "memory/layers/*/*.md", "memory/layers/*/*.yaml"} {
		docs, err := filepath.Glob(pattern)
		if err != nil || len(docs) == 0 {
			t.Fatalf("no files %s: %v", pattern, err)
		}
		for _, doc := range docs {
			if m := notes.FindString(readFile(t, doc)); m != "" {
				t.Errorf("%s cites %q: say in words what matters", doc, m)
			}
		}
	}
}

// prose are the comments of a file.
func prose(s source) string {
	var b strings.Builder
	for _, group := range s.file.Comments {
		for _, c := range group.List {
			b.WriteString(c.Text)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// texts are the strings of a file.
func texts(s source) string {
	var b strings.Builder
	ast.Inspect(s.file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			b.WriteString(lit.Value)
			b.WriteByte('\n')
		}
		return true
	})
	return b.String()
}

// TestNamedTestsExist keeps the promises of ARCHITECTURE.md true: what it says is held by a test has that test.
func TestNamedTestsExist(t *testing.T) {
	have := map[string]bool{}
	for _, s := range sources(t) {
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				have[f.Name.Name] = true
			}
		}
	}
	for _, name := range regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark)[A-Z]\w+`).FindAllString(readFile(t, "ARCHITECTURE.md"), -1) {
		if !have[name] {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", name)
		}
	}
}

// TestFilesInTablesExist checks the paths in back quotes of the guides, which a newcomer opens first.
func TestFilesInTablesExist(t *testing.T) {
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, m := range regexp.MustCompile("`([a-z_/]+\\.(?:go|yaml|md|txtar)|[a-z_]+(?:/[a-z_]+)*/)`").FindAllStringSubmatch(readFile(t, doc), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s: %v", doc, m[1], err)
			}
		}
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
