// Command replay plays recorded agent sessions through the real proxy and tells what each way to configure memory would
// have sent to the model, and what that would have cost with the provider's prompt cache.
//
// It builds the proxy, puts it before a scripted upstream that refuses what the real APIs refuse, and plays every session
// once for each policy: a request for each answer of the model, with the client's history so far. README.md tells how to
// read the table, and the format of recordings.
//
//	go run ./replay                    generated sessions, all shipped policies, Chat; under 3 minutes
//	go run ./replay -in my.jsonl       your own recording
//	go run ./replay -policy my.yaml    and your own configuration, beside the shipped ones
//	go run ./replay -check             exit with 1 if the recommended policy misses its targets; with -in, on those sessions
//	go run ./replay -generate          print the generated sessions instead
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"remora/wire"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1) //nolint:forbidigo // main
	}
}

// options are the command line.
type options struct {
	in, policy, only, dialect, binary string
	check, generate, small            bool
}

func (o *options) read(args []string, stderr io.Writer) error {
	f := flag.NewFlagSet("replay", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.in, "in", "", "replay this recording (`FILE`, JSONL) instead of generated sessions")
	f.StringVar(&o.policy, "policy", "", "measure this configuration (`FILE`, YAML) too")
	f.StringVar(&o.only, "only", "", "`names` of the policies to measure, separated by commas")
	f.StringVar(&o.dialect, "dialect", "chat", "chat, responses or both")
	f.StringVar(&o.binary, "proxy", "", "use this `binary` instead of building one")
	f.BoolVar(&o.check, "check", false, "exit with 1 if the recommended policy misses its targets")
	f.BoolVar(&o.generate, "generate", false, "print the sessions as JSONL and end")
	f.BoolVar(&o.small, "small", false, "the shipped sample session alone")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return nil
}

func (o *options) dialects() ([]wire.Dialect, error) {
	if o.dialect == "both" {
		return []wire.Dialect{wire.Chat, wire.Responses}, nil
	}
	d, err := wire.ParseDialect(o.dialect)
	if err != nil {
		return nil, fmt.Errorf("-dialect: want chat, responses or both, have %q", o.dialect)
	}
	return []wire.Dialect{d}, nil
}

// sessions reads or makes what is replayed.
func (o *options) sessions() ([]*session, error) {
	switch {
	case o.in != "":
		file, err := os.Open(o.in)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // only read
		all, err := parse(file, strings.TrimSuffix(filepath.Base(o.in), filepath.Ext(o.in)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.in, err)
		}
		return all, nil
	case o.small:
		return sample()
	}
	return generated()
}

// policies are those to measure. What others are compared with is always among them.
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

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	if err := o.read(args, stderr); err != nil {
		return err
	}
	if o.generate {
		list := profiles()
		if o.small {
			list = []profile{sampleProfile()}
		}
		return writeSessions(stdout, list)
	}
	dialects, err := o.dialects()
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
	rep, err := compare(ctx, &o, sessions, func(l *lab) ([]*result, error) {
		return l.table(ctx, policies, dialects, stderr)
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, rep.markdown()); err != nil {
		return err
	}
	if missed := rep.missed(); o.check && len(missed) > 0 {
		return fmt.Errorf("missed: %s", strings.Join(missed, "; "))
	}
	return nil
}

// compare prepares a lab, lets it measure, and clears it away.
func compare(ctx context.Context, o *options, sessions []*session, measure func(*lab) ([]*result, error)) (rep *report, err error) {
	dir, err := os.MkdirTemp("", "remora-replay-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l := &lab{dir: dir, binary: o.binary, sessions: sessions}
	if l.binary == "" {
		if l.binary, err = build(ctx, dir); err != nil {
			return nil, err
		}
	}
	if l.meter, err = newMeter(); err != nil {
		return nil, err
	}
	defer l.meter.close()
	results, err := measure(l)
	if err != nil {
		return nil, err
	}
	return &report{sessions: sessions, results: results, foreign: o.in != "" && !o.check}, nil
}

// table measures every policy in every dialect and tells progress.
func (l *lab) table(ctx context.Context, policies []*policy, dialects []wire.Dialect, progress io.Writer) ([]*result, error) {
	var all []*result
	for _, d := range dialects {
		for _, p := range policies {
			_, _ = fmt.Fprintf(progress, "%s, %s\n", p.name, d) // only for those who watch
			r, err := l.measure(ctx, p, d)
			if err != nil {
				return nil, err
			}
			all = append(all, r)
		}
	}
	return all, nil
}
