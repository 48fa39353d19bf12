package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"remora/memory"
)

// release is the version given to the build: go build -ldflags "-X main.release=1.2.3", as the Dockerfile does.
var release string

func newVersionCommand(p console) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, revision, the version of Go, and the format of stored sessions",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(p.stdout, "remora version %s\nsessions are stored in format %d\n", cmd.Root().Version, memory.RecordVersion)
			return err
		},
	}
}

// version returns the release, if the build was given one, and the revision, if the Go toolchain has recorded it.
func version() string {
	revision, state := "built from source", "" // go run records no revision
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
	if release != "" {
		if revision == "built from source" { // in an image, without the repository
			return fmt.Sprintf("%s (%s)", release, runtime.Version())
		}
		return fmt.Sprintf("%s (%s%s, %s)", release, revision, state, runtime.Version())
	}
	return fmt.Sprintf("(%s%s, %s)", revision, state, runtime.Version())
}
