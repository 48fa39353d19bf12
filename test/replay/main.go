// Command replay plays recorded agent sessions through the real proxy. It reports what each memory policy sends to the model,
// and the cost with the provider's prompt cache.
//
// It builds the proxy, starts it in front of a scripted upstream that refuses the histories that real APIs refuse, and plays
// every session once for each policy: a request for each answer of the model, with the client's history so far. README.md
// explains the table and the format of recordings.
//
//	go run ./test/replay                    generated sessions, all shipped policies, Chat; under 3 minutes
//	go run ./test/replay -in my.jsonl       your own recording
//	go run ./test/replay -policy my.yaml    also your own configuration
//	go run ./test/replay -check             exit with 1 if the recommended policy misses its targets; with -in, on those sessions
//	go run ./test/replay -generate          print the generated sessions instead
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"remora/memory/tokens"
	"remora/test/process"
	"remora/wire"
	"remora/wire/dialects"
)

func main() { process.Main("replay", run) }

// options are the command line.
type options struct {
	in                            []string
	policy, only, dialect, binary string
	check, generate, small, idle  bool
	head                          int
	seed                          uint64
	surcharge                     float64
}

func (o *options) read(args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	f.Func("in", "replay this recording (`FILE`, JSONL) instead of generated sessions; may be given several times", func(name string) error {
		o.in = append(o.in, name)
		return nil
	})
	f.IntVar(&o.head, "head", defaultHead, "price the client's instructions and tools at this number of `tokens`; 0 for those in the recording")
	f.Float64Var(&o.surcharge, "write", 0, "additional cost of writing a token into the prompt cache, as a `share` of its price")
	f.BoolVar(&o.idle, "idle", false, "the prompt cache has expired before each user message")
	f.StringVar(&o.policy, "policy", "", "measure this configuration (`FILE`, YAML) too")
	f.StringVar(&o.only, "only", "", "`names` of the policies to measure, separated by commas")
	f.StringVar(&o.dialect, "dialect", "chat", "chat, responses or both")
	f.StringVar(&o.binary, "proxy", "", "use this `binary` instead of building one")
	f.BoolVar(&o.check, "check", false, "exit with 1 if the recommended policy misses its targets")
	f.BoolVar(&o.generate, "generate", false, "print the sessions as JSONL and exit")
	f.Uint64Var(&o.seed, "seed", 0, "generate other sessions of the same shapes, by any `number` but 0")
	f.BoolVar(&o.small, "small", false, "only the shipped sample session")
	return process.ParseFlags(f, args, stderr)
}

func (o *options) spoken() ([]wire.Dialect, error) {
	if o.dialect == "both" {
		return dialects.All(), nil
	}
	d, err := dialects.Parse(o.dialect)
	if err != nil {
		return nil, fmt.Errorf("-dialect: want chat, responses or both, have %q", o.dialect)
	}
	return []wire.Dialect{d}, nil
}

// defaultHead is the size of a coding agent's instructions and tools, in tokens.
const defaultHead = 28_000

// sessions reads or generates the sessions to replay.
func (o *options) sessions() ([]*session, error) {
	switch {
	case len(o.in) > 0:
		return readAll(o.in)
	case o.small:
		return sample()
	}
	return generated(o.seed)
}

// readAll reads recordings. Of two sessions with the same name the second gets a number.
func readAll(files []string) ([]*session, error) {
	var all []*session
	times := map[string]int{}
	for _, name := range files {
		read, err := readRecording(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, s := range read {
			if times[s.name]++; times[s.name] > 1 {
				s.name = fmt.Sprintf("%s (%d)", s.name, times[s.name])
			}
		}
		all = append(all, read...)
	}
	return all, nil
}

func readRecording(name string) ([]*session, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	return parse(file, strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
}

// policies returns the policies to measure. The baseline is always among them.
func (o *options) policies() ([]*policy, error) {
	all, err := shippedPolicies()
	if err != nil {
		return nil, err
	}
	if o.policy != "" {
		own, err := readPolicy(o.policy)
		if err != nil {
			return nil, err
		}
		all = append(all, own)
	}
	if o.only == "" {
		return all, nil
	}
	var chosen []*policy
	for _, p := range all {
		if p.name == fullHistory || strings.Contains(","+o.only+",", ","+p.name+",") {
			chosen = append(chosen, p)
		}
	}
	return chosen, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	var o options
	if err := o.read(args, stderr); err != nil {
		return err
	}
	if o.generate {
		list := seeded(o.seed)
		if o.small {
			list = []profile{sampleProfile()}
		}
		return writeSessions(stdout, list)
	}
	spoken, err := o.spoken()
	if err != nil {
		return err
	}
	sessions, err := o.sessions()
	if err != nil {
		return err
	}
	policies, err := o.policies()
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "remora-replay-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{dir: dir, sessions: sessions, texts: newTexts(), meter: tokens.New(), head: o.head, idle: o.idle}
	if l.binary, err = process.BuildUnless(ctx, o.binary, dir); err != nil {
		return err
	}

	rep := &report{sessions: sessions, surcharge: o.surcharge, head: o.head, idle: o.idle, foreign: len(o.in) > 0 && !o.check}
	for _, d := range spoken {
		for _, p := range policies {
			_, _ = fmt.Fprintf(stderr, "%s, %s\n", p.name, d) // progress only
			r, err := l.measure(ctx, p, d)
			if err != nil {
				return err
			}
			rep.results = append(rep.results, r)
		}
	}
	if _, err := io.WriteString(stdout, rep.markdown()); err != nil {
		return err
	}
	if missed := rep.missed(); o.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}
