package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"remora/cache"
	"remora/memory"
	"remora/providers"
	"remora/proxy"
)

// transcriptFlags are the flags of `proxy transcript` and of its subcommand.
type transcriptFlags struct {
	config, session string
	owner           owner
	importFile      string
	turn            string
	text, record    bool
	single          bool // all callers share one tenant (session.tenancy)
}

// owner says whose sessions are meant: at most one of its fields is set, none means callers without a credential.
type owner struct{ key, keyEnv, tenant string }

func newTranscriptCommand(p process) *cobra.Command {
	var f transcriptFlags
	cmd := &cobra.Command{
		Use:   "transcript",
		Short: "Print, or bring in, what is stored of a session",
		Long: "Prints the transcript of a session as JSON Lines: all items of all branches, and for each turn how\n" +
			"its view was built. An item is in \"json\", or in \"raw\" as base64 where its bytes are not compact\n" +
			"JSON. --import brings such a file into a session that does not exist. Sessions belong to the key that\n" +
			"their client sends; without one, those of clients that send none are meant.\n" +
			"It opens the store itself: a bolt file only while no proxy runs on it, Redis at any time.",
		Example: "  proxy transcript --session first --key-env OPENAI_API_KEY --text\n" +
			"  proxy transcript list --key-env OPENAI_API_KEY",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" {
				return errors.New("transcript: --session is missing; `proxy transcript list` tells the names")
			}
			if err := f.conflict(); err != nil {
				return err
			}
			return f.open(cmd, p, f.run)
		},
	}
	remove := &cobra.Command{
		Use:   "delete",
		Short: "Delete all that is stored of a session",
		Long:  "Deletes all that is stored of a session. What layers keep for its resource (session.resource_headers) stays.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.session == "" {
				return errors.New("transcript delete: --session is missing; `proxy transcript list` tells the names")
			}
			return f.open(cmd, p, f.remove)
		},
	}
	remove.Flags().StringVar(&f.session, "session", "", "the session's `ID`, as in X-Session-Id")
	list := &cobra.Command{
		Use:   "list",
		Short: "Print the names of all stored sessions, sorted, one per line",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.open(cmd, p, listSessions)
		},
	}
	all := cmd.PersistentFlags()
	all.StringVar(&f.config, "config", "", "read `FILE` over the built-in defaults")
	all.StringVar(&f.owner.keyEnv, "key-env", "", "sessions of the credential in the environment variable `NAME`")
	all.StringVar(&f.owner.key, "key", "", "sessions of `CREDENTIAL`; - reads it from stdin, which no shell history keeps")
	all.StringVar(&f.owner.tenant, "tenant", "", "sessions of the tenant `HEX`, as it is stored")
	cmd.MarkFlagsMutuallyExclusive("key", "key-env", "tenant")
	cmd.Flags().StringVar(&f.session, "session", "", "the session's `ID`, as in X-Session-Id")
	cmd.Flags().StringVar(&f.importFile, "import", "", "bring in `FILE` instead of printing; - is stdin")
	cmd.Flags().BoolVar(&f.text, "text", false, "print for people: one line for each item")
	cmd.Flags().StringVar(&f.turn, "turn", "", "print what the turn `ID`, as in X-Turn-Id, sent upstream, an item a line as it was stored")
	cmd.Flags().BoolVar(&f.record, "record", false,
		"with --turn, print what is kept of the turn: how its view was chosen, what each part cost in tokens, how layers fared")
	cmd.AddCommand(list, remove)
	return cmd
}

// archive is an open store and whose part of it is meant.
type archive struct {
	store    cache.Store
	memory   *memory.Memory
	tenant   string
	in       io.Reader
	out, err io.Writer
}

