package main

import (
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"remora/cmd/remora/demo"
)

func newDemoCommand(p console) *cobra.Command {
	var binary string
	var table, full bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a long conversation through the proxy, without network or key",
		Long: "Starts a scripted upstream and a real proxy, plays a conversation of more than 60 turns with tool\n" +
			"calls through them, kills the proxy in the middle and starts it again. Prints a few of the turns,\n" +
			"and exits with 1 if an item was lost or wrongly sent. --table prints for each turn what the model got and\n" +
			"what is stored, --full every item of both.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if binary == "" {
				var err error
				if binary, err = os.Executable(); err != nil {
					return err
				}
			}
			// With `remora demo | head`, the demo must live long enough to stop its proxy.
			signal.Ignore(syscall.SIGPIPE)
			return demo.Run(cmd.Context(), demo.Options{Binary: binary, Out: p.stdout, Color: p.colors(), Table: table, Full: full})
		},
	}
	cmd.Flags().StringVar(&binary, "binary", "", "play through the proxy at `PATH` instead of this one")
	cmd.Flags().BoolVar(&table, "table", false, "print every turn as a row of a table, and some in full")
	cmd.Flags().BoolVar(&full, "full", false, "leave no item out, and print all that is stored of each session")
	return cmd
}

// colors reports whether to print ANSI colours: stdout is a terminal, and NO_COLOR is not set (no-color.org).
func (p console) colors() bool {
	lookup := lookupIn(p.environ)
	if _, set := lookup("NO_COLOR"); set || slices.Contains(p.environ, "TERM=dumb") {
		return false
	}
	return isTerminal(p.stdout)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
