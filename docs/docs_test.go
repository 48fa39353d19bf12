// Package docs_test compares the pages with the code that they describe.
package docs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layers"
	"remora/memory/view"
	"remora/test/kit"
)

// layers.md has all options of history_window. The pages of the other kinds are compared in memory/layers.
func TestWindowOptions(t *testing.T) {
	_, section, _ := strings.Cut(readFile(t, "layers.md"), "\n## history_window\n")
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

// operations.md has a row for each metric, and for no other. On the page of Prometheus names have a unit and a kind at their end.
func TestMetrics(t *testing.T) {
	named := func(page, pattern string) (names []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
			name := strings.ReplaceAll(m[1], ".", "_")
			for _, end := range []string{"_total", "_bytes", "_seconds"} {
				name = strings.TrimSuffix(name, end)
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	made := named(readFile(t, "../telemetry/instruments.go"), `m\.\w+\("([a-z_.]+)"`)
	if diff := cmp.Diff(made, named(readFile(t, "operations.md"), "`((?:remora|gen_ai_client)_[a-z_]+)`")); diff != "" || len(made) < 10 {
		t.Errorf("metrics (-code +page):\n%s", diff)
	}
}

// The proxy accepts each piece of YAML of the pages. Those of the layers' own pages are tried in memory/layers, the chart's values
// in helm.
func TestExamples(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	certificate := selfSigned(t)
	tried := 0
	for _, name := range pages {
		for _, m := range regexp.MustCompile("(?s)```yaml\n(.*?)\n```").FindAllStringSubmatch(readFile(t, name), -1) {
			text := strings.NewReplacer("/etc/remora/redis-ca.pem", certificate, "/etc/remora/redis-client.pem", certificate,
				"/etc/remora/redis-client.key", certificate).Replace(m[1])
			if strings.HasPrefix(text, "- ") { // one entry of the list
				text = "memory:\n  layers:\n    " + strings.ReplaceAll(text, "\n", "\n    ")
			}
			tried++
			t.Run(name, func(t *testing.T) {
				kit.CheckConfig(t, text+"\n", "LAYER_SECRET=k3y", "REDIS_PASSWORD=hush")
			})
		}
	}
	if tried < 4 {
		t.Errorf("only %d pieces of YAML", tried)
	}
}

// selfSigned writes a certificate and its key into one file.
func selfSigned(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "redis.pem")
	text := append(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})...)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// snippets names the test that runs each fenced block of the guides, or why it cannot run.
var snippets = []struct{ page, language, by string }{ //nolint:gochecknoglobals // a table
	{"../README.md", "sh", "TestReadmeCommands"},
	{"../ARCHITECTURE.md", "", "a drawing"},
	{"../CONTRIBUTING.md", "sh", "TestCommandsOfPages"}, // running the suite is CI's
	{"custom-layer.md", "yaml", "TestExamples"},
	{"custom-layer.md", "json", "TestDocumentedMessages"},
	{"faq.md", "sh", "TestReadmeCommands"},
	{"layers.md", "yaml", "TestExamples"},
	{"operations.md", "yaml", "TestExamples"},
	{"operations.md", "sh", "TestReadmeCommands"},
	{"redis.md", "yaml", "TestExamples"},
	{"redis.md", "", "TestDocumentedAccount"},
	{"sessions.md", "", "TestSessionsPage"},
	{"sessions.md", "sh", "TestSessionsPage"},
	{"troubleshooting.md", "sh", "TestReadmeCommands"},
	{"troubleshooting.md", "", "TestReadmeCommands"}, // what the command before it prints
	{"../examples/README.md", "", "TestExamples"},    // what each example prints
	{"../helm/remora/README.md", "sh", "needs Docker and a cluster; make install-test installs the chart"},
	{"../helm/remora/README.md", "yaml", "TestProxyUnderstandsWhatIsRendered"},
	{"../test/recall/README.md", "", "TestCommandsOfPages"}, // minutes each
	{"../test/replay/README.md", "", "TestCommandsOfPages"}, // minutes each
}

// TestSnippetsAreRun: a block of a kind that the table does not have needs a row, and so a test or a reason.
func TestSnippetsAreRun(t *testing.T) {
	var pages []string
	for _, pattern := range []string{"../*.md", "*.md", "../examples/*.md", "../helm/*/*.md", "../test/*/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no pages %s: %v", pattern, err)
		}
		pages = append(pages, found...)
	}
	have := map[[2]string]bool{}
	for _, page := range pages {
		inside := false
		for line := range strings.SplitSeq(readFile(t, page), "\n") {
			language, fence := strings.CutPrefix(line, "```")
			if fence && !inside {
				have[[2]string{page, language}] = true
			}
			inside = inside != fence
		}
	}

	tests := map[string]bool{}
	for _, file := range []string{"docs_test.go", "../cmd/remora/readme_test.go", "../cmd/remora/store_test.go", "../memory/layers/http/docs_test.go", "../helm/config_test.go", "../examples/examples_test.go"} {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)`).FindAllStringSubmatch(readFile(t, file), -1) {
			tests[m[1]] = true
		}
	}
	for _, s := range snippets {
		if strings.HasPrefix(s.by, "Test") && !tests[s.by] {
			t.Errorf("%s: no test %s", s.page, s.by)
		}
		if kind := [2]string{s.page, s.language}; !have[kind] {
			t.Errorf("%s has no block of the language %q", s.page, s.language)
		} else {
			delete(have, kind)
		}
	}
	for kind := range have {
		t.Errorf("%s has a block of the language %q: run it in a test, and name that in snippets", kind[0], kind[1])
	}
}

// TestErrorTexts: troubleshooting.md has every error that the proxy makes, by its code and its text, and every reason for bypass.
func TestErrorTexts(t *testing.T) {
	page := readFile(t, "troubleshooting.md")
	files, err := filepath.Glob("../proxy/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../proxy/limit/refusal.go")
	found := 0
	want := func(where token.Position, text string) {
		found++
		for _, part := range regexp.MustCompile(`%[a-z]`).Split(text, -1) { // what stands there varies
			if !strings.Contains(page, strings.TrimSpace(part)) {
				t.Errorf("%s: troubleshooting.md lacks %q", where, part)
			}
		}
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Message" {
					for _, text := range firstText(n.Value) {
						want(set.Position(n.Pos()), text)
					}
				}
			case *ast.AssignStmt:
				if field, ok := n.Lhs[0].(*ast.SelectorExpr); ok && field.Sel.Name == "Message" && n.Tok == token.ASSIGN {
					for _, text := range firstText(n.Rhs[0]) {
						want(set.Position(n.Pos()), text)
					}
				}
			case *ast.ValueSpec:
				if strings.HasPrefix(n.Names[0].Name, "code") && len(n.Values) == 1 {
					for _, text := range firstText(n.Values[0]) {
						want(set.Position(n.Pos()), "`"+text+"`")
					}
				}
			case *ast.CallExpr:
				called := ""
				switch f := n.Fun.(type) {
				case *ast.SelectorExpr:
					called = f.Sel.Name
				case *ast.Ident:
					called = f.Name
				}
				if called == "bypass" || called == "badRequest" || called == "cannotRead" {
					for _, text := range firstText(n.Args[0]) {
						want(set.Position(n.Pos()), text)
					}
				}
			}
			return true
		})
	}
	if found < 40 {
		t.Errorf("only %d errors found in ../proxy", found)
	}
}

// TestLogLines: the lines of the log that troubleshooting.md quotes are in the code.
func TestLogLines(t *testing.T) {
	var code strings.Builder
	for _, folder := range []string{"../cmd/remora", "../memory", "../memory/pipeline", "../memory/turnqueue", "../proxy"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if !strings.HasSuffix(name, "_test.go") {
				code.WriteString(readFile(t, name))
			}
		}
	}
	_, section, _ := strings.Cut(readFile(t, "troubleshooting.md"), "\n## Lines of the log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	lines := 0
	for row := range strings.Lines(section) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if lines++; !strings.Contains(code.String(), `"`+m[1]+`"`) {
				t.Errorf("no code logs %q", m[1])
			}
		}
	}
	if lines < 5 {
		t.Errorf("only %d lines found", lines)
	}
}

// firstText is the first text in an expression, none where it has none or an empty one.
func firstText(e ast.Expr) (texts []string) {
	ast.Inspect(e, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && len(texts) == 0 {
			if text, err := strconv.Unquote(lit.Value); err == nil && text != "" {
				texts = append(texts, text)
			}
		}
		return len(texts) == 0
	})
	return texts
}

// TestUpstreamTexts: upstream errors quoted in troubleshooting.md are in test/scripted, which has them from real
// servers.
func TestUpstreamTexts(t *testing.T) {
	files, err := filepath.Glob("../test/scripted/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, name := range files {
		// Texts that are broken over lines are put together; what varies in them stands between them.
		said.WriteString(regexp.MustCompile(`"\s*\+\s*"`).ReplaceAllString(readFile(t, name), ""))
	}
	_, section, _ := strings.Cut(readFile(t, "troubleshooting.md"), "\n## Errors of upstream\n")
	section, _, _ = strings.Cut(section, "\n## ")
	tried := 0
	for line := range strings.SplitSeq(section, "\n") {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cell, -1) {
			if !strings.HasPrefix(line, "| `") || strings.HasPrefix(m[1], "404") {
				continue // of a server that knows no such path
			}
			for part := range strings.SplitSeq(m[1], "…") {
				part = strings.Trim(part, "' .")
				if tried++; part != "" && !strings.Contains(said.String(), part) {
					t.Errorf("no scripted upstream says %q", part)
				}
			}
		}
	}
	if tried < 15 {
		t.Errorf("only %d texts", tried)
	}
}

