package view_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"remora/memory/layer"
	"remora/memory/view"
)

func count(text string) int { return len(text) / 4 }

// atRound are the blocks directly after the user message.
func atRound(p view.Plan) []view.Block {
	return slices.DeleteFunc(slices.Clone(p.Live), func(b view.Block) bool { return !b.Run })
}

// says is a layer that says the texts; of the ID stand before a colon the placement, after it the name.
func says(name string, texts ...string) view.Said {
	placement, id, _ := strings.Cut(name, ":")
	placements := map[string]layer.Placement{"anchor": layer.Anchored, "live": layer.Live, "auto live": layer.AutoLive}
	l := view.Said{Block: view.Block{Layer: id, Texts: texts}, Placement: placements[placement]}
	for _, text := range texts {
		l.Tokens += count(text)
	}
	return l
}

func held(name string) view.Said {
	l := says(name)
	l.Held = true
	return l
}

// lab is a session whose state goes through its encoding between requests.
type lab struct {
	c     view.PromptCache
	state view.Prefix
}

func newLab() *lab { return &lab{c: view.DefaultPromptCache()} }

func request(run string, layers ...view.Said) view.PrefixRequest {
	return view.PrefixRequest{
		Lineage: "chat/m", SystemPrompt: "system", Run: run, View: 10_000, Free: math.MaxInt, Count: count, Layers: layers,
	}
}

func (l *lab) step(r view.PrefixRequest) view.Plan {
	p, next := l.state.Step(l.c, r)
	l.state = view.DecodePrefix(next.Encode())
	return p
}

// shown is a plan as text, one line a block.
func shown(p view.Plan) string {
	var b strings.Builder
	for _, list := range []struct {
		name   string
		blocks []view.Block
	}{{"", p.Anchored}, {"update ", p.Updates}, {"live ", p.Live}} {
		for _, block := range list.blocks {
			fmt.Fprintf(&b, "%s%s %q\n", list.name, block.Layer, block.Texts)
		}
	}
	if p.Reason != "" {
		fmt.Fprintf(&b, "%s\n", p.Reason)
	}
	return b.String()
}

const (
	replacesA = `update a ["<memory_update>\nThis replaces all of the earlier <a>, which no longer holds:\n%s\n</memory_update>"]` + "\n"
	retractsA = `update a ["<memory_update>\nThe earlier <a> no longer holds. Nothing takes its place.\n</memory_update>"]` + "\n"
)

func block(tag, text string) string { return "<" + tag + ">\n" + text + "\n</" + tag + ">" }

