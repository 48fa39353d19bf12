package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"remora/cache/bolt"
	"remora/cache/stores"
)

// storeCommand holds the options that the subcommands of `remora store` share.
type storeCommand struct {
	console
	config string // path of the configuration file; empty for the defaults
}

func newStoreCommand(p console) *cobra.Command {
	s := &storeCommand{console: p}
	cmd := &cobra.Command{
		Use:   "store",
		Short: "Maintain the store",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.PersistentFlags().StringVar(&s.config, "config", "", "read `FILE` over the built-in defaults")
	cmd.AddCommand(s.compact(), s.backup())
	return cmd
}

// boltFile returns the path of the store's file. It is an error if the store is not a bolt store.
func (s *storeCommand) boltFile(verb string) (string, error) {
	c, err := sources{file: s.config, environ: s.environ}.load()
	if err != nil {
		return "", err
	}
	path := stores.File(c.Store.URL.Reveal())
	if path == "" {
		return "", fmt.Errorf("store %s: store.url is %s, want bolt:PATH", verb, showStoreURL(c.Store.URL.Reveal()))
	}
	return path, nil
}

func (s *storeCommand) compact() *cobra.Command {
	return &cobra.Command{
		Use:   "compact",
		Short: "Give back the space that deleted and expired sessions have left in a bolt file",
		Long: "Rewrites the file of store.url. bbolt never gives space back by itself, and what was deleted stays\n" +
			"readable in it until that space is used again. Stop the proxy first. The old file stays in place until\n" +
			"the new one is on disk; both need room. Of encrypted stores nothing readable is left either way.",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			path, err := s.boltFile("compact")
			if err != nil {
				return err
			}
			before, err := os.Stat(path)
			if err != nil {
				return fmt.Errorf("store compact: %w", err)
			}
			if err := bolt.Compact(path); err != nil {
				return err
			}
			after, err := os.Stat(path)
			if err != nil {
				return fmt.Errorf("store compact: %w", err)
			}
			_, err = fmt.Fprintf(s.stdout, "%s: %d bytes, before %d\n", path, after.Size(), before.Size())
			return err
		},
	}
}

func (s *storeCommand) backup() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy a bolt file, also while a proxy has it open",
		Long: "Writes a consistent copy of the file of store.url. If a proxy has it open, it sends the copy over the socket\n" +
			"next to the file: run this as the same user. Do not use cp on a file in use: it mixes pages of different\n" +
			"moments. To restore, stop the proxy and replace the file by the copy.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("store backup: want one FILE to write, have %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := s.boltFile("backup")
			if err != nil {
				return err
			}
			if _, err := os.Stat(path); err != nil {
				return fmt.Errorf("store backup: %w", err)
			}

			err = bolt.WriteBackup(args[0], func(w io.Writer) error {
				err := askArchive(cmd.Context(), path, archive{archiveCall: archiveCall{Do: doBackup}, out: w})
				if !errors.Is(err, errNoProxy) {
					return err
				}
				return bolt.Copy(path, w) // fails if another process has locked the file
			})
			if err != nil {
				return fmt.Errorf("store %w", err)
			}
			info, err := os.Stat(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(s.stdout, "%s: %d bytes\n", args[0], info.Size())
			return err
		},
	}
}
