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

	"github.com/spf13/cobra"

	"remora/cache/bolt"
	"remora/cache/stores"
	"remora/memory"
	"remora/providers"
	"remora/proxy"
	"remora/wire"
)

// transcriptFlags are the flags of `remora transcript` and of its subcommand.
type transcriptFlags struct {
	config, session string
	resource        string
	owner           ownerFlags
	importFile      string
	turn            string
	text, record    bool
	single          bool // all callers share one tenant (session.tenancy)
}

// ownerFlags select the tenant. At most one field is set; none selects callers without a credential.
type ownerFlags struct {
	keys, keyEnvs []string
	tenant        string
}

func newTranscriptCommand(p console) *cobra.Command {
	var f transcriptFlags
	cmd := &cobra.Command{
		Use:   "transcript",
		Short: "Print or import a stored session",
		Long: "Prints the transcript of a session as JSON Lines: all items of all branches, and for each turn how\n" +
			"its view was built. An item is in \"json\", or in \"raw\" as base64 where its bytes are not compact\n" +
			"JSON. --import reads such a file into a new session, or a file of messages that another program recorded,\n" +
			"with their times. Sessions belong to the API key that created them. Without a key the command sees those of\n" +
			"clients that send none.\n" +
			"It works while the proxy runs: a proxy that has the bolt file open does the work, over the socket next to\n" +
			"the file, so run this as the same user. Redis is opened directly.",
		Example: "  remora transcript --session first --key-env OPENAI_API_KEY --text\n" +
			"  remora transcript list --key-env OPENAI_API_KEY",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" && f.importFile == "" { // a file of messages may name its sessions
				return errors.New("transcript: --session is missing; `remora transcript list` prints the names")
			}
			if err := f.conflict(); err != nil {
				return err
			}
			return f.print(cmd, p)
		},
	}

	remove := &cobra.Command{
		Use:   "delete",
		Short: "Delete a stored session",
		Long: "Deletes a session, and the layer data of its resource that comes from this session alone. Its turns in a\n" +
			"spool are dropped when the spool is written to the store. `remora forget` does this for all sessions of a\n" +
			"resource.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" {
				return errors.New("transcript delete: --session is missing; `remora transcript list` prints the names")
			}
			return f.remove(cmd, p)
		},
	}
	remove.Flags().StringVar(&f.session, "session", "", "the session's `ID`, as in X-Session-Id")

	list := &cobra.Command{
		Use:   "list",
		Short: "Print the names of all stored sessions, sorted, one per line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := &writeTracker{Writer: p.stdout}
			p.stdout = out
			err := f.open(cmd, p, archiveCall{Do: doList})
			if err == nil && !out.written {
				said := "no session is stored under this credential"
				if other := f.otherKeys(); other != "" {
					said += "; " + other
				}
				_, _ = fmt.Fprintln(p.stderr, said)
			}
			return err
		},
	}

	f.common(cmd, "sessions")
	cmd.Flags().StringVar(&f.session, "session", "", "the session's `ID`, as in X-Session-Id")
	cmd.Flags().StringVar(&f.importFile, "import", "", "import `FILE` instead of printing; - is stdin")
	cmd.Flags().StringVar(&f.resource, "resource", "", "with --import of messages, the resource's `ID`, as in X-Resource-Id")
	cmd.Flags().BoolVar(&f.text, "text", false, "print one readable line for each item")
	cmd.Flags().StringVar(&f.turn, "turn", "", "print the items that the turn `ID`, as in X-Turn-Id, sent upstream, one stored item a line")
	cmd.Flags().BoolVar(&f.record, "record", false,
		"with --turn, print the record of the turn: how its view was chosen, the tokens of each part, the results of layers")
	cmd.AddCommand(list, remove)
	return cmd
}

// common adds the flags for the configuration and the owner of something.
func (f *transcriptFlags) common(cmd *cobra.Command, what string) {
	all := cmd.PersistentFlags()
	all.StringVar(&f.config, "config", "", "read `FILE` over the built-in defaults")
	all.StringArrayVar(&f.owner.keyEnvs, "key-env", nil,
		what+" of the credential in the environment variable `NAME`; once for each key, if requests have several")
	all.StringArrayVar(&f.owner.keys, "key", nil,
		what+" of `CREDENTIAL`, likewise; - reads it from stdin, which no shell history keeps")
	all.StringVar(&f.owner.tenant, "tenant", "", what+" of the tenant `HEX`, as it is stored")
	cmd.MarkFlagsMutuallyExclusive("key", "key-env", "tenant")
}

// archiveCall is one operation on an archive. As JSON it is also the request to a running proxy.
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