// open opens the store of the configuration for the time of use.
func (f *transcriptFlags) open(cmd *cobra.Command, p process, use func(context.Context, archive) error) (err error) {
	c, err := load(f.config, p.environ, nil)
	if err != nil {
		return err
	}
	f.single = c.Session.Tenancy == proxy.TenancySingle
	a := archive{in: cmd.InOrStdin(), out: p.stdout, err: p.stderr}
	if a.tenant, err = f.owner.tenantIn(c, p, a.in); err != nil {
		return err
	}
	if f.importFile == "" {
		if err := wantFile(c.Store.URL.Reveal()); err != nil {
			return err
		}
	}
	log := slog.New(slog.NewJSONHandler(p.stderr, nil))
	spool := c.Store.Spool.Dir
	c.Store.Spool.Dir = "" // that is the proxy's to empty
	kept, err := openStorage(cmd.Context(), c.Store, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, kept.close()) }()
	a.store = kept
	upstreams, err := providers.NewSet(c.upstreams())
	if err != nil {
		return err
	}
	minds, err := c.minds(upstreams, log, nil, nil)
	if err != nil {
		return err
	}
	defer minds.close()
	a.memory = memory.New(kept, nil, c.memory(log, minds))
	defer a.memory.Close()
	warnOfSpool(p.stderr, spool)
	return use(cmd.Context(), a)
}

// tenantIn works out the tenant, as the proxy does for a request with that credential.
func (o owner) tenantIn(c Config, p process, in io.Reader) (string, error) {
	credential := o.key
	switch {
	case o.tenant != "":
		return o.tenant, nil
	case o.keyEnv != "":
		value, ok := lookupIn(p.environ)(o.keyEnv)
		if !ok {
			return "", fmt.Errorf("read --key-env: the environment variable %s is not set", o.keyEnv)
		}
		credential = value
	case o.key == "-":
		line, err := bufio.NewReader(in).ReadString('\n')
		if credential = strings.TrimSpace(line); credential == "" {
			return "", fmt.Errorf("read --key from stdin: %w", err)
		}
	}
	return c.Session.Tenant([]byte(credential)), nil
}

// conflict tells of flags that say different things.
func (f *transcriptFlags) conflict() error {
	switch {
	case f.record && f.turn == "":
		return errors.New("transcript: --record needs --turn")
	case f.importFile != "" && (f.text || f.turn != ""):
		return errors.New("transcript: --import brings a session in, --text and --turn print one: use one of them")
	case f.text && f.turn != "":
		return errors.New("transcript: --text prints the whole session, --turn what one turn sent, an item a line: use one of them")
	}
	return nil
}

func (f *transcriptFlags) run(ctx context.Context, a archive) error {
	scope := memory.Scope{Tenant: a.tenant, Session: f.session}
	var err error
	switch {
	case f.importFile == "-":
		err = imported(a.memory.Import(ctx, scope, a.in))
	case f.importFile != "":
		err = importFrom(ctx, a.memory, scope, f.importFile)
	case f.text:
		err = printText(ctx, a, scope)
	case f.record:
		err = printRecord(ctx, a, scope, f.turn)
	case f.turn != "":
		err = printView(ctx, a, scope, f.turn)
	default:
		err = a.memory.Export(ctx, scope, a.out)
	}
	switch {
	case errors.Is(err, memory.ErrNoSession):
		return fmt.Errorf("transcript of %q: %w under this credential; %s", f.session, err, f.hint())
	case errors.Is(err, memory.ErrSessionExists):
		return fmt.Errorf("transcript of %q: %w under this credential", f.session, err)
	}
	return err
}

// hint says what to try where there is no such session.
func (f *transcriptFlags) hint() string {
	if f.owner == (owner{}) && !f.single {
		return "sessions belong to the key that their client sends: add --key-env NAME, or --key - to type it"
	}
	return "`proxy transcript list` with the same flags tells the names of those that there are"
}

func (f *transcriptFlags) remove(ctx context.Context, a archive) error {
	err := a.memory.Delete(ctx, memory.Scope{Tenant: a.tenant, Session: f.session})
	if errors.Is(err, memory.ErrNoSession) {
		return fmt.Errorf("delete %q: %w under this credential; %s", f.session, err, f.hint())
	}
	return err
}

// printView prints the items that a turn sent upstream, as they were first spelled: see memory.TurnView.
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

// printRecord prints what is kept of a turn, as one line of JSON.
func printRecord(ctx context.Context, a archive, s memory.Scope, turn string) error {
	record, err := a.memory.TurnRecord(ctx, s, turn)
	if err != nil {
		return ofTurn(err, s, turn)
	}
	_, err = fmt.Fprintf(a.out, "%s\n", record)
	return err
}

