package main

import (
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"remora/demo"
)

func newDemoCommand(p process) *cobra.Command {
	var binary string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a long conversation through the proxy, without network or key",
		Long: "Starts a scripted upstream and a real proxy, plays a conversation of more than 60 turns with tool\n" +
			"calls through them, kills the proxy in the middle and starts it again. Prints what the model saw on\n" +
			"each turn beside what is stored, and exits with 1 if anything was lost or sent that should not be.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if binary == "" {
				var err error
				if binary, err = os.Executable(); err != nil {
					return err
				}
			}
			// `proxy demo | head` must not end the demo before it has ended its proxy.
			signal.Ignore(syscall.SIGPIPE)
			return demo.Run(cmd.Context(), demo.Options{Binary: binary, Out: p.stdout, Color: p.colors()})
		},
	}
	cmd.Flags().StringVar(&binary, "binary", "", "play through the proxy at `PATH` instead of this one")
	return cmd
}

// colors tells whether stdout takes ANSI colours: a terminal does, unless its owner says otherwise (no-color.org).
func (p process) colors() bool {
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
