package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"remora/memory/view"
)

// coding is a made-up session of a coding agent: runs of requests, each with a call and a result more, and four layers.
type coding struct {
	runs, loop int
	recall     int // tokens of a live block that is new with every run
	step       int // items by which the history is cut when it passes twice that, 0 for never
}

// moment is one request of it.
type moment struct {
	view.PrefixRequest
	history []string
	user    int // index in the history of the run's user message
	before  int // how much of the session stands before the history, less the user message that is pinned
}

func words(n int, what string) string { return strings.Repeat(what+" ", 4*n/(len(what)+1)) }

func (c coding) play(f func(moment)) {
	var history []string
	var memory, seen, cut int
	for run := range c.runs {
		history = append(history, fmt.Sprintf("user %d %s", run, words(60, "please")))
		user := len(history) - 1
		if run%3 == 2 {
			seen++ // an observation is added after a run
		}
		for i := range c.loop {
			if i == c.loop/2 && run%2 == 0 {
				memory++ // the model updates its working memory in the middle of a loop
			}
			moved := c.step > 0 && len(history)-cut > 2*c.step
			if moved {
				cut = len(history) - c.step
			}
			m := moment{history: history[cut:], user: user - cut, before: cut}
			if m.user < 0 { // the run's user message is pinned
				m.history, m.user, m.before = append([]string{history[user]}, m.history...), 0, cut-1
			}
			m.PrefixRequest = request(fmt.Sprint(run),
				says("anchor:rules", block("rules", words(500, "rule"))),
				says("auto:working_memory", block("working_memory", fmt.Sprintf("%d %s", memory, words(300, "note")))),
				says("auto:observations", block("observations", words(100*(1+seen), "seen"))),
				says("live:clock", fmt.Sprintf("Now: %d:%02d", run, i)),
				says("live:recall", block("recall", words(c.recall, fmt.Sprint("about", run)))))
			m.View, m.Loop, m.CutMoved = len(strings.Join(m.history, ""))/4+2500, i > 0, moved
			m.End = len(history)
			f(m)
			history = append(history, fmt.Sprintf("call %d.%d %s", run, i, words(60, "grep")), fmt.Sprintf("result %d.%d %s", run, i, words(240, "line")))
		}
	}
}

// meter is a provider's cache: what a prompt shares with the one before, item by item, is cheap.
type meter struct {
	last          []string
	total, cached int
}

func (m *meter) send(items ...string) {
	same := true
	for i, item := range items {
		m.total += len(item) / 4
		if same = same && i < len(m.last) && m.last[i] == item; same {
			m.cached += len(item) / 4
		}
	}
	m.last = items
}

func (m *meter) cost(price float64) float64 {
	return float64(m.total-m.cached) + price*float64(m.cached)
}

func texts(blocks []view.Block) (out []string) {
	for _, b := range blocks {
		out = append(out, b.Texts...)
	}
	return out
}

// view is the moment's history with what of a plan stands in it and after it.
func (m *moment) view(p view.Plan) (out []string) {
	inside := make(map[int][]view.Block)
	for _, b := range append(slices.Clip(p.Updates), p.Live...) {
		switch {
		case b.At > 0:
			inside[max(b.At-m.before, 0)] = append(inside[max(b.At-m.before, 0)], b)
		case !b.Run:
			inside[len(m.history)] = append(inside[len(m.history)], b)
		default:
			inside[m.user+1] = append(inside[m.user+1], b)
		}
	}
	for i := range len(m.history) + 1 {
		out = append(out, texts(inside[i])...)
		if i < len(m.history) {
			out = append(out, m.history[i])
		}
	}
	return out
}

func recalled(layers []view.Said) (out []string) {
	for _, l := range layers {
		out = append(out, l.Texts...)
	}
	return out
}

func join(lists ...[]string) (out []string) {
	for _, list := range lists {
		out = append(out, list...)
	}
	return out
}

// TestShareCached measures what prefix versions are worth: the same session through the same cache, with blocks as they are
// recalled and with prefix versions.
func TestShareCached(t *testing.T) {
	system := []string{"system " + words(2000, "be helpful")}
	for _, c := range []struct {
		name string
		coding
		// What layers cost at 0.1 beside the same session without any, as a part of what they cost as they are recalled:
		// at most this with prefix versions, updates and live blocks at the end, and with those of the run after its message.
		end, run float64
	}{
		{"whole history", coding{runs: 12, loop: 30, recall: 1000}, 0.75, 0.30},
		{"stepped window", coding{runs: 12, loop: 30, recall: 1000, step: 40}, 0.98, 0.40},
		{"stepped window, long runs", coding{runs: 4, loop: 150, recall: 1000, step: 40}, 1.00, 0.25},
		{"short runs, no recall", coding{runs: 60, loop: 4}, 0.28, 0.18},
	} {
		t.Run(c.name, func(t *testing.T) {
			var none, top, end, run meter
			session := newLab()
			reasons := map[view.PrefixReason]int{}
			c.play(func(m moment) {
				none.send(join(system, m.history)...)
				top.send(join(system, recalled(m.Layers[:3]), m.history, recalled(m.Layers[3:]))...)
				p := session.step(m.PrefixRequest)
				reasons[p.Reason]++
				end.send(join(system, texts(p.Anchored), m.history, texts(p.Updates), texts(p.Live))...)
				run.send(join(system, texts(p.Anchored), m.view(p))...)
			})
			for _, r := range []struct {
				name string
				m    meter
			}{{"no layers", none}, {"as recalled", top}, {"pinned", end}, {"pinned, runs", run}} {
				t.Logf("%-15s %9d tokens, %4.1f %% cached, cost at 0.1 %7.0f, at 0.25 %7.0f, at 0.5 %8.0f", r.name, r.m.total,
					100*float64(r.m.cached)/float64(r.m.total), r.m.cost(0.1), r.m.cost(0.25), r.m.cost(0.5))
			}
			t.Log(reasons)
			plain := top.cost(0.1) - none.cost(0.1)
			if part := (end.cost(0.1) - none.cost(0.1)) / plain; part > c.end {
				t.Errorf("at the end layers cost %.3f of what they cost without pinning, want at most %.3f", part, c.end)
			}
			if part := (run.cost(0.1) - none.cost(0.1)) / plain; part > c.run {
				t.Errorf("behind the user message layers cost %.3f of what they cost without pinning, want at most %.3f", part, c.run)
			}
		})
	}
}
