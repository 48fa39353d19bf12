package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"remora/cache/bolt"
	"remora/cache/stores"
	"remora/memory"
	"remora/providers"
	"remora/proxy"
	"remora/wire"
)

// archiveCall is one operation of `remora transcript`, `remora forget` or `remora store backup`. A running proxy that has the store's file
// open does it for the command: as JSON it is the request (see localsocket.go).
type archiveCall struct {
	Do       string `json:"do"` // one of the do constants
	Tenant   string `json:"tenant"`
	Session  string `json:"session,omitempty"`
	Resource string `json:"resource,omitempty"`
	Turn     string `json:"turn,omitempty"`
}

const (
	doExport = "export"
	doText   = "text"
	doTurn   = "turn"
	doRecord = "record"
	doList   = "list"
	doImport = "import"
	doDelete = "delete"
	doForget = "forget"
	doBackup = "backup"
)

// archive is a call with its input and output, and the open store that it runs on.
type archive struct {
	memory *memory.Memory // nil in a command, until that has opened the store itself
	file   *bolt.Store    // for a backup by a running proxy
	archiveCall
	in  io.Reader
	out io.Writer
}

// run runs the call.
func (a archive) run(ctx context.Context) error {
	scope := memory.Scope{Tenant: a.Tenant, Session: a.Session}
	switch a.Do {
	case doExport:
		return a.memory.Export(ctx, scope, a.out)
	case doText:
		return printText(ctx, a, scope)
	case doTurn:
		return printView(ctx, a, scope, a.Turn)
	case doRecord:
		return printRecord(ctx, a, scope, a.Turn)
	case doList:
		return listSessions(ctx, a)
	case doImport:
		return a.runImport(ctx)
	case doDelete:
		return a.memory.Delete(ctx, scope)
	case doBackup:
		return a.file.CopyTo(a.out)
	case doForget:
		n, err := a.memory.Forget(ctx, a.Tenant, a.Resource)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "forgot %d sessions of %s\n", n, printable(a.Resource))
		return err
	}
	return fmt.Errorf("unknown operation %q", a.Do)
}

// archiveFlags are the flags of the commands that call an archive. At most one of keys with keyEnvs and tenant is set; none selects
// callers without a credential.
type archiveFlags struct {
	config        string // path of the configuration file; empty for the defaults
	keys, keyEnvs []string
	tenant        string
	importFile    string // - is stdin
	single        bool   // all callers share one tenant (session.tenancy), as the configuration says once it is loaded
}

// common adds the flags for the configuration and the owner of something.
func (f *archiveFlags) common(cmd *cobra.Command, what string) {
	all := cmd.PersistentFlags()
	all.StringVar(&f.config, "config", "", "read `FILE` over the built-in defaults")
	all.StringArrayVar(&f.keyEnvs, "key-env", nil,
		what+" of the credential in the environment variable `NAME`; once for each key, if requests have several")
	all.StringArrayVar(&f.keys, "key", nil,
		what+" of `CREDENTIAL`; once for each key, if requests have several; - reads it from stdin, which no shell history keeps")
	all.StringVar(&f.tenant, "tenant", "", what+" of the tenant `HEX`, as it is stored")
	cmd.MarkFlagsMutuallyExclusive("key", "key-env", "tenant")
}

// open runs a call: in the proxy that has the bolt file open, else on the store, which it opens.
func (f *archiveFlags) open(cmd *cobra.Command, p console, call archiveCall) (err error) {
	c, err := sources{file: f.config, environ: p.environ}.load()
	if err != nil {
		return err
	}
	f.single = c.Session.Tenancy == proxy.TenancySingle
	stdin := bufio.NewReader(cmd.InOrStdin()) // one reader: an import may follow the key
	a := archive{archiveCall: call, in: stdin, out: p.stdout}
	if isTerminal(p.stdout) {
		a.out = &screen{w: p.stdout}
	}
	if a.Tenant, err = f.owner(c, p, stdin); err != nil {
		return err
	}
	if f.importFile != "" && f.importFile != "-" {
		file, err := os.Open(f.importFile)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer func() { _ = file.Close() }()
		a.in = file
	}

	if path := stores.File(c.Store.URL.Reveal()); path != "" {
		if err := askArchive(cmd.Context(), path, a); !errors.Is(err, errNoProxy) {
			return err
		}
	}
	return a.onStore(cmd.Context(), p, c)
}

