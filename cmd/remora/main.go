// Command remora is Remora, a reverse proxy that gives LLM APIs a memory. Without a subcommand it reads the configuration and
// serves until SIGINT or SIGTERM. serve.go has the order of starting and stopping, config.go the configuration, reload.go what
// SIGHUP can change. Each subcommand has a file of its name.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() { os.Exit(mainCode()) }

// mainCode runs the command and returns its exit code. The script tests run it in a child process.
func mainCode() int {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// After the first signal, signals have their default effect again, so that a second one ends the process at once. stop
	// runs before cancel, that is, before the shutdown begins.
	context.AfterFunc(signalled, func() {
		stop()
		cancel()
	})
	cmd := newCommand(console{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr})
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// console is the environment and the output of a command.
type console struct {
	environ        []string
	stdout, stderr io.Writer
}

func newCommand(p console) *cobra.Command {
	s := &serveFlags{console: p}
	cmd := &cobra.Command{
		Use:   "remora",
		Short: "A reverse proxy that gives LLM APIs a memory",
		Long: "Serves OpenAI-compatible APIs and keeps the sessions that the header X-Session-Id names.\n" +
			"Without a subcommand it serves, on 127.0.0.1:8080: it goes to OpenAI with the caller's own key, and\n" +
			"keeps transcripts in remora.db. config.yaml in the repository documents every key.",
		Example: "  remora                                      # for OpenAI\n" +
			"  remora --upstream http://127.0.0.1:11434    # for a server of yours\n" +
			"  remora demo                                 # without network or key",
		Version:       version(),
		SilenceUsage:  true, // the list of flags does not help with a wrong configuration
		SilenceErrors: true, // main prints them
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return refuseEmpty(cmd.Flags())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	s.add(cmd)
	cmd.Flags().BoolVar(&s.checks, "check", false, "print all problems of the configuration and exit, as remora check does")
	cmd.AddCommand(newServeCommand(p), newCheckCommand(p), newDemoCommand(p), newUpstreamCommand(p), newTranscriptCommand(p),
		newForgetCommand(p), newStoreCommand(p), newVersionCommand(p))
	cmd.SetHelpCommand(newHelpCommand())
	cmd.InitDefaultHelpCmd() // adds it, so that its name can be suggested
	suggest(cmd)
	return cmd
}

// refuseEmpty returns an error for a flag that was given an empty value. Such a value usually comes from a variable that is not set,
// and it must not count as no flag: without --key, for example, `remora forget` deletes what belongs to callers without a key.
func refuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = slices.Contains(list.GetSlice(), "")
		}
		if empty {
			err = errors.Join(err, fmt.Errorf("--%s: want a value, have an empty one", f.Name))
		}
	})
	return err
}

// newHelpCommand replaces cobra's command, which exits with 0 for an unknown name.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(cmd *cobra.Command, args []string) error {
			of, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return of.ValidateArgs(rest)
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// suggest adds the closest known name to the errors for unknown subcommands and flags.
func suggest(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		hint := ""
		if name, unknown := strings.CutPrefix(err.Error(), "unknown flag: "); unknown {
			flags := slices.DeleteFunc(strings.Fields(cmd.Flags().FlagUsages()), func(word string) bool { return !strings.HasPrefix(word, "--") })
			hint = didYouMean(name, flags)
		}
		return fmt.Errorf("%w%s; see %s --help", err, hint, cmd.CommandPath())
	})
	var commands func(cmd *cobra.Command)
	commands = func(cmd *cobra.Command) {
		var names []string
		for _, sub := range cmd.Commands() {
			names = append(names, sub.Name())
			commands(sub)
		}
		if len(names) == 0 {
			return
		}
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return fmt.Errorf("unknown command %q%s; see %s --help", args[0], didYouMean(args[0], names), cmd.CommandPath())
		}
	}
	commands(cmd)
}