// archive is an open store with a call to run on it, and the call's input and output.
type archive struct {
	memory *memory.Memory
	file   *bolt.Store // for a backup
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

// open runs a call: in the proxy that has the bolt file open, else on the store, which it opens.
func (f *transcriptFlags) open(cmd *cobra.Command, p console, call archiveCall) (err error) {
	c, err := sources{file: f.config, environ: p.environ}.load()
	if err != nil {
		return err
	}
	f.single = c.Session.Tenancy == proxy.TenancySingle
	stdin := bufio.NewReader(cmd.InOrStdin()) // one reader: an import may follow the key
	a := archive{archiveCall: call, in: stdin, out: p.stdout}
	if a.Tenant, err = f.owner.tenantIn(c, p, stdin); err != nil {
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
	return f.openStore(cmd.Context(), p, c, a)
}

// openStore opens the store of the configuration and runs a on it.
func (f *transcriptFlags) openStore(ctx context.Context, p console, c Config, a archive) (err error) {
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

// tenantIn returns the tenant, as the proxy derives it from a request with those credentials.
func (o ownerFlags) tenantIn(c Config, p console, in *bufio.Reader) (string, error) {
	if o.tenant != "" {
		return o.tenant, nil
	}
	var credentials [][]byte
	for _, name := range o.keyEnvs {
		value, ok := lookupIn(p.environ)(name)
		if !ok {
			return "", fmt.Errorf("read --key-env: the environment variable %s is not set", name)
		}
		credentials = append(credentials, []byte(value))
	}
	for _, key := range o.keys {
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

// conflict returns an error for flags that contradict each other.
func (f *transcriptFlags) conflict() error {
	switch {
	case f.record && f.turn == "":
		return errors.New("transcript: --record needs --turn")
	case f.importFile != "" && (f.text || f.turn != ""):
		return errors.New("transcript: --import reads a session, --text and --turn print one: use one of them")
	case f.text && f.turn != "":
		return errors.New("transcript: --text prints the whole session, --turn the items that one turn sent: use one of them")
	}
	return nil
}

// print runs `remora transcript` without a subcommand.
func (f *transcriptFlags) print(cmd *cobra.Command, p console) error {
	call := archiveCall{Do: doExport, Session: f.session, Resource: f.resource, Turn: f.turn}
	switch {
	case f.importFile != "":
		call.Do = doImport
	case f.text:
		call.Do = doText
	case f.record:
		call.Do = doRecord
	case f.turn != "":
		call.Do = doTurn
	}
	err := f.open(cmd, p, call)
	switch {
	case errors.Is(err, memory.ErrNoSession):
		return fmt.Errorf("transcript of %q: %w under this credential; %s", f.session, memory.ErrNoSession, f.hint())
	case errors.Is(err, memory.ErrSessionExists):
		return fmt.Errorf("transcript of %q: %w under this credential", f.session, err)
	}
	return err
}

// writeTracker is a writer that records whether anything was written.
type writeTracker struct {
	io.Writer

	written bool
}

func (n *writeTracker) Write(b []byte) (int, error) {
	n.written = n.written || len(b) > 0
	return n.Writer.Write(b)
}

// otherKeys returns a hint for a command without a credential, "" if it has one.
func (f *transcriptFlags) otherKeys() string {
	if f.owner.keys == nil && f.owner.keyEnvs == nil && f.owner.tenant == "" && !f.single {
		return "sessions belong to the API key that created them: add --key-env NAME, or --key - to type it"
	}
	return ""
}

// hint returns a hint for a session that does not exist.
func (f *transcriptFlags) hint() string {
	return cmp.Or(f.otherKeys(), "`remora transcript list` with the same flags prints the names of those that exist")
}

func (f *transcriptFlags) remove(cmd *cobra.Command, p console) error {
	err := f.open(cmd, p, archiveCall{Do: doDelete, Session: f.session})
	if errors.Is(err, memory.ErrNoSession) {
		return fmt.Errorf("delete %q: %w under this credential; %s", f.session, memory.ErrNoSession, f.hint())
	}
	return err
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
	var line struct{ Session, Message, Role, Content json.RawMessage }
	_ = json.Unmarshal(first, &line) // the import below reports an invalid line
	if line.Session == nil && line.Message == nil && (line.Role != nil || line.Content != nil) {
		return errors.New(`import line 1: want {"message": {"role": ..., "content": ...}, "time": ...} for each message, have a message alone`)
	}
	r := io.MultiReader(bytes.NewReader(first), dec.Buffered(), a.in)
	if line.Message == nil && !bytes.HasPrefix(line.Session, []byte(`"`)) {
		if a.Session == "" {
			return errors.New("transcript: --session is missing: an export does not name its session")
		}
		return explainImport(a.memory.Import(ctx, scope, r))
	}

	n, err := a.memory.ImportMessages(ctx, scope, r)
	if err == nil {
		_, err = fmt.Fprintln(a.out, "sessions imported:", n)
	}
	return explainImport(err)
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
		item memory.ItemLine // without its content
	}
	var lines []printed
	unanswered := make(map[string]string) // statuses of turns without a whole answer; their records come after the items
	err := a.memory.Walk(ctx, s, func(l memory.Line) error {
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
func labels(l *memory.ItemLine, status string) string {
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
func roleAndText(l *memory.ItemLine) (who, text string) {
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
		reorders := r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069
		if unicode.IsControl(r) || reorders {
			return '?'
		}
		return r
	}, s)
}