// owner returns the tenant, as the proxy derives it from a request with those credentials.
func (f *archiveFlags) owner(c Config, p console, in *bufio.Reader) (string, error) {
	if f.tenant != "" {
		return f.tenant, nil
	}
	var credentials [][]byte
	for _, name := range f.keyEnvs {
		value, ok := lookupIn(p.environ)(name)
		if !ok {
			return "", fmt.Errorf("read --key-env: the environment variable %s is not set", name)
		}
		credentials = append(credentials, []byte(value))
	}
	for _, key := range f.keys {
		if key == "-" {
			line, err := in.ReadString('\n')
			if key = strings.TrimSpace(line); key == "" {
				return "", fmt.Errorf("read --key from stdin: %w", err)
			}
		}
		credentials = append(credentials, []byte(key))
	}
	return tenantOf(&c.Session, credentials)
}

// tenantOf returns the tenant of credentials, as the proxy derives it from a request with all of them. An empty one is an error: it
// would select callers without a credential.
func tenantOf(o *proxy.SessionOptions, credentials [][]byte) (string, error) {
	for _, c := range credentials {
		selectsNone := o.Tenancy != proxy.TenancySingle && o.Tenant(c) == o.Tenant() // such as Bearer alone
		if len(bytes.TrimSpace(c)) == 0 || selectsNone {
			return "", errors.New("want a key, have an empty one")
		}
	}
	return o.Tenant(credentials...), nil
}

// otherKeys returns a hint for a command without a credential, "" if it has one.
func (f *archiveFlags) otherKeys() string {
	if f.keys == nil && f.keyEnvs == nil && f.tenant == "" && !f.single {
		return "sessions belong to the API key that created them: add --key-env NAME, or --key - to type it"
	}
	return ""
}

// onStore opens the store of the configuration, and runs the call on it.
func (a archive) onStore(ctx context.Context, p console, c Config) (err error) {
	if err := wantStore(c.Store.URL.Reveal(), a.Do == doImport); err != nil {
		return err
	}

	log := slog.New(slog.NewJSONHandler(p.stderr, nil))
	spool := c.Store.Spool.Dir
	if a.Do != doForget { // which deletes the turns in the spool, too
		c.Store.Spool.Dir = "" // left to the proxy
	}

	path := stores.File(c.Store.URL.Reveal())
	_, missing := os.Stat(path)
	creates := a.Do == doImport && path != "" && errors.Is(missing, fs.ErrNotExist)
	store, err := openStorage(c.Store, log) //nolint:contextcheck // as in live.open
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.close()) }()
	defer func() {
		if err != nil && creates && !a.hasSessions(ctx) {
			err = errors.Join(err, os.Remove(path)) // while its lock is held: no proxy has opened it
		}
	}()

	upstreams, err := providers.NewSet(c.upstreams())
	if err != nil {
		return err
	}
	models, err := openModels(&c, upstreams, log, nil, nil)
	if err != nil {
		return err
	}
	defer models.close()

	a.memory = memory.New(store, store.queue, c.memory(log, models))
	defer a.memory.Close() //nolint:contextcheck // its turns are written even if the command was canceled
	if store.queue != nil {
		if err := waitDrained(ctx, store.queue); err != nil {
			return err
		}
	}
	warnOfSpool(p.stderr, spool)
	return a.run(ctx)
}

// hasSessions reports whether the tenant has, or may have, any sessions.
func (a archive) hasSessions(ctx context.Context) bool {
	if a.memory == nil {
		return false
	}
	names, _, err := a.memory.Sessions(ctx, a.Tenant, "", 1)
	return err != nil || len(names) > 0
}