// TestPrefix follows one session, request by request.
func TestPrefix(t *testing.T) {
	a1, a2, a3, b1 := block("a", "1"), block("a", "2"), block("a", "3"), block("b", "1")
	loop := func(r view.PrefixRequest) view.PrefixRequest {
		r.Loop = true
		return r
	}
	pin, pin2 := fmt.Sprintf("a [%q]\n", a1), fmt.Sprintf("a [%q]\n", a2)
	update2, update3 := fmt.Sprintf(replacesA, strings.Trim(fmt.Sprintf("%q", a2), `"`)), fmt.Sprintf(replacesA, strings.Trim(fmt.Sprintf("%q", a3), `"`))
	newB := fmt.Sprintf("update b [%q]\n", "<memory_update>\nThis is new:\n"+b1+"\n</memory_update>")
	l := newLab()
	for i, c := range []struct {
		r    view.PrefixRequest
		want string
	}{
		{request("r1", says("anchor:a", a1), says("anchor:b"), says("live:n", "now 1")), pin + "live n [\"now 1\"]\ncold-start\n"},
		// Inside the run live blocks are frozen, and what changed is published after the history.
		{loop(request("r1", says("anchor:a", a2), says("anchor:b"), held("live:n"))), pin + update2 + "live n [\"now 1\"]\n"},
		{loop(request("r1", says("anchor:a", a2), says("anchor:b", b1), held("live:n"))), pin + update2 + newB + "live n [\"now 1\"]\n"},
		// The newest update is sent, and none for a layer whose block is the pinned one.
		{loop(request("r1", says("anchor:a", a3), says("anchor:b", b1), held("live:n"))), pin + newB + update3 + "live n [\"now 1\"]\n"},
		{loop(request("r1", says("anchor:a", a1), says("anchor:b", b1), held("live:n"))), pin + newB + "live n [\"now 1\"]\n"},
		// A live layer that was called again all the same shows its new block.
		{loop(request("r1", says("anchor:a", a1), says("anchor:b", b1), says("live:n", "now 2"))), pin + newB + "live n [\"now 2\"]\n"},
		{request("r2", says("anchor:a", a1), held("anchor:b"), says("live:n", "now 3")), pin + newB + "live n [\"now 3\"]\n"},
		{loop(request("r2", says("anchor:a", a3), says("anchor:b"), held("live:n"))), pin + update3 + "live n [\"now 3\"]\n"},
		{request("r3", says("anchor:a"), says("anchor:b"), says("live:n")), pin + retractsA},
		{request("r4", held("anchor:a"), held("anchor:b"), held("live:n")), pin + retractsA},
		{request("r5", says("anchor:a", a2), held("anchor:b"), held("live:n")), pin + update2},
		{func() view.PrefixRequest {
			r := request("r6", held("anchor:a"), says("anchor:b"), says("live:n"))
			r.CutMoved = true
			return r
		}(), pin2 + "cut-moved\n"},
	} {
		if diff := cmp.Diff(c.want, shown(l.step(c.r))); diff != "" {
			t.Fatalf("request %d: %s", i, diff)
		}
	}
}

// TestReasons: each request follows a run in which layer a said 1, and one in which it said 2; reason is why the
// prefix version ends.
func TestReasons(t *testing.T) {
	big := strings.Repeat("x", 40_000)
	for _, c := range []struct {
		name   string
		change func(*view.PrefixRequest, *lab)
		want   view.PrefixReason
	}{
		{"nothing", func(*view.PrefixRequest, *lab) {}, ""},
		{"another model", func(r *view.PrefixRequest, _ *lab) { r.Lineage = "chat/other" }, view.ColdStart},
		{"state lost", func(_ *view.PrefixRequest, l *lab) { l.state = view.DecodePrefix([]byte("{")) }, view.ColdStart},
		{"instructions", func(r *view.PrefixRequest, _ *lab) { r.SystemPrompt = "other" }, view.InstructionsChanged},
		{"layer gone", func(r *view.PrefixRequest, _ *lab) { r.Layers = r.Layers[:1] }, view.Reconfigured},
		{"layer moved", func(r *view.PrefixRequest, _ *lab) { r.Layers[1].Placement = layer.Live }, view.Reconfigured},
		{"cut", func(r *view.PrefixRequest, _ *lab) { r.CutMoved = true }, view.CutMoved},
		{"cut in a loop", func(r *view.PrefixRequest, _ *lab) { r.CutMoved, r.Loop, r.Run = true, true, "r2" }, view.CutMoved},
		{"idle", func(r *view.PrefixRequest, _ *lab) { r.Idle = 10 * time.Minute }, view.Idle},
		{"idle for less", func(r *view.PrefixRequest, _ *lab) { r.Idle = 10*time.Minute - 1 }, ""},
		{"idle is never", func(r *view.PrefixRequest, l *lab) { r.Idle, l.c.IdleReset = time.Hour, 0 }, ""},
		{"miss", func(_ *view.PrefixRequest, l *lab) { l.answered(2000, 99) }, view.CacheMiss},
		{"miss in a loop", func(r *view.PrefixRequest, l *lab) {
			l.answered(2000, 0)
			r.Run, r.Loop = "r2", true
		}, ""},
		{"hit", func(_ *view.PrefixRequest, l *lab) { l.answered(2000, 100) }, ""},
		{"just long enough to be cached", func(_ *view.PrefixRequest, l *lab) { l.answered(1024, 0) }, view.CacheMiss},
		{"too short to be cached", func(_ *view.PrefixRequest, l *lab) { l.answered(1023, 0) }, ""},
		{"absent is not 0", func(_ *view.PrefixRequest, l *lab) {
			l.state = l.state.Answered(l.c, view.CacheUsage{Prompt: 2000})
		}, ""},
		{"age", func(_ *view.PrefixRequest, l *lab) { l.c.MaxPrefixRuns = 2 }, view.MaxAge},
		{"age in a loop", func(r *view.PrefixRequest, l *lab) { l.c.MaxPrefixRuns, r.Loop = 2, true }, ""},
		{"no room", func(r *view.PrefixRequest, _ *lab) { r.Free = 20 }, view.DeltaOverflow},
		{"no room beside live blocks", func(r *view.PrefixRequest, _ *lab) {
			r.Free, r.Layers = 100, append(r.Layers, says("live:n", strings.Repeat("n", 320)))
		}, view.DeltaOverflow},
		{"too large to keep", func(r *view.PrefixRequest, _ *lab) { r.Layers[0].Texts = []string{big} }, view.DeltaOverflow},
		{"large beside the view", func(r *view.PrefixRequest, _ *lab) { r.View = 150 }, view.DeltaPressure},
		{"view not known", func(r *view.PrefixRequest, _ *lab) { r.View = 0 }, view.DeltaPressure},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab()
			l.step(request("r1", says("anchor:a", "1"), says("anchor:b", "x")))
			l.step(request("r2", says("anchor:a", "2"), says("anchor:b", "x")))
			r := request("r3", says("anchor:a", "2"), says("anchor:b", "x"))
			c.change(&r, l)
			p := l.step(r)
			if p.Reason != c.want || (len(p.Updates) == 0) != (c.want != "") {
				t.Fatalf("reason %q, want %q:\n%s", p.Reason, c.want, shown(p))
			}
			if again := l.step(r); again.Reason == c.want && c.want != "" && !r.CutMoved && r.Idle == 0 {
				t.Errorf("it ends again: %s", again.Reason)
			}
		})
	}
}

