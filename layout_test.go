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
// also guard machines without the linter. A new package gets its row in arrows, a new dependency its row in
// dependencies and a line in RATIONALE.md.

const module = "remora"

// arrows lists the imports of our packages that each package may have, tests left out. Every entry points to a smaller
// rank, so there can be no cycle, and an import that is not listed is not allowed.
var arrows = []struct {
	rank    int
	pkg     string
	imports []string
}{
	{0, ".", nil},
	{0, "cache", nil},
	{0, "secret", nil},
	{0, "test/scripted/script", nil},
	{-4, "wire/sse", nil},
	{-3, "wire", []string{"wire/sse"}},
	{-2, "wire/merge", []string{"wire", "wire/sse"}},
	{-1, "wire/chat", []string{"wire", "wire/merge", "wire/sse"}},
	{-1, "wire/responses", []string{"wire", "wire/merge", "wire/sse"}},
	{0, "wire/dialects", []string{"wire", "wire/chat", "wire/responses"}},

	{1, "telemetry", []string{"secret", "wire"}},
	{1, "cache/<store>", []string{"cache"}},
	{1, "cache/spool", []string{"cache"}},
	{2, "cache/encrypted", []string{"cache", "cache/spool", "secret"}},
	{2, "cache/stores", []string{"cache", "cache/<store>"}},
	{1, "cache/storetest", []string{"cache"}},
	{0, "memory/layer/schema", nil},
	{0, "memory/lru", nil},
	{1, "memory/recordcodec", []string{"wire"}},
	{0, "memory/redact", nil},
	{0, "memory/helperprompt", nil},
	{0, "memory/index", nil},
	{0, "memory/wordvectors", nil},
	{2, "memory/media", []string{"memory/recordcodec", "wire"}},
	{2, "memory/turnqueue", []string{"cache", "cache/spool"}},
	{1, "memory/tokens", []string{"wire"}},
	{1, "providers", []string{"secret", "wire"}},
	{1, "test/scripted", []string{"memory/lru", "test/scripted/script"}},

	{1, "memory/layer", []string{"memory/lru", "memory/redact", "wire"}},
	{2, "memory/ownwords", []string{"memory/layer"}},
	{2, "memory/view", []string{"memory/layer", "wire"}},
	{3, "memory/turnrecord", []string{"memory/view"}},
	{2, "providers/models", []string{"providers"}},
	{2, "providers/retry", []string{"providers", "wire"}},
	{2, "providers/complete", []string{"providers", "secret", "wire"}},

	{3, "memory/layer/layertest", []string{"memory/layer", "wire", "wire/dialects"}},
	{4, "memory/layers/<kind>", []string{"memory/index", "memory/layer", "memory/layer/schema", "memory/ownwords", "memory/redact", "memory/summary", "memory/view", "secret", "wire"}},
	{5, "memory/layers", []string{"memory/layer", "memory/layers/<kind>"}},
	{3, "memory/summary", []string{"memory/layer", "memory/redact", "wire"}},
	{4, "memory/session", []string{"cache", "memory/helperprompt", "memory/lru", "memory/media", "memory/recordcodec", "memory/turnrecord", "memory/view", "wire", "wire/dialects"}},
	{3, "memory/pipeline", []string{"memory/layer", "memory/layer/schema", "memory/lru", "memory/tokens", "memory/view", "secret", "wire", "wire/dialects"}},

	{5, "memory/replicas", []string{"cache", "memory/session", "memory/turnqueue", "memory/turnrecord"}},
	{5, "memory/past", []string{"cache", "memory/index", "memory/layer", "memory/lru", "memory/pipeline", "memory/session", "wire"}},
	{6, "memory", []string{"cache", "memory/layer", "memory/lru", "memory/past", "memory/pipeline", "memory/replicas", "memory/turnqueue", "memory/summary", "memory/session", "memory/turnrecord", "memory/view", "wire", "wire/dialects"}},

	{5, "admin", nil},
	{7, "proxy", []string{"memory", "memory/view", "providers", "proxy/limit", "proxy/listener", "providers/retry", "secret", "telemetry", "wire", "wire/dialects", "wire/breakpoint", "wire/merge"}},
	{0, "proxy/listener", nil},
	{1, "proxy/limit", []string{"cache"}},
	{7, "cmd/remora/demo", []string{"test/process", "memory", "test/scripted", "wire", "wire/dialects"}},

	{8, "cmd/remora", cmdImports},
	{6, "test/bench", []string{"test/process"}},
	{7, "test/replay", []string{"test/process", "memory", "memory/tokens", "test/scripted", "wire", "wire/dialects", "wire/wiretest"}},
	{1, "test/recallfit", []string{"memory/index", "test/process", "test/recall/corpus"}},
	{0, "test/recall/corpus", nil},
	{6, "test/recall", []string{"test/process", "test/recall/corpus", "test/scripted", "test/scripted/script"}},
	{1, "wire/breakpoint", []string{"wire"}},
	{1, "wire/wiretest", []string{"wire"}},
	{0, "test/process", nil}, // runs the binary, knows only its command line
	{1, "test/kit", []string{"test/process"}},
	{0, "test/golden", nil}, // plays files through a proxy that its tests start
}

