// Command proxy is Remora: a reverse proxy that gives LLM APIs a memory. It reads one configuration and serves until
// it is told to stop; see run.go for the order in which it starts and stops, config.go for what can be configured.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"remora/demo"
	"remora/providers/scripted"
)

func main() { os.Exit(mainCode()) }

// mainCode is main with an exit code, which the script tests run in a process of its own.
func mainCode() int {
	signalled, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	// From the first signal on, signals have their usual effect again: a second one ends the process at once. So they have
	// before anybody is told of the first.
	context.AfterFunc(signalled, func() {
		stop()
		cancel()
	})
	cmd := newCommand(process{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr})
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is what a command takes from the process that it runs in.
type process struct {
	environ        []string
	stdout, stderr io.Writer
}

// check prints what --check has to say of a configuration, which loading it may have found problems with.
func (p process) check(c Config, err error) error {
	found, ok := errors.AsType[problems](err)
	if err != nil && !ok {
		return err
	}
	found.addErrors(c.Server.LoadCertificate())
	for _, w := range c.warnings() {
		if !found.covers(w.path) { // else it is a mere consequence
			_, _ = fmt.Fprintf(p.stderr, "warning: %s: %s\n", w.path, w.text)
		}
	}
	if err := found.err(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, "config ok")
	return err
}

func newCommand(p process) *cobra.Command {
	var file, listen string
	var check bool
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "A reverse proxy that gives LLM APIs a memory",
		Long: "Serves OpenAI-compatible APIs and keeps the sessions that the header X-Session-Id names.\n" +
			"Without a flag it serves on 127.0.0.1:8080, goes to OpenAI with the caller's own key, and\n" +
			"keeps transcripts in remora.db. config.yaml in the repository documents every key.",
		Version:       version(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true, // a wrong configuration is not cured by the list of flags
		SilenceErrors: true, // main prints them
		RunE: func(cmd *cobra.Command, _ []string) error {
			// From now on SIGHUP asks for a reload, as it does of a proxy that serves: until then it ends the process.
			hangup := make(chan os.Signal, 1)
			if !check {
				signal.Notify(hangup, syscall.SIGHUP)
				defer signal.Stop(hangup)
			}
			var flags []setting
			if cmd.Flags().Changed("listen") {
				flags = append(flags, setting{path: "server.listen", origin: "--listen", value: listen})
			}
			from := origin{file: file, environ: p.environ, flags: flags}
			c, err := from.load()
			if check {
				return p.check(c, err)
			}
			if err != nil {
				return err
			}
			return run(cmd.Context(), from, c, hangup, p.stderr)
		},
	}
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	cmd.Flags().StringVar(&file, "config", "", "read `FILE` over the built-in defaults")
	cmd.Flags().StringVar(&listen, "listen", "", "serve on `ADDR` instead of server.listen")
	cmd.Flags().BoolVar(&check, "check", false, "print all problems of the configuration and exit")
	cmd.AddCommand(newDemoCommand(p), newUpstreamCommand(p), newTranscriptCommand(p))
	return cmd
}

// version tells which source was built, as far as the Go toolchain has noted it.
func version() string {
	revision, state := "built from source", "" // by go run, which notes no revision
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value[:min(12, len(s.Value))]
			case s.Key == "vcs.modified" && s.Value == "true":
				state = " with changes"
			}
		}
	}
	return fmt.Sprintf("(%s%s, %s)", revision, state, runtime.Version())
}

func newDemoCommand(p process) *cobra.Command {
	var binary string
	var full bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Play a long conversation through the proxy, without network or key",
		Long: "Starts a scripted upstream and a real proxy, plays a conversation of more than 60 turns with tool\n" +
			"calls through them, kills the proxy in the middle and starts it again. Prints what the model saw on\n" +
			"each turn beside what is stored, and exits with 1 if anything was lost or sent that should not be.\n" +
			"Of long runs of items it prints the ends; --full prints them all, and the whole transcripts.",
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
			return demo.Run(cmd.Context(), demo.Options{Binary: binary, Out: p.stdout, Color: p.colors(), Full: full})
		},
	}
	cmd.Flags().StringVar(&binary, "binary", "", "play through the proxy at `PATH` instead of this one")
	cmd.Flags().BoolVar(&full, "full", false, "leave no item out, and print all that is stored of each session")
	return cmd
}

func newUpstreamCommand(p process) *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "upstream",
		Short: "Serve a scripted API, to try a proxy with curl or an SDK and no key",
		Long: "Serves Chat Completions and Responses as a strict OpenAI would, until it is told to stop. No model\n" +
			"answers: a message gets \"You said: ...\", or is a script of steps with ;; between them:\n\n" +
			"  SAY text             what the answer says\n" +
			"  SEE                  one line for each message that the upstream was sent\n" +
			"  REASON text          reasoning before what follows\n" +
			"  CALL name {json}     a tool call, or several with | between them\n" +
			"  LOOP n name {json}   n answers of one call each\n\n" +
			"It takes any key, and writes nothing to disk.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			up, err := scripted.Start(scripted.Options{Listen: listen, KeepRequests: 1, KeepBytes: 1})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(p.stdout, "scripted upstream listens on %s/v1\n"+
				"try: REMORA_PROVIDERS='[{\"name\":\"scripted\",\"kind\":\"compatible\",\"base_url\":\"%s/v1\"}]' go run ./cmd/proxy\n"+
				"and: curl http://127.0.0.1:8080/v1/chat/completions -H \"Content-Type: application/json\""+
				" -H \"Authorization: Bearer $OPENAI_API_KEY\" -H \"X-Session-Id: first\" -d '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"SEE\"}]}'\n",
				up.URL(), up.URL())
			<-cmd.Context().Done()
			return up.Close()
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:9090", "serve on `ADDR`")
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