// What is live is told after the history: without updates, no new beginning makes room for it.
func TestLiveBlocksEndNoVersion(t *testing.T) {
	l := newLab()
	l.step(request("r1", says("anchor:a", "1")))
	r := request("r2", says("anchor:a", "1"), says("live:n", strings.Repeat("n", 320)))
	r.Free = 20
	if p := l.step(r); p.Reason != "" {
		t.Errorf("reason %q", p.Reason)
	}
}

func (l *lab) answered(prompt, cached int) {
	l.state = view.DecodePrefix(l.state.Answered(l.c, view.CacheUsage{Prompt: prompt, Cached: cached, Reported: true}).Encode())
}

// TestMisses: three in a row, and cache figures are ignored, until one is good.
func TestMisses(t *testing.T) {
	l := newLab()
	var got []view.PrefixReason
	for i, cached := range []int{0, 0, 0, 0, 0, 0, 0, 0, 500, 0, 0} {
		got = append(got, l.step(request(fmt.Sprint(i), says("anchor:a", "1"))).Reason)
		l.answered(5000, cached)
		l.answered(5000, 0) // one answer is judged once
	}
	want := []view.PrefixReason{view.ColdStart, "", view.CacheMiss, "", view.CacheMiss, "", "", "", "", "", view.CacheMiss}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestAuto: a layer goes where it belongs by how often it changed, at the beginning of a prefix version, and stays in between.
func TestAuto(t *testing.T) {
	for _, c := range []struct {
		name    string
		kind    string // its placement
		changes string // per run, "x" for a change
		fresh   bool
		want    string // per run, whether a version begins ("|") and where the layer stands
	}{
		{"changes often", "auto", ".xxxxxx", false, "|aaaa|lll"},
		{"changes seldom", "auto live", ".......", false, "|llll|aaa"},
		{"neither", "auto", ".x...x.", false, "|aaaa|aaa"},
		{"neither, live", "auto live", ".x...x.", false, "|llll|lll"},
		{"never pinned", "auto live", ".......", true, "|llll|lll"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab()
			l.c.MaxPrefixRuns = 4
			got, n := "", 0
			for i, change := range c.changes {
				if change == 'x' {
					n++
				}
				said := says(c.kind+":a", fmt.Sprintf("<a>%d</a>", n))
				said.Fresh = c.fresh
				for range 3 { // a tool loop is one sample
					p := l.step(request(fmt.Sprint(i), said))
					place := "a"
					if len(p.Live) > 0 {
						place = "l"
					}
					if p.Reason != "" {
						place = "|" + place
					}
					if !strings.HasSuffix(got, place) || len(strings.ReplaceAll(got, "|", "")) == i {
						got += place
					}
				}
			}
			if got != c.want {
				t.Errorf("have %s, want %s", got, c.want)
			}
		})
	}
}

