// Package layertest checks that a layer keeps the promises of its contract (package layer): it stays within its budget,
// changes nothing that it is given, answers the same to the same question, survives any state, bounds the state that it
// makes, is safe for many sessions at once and keeps them apart.
package layertest

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
)

// maxState is the largest state that the runtime keeps, in bytes.
const maxState = 1 << 20

// Option tells Run what it cannot know of a layer.
type Option func(*suite)

// States adds states as the layer writes them, the fuller the better. They are recalled with many budgets, and broken
// in many ways.
func States(states ...layer.State) Option {
	return func(s *suite) { s.states = append(s.states, states...) }
}

// Calls adds calls of client tools that the layer looks for in responses. Each is made on every turn and answered on
// the next.
func Calls(calls ...layer.ToolCall) Option {
	return func(s *suite) { s.calls = append(s.calls, calls...) }
}

// Model sets Turn.Ask, which is nil otherwise. It must be deterministic and safe for concurrent use.
func Model(m layer.Model) Option { return func(s *suite) { s.model = m } }

// Overruns names the budgets (in tokens) at which the layer may recall more than its budget.
func Overruns(at func(budget int) bool) Option { return func(s *suite) { s.overruns = at } }

// suite is one conformance run, configured by Options.
type suite struct {
	open     func() any
	states   []layer.State
	calls    []layer.ToolCall
	model    layer.Model
	overruns func(budget int) bool
}

// Run checks the layer that open returns, each promise in a subtest. open is called often; every value must be
// configured alike.
func Run(t *testing.T, open func() any, options ...Option) {
	t.Helper()
	s := &suite{open: open, overruns: func(int) bool { return false }}
	for _, o := range options {
		o(s)
	}
	for _, c := range []struct {
		name string
		f    func(*suite, *testing.T)
	}{
		{"HasHook", (*suite).hasHook},
		{"Tools", (*suite).tools},
		{"Deterministic", (*suite).deterministic},
		{"InputsKept", (*suite).inputsKept},
		{"Budget", (*suite).budget},
		{"Escaped", (*suite).escaped},
		{"AnyState", (*suite).anyState},
		{"BoundedState", (*suite).boundedState},
		{"Stateless", (*suite).stateless},
		{"SessionsApart", (*suite).sessionsApart},
		{"ManySessions", (*suite).manySessions},
	} {
		t.Run(c.name, func(t *testing.T) { c.f(s, t) })
	}
}

func (s *suite) hasHook(t *testing.T) {
	t.Helper()
	if len(hooks(s.open())) == 0 {
		t.Fatal("the layer has no hook, want at least one interface of package layer")
	}
}

// tools checks what the runtime and the upstream need to know of each tool.
func (s *suite) tools(t *testing.T) {
	t.Helper()
	p, ok := s.open().(layer.ToolProvider)
	if !ok {
		t.Skip("the layer has no tools")
	}
	var names []string
	for _, tool := range p.Tools() {
		if tool.Name == "" || strings.Trim(tool.Name, wireName) != "" || slices.Contains(names, tool.Name) {
			t.Errorf("tool %q: want a name of its own of letters, digits, _ and -", tool.Name)
		}
		names = append(names, tool.Name)
		if tool.Description == "" || tool.Run == nil {
			t.Errorf("tool %q: want a description and something to run", tool.Name)
		}
		var schema struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(tool.Parameters, &schema); err != nil || schema.Type != "object" {
			t.Errorf("tool %q: want a JSON schema of an object, have %s (%v)", tool.Name, tool.Parameters, err)
		}
	}
}

// wireName are the characters that upstreams allow in the name of a tool.
const wireName = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

// deterministic: the same session played twice on one value, and once on another, goes the same way.
func (s *suite) deterministic(t *testing.T) {
	t.Helper()
	for _, d := range allDialects {
		impl := s.open()
		first := s.play(t, impl, "a", d)
		if diff := cmp.Diff(first, s.play(t, impl, "a", d)); diff != "" {
			t.Errorf("%v: the same value went another way the second time (-first +second):\n%s", d, diff)
		}
		if diff := cmp.Diff(first, s.play(t, s.open(), "a", d)); diff != "" {
			t.Errorf("%v: two values went different ways (-first +second):\n%s", d, diff)
		}
	}
}

// inputsKept: no hook changes its arguments. The session checks that itself after each hook.
func (s *suite) inputsKept(t *testing.T) {
	t.Helper()
	for _, d := range allDialects {
		p := s.newSession(s.open(), "a", d)
		p.watch = true
		p.playAll(t)
		for _, st := range s.states {
			p = s.newSession(s.open(), "a", d)
			p.watch, p.state = true, slices.Clone(st)
			p.playAll(t)
		}
	}
}

// budget: recalled messages are within budget, by the turn's counter.
func (s *suite) budget(t *testing.T) {
	t.Helper()
	impl := s.open()
	if _, ok := impl.(layer.Recaller); !ok {
		t.Skip("the layer recalls nothing")
	}
	states := append(s.reached(t, impl), s.states...)
	for name, count := range counters {
		for i, st := range states {
			p := s.newSession(impl, "a", allDialects[0])
			p.count, p.state = count, st
			all, _ := s.recallWithin(t, p, math.MaxInt)
			// Just less than everything is where layers of several parts go wrong.
			for _, budget := range append([]int{all - 2, all - 1, all, all + 1, all * 3 / 4, all / 2}, budgets...) {
				t.Run(fmt.Sprintf("%s/state %d/%d", name, i, budget), func(t *testing.T) {
					cost, noRoom := s.recallWithin(t, p, budget)
					if want := all > 0 && cost == 0; noRoom != want && (budget > 0 || noRoom) {
						t.Errorf("the layer says %v of no room; it says %d tokens of %d", noRoom, cost, all)
					}
				})
			}
		}
	}
}

