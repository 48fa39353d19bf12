package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"remora/memory"
)

func newForgetCommand(p console) *cobra.Command {
	var f archiveFlags
	var resource string
	cmd := &cobra.Command{
		Use:   "forget",
		Short: "Delete all sessions and layer data of a resource",
		Long: "Deletes all sessions of a resource (session.resource_headers), such as a user, and all layer data of it.\n" +
			"Its turns in the spool are written first, so that they are deleted too; a running proxy drops those in its\n" +
			"own spool. If a proxy has the bolt file open, it does the work, over the socket next to the file: run this\n" +
			"as the same user. Redis is opened directly.",
		Example: "  remora forget --resource ada --key-env OPENAI_API_KEY",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resource == "" {
				return errors.New("forget: --resource is missing")
			}
			if err := f.open(cmd, p, archiveCall{Do: doForget, Resource: resource}); err != nil {
				return fmt.Errorf("forget %q: %w", resource, err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&resource, "resource", "", "the resource's `ID`, as in X-Resource-Id")
	f.common(cmd, "the resource")
	return cmd
}

// waitDrained waits until the spool is empty. The memory that was opened with it writes its turns to the store.
func waitDrained(ctx context.Context, spool memory.Spool) error {
	const timeout, step = time.Minute, 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		if n, _ := spool.Len(); n == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("the store does not accept the turns in store.spool.dir; try again when it answers")
		case <-tick.C:
		}
	}
}