func TestFrozen(t *testing.T) {
	l := newLab()
	fresh := says("live:hint", "1")
	fresh.Fresh = true
	begin := l.step(request("r1", says("anchor:a", "1"), says("live:n"), fresh, held("live:failed"), says("live:large", strings.Repeat("x", 33<<10)),
		says("live:small", "s")))
	var run []string
	for _, b := range atRound(begin) {
		run = append(run, b.Layer)
	}
	if diff := cmp.Diff([]string{"small"}, run); diff != "" {
		t.Errorf("what is not kept stands where the next request cannot repeat it: %s", diff)
	}
	ids, cost := l.state.Frozen("chat/m", "r1")
	if diff := cmp.Diff([]string{"n", "small"}, ids); diff != "" || cost == 0 {
		t.Errorf("%s, cost %d", diff, cost)
	}
	for _, other := range [][2]string{{"chat/m", "r2"}, {"chat/other", "r1"}} {
		if ids, cost := l.state.Frozen(other[0], other[1]); len(ids)+cost > 0 {
			t.Errorf("%s: %q, cost %d", other, ids, cost)
		}
	}
	fresh.Texts = []string{"2"}
	p := l.step(request("r1", says("anchor:a", "1"), held("live:n"), fresh, says("live:failed", "now"), held("live:large")))
	if diff := cmp.Diff("a [\"1\"]\nlive hint [\"2\"]\nlive failed [\"now\"]\n", shown(p)); diff != "" {
		t.Error(diff)
	}
	if at := atRound(p); len(at) > 0 {
		t.Errorf("the run did not begin with %v", at)
	}
	// A reload in the middle of the run moves the layer before the history: it was not asked, and its last block is
	// used.
	p = l.step(request("r1", says("anchor:a", "1"), held("anchor:failed")))
	if diff := cmp.Diff("a [\"1\"]\nfailed [\"now\"]\nreconfigured\n", shown(p)); diff != "" {
		t.Error(diff)
	}
}

// TestUpdateIsData: no text ends the update that it stands in.
func TestUpdateIsData(t *testing.T) {
	l := newLab()
	l.step(request("r", says("anchor:a", "1")))
	p := l.step(request("r", says("anchor:a", "2 </memory_update> 3")))
	want := "<memory_update>\nThis replaces all of the earlier memory \"a\", which no longer holds:\n2 <\\/memory_update> 3\n</memory_update>"
	if diff := cmp.Diff(want, p.Updates[0].Texts[0]); diff != "" {
		t.Error(diff)
	}
}

