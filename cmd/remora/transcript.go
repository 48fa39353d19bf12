package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"remora/memory"
)

// transcriptFlags are the flags of `remora transcript` and of its subcommands.
type transcriptFlags struct {
	archiveFlags

	session, resource string
	turn              string
	text, record      bool
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
	if errors.Is(err, memory.ErrNoSession) {
		return fmt.Errorf("transcript of %q: %w under this credential; %s", f.session, memory.ErrNoSession, f.hint())
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