// cmdImports are the packages that the program wires together.
var cmdImports = []string{
	".", "admin", "cache", "cache/<store>", "cache/encrypted", "cache/spool", "cache/stores", "cmd/remora/demo", "memory", "memory/layer", "memory/layers",
	"memory/layers/<kind>", "memory/pipeline", "memory/tokens", "memory/view", "memory/wordvectors", "providers", "providers/models", "providers/complete", "providers/retry", "test/scripted", "proxy", "proxy/limit",
	"secret", "telemetry", "wire", "wire/dialects",
}

// dependencies are the modules that our own code imports. Each is named in RATIONALE.md.
var dependencies = []string{
	"github.com/go-json-experiment/json",
	"github.com/go-viper/mapstructure/v2",
	"github.com/google/cel-go",
	"github.com/klauspost/compress",
	"github.com/pkoukk/tiktoken-go-loader",
	"github.com/prometheus/client_golang",
	"github.com/prometheus/otlptranslator",
	"github.com/redis/go-redis/v9",
	"github.com/spf13/cobra",
	"github.com/spf13/viper",
	"github.com/valyala/fasthttp",
	"go.etcd.io/bbolt",
	"go.opentelemetry.io/otel",
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp",
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp",
	"go.opentelemetry.io/otel/exporters/prometheus",
	"go.opentelemetry.io/otel/metric",
	"go.opentelemetry.io/otel/sdk",
	"go.opentelemetry.io/otel/sdk/metric",
	"go.opentelemetry.io/otel/trace",
	"go.yaml.in/yaml/v3",
	"golang.org/x/net",
	"golang.org/x/sync",
	"golang.org/x/sys",
	"golang.org/x/text",
}

// testDependencies are imported by tests only.
var testDependencies = []string{
	"github.com/google/go-cmp",
	"github.com/openai/openai-go/v3",
	"github.com/pelletier/go-toml/v2",
	"github.com/pkoukk/tiktoken-go",
	"github.com/rogpeppe/go-internal",
	"go.opentelemetry.io/proto/otlp",
	"go.uber.org/goleak",
	"google.golang.org/protobuf",
	"pgregory.net/rapid",
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

func TestArrowsPointDown(t *testing.T) {
	rank, allowed := map[string]int{}, map[string][]string{}
	for _, a := range arrows {
		rank[a.pkg], allowed[a.pkg] = a.rank, a.imports
	}
	for pkg, list := range allowed {
		for _, to := range list {
			if r, known := rank[to]; !known || r >= rank[pkg] {
				t.Errorf("arrows: %s (rank %d) may not import %s (rank %d)", pkg, rank[pkg], to, r)
			}
		}
	}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		list, known := allowed[room(s.pkg())]
		if !known {
			t.Errorf("%s: package %s has no row in arrows of layout_test.go", s.path, s.pkg())
			continue
		}
		for _, i := range imports(s) {
			to, ours := strings.CutPrefix(i+"/", module+"/")
			if to = path.Clean(to); ours && !slices.Contains(list, room(to)) {
				t.Errorf("%s imports %s; arrow %s -> %s is not in layout_test.go", s.path, i, s.pkg(), to)
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

func TestDependenciesAreListedAndArgued(t *testing.T) {
	used, usedByTests := map[string]bool{}, map[string]bool{}
	required := requires(t)
	for _, s := range sources(t) {
		for _, i := range imports(s) {
			if !strings.Contains(strings.Split(i, "/")[0], ".") {
				continue // standard library, or ours
			}
			m := longestPrefix(required, i)
			if m == "" {
				t.Errorf("%s imports %s, which go.mod does not require", s.path, i)
			} else if s.test || strings.HasSuffix(s.pkg(), "test") || strings.HasPrefix(s.pkg(), "test/") {
				usedByTests[m] = true
			} else {
				used[m] = true
			}
		}
	}
	maps.DeleteFunc(usedByTests, func(m string, _ bool) bool { return used[m] })
	rationale := readFile(t, "RATIONALE.md")
	for _, check := range []struct {
		name string
		used map[string]bool
		list []string
	}{{"dependencies", used, dependencies}, {"testDependencies", usedByTests, testDependencies}} {
		if got := slices.Sorted(maps.Keys(check.used)); !slices.Equal(got, check.list) {
			t.Errorf("%s:\nused   %q\nlisted %q", check.name, got, check.list)
		}
		for _, m := range check.list {
			if !strings.Contains(rationale, m) {
				t.Errorf("RATIONALE.md does not say why we depend on %s", m)
			}
		}
	}
}

// requires returns the modules that go.mod names.
func requires(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require )?\t?(\S+\.\S+) v\S+`).FindAllStringSubmatch(readFile(t, "go.mod"), -1) {
		all = append(all, m[1])
	}
	return all
}

func longestPrefix(modules []string, importPath string) string {
	best := ""
	for _, m := range modules {
		if strings.HasPrefix(importPath+"/", m+"/") && len(m) > len(best) {
			best = m
		}
	}
	return best
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