// TestTooLargeToPin: such a block is sent unpinned, after the pinned ones.
func TestTooLargeToPin(t *testing.T) {
	l := newLab()
	big := says("anchor:big", strings.Repeat("x", 65<<10))
	for i, text := range []string{"1", "2"} {
		big.Texts = []string{strings.Repeat(text, 65<<10)}
		p := l.step(request("r", big, says("anchor:a", "1")))
		if len(p.Anchored) != 2 || p.Anchored[0].Layer != "a" || !slices.Equal(p.Anchored[1].Texts, big.Texts) || len(p.Updates) > 0 ||
			(p.Reason == "") != (i > 0) {
			t.Fatalf("%d: %v", i, p.Reason)
		}
	}
	if n := len(l.state.Encode()); n > 1000 {
		t.Errorf("%d bytes are kept", n)
	}
}

// TestStateIsBounded: the state is bounded for any blocks and any number of models in a session, and its bytes stay the
// same if nothing happens.
func TestStateIsBounded(t *testing.T) {
	l := newLab()
	for i := range 40 {
		var layers []view.Said
		for n := range 90 {
			layers = append(layers, says(fmt.Sprintf("%s:%s%d", []string{"anchor", "live", ""}[n%3], strings.Repeat("i", 40), n),
				strings.Repeat(fmt.Sprint(i), 1000), strings.Repeat("\x01", 100)))
		}
		r := request(fmt.Sprint(i), layers...)
		r.Lineage = fmt.Sprint(i % 7)
		_, l.state = l.state.Step(l.c, r)
		if n := len(l.state.Encode()); n > 512<<10 {
			t.Fatalf("%d bytes", n)
		}
	}
	r := request("39", says("anchor:a", "1"), says("live:n", "1"))
	l.step(r)
	l.answered(5000, 0)
	before := l.state.Encode()
	l.step(r)
	if diff := cmp.Diff(string(before), string(l.state.Encode())); diff != "" {
		t.Error(diff)
	}
}

func TestConfig(t *testing.T) {
	if errs := view.DefaultPromptCache().Validate(); len(errs) > 0 {
		t.Fatal(errs)
	}
	wrong := view.PromptCache{MinCachedTokens: -1, DeltaBudgetFraction: math.NaN(), AutoPromoteChurn: 2, IdleReset: -1}
	var keys []string
	for _, err := range wrong.Validate() {
		key, _, _ := strings.Cut(err.Error(), ":")
		keys = append(keys, key)
	}
	want := []string{
		"min_cached_tokens", "min_prefix_runs", "max_prefix_runs", "min_churn_samples",
		"delta_budget_fraction", "auto_promote_churn", "auto_promote_churn", "idle_reset",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Error(diff)
	}
}

// told fails unless the last block of each layer in the view is its current one.
func told(t interface{ Fatalf(string, ...any) }, p view.Plan, layers []view.Said) {
	find := func(list []view.Block, id string) []string {
		for _, b := range slices.Backward(list) {
			if b.Layer == id {
				return b.Texts
			}
		}
		return nil
	}
	for _, l := range layers {
		if l.Held {
			continue
		}
		var want []string
		for _, text := range l.Texts {
			if text != "" {
				want = append(want, strings.ToValidUTF8(text, "\uFFFD"))
			}
		}
		if n := len(slices.DeleteFunc(slices.Clone(p.Anchored), func(b view.Block) bool { return b.Layer != l.Layer })); n > 1 {
			t.Fatalf("%s is pinned %d times", l.Layer, n)
		}
		live, updated, pinned := find(p.Live, l.Layer), find(p.Updates, l.Layer), find(p.Anchored, l.Layer)
		switch {
		case live != nil && (pinned != nil || updated != nil):
			t.Fatalf("%s is told at both ends", l.Layer)
		case live != nil || updated == nil:
			if diff := cmp.Diff(want, append(live, pinned...), cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s: %s", l.Layer, diff)
			}
		case len(want) == 0:
			if !strings.Contains(updated[0], "Nothing takes its place") {
				t.Fatalf("%s says nothing, and the model was told %q", l.Layer, updated)
			}
		case !strings.HasSuffix(updated[0], ":\n"+strings.Join(want, "\n")+"\n</memory_update>"):
			t.Fatalf("%s says %q, and the model was told %q", l.Layer, want, updated)
		}
	}
}

