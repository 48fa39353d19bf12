package main

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/secret"
)

// sample is a configuration with one key of each shape.
type sample struct {
	Server struct {
		Listen  string        `mapstructure:"listen"`
		MaxBody int64         `mapstructure:"max_body"`
		Wait    time.Duration `mapstructure:"read_timeout"`
		Debug   bool          `mapstructure:"debug"`
		Names   []string      `mapstructure:"names"`
		Nested  struct {
			Ratio float64 `mapstructure:"ratio"`
		} `mapstructure:"nested"`
	} `mapstructure:"server"`
	List []sampleEntry `mapstructure:"list"`
	Open []openEntry   `mapstructure:"open"`

	Clock func() time.Time // set by code, not by operators
}

type sampleEntry struct {
	Name string        `mapstructure:"name"`
	Key  secret.String `mapstructure:"api_key"`
	Max  int           `mapstructure:"max"`
	Wait time.Duration `mapstructure:"wait"`
}

const sampleDefaults = `
server:
  listen: ":80"
  max_body: 1MiB
  read_timeout: 2s
  debug: false
  names: [a, b]
  nested: {ratio: 0.5}
list:
  - {name: first, max: 1}
open: []
`

func noCheck(*problems) {}

// loadSample writes file, unless it is empty, and decodes it over sampleDefaults.
func loadSample(t *testing.T, file string, environ []string, flags ...setting) (sample, string) {
	t.Helper()
	s := sources{environ: environ, flags: flags}
	if file != "" {
		s.file = filepath.Join(t.TempDir(), "config.yaml")
		writeFile(t, s.file, file)
	}
	var got sample
	text := ""
	if _, p := s.into(&got, []byte(sampleDefaults), noCheck); len(p) > 0 {
		text = p.Error()
	}
	if file != "" {
		text = strings.ReplaceAll(text, s.file, "FILE")
	}
	return got, text
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDefaultsAlone(t *testing.T) {
	t.Parallel()
	got, problems := loadSample(t, "", nil)
	if problems != "" {
		t.Fatal(problems)
	}
	if got.Server.Listen != ":80" || got.Server.MaxBody != 1<<20 || got.Server.Wait != 2*time.Second ||
		got.Server.Nested.Ratio != 0.5 || len(got.List) != 1 || got.List[0].Name != "first" {
		t.Errorf("got %+v", got)
	}
}

func TestLaterSourcesWin(t *testing.T) {
	t.Parallel()
	file := "server: {listen: ':81', max_body: 2MiB, read_timeout: 0}\n"
	environ := []string{"REMORA_SERVER_MAX_BODY=3 MiB", "REMORA_SERVER_NAMES=x, y", "REMORA_SERVER_DEBUG=true", "HOME=/"}
	got, problems := loadSample(t, file, environ, setting{"server.listen", "--listen", ":83"})
	if problems != "" {
		t.Fatal(problems)
	}
	if s := got.Server; s.Listen != ":83" || s.MaxBody != 3<<20 || s.Wait != 0 || !s.Debug || s.Nested.Ratio != 0.5 {
		t.Errorf("got %+v", s)
	}
	if diff := cmp.Diff([]string{"x", "y"}, got.Server.Names); diff != "" {
		t.Error(diff)
	}
}

func TestKeysWithoutValueKeepDefaults(t *testing.T) {
	t.Parallel()
	got, problems := loadSample(t, "server:\n  listen:\n  max_body: 5\nlist:\n", []string{"REMORA_SERVER_NESTED_RATIO="})
	if problems != "" || got.Server.Listen != ":80" || got.Server.MaxBody != 5 || len(got.List) != 1 {
		t.Errorf("got %+v, %s", got, problems)
	}
}

func TestListsAreReplacedAndMayBeEmpty(t *testing.T) {
	t.Parallel()
	got, problems := loadSample(t, "list: []\nserver: {names: []}\nopen: [{kind: k, any: 1}]", nil)
	if problems != "" || len(got.List) != 0 || len(got.Server.Names) != 0 || len(got.Open) != 1 {
		t.Errorf("got %+v, %s", got, problems)
	}
}

func TestListFromEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{`REMORA_LIST=[{"name":"n","api_key":"k","max":7,"wait":0}]`}
	got, problems := loadSample(t, "", environ)
	if problems != "" || len(got.List) != 1 || got.List[0].Name != "n" || got.List[0].Key.Reveal() != "k" || got.List[0].Max != 7 {
		t.Errorf("got %+v, %s", got, problems)
	}
}