// printView prints the items that a turn sent upstream, in their stored bytes: see memory.TurnView.
func printView(ctx context.Context, a archive, s memory.Scope, turn string) error {
	items, err := a.memory.TurnView(ctx, s, turn)
	if err != nil {
		return ofTurn(err, s, turn)
	}
	for _, it := range items {
		if _, err := fmt.Fprintf(a.out, "%s\n", it.Raw); err != nil {
			return err
		}
	}
	return nil
}

// printRecord prints the record of a turn, as one line of JSON.
func printRecord(ctx context.Context, a archive, s memory.Scope, turn string) error {
	record, err := a.memory.TurnRecord(ctx, s, turn)
	if err != nil {
		return ofTurn(err, s, turn)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", record)
	return err
}

// ofTurn adds the turn to an error about a turn that does not exist.
func ofTurn(err error, s memory.Scope, turn string) error {
	if errors.Is(err, memory.ErrNoTurn) {
		return fmt.Errorf("turn %q of session %q: %w under this credential", turn, s.Session, err)
	}
	return err
}

// runImport imports an export, or messages: the first line of an export has an object named session.
func (a archive) runImport(ctx context.Context) error {
	scope := memory.Scope{Tenant: a.Tenant, Session: a.Session, Resource: a.Resource}
	dec := json.NewDecoder(a.in)
	var first json.RawMessage
	if err := dec.Decode(&first); err != nil && !errors.Is(err, io.EOF) {
		return explainImport(fmt.Errorf("import line 1: %w", err))
	}
	var line struct{ Session, Message json.RawMessage }
	_ = json.Unmarshal(first, &line) // of a line that is no object, both stay nil
	if line.Session == nil && line.Message == nil {
		return errors.New(`import line 1: want {"message": {"role": ..., "content": ...}, "time": ...} for each message, or the "session" with which an export begins`)
	}
	r := io.MultiReader(bytes.NewReader(first), dec.Buffered(), a.in)
	isExport := line.Message == nil && !bytes.HasPrefix(line.Session, []byte(`"`))
	switch {
	case isExport && a.Session == "":
		return errors.New("transcript: --session is missing: an export does not name its session")
	case isExport && a.Resource != "":
		return errors.New("transcript: --resource is for messages: the session of an export belongs to the resources that are in it")
	case !isExport && line.Session != nil && a.Session != "":
		return errors.New("transcript: --session is for messages without a session: the file names its sessions")
	}

	n := 1
	var err error
	if isExport {
		err = a.memory.Import(ctx, scope, r)
	} else {
		n, err = a.memory.ImportMessages(ctx, scope, r)
	}
	switch {
	case errors.Is(err, memory.ErrSessionExists) && isExport:
		return fmt.Errorf("session %q: %w under this credential", a.Session, err)
	case errors.Is(err, memory.ErrSessionExists):
		return fmt.Errorf("%w under this credential; sessions before it in the file, which are imported: %d", err, n)
	case err != nil:
		return explainImport(err)
	}
	_, err = fmt.Fprintln(a.out, "sessions imported:", n)
	return err
}

// explainImport adds the expected format to the error about a file that has another one.
func explainImport(err error) error {
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &shape) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w; want JSON Lines as `remora transcript --session ID` prints them, or of messages", err)
	}
	return err
}

// listPage is the number of names per round trip.
const listPage = 1000

func listSessions(ctx context.Context, a archive) error {
	var all []string
	for after, more := "", true; more; more = after != "" {
		names, next, err := a.memory.Sessions(ctx, a.Tenant, after, listPage)
		if err != nil {
			return err
		}
		all, after = append(all, names...), next
	}
	slices.Sort(all) // the order of List differs between stores
	out := bufio.NewWriter(a.out)
	for _, name := range all {
		_, _ = fmt.Fprintln(out, printable(name)) // Flush returns the error
	}
	return out.Flush()
}