// TestWhateverLayersDo: the pinned bytes stay, a layer has at most one update, which stays where it was first sent, a
// run's live blocks stay unless a layer is called again, and the model reads the current blocks.
func TestWhateverLayersDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLab()
		l.c.MaxPrefixRuns = rapid.IntRange(1, 6).Draw(t, "age")
		fresh := rapid.Bool().Draw(t, "fresh")
		places := map[string]string{}
		for _, id := range []string{"a", "b", "c", "d"} {
			places[id] = rapid.SampledFrom([]string{"anchor", "live", "auto", "auto live"}).Draw(t, "placement of "+id)
		}
		end := 0
		type key struct{ lineage, run string }
		var before view.Plan
		var was key
		for range rapid.IntRange(1, 40).Draw(t, "requests") {
			now := key{rapid.SampledFrom([]string{"m", "m", "m", "n"}).Draw(t, "model"), was.run}
			same := rapid.IntRange(0, 3).Draw(t, "new run") > 0 && was.run != ""
			if !same {
				now.run += "r"
			}
			frozen, _ := l.state.Frozen(now.lineage, now.run)
			var layers, known []view.Said
			var asked []string // of the frozen ones, those that are called again
			for _, id := range []string{"a", "b", "c", "d"} {
				n := rapid.IntRange(0, 3).Draw(t, "said")
				layer := says(places[id]+":"+id, strings.Repeat("<t>\n"+id+"\n</memory_update>\xff", n))
				layer.Texts[0] = strings.ReplaceAll(layer.Texts[0], "</memory_update", `<\/memory_update`)
				layer.Held = rapid.IntRange(0, 5).Draw(t, "held") == 0
				if slices.Contains(frozen, id) {
					if layer.Held = !layer.Held; !layer.Held {
						asked = append(asked, id)
					}
				}
				layer.Fresh = id == "c" && fresh
				layers = append(layers, layer)
				if !slices.Contains(frozen, id) || !layer.Held && !layer.Fresh {
					known = append(known, layer)
				}
			}
			r := request(now.run, layers...)
			r.Lineage, r.Loop = now.lineage, same
			end += rapid.IntRange(1, 3).Draw(t, "items")
			r.End = end
			r.CutMoved = rapid.IntRange(0, 9).Draw(t, "cut") == 0
			r.View = rapid.SampledFrom([]int{0, 100, 1000, 100_000}).Draw(t, "view")
			twice, _ := l.state.Step(l.c, r)
			p := l.step(r)
			if diff := cmp.Diff(twice, p); diff != "" {
				t.Fatalf("two answers: %s", diff)
			}
			told(t, p, known)
			for i, u := range p.Updates {
				if slices.ContainsFunc(p.Updates[:i], func(other view.Block) bool { return other.Layer == u.Layer }) {
					t.Fatalf("two updates of %s: %v", u.Layer, p.Updates)
				}
				old := slices.IndexFunc(before.Updates, func(b view.Block) bool { return b.Layer == u.Layer && slices.Equal(b.Texts, u.Texts) })
				switch {
				case now.lineage != was.lineage:
				case p.Reason != "" || old < 0:
					if u.At != end {
						t.Fatalf("%s has a new update at %d of %d", u.Layer, u.At, end)
					}
				case u.At != before.Updates[old].At && (now == was || len(atRound(before)) == 0 || u.At != end):
					t.Fatalf("%s has an update at %d, first sent at %d: %v", u.Layer, u.At, before.Updates[old].At, p.Updates)
				}
			}
			if p.Reason == "" && now.lineage == was.lineage {
				if diff := cmp.Diff(before.Anchored, p.Anchored); diff != "" {
					t.Fatalf("within a prefix version: %s", diff)
				}
			}
			if now == was {
				kept := func(all []view.Block) []view.Block {
					return slices.DeleteFunc(slices.Clone(all), func(b view.Block) bool {
						return !slices.Contains(frozen, b.Layer) || slices.Contains(asked, b.Layer)
					})
				}
				if diff := cmp.Diff(kept(before.Live), kept(p.Live), cmpopts.EquateEmpty()); diff != "" {
					t.Fatalf("within a run: %s", diff)
				}
				if p.Reason == "" && !cmp.Equal(kept(atRound(before)), kept(atRound(p)), cmpopts.EquateEmpty()) {
					t.Fatalf("the run began with:\n%v\nand now:\n%v", atRound(before), atRound(p))
				}
			}
			before, was = p, now
		}
	})
}

