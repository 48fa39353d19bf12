// Command recall measures how well the proxy recalls messages of earlier sessions.
//
// It imports long conversations into a store, each session with its date, starts the proxy on it, and sends each question about
// them as the first user message of a new session of the same resource. In the request to a scripted upstream it looks for the
// turns that annotators, or the generator, marked as evidence. README.md explains the table.
//
//	go run ./test/recall                          generated conversations, layers as shipped
//	go run ./test/recall -file locomo.json        conversations of LoCoMo's format
//	go run ./test/recall -layers my.yaml          your own layers
//	go run ./test/recall -small                   one conversation of each language, in seconds
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"remora/test/process"
	"remora/test/recall/corpus"
)

func main() { process.Main("recall", run) }

// options are the command line.
type options struct {
	file, layers, binary string
	seed                 uint64
	small                bool
}

func (o *options) read(args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("recall", flag.ContinueOnError)
	f.StringVar(&o.file, "file", "", "ask about the conversations of this `FILE`, in LoCoMo's format, instead of generated ones")
	f.StringVar(&o.layers, "layers", "shipped", "layers to measure, `NAMES` of those in layers/ or paths of YAML files, separated by commas")
	f.StringVar(&o.binary, "proxy", "", "use this `binary` instead of building one")
	f.Uint64Var(&o.seed, "seed", corpus.Seed, "of the generated conversations")
	f.BoolVar(&o.small, "small", false, "one generated conversation of each language")
	return process.ParseFlags(f, args, stderr)
}

func (o *options) conversations() ([]*corpus.Conversation, error) {
	if o.file != "" {
		return corpus.ReadFile(o.file)
	}
	all, err := corpus.Generate(o.seed)
	if err != nil || !o.small {
		return all, err
	}
	known := map[string]bool{}
	return slices.DeleteFunc(all, func(c *corpus.Conversation) bool {
		again := known[c.Language]
		known[c.Language] = true
		return again
	}), nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var o options
	if err := o.read(args, stderr); err != nil {
		return err
	}
	conversations, err := o.conversations()
	if err != nil {
		return err
	}
	configs, err := readLayers(o.layers)
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "remora-recall-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if o.binary, err = process.BuildUnless(ctx, o.binary, dir); err != nil {
		return err
	}

	var b strings.Builder
	describe(&b, conversations)
	for _, c := range configs {
		l := &lab{binary: o.binary, dir: dir, conversations: conversations, layers: c, progress: stderr}
		m, err := l.measure(ctx)
		if err != nil {
			return fmt.Errorf("layers %s: %w", c.name, err)
		}
		m.report(&b)
	}
	_, err = io.WriteString(stdout, b.String())
	return err
}
