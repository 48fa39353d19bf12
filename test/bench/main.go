// Command bench compares the cost of Remora with that of other proxies.
//
// It starts a mock API, and measures it directly and behind nginx, a bare fasthttp proxy and several variants of Remora, all on
// this machine. It loads them in turn, several times, so that noise affects all of them alike. It prints the table of
// docs/performance.md and the project's targets.
//
//	go run ./test/bench            everything, under 8 minutes
//	go run ./test/bench -quick     about 2 minutes; the figures are less precise
//
// It reads processor time from the kernel, which only works on Linux.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"remora/test/process"
)

func main() { process.Main("bench", run) }

// options are the command line.
type options struct {
	quick          bool
	remora         string
	only, variants string // lists, empty for all
	role           string
	upstream       string
	store          string
	rounds         int
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&o.quick, "quick", false, "fewer and shorter rounds, about 2 minutes")
	f.StringVar(&o.only, "only", "", "`phases` to run, separated by commas: "+strings.Join(phaseNames(), ", ")+", flat")
	f.StringVar(&o.variants, "variants", "", "`variants` to run, separated by semicolons, as the table names them")
	f.StringVar(&o.remora, "remora", "", "measure this `binary` instead of building one")
	f.IntVar(&o.rounds, "rounds", 0, "the `number` of rounds")
	f.StringVar(&o.role, "role", "", "used by bench itself to start its children")
	f.StringVar(&o.upstream, "upstream", "", "likewise")
	f.StringVar(&o.store, "store", "", "likewise")
	return o, process.ParseFlags(f, args, stderr)
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	switch {
	case err != nil:
		return err
	case o.role == "upstream":
		return serveUpstream(ctx)
	case o.role == "bare":
		return serveBare(ctx, o.upstream, o.store)
	}
	r, err := compare(ctx, o, stderr)
	if err != nil {
		return err
	}
	_, err = io.WriteString(stdout, r.markdown())
	return err
}

// compare runs the benchmark and returns the report.
func compare(ctx context.Context, o options, progress io.Writer) (r *report, err error) {
	dir, err := os.MkdirTemp("", "remora-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	l, err := newLab(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	defer l.stop()
	b := newBench(l, o, progress)
	return &b.report, b.run(ctx)
}

// bench is one run of the benchmark and its report.
type bench struct {
	report
	lab      *lab
	phases   []phase
	flat     bool
	progress io.Writer
}

func newBench(l *lab, o options, progress io.Writer) *bench {
	b := &bench{
		report: report{plan: fullPlan(), variants: l.variants(), begun: time.Now(), results: results{}},
		lab:    l, phases: phases(), flat: true, progress: progress,
	}
	if busy := loadAverage(); busy > float64(runtime.NumCPU())/4 {
		b.problems = append(b.problems, fmt.Sprintf("other programs were busy before the run began (load %.1f): its figures are rough", busy))
	}
	if o.quick {
		b.plan = quickPlan()
	}
	if o.rounds > 0 {
		b.plan.rounds = o.rounds
	}
	if o.variants != "" {
		wanted := strings.Split(o.variants, ";")
		b.variants = slices.DeleteFunc(b.variants, func(v variant) bool { return !slices.Contains(wanted, v.name) })
	}
	if o.only != "" {
		wanted := strings.Split(o.only, ",")
		b.phases = slices.DeleteFunc(b.phases, func(p phase) bool { return !slices.Contains(wanted, p.name) })
		b.flat = slices.Contains(wanted, "flat")
	}
	return b
}

func phaseNames() []string {
	var names []string
	for _, p := range phases() {
		names = append(names, p.name)
	}
	return names
}

// run runs all rounds. Errors of a variant become problems in the report, and do not end the run.
func (b *bench) run(ctx context.Context) error {
	for round := range b.plan.rounds {
		b.say("round %d of %d", round+1, b.plan.rounds)
		if err := b.round(ctx, round); err != nil {
			return err
		}
	}
	if b.flat {
		return b.measureFlat(ctx)
	}
	return nil
}

func (b *bench) say(format string, args ...any) {
	_, _ = fmt.Fprintf(b.progress, "%6.1f s  "+format+"\n", append([]any{time.Since(b.begun).Seconds()}, args...)...) // progress only
}

// start starts a variant in a new folder.
func (b *bench) start(ctx context.Context, v variant, name string, round int) (*trial, error) {
	dir := filepath.Join(b.lab.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	in, err := v.start(ctx, b.lab, dir)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", v.name, err)
	}
	return &trial{
		plan: b.plan, variant: v, in: in, prefix: name,
		put: func(m measure, value float64) { b.results.put(v.name, m, round, value) },
	}, nil
}

// round starts all variants again, so that each round begins with empty stores, and runs each phase with all of them before the
// next one.
func (b *bench) round(ctx context.Context, round int) error {
	var trials []*trial
	defer func() {
		for _, t := range trials {
			t.in.proc.stop()
		}
	}()
	for i, v := range b.variants {
		t, err := b.start(ctx, v, fmt.Sprintf("r%dv%d", round, i), round)
		if err != nil {
			return err
		}
		trials = append(trials, t)
		if t.in.proc != nil {
			t.put(startup, t.in.startup.Seconds()*1e3)
		}
	}
	for _, t := range trials {
		if t.in.proc != nil {
			t.put(idleMemory, t.in.proc.resident("VmRSS"))
		}
	}

	for n, p := range b.phases {
		for i := range trials {
			t := trials[(i+round+n)%len(trials)] // the order changes with the phase
			if ctx.Err() != nil {
				return ctx.Err()
			}
			b.runPhase(t, p)
		}
	}

	for _, t := range trials {
		if t.in.proc != nil {
			t.put(peakMemory, t.in.proc.resident("VmHWM"))
		}
	}
	return nil
}

func (b *bench) runPhase(t *trial, p phase) {
	t.phase = strings.ReplaceAll(p.name, " ", "-")
	t.complain = func(format string, args ...any) {
		b.complain(t.variant.name, p.name, fmt.Sprintf(format, args...))
	}
	if err := p.run(t); err != nil {
		t.complain("%v; the program printed: %s", err, t.in.proc.printed())
	}
}

func (b *bench) complain(variant, phase, what string) {
	b.problems = append(b.problems, fmt.Sprintf("%s, %s: %s", variant, phase, what))
	b.say("%s", b.problems[len(b.problems)-1])
}

// measureFlat measures the cost of a turn against the length of its transcript, on durable stores.
func (b *bench) measureFlat(ctx context.Context) error {
	for i, v := range b.variants {
		if v.name != onRedis && v.name != onBolt {
			continue
		}
		b.say("length of the transcript: %s", v.name)
		t, err := b.start(ctx, v, fmt.Sprintf("flat%d", i), 0)
		if err != nil {
			return err
		}
		for n, h := range habits() {
			t.prefix = fmt.Sprintf("flat%d-%d", i, n)
			b.runPhase(t, phase{"flat", func(t *trial) error {
				f, err := t.flat(h)
				if err == nil {
					b.flatness = append(b.flatness, f)
				}
				return err
			}})
		}
		t.in.proc.stop()
	}
	return nil
}