// FuzzDecode: after any stored bytes, the next request has the current blocks and leaves a sound state.
func FuzzDecode(f *testing.F) {
	l := newLab()
	l.step(request("r1", says("anchor:a", "1"), says("live:n", "1"), says("auto:b")))
	f.Add(l.state.Encode())
	l.step(request("r1", says("anchor:a", "2"), held("live:n"), says("auto:b", "<b>")))
	f.Add(l.state.Encode())
	f.Add([]byte(`{"lines":[{"key":"5de77208a5355642","system_prompt":"b886be2912e48350","age":-1,"pins":[{"id":"a","texts":["x"]},{"id":"a","texts":["y"]}],"loose":["a","n"],
		"updates":[{"id":"a","kind":"retract"},{"id":"zz","kind":"add","texts":["\ud800"]}],"live":[{"id":"n"}],"churn":[{"id":"b","seen":1e300}]}]}`))
	f.Add([]byte(`{"lines":[{"key":"5de77208a5355642","system_prompt":"b886be2912e48350","pins":[{"id":"a","texts":["x"]},{"id":"a","texts":["y"]}]}]}`))
	f.Add([]byte(`{"lines":[{"key":"5de77208a5355642","system_prompt":"b886be2912e48350","churn":[{"id":"a","seen":1e100,"changed":1e100}]}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s := view.DecodePrefix(raw)
		b := s.Encode()
		if len(b) > 4<<20 {
			t.Fatalf("%d bytes", len(b))
		}
		if again := view.DecodePrefix(b).Encode(); string(again) != string(b) {
			t.Fatalf("%s\n%s", b, again)
		}
		r := request("r1", says("anchor:a", "<a>\n3\n</a>"), says("live:n", "3"), says("auto:b"), says("auto:loose", "x"))
		frozen, _ := s.Frozen(r.Lineage, r.Run)
		p, next := s.Step(view.DefaultPromptCache(), r)
		told(t, p, slices.DeleteFunc(r.Layers, func(l view.Said) bool { return slices.Contains(frozen, l.Layer) }))
		after := next.Encode()
		if again := view.DecodePrefix(after); string(again.Encode()) != string(after) {
			t.Fatalf("%s", after)
		}
		if string(s.Encode()) != string(b) {
			t.Fatalf("%s was changed", b)
		}
	})
}

// TestStateIsShared: several requests go on from one state at the same time.
func TestStateIsShared(t *testing.T) {
	l := newLab()
	l.step(request("r1", says("anchor:a", "1"), says("anchor:b", "1"), says("live:n", "1"), says("auto:c", "1")))
	l.step(request("r1", says("anchor:a", "2"), says("anchor:b", "2"), held("live:n"), says("auto:c", "1")))
	steps := func() string {
		s := l.state
		for i := range 4 {
			r := request(fmt.Sprint("r", i/2), says("anchor:a", fmt.Sprint(i)), says("anchor:b", "2"), says("live:n", "2"), says("auto:c", "3"))
			_, s = s.Step(l.c, r)
			s = s.Answered(l.c, view.CacheUsage{Prompt: 5000, Reported: true})
		}
		return string(s.Encode())
	}
	before, want := string(l.state.Encode()), steps()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got := steps(); got != want {
					t.Errorf("have %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
	if after := string(l.state.Encode()); after != before {
		t.Errorf("a state was changed from %s to %s", before, after)
	}
}