// ofTurn names the turn that is not there.
func ofTurn(err error, s memory.Scope, turn string) error {
	if errors.Is(err, memory.ErrNoTurn) {
		return fmt.Errorf("turn %q of session %q: %w under this credential", turn, s.Session, err)
	}
	return err
}

func importFrom(ctx context.Context, m *memory.Memory, s memory.Scope, name string) error {
	file, err := os.Open(name) //nolint:gosec // the operator names the file
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	return imported(m.Import(ctx, s, file))
}

// imported adds to the error of a file that is none of ours what such a file is.
func imported(err error) error {
	var syntax *json.SyntaxError
	var shape *json.UnmarshalTypeError
	if errors.As(err, &syntax) || errors.As(err, &shape) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w; want JSON Lines as `proxy transcript --session ID` prints them", err)
	}
	return err
}

// listPage is how many names one round trip fetches.
const listPage = 1000

func listSessions(ctx context.Context, a archive) error {
	var all []string
	for after, more := "", true; more; more = after != "" {
		names, next, err := a.memory.Sessions(ctx, a.tenant, after, listPage)
		if err != nil {
			return err
		}
		all, after = append(all, names...), next
	}
	slices.Sort(all) // a store has an order of its own
	out := bufio.NewWriter(a.out)
	for _, name := range all {
		_, _ = fmt.Fprintln(out, printable(name)) // Flush returns the error
	}
	return out.Flush()
}

// printText prints one line for each item: its number, who spoke, the beginning of what was said, and what is special.
func printText(ctx context.Context, a archive, s memory.Scope) error {
	out := bufio.NewWriter(a.out)
	err := a.memory.Walk(ctx, s, func(l memory.Line) error {
		if l.Item == nil {
			return nil
		}
		who, text := spoken(l.Item)
		line := fmt.Sprintf("%6d  %-9s  %s%s", l.Item.Seq, firstRunes(who, 24), firstRunes(text, 70), marks(l.Item))
		_, err := fmt.Fprintln(out, strings.TrimRight(line, " "))
		return err
	})
	return errors.Join(err, out.Flush())
}

// marks tells what sets an item apart from the others.
func marks(l *memory.ItemLine) string {
	var b strings.Builder
	for _, m := range []struct {
		set  bool
		name string
	}{
		{!l.OnHead && !l.Side, "branch"}, {l.Side, "side"}, {l.Aside, "aside"}, {l.Hidden, "hidden"}, {l.Partial, "partial"},
	} {
		if m.set {
			b.WriteString("  [" + m.name + "]")
		}
	}
	return b.String()
}

// spoken tells who said an item, and what: for calls their names and arguments.
func spoken(l *memory.ItemLine) (who, text string) {
	raw := l.Bytes()
	type call struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	var e struct {
		call
		Role      string          `json:"role"`
		Type      string          `json:"type"`
		Content   json.RawMessage `json:"content"`
		Output    json.RawMessage `json:"output"`
		ToolCalls []struct {
			Function call `json:"function"`
		} `json:"tool_calls"`
	}
	if json.Unmarshal(raw, &e) != nil {
		return "unknown", string(raw) // of a shape that nobody knew when this was written
	}
	said := []string{plainText(e.Content) + plainText(e.Output), e.Name + e.Arguments}
	for _, c := range e.ToolCalls {
		said = append(said, c.Function.Name+c.Function.Arguments)
	}
	switch who = cmp.Or(e.Role, e.Type, "unknown"); who {
	case "function_call":
		who = "call"
	case "function_call_output":
		who = "tool"
	}
	return who, strings.Join(said, " ")
}

// plainText is a string, or the texts of a list of parts; "" for everything else.
func plainText(content json.RawMessage) string {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return ""
	}
	for _, p := range parts {
		text += p.Text
	}
	return text
}

// firstRunes is the beginning of a text, in one line.
func firstRunes(text string, n int) string {
	runes := []rune(printable(strings.Join(strings.Fields(text), " ")))
	if len(runes) > n {
		runes = append(runes[:n-2], '.', '.')
	}
	return string(runes)
}

// printable replaces what could steer a terminal: names and contents come from outside.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}
