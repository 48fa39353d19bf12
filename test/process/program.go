package process

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// Main is the main function of a test program. It calls run with the arguments of the command line and a context that ends with
// SIGINT or SIGTERM. If run returns an error other than flag.ErrHelp, Main prints it and exits with 1.
func Main(name string, run func(ctx context.Context, args []string, stdout, stderr io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// ParseFlags parses a command line that has flags and no other arguments.
func ParseFlags(f *flag.FlagSet, args []string, stderr io.Writer) error {
	f.SetOutput(stderr)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return nil
}

// BuildUnless returns given, the path of a binary. If it is empty, BuildUnless builds the proxy of this source tree in dir.
func BuildUnless(ctx context.Context, given, dir string) (string, error) {
	if given != "" {
		return given, nil
	}
	path := filepath.Join(dir, "remora")
	return path, Build(ctx, path)
}

// shutdownGrace bounds the shutdown of a proxy after the end of its context.
const shutdownGrace = 20 * time.Second

// Run writes a configuration into dir and starts a proxy with it, as [Start] does. dir is its working directory.
func Run(ctx context.Context, binary, dir string, config []byte) (*Proxy, error) {
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	cmd := exec.CommandContext(ctx, binary, "--config", file)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, Environ(), shutdownGrace
	return Start(cmd)
}
