package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"remora/memory/tokens"
	"remora/test/process"
	"remora/wire"
)

// policy is a measured configuration of memory.
type policy struct {
	name   string
	config []byte // YAML, part of a configuration
}

// Names of the policies that are judged: the defaults, and what our documentation recommends for coding agents; and of the
// one that has to lose nothing.
const (
	fullHistory = "full-history"
	defaults    = "shipped"
	recommended = "coding-agent"
)

//go:embed policies/*.yaml
var shipped embed.FS

// shippedPolicies returns the policies of the folder policies, in the order of the table.
func shippedPolicies() ([]*policy, error) {
	var all []*policy
	for _, name := range []string{fullHistory, "sliding-window", "stepped-window", defaults, recommended} {
		config, err := shipped.ReadFile("policies/" + name + ".yaml")
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		all = append(all, &policy{name, config})
	}
	return all, nil
}

// readPolicy reads a policy from a file.
func readPolicy(file string) (*policy, error) {
	config, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return &policy{strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), config}, nil
}

// result is the result of one policy in one dialect.
type result struct {
	policy  string
	dialect wire.Dialect
	own     *sums // of the clients' own requests
	sums
	asked    int // requests of clients
	refused  int // of those, answered with an error
	degraded int // answered without memory
	changed  int // answers that differ from the model's
	problems []string
}

// lab is shared by all runs.
type lab struct {
	dir, binary string
	sessions    []*session
	meter       *tokens.Counter
	texts       *texts
	head        int  // cost of the client's instructions and tools in tokens, 0 for their own
	idle        bool // the prompt cache expires before each user message
}

// newLedger returns the ledger of a session, whose instructions and tools cost l.head.
func (l *lab) newLedger(s *session, d wire.Dialect) (ledger, error) {
	of := ledger{led: s.instructions != ""}
	if l.head == 0 {
		return of, nil
	}
	a := &agent{dialect: d, session: s}
	a.head = a.opening()
	for _, in := range s.steps[0].input {
		if err := a.take(in); err != nil {
			return of, err
		}
	}
	req, err := wire.Parse(d, a.body())
	if err != nil {
		return of, err
	}
	of.price(l.meter, req, l.head)
	return of, nil
}

// measure replays all sessions through a new proxy with a policy.
func (l *lab) measure(ctx context.Context, p *policy, d wire.Dialect) (r *result, err error) {
	dir, err := os.MkdirTemp(l.dir, p.name+"-")
	if err != nil {
		return nil, err
	}
	u, err := startUpstream(l, d) //nolint:contextcheck // ends by Close
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, u.server.Close()) }()

	proxy, err := l.start(ctx, dir, u, p)
	if err != nil {
		return nil, fmt.Errorf("policy %s: %w", p.name, err)
	}
	defer func() { err = errors.Join(err, proxy.Stop()) }()
	agents, err := l.play(ctx, u, proxy.URL, d)
	if err != nil {
		return nil, fmt.Errorf("policy %s, %s: %w", p.name, d, proxy.Explain(err))
	}

	r = &result{policy: p.name, dialect: d, own: &sums{}}
	for _, a := range agents {
		r.add(&u.talks[a.session.name].ledger.sums)
		r.own.add(&a.own.sums)
		r.asked += len(a.session.steps)
		r.refused += a.refused
		r.degraded += a.degraded
		r.changed += a.changed
		if a.reason != "" {
			r.problems = append(r.problems, a.session.name+": "+a.reason)
		}
	}
	r.orphans += len(u.server.Faults())
	return r, nil
}

// settings are common to all policies. Waits are long, so that a busy machine does not look like missing memory.
const settings = `server: {listen: "127.0.0.1:0"}
store:
  url: "memory:"
  commit_wait: 1m
  read_wait: 1m
  spool: {dir: ""}
providers:
  - {name: scripted, kind: compatible, base_url: %q}
`

// start starts a proxy with a policy. The caller must stop it.
func (l *lab) start(ctx context.Context, dir string, u *upstream, p *policy) (*process.Proxy, error) {
	return process.Run(ctx, l.binary, dir, append(fmt.Appendf(nil, settings, u.server.URL()+"/v1"), p.config...))
}

// play plays all sessions, as many at a time as there are processors. They are independent of each other.
func (l *lab) play(ctx context.Context, u *upstream, url string, d wire.Dialect) ([]*agent, error) {
	transport := &http.Transport{MaxIdleConnsPerHost: len(l.sessions)}
	defer transport.CloseIdleConnections()
	agents := make([]*agent, len(l.sessions))
	var g errgroup.Group
	g.SetLimit(max(2, runtime.GOMAXPROCS(0)))
	for i, s := range l.sessions {
		own, err := l.newLedger(s, d)
		if err != nil {
			return nil, errors.Join(err, g.Wait())
		}
		a := &agent{http: &http.Client{Transport: transport}, url: url, dialect: d, session: s, own: own}
		a.cue = func(st *step) {
			cold := l.idle && a.answers > 0 && st.prompted()
			if req, err := wire.Parse(d, a.body()); err == nil { // else upstream refuses it
				a.own.enter(l.meter, req, cold)
			}
			u.talks[s.name].cue(st, a.said(l.texts), cold)
		}
		agents[i] = a
		g.Go(func() error { return a.play(ctx) })
	}
	return agents, g.Wait()
}
