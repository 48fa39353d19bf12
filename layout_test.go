package remora_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The layout of this repository, as ARCHITECTURE.md draws it. Only the standard library is used, so that these checks
// also guard machines without the linter. A new package gets its row in arrows, a new dependency its row in
// dependencies and a line in RATIONALE.md.

const (
	module      = "remora"
	maxLines    = 400 // of a source file, comments and blank lines included
	maxPackage  = 12  // source files of a package
	maxRational = 300 // lines of RATIONALE.md: it is read as a whole
)

// arrows says what each package may import of ours, tests left out. Every entry points to a smaller rank, so there can
// be no cycle, and what is not listed is not allowed.
var arrows = []struct {
	rank    int
	pkg     string
	imports []string
}{
	{0, ".", nil},
	{0, "cache", nil},
	{0, "providers/scripted/script", nil},
	{0, "providers/scripted/wsecho", nil},
	{0, "wire", nil},

	{1, "telemetry", []string{"wire"}},
	{1, "cache/redistest", []string{"freeport"}},
	{1, "cache/seal", []string{"cache"}},
	{1, "cache/storetest", []string{"cache"}},
	{0, "memory/layer/schema", nil},
	{1, "memory/budget", []string{"wire"}},
	{1, "memory/memo", []string{"wire"}},
	{1, "memory/pack", []string{"wire"}},
	{2, "memory/media", []string{"memory/pack", "wire"}},
	{1, "memory/reserve", []string{"cache"}},
	{1, "memory/tokens", []string{"wire"}},
	{1, "memory/view", []string{"wire"}},
	{1, "providers", []string{"wire"}},
	{1, "providers/scripted", []string{"providers/scripted/script", "providers/scripted/wsecho"}},

	{1, "wire/stitch", []string{"wire"}},

	{2, "memory/layer", []string{"memory/budget", "wire"}},
	{2, "memory/turnrecord", []string{"memory/view"}},
	{2, "providers/catalog", []string{"providers"}},
	{2, "providers/resilience", []string{"providers", "wire"}},
	{2, "providers/complete", []string{"providers", "wire"}},
	{2, "providers/providertest", []string{"providers", "providers/scripted", "wire"}},

	{3, "memory/anchor", nil},
	{3, "memory/layer/fileref", layerImports},
	{4, "memory/layer/history", []string{"memory/budget", "memory/layer", "memory/summary", "wire"}},
	{3, "memory/layer/layertest", layerImports},
	{3, "memory/layer/observe", layerImports},
	{3, "memory/layer/plan", layerImports},
	{3, "memory/layer/reminder", layerImports},
	{3, "memory/layer/static", layerImports},
	{3, "memory/layer/steering", layerImports},
	{3, "memory/layer/taskstate", layerImports},
	{3, "memory/layer/temporal", layerImports},
	{3, "memory/layer/toolmemory", layerImports},
	{3, "memory/layer/webhook", layerImports},
	{3, "memory/layer/working", []string{"memory/budget", "memory/layer", "memory/layer/schema", "wire"}},
	{3, "memory/summary", []string{"memory/layer", "wire"}},
	{3, "memory/transcript", []string{"cache", "memory/memo", "memory/media", "memory/pack", "memory/turnrecord", "memory/view", "wire"}},
	{3, "memory/pipeline", []string{"memory/budget", "memory/layer", "memory/layer/schema", "memory/tokens", "wire"}},

	{4, "memory", []string{"cache", "memory/anchor", "memory/budget", "memory/layer", "memory/pipeline", "memory/reserve", "memory/summary", "memory/transcript", "memory/turnrecord", "memory/view", "wire"}},

	{5, "admin", nil},
	{5, "proxy", []string{"memory", "memory/view", "providers", "proxy/keepalive", "proxy/limit", "proxy/listener", "providers/resilience", "telemetry", "wire", "wire/mark", "wire/stitch"}},
	{0, "freeport", nil},
	{0, "leaktest", nil},
	{0, "cmd/proxy/child", nil}, // runs the binary, knows only its command line
	{0, "proxy/keepalive", nil},
	{0, "proxy/listener", nil},
	{1, "proxy/limit", []string{"cache"}},
	{5, "demo", []string{"cmd/proxy/child", "memory", "providers/scripted"}},

	{6, "cmd/proxy", cmdImports},
	{6, "cmd/proxy/proxytest", []string{"freeport"}}, // runs the binary, knows only its command line
	{6, "bench", nil},
	{6, "replay", []string{"cmd/proxy/child", "memory/tokens", "providers/scripted", "wire"}},
	{1, "wire/mark", []string{"wire"}},
}

