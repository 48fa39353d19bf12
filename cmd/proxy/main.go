// Command proxy is Remora: a reverse proxy that gives LLM APIs a memory. It reads one configuration and serves until
// it is told to stop; see run.go for the order in which it starts and stops, config.go for what can be configured.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(mainCode()) }

// mainCode is main with an exit code, which the script tests run in a process of its own.
func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// From the first signal on, signals have their usual effect again: a second one ends the process at once.
	context.AfterFunc(ctx, stop)
	cmd := newCommand(process{environ: os.Environ(), stdout: os.Stdout, stderr: os.Stderr})
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