// recallWithin recalls within a budget, and returns the cost and whether the layer said that it has no room.
func (s *suite) recallWithin(t *testing.T, p *session, budget int) (cost int, noRoom bool) {
	t.Helper()
	budget = max(budget, 0)
	turn := p.turn(lastTurn)
	st, err := p.begin(t.Context(), &turn)
	if err != nil {
		t.Fatalf("init: %v", err)
	}
	got, err := p.impl.(layer.Recaller).Recall(t.Context(), &turn, st, budget)
	if err != nil {
		t.Fatalf("recall: %v", err)
	}
	for _, m := range got.Messages {
		cost += p.count(m)
		if m == "" || !utf8.ValidString(m) {
			t.Errorf("a message is empty or not valid UTF-8: %.200q", m)
		}
	}
	if q, ok := p.impl.(layer.Quieter); ok && len(got.Messages) > 0 && q.Quiet(&turn, st) {
		t.Error("the layer is quiet, and says something")
	}
	if s.overruns(budget) {
		return cost, got.NoRoom
	}
	if cost > budget {
		t.Errorf("recalled %d tokens, budget %d", cost, budget)
	}
	return cost, got.NoRoom
}

// escaped: what was said cannot close a block. Every text of a session holds a closing tag.
func (s *suite) escaped(t *testing.T) {
	t.Helper()
	p := s.newSession(s.open(), "a", allDialects[0])
	p.playAll(t)
	for _, m := range p.recalled {
		if strings.Contains(m, closing) {
			t.Errorf("recalled a closing tag that somebody said: %.2000s", m)
		}
	}
}

// anyState: a state that was damaged, or written by something else, neither fails the request nor panics.
func (s *suite) anyState(t *testing.T) {
	t.Helper()
	states := append(s.reached(t, s.open()), s.states...)
	for i, bad := range damaged(states) {
		t.Run(fmt.Sprintf("%d %.40q", i, bad), func(t *testing.T) {
			p := s.newSession(s.open(), "a", allDialects[i%len(allDialects)])
			p.state = bad
			p.playSome(t, 2)
			p = s.newSession(s.open(), "a", allDialects[0])
			p.state, p.raw = bad, true
			p.playSome(t, 2) // without Init, as when a state changed under a request: an error is fine, a panic is not
		})
	}
}

// boundedState: no caller can grow the state beyond its limit.
func (s *suite) boundedState(t *testing.T) {
	t.Helper()
	p := s.newSession(s.open(), "a", allDialects[0])
	p.flood = true
	for n := range floodTurns {
		p.play(t, n)
		if len(p.state) > maxState {
			t.Fatalf("after %d turns the state has %d bytes, want at most %d", n+1, len(p.state), maxState)
		}
	}
}

// sessionsApart: two sessions that take turns on one value go as they would alone.
func (s *suite) sessionsApart(t *testing.T) {
	t.Helper()
	d := allDialects[0]
	shared := s.open()
	a, b := s.newSession(shared, "a", d), s.newSession(shared, "b", d)
	for n := range turns {
		a.play(t, n)
		b.play(t, n)
	}
	a.end(t)
	b.end(t)
	if diff := cmp.Diff(s.play(t, s.open(), "a", d), a.log); diff != "" {
		t.Errorf("session a changed beside another (-alone +beside):\n%s", diff)
	}
	if diff := cmp.Diff(s.play(t, s.open(), "b", d), b.log); diff != "" {
		t.Errorf("session b changed beside another (-alone +beside):\n%s", diff)
	}
}

// manySessions: one value serves many sessions at once; under -race nothing is reported.
func (s *suite) manySessions(t *testing.T) {
	t.Helper()
	shared := s.open()
	want := map[string][]string{}
	for _, name := range []string{"a", "b"} {
		want[name] = s.play(t, s.open(), name, allDialects[0])
	}
	var wg sync.WaitGroup
	for i := range 8 {
		name := string(rune('a' + i%2))
		wg.Go(func() {
			p := s.newSession(shared, name, allDialects[0])
			p.playAll(t)
			if !slices.Equal(p.log, want[name]) {
				t.Errorf("session %s went another way among many", name)
			}
		})
	}
	wg.Wait()
}

// play is the log of a whole session.
func (s *suite) play(t *testing.T, impl any, name string, d dialect) []string {
	t.Helper()
	p := s.newSession(impl, name, d)
	p.playAll(t)
	return p.log
}

// stateless: a layer without a state says so, since a state that never exists would be read for every request.
func (s *suite) stateless(t *testing.T) {
	t.Helper()
	impl := s.open()
	l, ok := impl.(layer.Stateless)
	says := ok && l.Stateless()
	if has := len(s.states) > 0 || len(s.reached(t, impl)) > 1; has == says {
		t.Errorf("the layer has a state: %t; layer.Stateless says that it has none: %t", has, says)
	}
}

// reached are the states that a session goes through, nothing first.
func (s *suite) reached(t *testing.T, impl any) []layer.State {
	t.Helper()
	p := s.newSession(impl, "a", allDialects[0])
	states := []layer.State{nil}
	for n := range turns {
		p.play(t, n)
		if len(p.state) > 0 && !slices.ContainsFunc(states, func(st layer.State) bool { return string(st) == string(p.state) }) {
			states = append(states, p.state)
		}
	}
	return states
}