// TestReferencesInURLs: a password from a variable is percent-encoded in the URL, unless it could be encoded already.
func TestReferencesInURLs(t *testing.T) {
	f := func(text, value, want string) {
		t.Helper()
		got, problems := loadSample(t, "server: {listen: '"+text+"'}", []string{"P=" + value, "HOST=h/1"})
		if problems != "" || got.Server.Listen != want {
			t.Errorf("%s with %q: %q %s, want %q", text, value, got.Server.Listen, problems, want)
		}
	}
	const url = "redis://:${P}@${HOST}"
	f(url, "plain", "redis://:plain@h/1")
	f(url, "qL0/b+x=", "redis://:qL0%2Fb+x=@h/1")
	f(url, "a?b#c d", "redis://:a%3Fb%23c%20d@h/1")
	f(url, "100%", "redis://:100%25@h/1")
	f(url, "p@s:s", "redis://:p@s:s@h/1") // the last @ counts
	f(url, "a%2Fb", "redis://:a%2Fb@h/1")
	f(url, "a%2F/b", "redis://:a%252F%2Fb@h/1")
	f("rediss+sentinel://${P}@a,b/my", "u:p/w", "rediss+sentinel://u:p%2Fw@a,b/my")
	f("http://${P}/v1", "a/b", "http://a/b/v1")
	f("http://h/${P}@x", "a/b", "http://h/a/b@x")
	f("${P}", "redis://:a/b@h", "redis://:a/b@h")
	f("say ${P}@b", "a/b", "say a/b@b")

	// A variable of the proxy's own may have references, too.
	got, problems := loadSample(t, "", []string{"REMORA_SERVER_LISTEN=redis://:${P}@h", "P=a/b"})
	if problems != "" || got.Server.Listen != "redis://:a%2Fb@h" {
		t.Errorf("%q %s", got.Server.Listen, problems)
	}
	if _, problems := loadSample(t, "", []string{"REMORA_SERVER_LISTEN=${NOPE}"}); problems != "REMORA_SERVER_LISTEN: environment variable NOPE is not set" {
		t.Error(problems)
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "key")
	writeFile(t, secret, "\ufefffrom-file\r\n")
	file := "server: {listen: '${HOST}:${PORT}', names: ['${HOST}']}\nlist: [{api_key: '${KEY}'}, {api_key: 'file:" + secret + "'}]"
	got, problems := loadSample(t, file, []string{"HOST=h", "PORT=1", "KEY=a${HOST}b"})
	if problems != "" {
		t.Fatal(problems)
	}
	keys := []string{got.List[0].Key.Reveal(), got.List[1].Key.Reveal()}
	if diff := cmp.Diff([]string{"a${HOST}b", "from-file"}, keys); diff != "" {
		t.Error(diff)
	}
	if got.Server.Listen != "h:1" || got.Server.Names[0] != "h" {
		t.Errorf("got %+v", got.Server)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	f := func(name, file, want string, environ ...string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			t.Helper()
			t.Parallel()
			if _, got := loadSample(t, file, environ); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	f("unknown key", "server: {lisen: x}", "server.lisen: unknown key, did you mean listen? (line 1)")
	f("swapped letters", "server: {max_boyd: x}", "server.max_boyd: unknown key, did you mean max_body? (line 1)")
	f("unknown section", "sever: {listen: x}", "sever: unknown key, did you mean server? (line 1)")
	f("unknown keys without a value", "sever:\nserver: {lisen: {}}", "server.lisen: unknown key, did you mean listen? (line 2)\nsever: unknown key, did you mean server? (line 1)")
	f("in the wrong place", "max_body: 1KiB", "max_body: unknown key, did you mean server.max_body? (line 1)")
	f("nothing close", "frobnicate: 1", "frobnicate: unknown key (line 1)")
	f("unknown key in an entry", "list: [{name: a}, {nname: b}]", "list[1].nname: unknown key, did you mean name? (line 1)")
	f("field of the program", "clock: 1", "clock: unknown key (line 1)")
	f("all at once", "server: {lisen: x, max_body: huge, read_timeout: 5, debug: 3}\nlist: [{max: 1.5}]",
		"list[0].max: want a whole number, have 1.5 (line 2)\n"+
			"server.debug: want true or false, have a number (line 1)\n"+
			"server.lisen: unknown key, did you mean listen? (line 1)\n"+
			`server.max_body: want a whole number, or a size such as 64MiB, have "huge" (line 1)`+"\n"+
			"server.read_timeout: want a duration with its unit, such as 250ms or 10m, have 5 (line 1)")

	f("mapping wanted", "server: 5", "server: want a mapping, have a number: its keys are debug, listen, max_body, names, nested, read_timeout (line 1)")
	f("list wanted", "list: {name: x}", "list: want a list, have a mapping: each entry begins with a dash (line 1)")
	f("entry wanted", "list: [x, {name: y}]", "list[0]: want a mapping, have text: its keys are api_key, max, name, wait (line 1)")
	f("text wanted", "server: {listen: {a: 1}}", "server.listen: want text, have a mapping (line 1)")
	f("empty mapping", "server: {listen: {}}", "server.listen: want a value, have a mapping (line 1)")
	f("number as text", "server: {listen: 8080}", "server.listen: want text, have a number: put it in quotes (line 1)")
	f("list of text wanted", "server: {names: {a: b}}", "server.names: want a list, have a mapping: each entry begins with a dash (line 1)")
	f("list, not a fraction", "server: {names: 0.5}", "server.names: want a list, have a number (line 1)")
	f("list, not a date", "server: {names: 2026-01-01}", "server.names: want a list, have something else (line 1)")
	f("negative duration", "server: {read_timeout: -1s}", "server.read_timeout: want a duration of zero or more, have -1s (line 1)")
	f("too large", "server: {max_body: 9999999TiB}", `server.max_body: "9999999TiB" is too large (line 1)`)

	f("unset variable", "list: [{name: a}, {api_key: '${NOPE}'}]", "list[1].api_key: environment variable NOPE is not set (line 1)")
	f("broken reference", "server: {listen: '${A'}", "server.listen: want ${NAME}, the closing brace or the name is missing (line 1)", "A=1")
	f("missing secret file", "list: [{api_key: 'file:/no/such'}]", "list[0].api_key: read secret: stat /no/such: no such file or directory (line 1)")
	f("directory as secret", "list: [{api_key: 'file:/'}]", "list[0].api_key: read secret /: want a regular file of at most 65536 bytes (line 1)")

	f("lines", "# a comment\nserver:\n  debug: maybe\n  names: 5\nlist:\n  - name: a\n    max: x\n  - &b\n    wait: 5\n  - *b\n",
		`list[0].max: want a whole number, or a size such as 64MiB, have "x" (line 7)`+"\n"+
			"list[1].wait: want a duration with its unit, such as 250ms or 10m, have 5 (line 9)\n"+
			"list[2].wait: want a duration with its unit, such as 250ms or 10m, have 5 (line 10)\n"+
			`server.debug: want true or false, have "maybe" (line 3)`+"\n"+
			"server.names: want a list, have a number (line 4)")
	f("keys in the wrong case", "\nServer: {Listen: 5}", "Server: unknown key: keys are in lower case, want \"server\" (line 2)\n"+
		"Server.Listen: unknown key: keys are in lower case, want \"listen\" (line 2)\n"+
		"server.listen: want text, have a number: put it in quotes (line 2)")
	f("unset variable in the second line", "server:\n  listen: '${NOPE}'", "server.listen: environment variable NOPE is not set (line 2)")

	f("unknown variable", "", "REMORA_SERVER_LISTN: unknown environment variable, did you mean REMORA_SERVER_LISTEN?", "REMORA_SERVER_LISTN=x")
	f("wrong variable", "", `server.max_body: want a whole number, or a size such as 64MiB, have "x" (from REMORA_SERVER_MAX_BODY)`, "REMORA_SERVER_MAX_BODY=x")
	f("wrong list in a variable", "", "REMORA_LIST: want a JSON array of objects", `REMORA_LIST=[{"api_key":"hush"}`)
	f("wrong key in a variable", "", "REMORA_LIST[0].nam: unknown key, did you mean name?", `REMORA_LIST=[{"nam":"x"}]`)
	f("variable that a reference names", "server: {listen: '${REMORA_MINE}'}", "", "REMORA_MINE=x")
	f("service links of Kubernetes", "", "",
		"REMORA_SERVICE_HOST=10.0.0.1", "REMORA_SERVICE_PORT=80", "REMORA_SERVICE_PORT_HTTP=80", "REMORA_PORT=tcp://10.0.0.1:80",
		"REMORA_PORT_80_TCP=tcp://10.0.0.1:80", "REMORA_PORT_80_TCP_PROTO=tcp", "REMORA_REDIS_PORT_6379_TCP_ADDR=10.0.0.2")

	f("long duration", "server: {read_timeout: 99999999h}", `server.read_timeout: "99999999h" is too large (line 1)`)
	f("no mapping but a word", "hello", `FILE: want a mapping, such as "server: {listen: ADDRESS}", have text (line 1)`)
	f("not YAML", "server: [", "FILE: parse YAML: yaml: line 1: did not find expected node content")
	f("key twice", "server: {listen: a, listen: b}", "FILE: parse YAML: yaml: unmarshal errors:\n  line 1: mapping key \"listen\" already defined at line 1")
	f("two documents", "server: {debug: true}\n--- # more\nserver: {max_body: 1}", "FILE: parse YAML: want one document, have 2")
	f("one document", "%YAML 1.1\n# mine\n---\nserver: {debug: true}\n...\n---\n# end\n", "")
	f("no mapping", "- a", `FILE: want a mapping, such as "server: {listen: ADDRESS}", have a list (line 1)`)
}

func TestMissingFile(t *testing.T) {
	t.Parallel()
	s := sources{file: "no-such.yaml"}
	_, found := s.into(&sample{}, []byte(sampleDefaults), noCheck)
	if got, want := found.Error(), "no-such.yaml: read configuration: no such file or directory"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestSecretsStayOutOfProblems(t *testing.T) {
	t.Parallel()
	const secret = "sk-hush"
	for _, file := range []string{
		"list: [{api_key: {a: '${K}'}}]",
		"list: [{api_key: ['${K}']}]",
		"list: [{name: [x], api_key: '${K}'}]",
		"list: {api_key: '${K}'}",
	} {
		if _, got := loadSample(t, file, []string{"K=" + secret}); got == "" || strings.Contains(got, secret) {
			t.Errorf("%s: got %q", file, got)
		}
	}
}

func TestEnvironmentNamesAreUnambiguous(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for path := range schemaOf(reflect.TypeFor[Config]()).leaves() {
		if other, dup := seen[envName(path)]; dup {
			t.Errorf("%s and %s are both %s", path, other, envName(path))
		}
		seen[envName(path)] = path
	}
}

// FuzzConfigFile: no file makes the loader panic.
func FuzzConfigFile(f *testing.F) {
	f.Add("server: {listen: ':1'}")
	f.Add("server::listen: 5\n? [a]\n: b\n")
	f.Add("memory: {layers: [{kind: history_window, max_items: .nan}, 1, null]}")
	f.Add("providers: [{kind: openai, headers: [{name: a}, x], models: [1, {a: b}]}]\nserver: &a {upstream: *a}")
	f.Add("log: {level: ${LEVEL}}\nstore: {spool: [], url: [file:x]}\nsession: {headers: {1: 2}}")
	path := filepath.Join(f.TempDir(), "config.yaml")
	f.Fuzz(func(t *testing.T, file string) {
		writeFile(t, path, file)
		c, err := sources{file: path}.load()
		if err == nil && (len(c.Providers) == 0 || c.Server.MaxBody < 1 || c.Store.CommitWait <= 0) {
			t.Errorf("accepted %+v", c)
		}
	})
}
