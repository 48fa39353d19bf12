package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// process is what a command takes from the process that it runs in.
type process struct {
	environ        []string
	stdout, stderr io.Writer
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
			var flags []setting
			if cmd.Flags().Changed("listen") {
				flags = append(flags, setting{path: "server.listen", origin: "--listen", value: listen})
			}
			c, err := load(file, p.environ, flags)
			if err != nil {
				return err
			}
			if check {
				_, err = fmt.Fprintln(p.stdout, "config ok")
				return err
			}
			return run(cmd.Context(), c, p.stderr)
		},
	}
	cmd.SetOut(p.stdout)
	cmd.SetErr(p.stderr)
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.Flags().StringVar(&file, "config", "", "read `FILE` over the built-in defaults")
	cmd.Flags().StringVar(&listen, "listen", "", "serve on `ADDR` instead of server.listen")
	cmd.Flags().BoolVar(&check, "check", false, "print all problems of the configuration and exit")
	cmd.AddCommand(newDemoCommand(p), newTranscriptCommand(p))
	return cmd
}

// version tells which source was built, as far as the Go toolchain has noted it.
func version() string {
	revision, state := "unknown revision", ""
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
