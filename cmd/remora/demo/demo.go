// Package demo is `remora demo`: it plays a few conversations through the real proxy, without a provider or a key. The upstream
// is scripted and strict. The proxy is a separate process, which the demo kills and restarts in the middle. The demo checks the
// view of each turn against the stored items, the layers' blocks with their slots and tokens, and the calls hidden from the
// client. It prints a few turns as a dialogue, or all of them as a table.
//
// It uses the proxy only from outside: its HTTP API, its configuration and its transcript command.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"remora/memory"
	"remora/test/process"
	"remora/test/scripted"
)

// Options configure a demo.
type Options struct {
	// Binary is the path of the proxy's executable.
	Binary string
	// Out is where the demo prints; errors of writing are ignored.
	Out io.Writer
	// Color allows ANSI colours on Out.
	Color bool
	// Table prints every turn as a row, and some in full, in place of a few turns as a dialogue.
	Table bool
	// Full is Table with every item of the turns that are shown in full, followed by the stored items of each session.
	Full bool
}

// timeout bounds a demo. It takes one or two seconds, up to a minute on a busy disk.
const timeout = 5 * time.Minute

// Run plays, prints and checks the demo. It returns an error if a check fails, which it has printed then, or if the demo could not
// be played to its end. It leaves no processes or files behind.
func Run(ctx context.Context, o Options) (err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	dir, err := os.MkdirTemp("", "remora-demo-")
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	chapters := story()
	upstream, err := scripted.Start(scripted.Options{Respond: model(chapters)}) //nolint:contextcheck // ends by Close
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer func() { err = errors.Join(err, upstream.Close()) }()
	page := printer{out: o.Out, color: o.Color, full: o.Full}
	s := &stage{machine: newMachine(o.Binary, dir, upstream.URL()), print: page}
	table := o.Table || o.Full
	if !table {
		s.print.out = io.Discard
	}
	s.player = &player{http: &http.Client{Transport: &http.Transport{}}, model: upstream, crash: s.restart}
	defer s.player.http.CloseIdleConnections()
	if err := s.run(ctx, chapters); err != nil {
		return fmt.Errorf("demo: %w", err)
	}

	checks := s.checks()
	failed := slices.ContainsFunc(checks, func(c check) bool { return c.err != nil })
	if table || failed {
		page.verdicts(checks)
	}
	switch {
	case failed:
		return errors.New("demo: the checks above have failed")
	case table:
		page.nextSteps()
	default:
		highlights{&page, s.player.turns, s.atCrash, s.atEnd}.print()
	}
	return nil
}

// stage holds the upstream, the proxy and the clients of a demo.
type stage struct {
	machine *machine
	player  *player
	print   printer
	proxy   *process.Proxy

	// The sessions on disk after the proxy was killed, and at the end.
	atCrash, atEnd []snapshot
}

// snapshot is a stored session at one moment.
type snapshot struct {
	talk  *talk
	lines []memory.ExportLine
	turns int // number of turns of all talks until then
	said  int // length of the talk's line then
}

// run plays all chapters and reads the transcript.
func (s *stage) run(ctx context.Context, chapters []chapter) (err error) {
	if s.proxy, err = s.machine.start(ctx); err != nil {
		return err
	}
	stopped := false
	defer func() {
		if !stopped {
			_ = s.proxy.Kill() // err matters more
		}
	}()
	s.player.url = s.proxy.URL

	s.print.opening(s.proxy.URL, s.player.model.URL())
	for _, c := range chapters {
		s.player.begin(c)
		for _, a := range c.acts {
			if err := s.player.play(ctx, c.habit, a); err != nil {
				return s.proxy.Explain(err)
			}
		}
	}

	stopped = true
	if err := s.proxy.Stop(); err != nil {
		return err
	}
	if s.atEnd, err = s.read(ctx); err != nil {
		return err
	}
	s.print.rows(s.player.turns, s.atEnd, s.atCrash[0].turns)
	s.print.transcripts(s.atEnd)
	return nil
}

// restart kills the proxy, reads the sessions on disk, and starts it again.
func (s *stage) restart(ctx context.Context) (err error) {
	if err := s.proxy.Kill(); err != nil {
		return err
	}
	if s.atCrash, err = s.read(ctx); err != nil {
		return err
	}
	s.print.rows(s.player.turns, s.atCrash, 0)
	proxy, err := s.machine.start(ctx)
	if err != nil {
		return err
	}
	s.proxy, s.player.url = proxy, proxy.URL
	s.print.restarted(s.atCrash[0], s.proxy.URL)
	return nil
}

// read reads all sessions so far.
func (s *stage) read(ctx context.Context) ([]snapshot, error) {
	var all []snapshot
	for _, tk := range s.player.talks {
		lines, err := s.machine.transcript(ctx, tk.session)
		if err != nil {
			return nil, err
		}
		all = append(all, snapshot{talk: tk, lines: lines, turns: len(s.player.turns), said: len(tk.line)})
	}
	return all, nil
}