// layerImports is what every kind of layer may use.
var layerImports = []string{"memory/budget", "memory/layer", "wire"}

// cmdImports is what the program puts together.
var cmdImports = []string{
	".", "admin", "cache", "cache/seal", "demo", "memory", "memory/anchor", "memory/budget", "memory/layer", "memory/layer/fileref", "memory/layer/observe",
	"memory/layer/plan", "memory/layer/reminder", "memory/layer/static", "memory/layer/steering",
	"memory/layer/history", "memory/layer/taskstate", "memory/layer/temporal", "memory/layer/toolmemory", "memory/layer/webhook",
	"memory/layer/working", "memory/pipeline", "memory/tokens", "memory/view", "providers", "providers/catalog", "providers/complete", "providers/resilience", "providers/scripted", "proxy", "proxy/limit",
	"telemetry",
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
	"golang.org/x/sync",
	"golang.org/x/sys",
}

// testDependencies are imported by tests only.
var testDependencies = []string{
	"github.com/google/go-cmp",
	"github.com/openai/openai-go/v3",
	"github.com/pkoukk/tiktoken-go",
	"github.com/rogpeppe/go-internal",
	"go.opentelemetry.io/proto/otlp",
	"go.uber.org/goleak",
	"google.golang.org/protobuf",
	"pgregory.net/rapid",
}

var bannedNames = []string{"common", "helpers", "internal", "lib", "misc", "models", "pkg", "schemas", "types", "util", "utils"}

// source is one Go file of ours.
type source struct {
	path string // slashes, from the root
	test bool
	file *ast.File
	size int // lines
}

func (s source) pkg() string { return path.Dir(s.path) }

func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
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
		file, err := parser.ParseFile(token.NewFileSet(), p, data, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, source{filepath.ToSlash(p), strings.HasSuffix(p, "_test.go"), file, strings.Count(string(data), "\n")})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

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
		list, known := allowed[s.pkg()]
		if !known {
			t.Errorf("%s: package %s has no row in arrows of layout_test.go", s.path, s.pkg())
			continue
		}
		for _, i := range imports(s) {
			to, ours := strings.CutPrefix(i+"/", module+"/")
			if to = path.Clean(to); ours && !slices.Contains(list, to) {
				t.Errorf("%s imports %s; arrow %s -> %s is not in layout_test.go", s.path, i, s.pkg(), to)
			}
		}
	}
}

func TestFilesAndPackagesStaySmall(t *testing.T) {
	count := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		count[s.pkg()]++
		if s.size > maxLines {
			t.Errorf("%s has %d lines, at most %d are allowed: split it by what it does", s.path, s.size, maxLines)
		}
	}
	for pkg, n := range count {
		if n > maxPackage {
			t.Errorf("%s has %d source files, at most %d are allowed", pkg, n, maxPackage)
		}
	}
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
			} else if s.test || strings.HasSuffix(s.pkg(), "test") {
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
// commented out as `#key:`, and every key there is a tag. That the file decodes is tested in cmd/proxy.
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

func TestLinksResolve(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	docs, err := filepath.Glob("*.md")
	if err != nil || len(docs) < 4 {
		t.Fatal(docs, err)
	}
	for _, doc := range docs {
		for _, m := range link.FindAllStringSubmatch(readFile(t, doc), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(filepath.Join(filepath.Dir(doc), m[1])); err != nil {
				t.Errorf("%s links to %s: %v", doc, m[1], err)
			}
		}
	}
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

// TestFilesInTablesExist checks the paths in back quotes of the guides: they are what a newcomer opens first.
func TestFilesInTablesExist(t *testing.T) {
	for _, doc := range []string{"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"} {
		for _, m := range regexp.MustCompile("`([a-z_/]+\\.(?:go|yaml|md|txtar)|[a-z_]+(?:/[a-z_]+)*/)`").FindAllStringSubmatch(readFile(t, doc), -1) {
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("%s names %s: %v", doc, m[1], err)
			}
		}
	}
}

func TestRationaleStaysShort(t *testing.T) {
	if n := strings.Count(readFile(t, "RATIONALE.md"), "\n"); n > maxRational {
		t.Errorf("RATIONALE.md has %d lines, at most %d", n, maxRational)
	}
	if n := strings.Count(readFile(t, "CONTRIBUTING.md"), "\n"); n > 80 {
		t.Errorf("CONTRIBUTING.md has %d lines, at most 80", n)
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