// TestReadmeNumbers: the measured numbers in the README equal those on the linked pages.
func TestReadmeNumbers(t *testing.T) {
	readme := readFile(t, "../README.md")
	number := func(text, pattern string) float64 {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("nothing is like %s", pattern)
		}
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	same := func(what string, said, measured, tolerance float64) {
		t.Helper()
		if math.Abs(said-measured) > tolerance {
			t.Errorf("%s: README says %v, the page %v", what, said, measured)
		}
	}

	same("recall", number(readme, `\| recall \| (\d+) %`), 100*number(readFile(t, "../memory/layers/semanticrecall/README.md"), `([\d.]+) within 1,000 tokens`), 0.5)
	same("cost", number(readme, `costs ([\d.]+) of sending all`), number(readFile(t, "cost.md"), `as shipped[^|]*\|[^|]*\|[^|]*\| ([\d.]+) `), 0)
	const added = `added over direct, ms \| - (?:\| [^|]*){2}\| `
	performance := readFile(t, "performance.md")
	same("overhead", number(readme, `([\d.]+) ms without a session`), number(performance, added+`([\d.]+)`), 0.05)
	same("overhead of a session", number(readme, `([\d.]+) ms with one on Redis`), number(performance, added+`[^|]*(?:\| [^|]*){2}\| ([\d.]+)`), 0.05)
	sameSpeed(t, readme, performance)

	turns := 0.0
	for _, row := range regexp.MustCompile(`(?m)^\| [^|]+ \| \d+ \| 0 \| (\d+) \| 0 \|`).FindAllStringSubmatch(readFile(t, "reliability.md"), -1) {
		n, err := strconv.ParseFloat(row[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		turns += n
	}
	same("turns", number(readme, `\| 0 of ([\d,]+)`), turns, 1000)
}

// TestPerformanceRatios: performance.md says what follows from its table.
func TestPerformanceRatios(t *testing.T) {
	page := readFile(t, "performance.md")
	rates := cells(t, page, "requests/s, 32 connections")
	rate := func(column int) float64 {
		t.Helper()
		n, err := strconv.ParseFloat(rates[column], 64)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	const bare, withRedis, noSession, session = 2, 3, 4, 7

	for before, ratio := range map[string]float64{
		"It has ":                   rate(withRedis) / rate(bare),
		"and a session has ":        rate(session) / rate(withRedis),
		"without a session\n(":      rate(noSession) / rate(bare),
		"with a session on Redis (": rate(session) / rate(bare),
	} {
		_, said, _ := strings.Cut(page, before)
		if want := fmt.Sprintf("%.2f ", ratio); !strings.HasPrefix(said, want) {
			t.Errorf("after %q: %.8q, the table has %s", before, said, want)
		}
	}
}

// sameSpeed compares the table of speeds in the README with the columns and rows of the page that it takes them from. A cell of
// the page with two percentiles has the median first.
func sameSpeed(t *testing.T, readme, page string) {
	t.Helper()
	columns := map[int]int{1: 2, 2: 4, 3: 6, 4: 7} // of the README: of the page
	rows := 0
	for said, measured := range map[string]string{
		"requests/s, 32 connections":         "requests/s, 32 connections",
		"added at 1000/s, p50, ms":           "...added over direct, ms",
		"delay of a streamed chunk, p50, ms": "...delay of a chunk p50 / p99, ms",
		"memory idle / peak, MB":             "memory idle / peak, MB",
	} {
		short, long := cells(t, readme, said), cells(t, page, measured)
		for at, of := range columns {
			want := long[of]
			if strings.Contains(said, "p50") {
				want, _, _ = strings.Cut(want, " / ")
			}
			if short[at] != want {
				t.Errorf("README.md: %s, column %d: %s, docs/performance.md has %s", said, at, short[at], want)
			}
		}
		rows++
	}
	if head := cells(t, readme, "[two cores for everything](docs/performance.md); sessions with a window only"); rows != 4 || len(head) != len(columns)+1 {
		t.Errorf("README.md has %d rows of speeds in %d columns", rows, len(head)-1)
	}
}

// cells returns the cells of a table's row that begins with a text.
func cells(t *testing.T, page, first string) []string {
	t.Helper()
	_, row, ok := strings.Cut(page, "\n| "+first+" | ")
	if !ok {
		t.Fatalf("no row %s", first)
	}
	row, _, _ = strings.Cut(row, " |\n")
	return append([]string{first}, strings.Split(row, " | ")...)
}

// TestReadmeLayers: the README's table has each kind of layer once, and those that are on in bold.
func TestReadmeLayers(t *testing.T) {
	_, table, _ := strings.Cut(readFile(t, "../README.md"), "| layer | ")
	table, _, _ = strings.Cut(table, "\n\n")
	var have []string
	for _, row := range strings.Split(table, "\n")[2:] {
		names, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		have = append(have, strings.Split(names, ", ")...)
	}

	config := readFile(t, "../config.yaml")
	want := []string{"**`history_window`**"}
	for _, k := range layers.Kinds() {
		name := "`" + k.Name + "`"
		if strings.Contains(config, "\n    - kind: "+k.Name+"\n") {
			name = "**" + name + "**"
		}
		want = append(want, name)
	}
	slices.Sort(have)
	slices.Sort(want)
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("README.md (-want +have):\n%s", diff)
	}
}

// TestReadmeIsShort: a newcomer reads it in one go.
func TestReadmeIsShort(t *testing.T) {
	const most = 120
	if n := strings.Count(readFile(t, "../README.md"), "\n"); n > most {
		t.Errorf("README.md has %d lines, want %d at most", n, most)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