// printText prints one line for each item: its number, its role, the beginning of its text, and its labels.
func printText(ctx context.Context, a archive, s memory.Scope) error {
	type printed struct {
		text string
		item memory.ExportedItem // without its content
	}
	var lines []printed
	unanswered := make(map[string]string) // statuses of turns without a whole answer; their records come after the items
	err := a.memory.Walk(ctx, s, func(l memory.ExportLine) error {
		var turn struct{ ID, Status string }
		switch {
		case l.Item != nil:
			who, text := roleAndText(l.Item)
			line := printed{fmt.Sprintf("%6d  %-9s  %s", l.Item.Seq, firstRunes(who, 24), firstRunes(text, 70)), *l.Item}
			line.item.JSON, line.item.Raw = nil, nil
			lines = append(lines, line)
		case l.Turn != nil && json.Unmarshal(l.Turn, &turn) == nil && turn.Status != memory.TurnComplete:
			unanswered[turn.ID] = turn.Status
		}
		return nil
	})
	out := bufio.NewWriter(a.out)
	for i := range lines {
		l := &lines[i]
		_, _ = fmt.Fprintln(out, strings.TrimRight(l.text+labels(&l.item, unanswered[l.item.Turn]), " ")) // Flush returns the error
	}
	return errors.Join(err, out.Flush())
}

// labels returns an item's labels, such as hidden, or on a side branch. status is that of its turn, "" if that has a whole answer.
func labels(l *memory.ExportedItem, status string) string {
	var b strings.Builder
	for _, m := range []struct {
		set  bool
		name string
	}{
		{!l.OnHead && !l.Side, "branch"}, {l.Side, "side"}, {l.Summary, "client summary"}, {l.Hidden, "hidden"}, {l.Partial, "partial"}, {status != "" && !l.Partial, printable(status)},
	} {
		if m.set {
			b.WriteString("  [" + m.name + "]")
		}
	}
	return b.String()
}

// roleAndText returns an item's role and its text: for calls, their names and arguments.
func roleAndText(l *memory.ExportedItem) (who, text string) {
	it, err := l.Item()
	if err != nil {
		return "unknown", string(l.Bytes())
	}
	said := []string{it.Text()}
	for i, c := range it.Calls() {
		said = append(said, c.Name+it.Input(i))
	}
	who = cmp.Or(wire.Text(wire.Member(it.Raw, "role")), wire.Text(wire.Member(it.Raw, "type")), "unknown")
	switch who {
	case "function_call":
		who = "call"
	case "function_call_output":
		who = "tool"
	}
	return who, strings.Join(said, " ")
}

// firstRunes returns the beginning of a text, as one line.
func firstRunes(text string, n int) string {
	runes := []rune(printable(strings.Join(strings.Fields(text), " ")))
	if len(runes) > n {
		runes = append(runes[:n-2], '.', '.')
	}
	return string(runes)
}

// printable replaces control characters, which could steer a terminal, and those that reorder what is shown, which could
// make one name look like another: names and contents come from callers.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if steers(r) {
			return '?'
		}
		return r
	}, s)
}

func steers(r rune) bool {
	reorders := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
	return unicode.IsControl(r) || reorders
}

// screen writes lines of JSON to a terminal. It escapes what printable replaces: JSON escapes only some control characters.
type screen struct {
	w    io.Writer
	rest []byte // the beginning of a character
}

func (s *screen) Write(p []byte) (int, error) {
	text, shown := append(s.rest, p...), []byte(nil)
	for len(text) > 0 && utf8.FullRune(text) {
		r, n := utf8.DecodeRune(text)
		if steers(r) && r != '\n' {
			shown = fmt.Appendf(shown, `\u%04x`, r)
		} else {
			shown = utf8.AppendRune(shown, r)
		}
		text = text[n:]
	}
	s.rest = bytes.Clone(text)
	if _, err := s.w.Write(shown); err != nil {
		return 0, fmt.Errorf("write to the terminal: %w", err)
	}
	return len(p), nil
}
