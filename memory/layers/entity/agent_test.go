package entity

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/tokens"
	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// agent makes the items of a coding agent's session in a project of its own, out of a seed. It works on a few files at a time
// and now and then comes back to what it saw long ago; its tools print much that nobody needs again.
type agent struct {
	*rand.Rand
	items   []wire.Item
	files   []string
	symbols [][]string // of each file
	focus   []int      // files of the task
	known   []int      // files of earlier tasks
	calls   int
}

func newAgent(seed uint64) *agent {
	a := &agent{Rand: rand.New(rand.NewPCG(seed, 7))}
	nouns := strings.Fields("session index buffer window cursor header request reply store cache lease worker queue batch record schema policy route handler")
	verbs := strings.Fields("load merge split parse encode decode flush close open resolve match append trim count watch retry drain")
	folders := strings.Fields("cmd/server internal/store internal/api pkg/client web/src tests docs deploy/chart")
	for i := range 250 {
		a.files = append(a.files, fmt.Sprintf("%s/%s_%s%d.go", folders[a.IntN(8)], nouns[a.IntN(19)], verbs[a.IntN(17)], i))
		var symbols []string
		for j := range perFile {
			noun := nouns[a.IntN(19)]
			symbols = append(symbols, fmt.Sprintf("%s%s%s%d", verbs[a.IntN(17)], strings.ToUpper(noun[:1]), noun[1:], i*perFile+j))
		}
		a.symbols = append(a.symbols, symbols)
	}
	return a
}

func (a *agent) add(v map[string]any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	it, err := wire.ParseItem(dialects.Responses, raw)
	if err != nil {
		panic(err)
	}
	a.items = append(a.items, it)
}

// perFile is how many symbols a file has.
const perFile = 40

// file is the one that the next step is about.
func (a *agent) file() int {
	if n := a.IntN(1000); n < 200 && len(a.known) > 0 {
		return a.known[a.IntN(len(a.known))]
	}
	return a.focus[a.IntN(len(a.focus))]
}

func (a *agent) symbol(file int) string { return a.symbols[file][a.IntN(1+a.IntN(perFile))] }

// code is so many lines of a file.
func (a *agent) code(file, lines int) string {
	var b strings.Builder
	for range lines {
		switch a.IntN(6) {
		case 0:
			fmt.Fprintf(&b, "func %s(ctx context.Context, n int) error {\n", a.symbol(file))
		case 1:
			fmt.Fprintf(&b, "\tif err := %s(ctx, %d); err != nil {\n", a.symbol(file), a.IntN(64))
		case 2:
			fmt.Fprintf(&b, "\t\treturn fmt.Errorf(\"the record cannot be read: %%w\", err)\n")
		default:
			fmt.Fprintf(&b, "\t// the order of what is read here does not matter, see line %d\n", a.IntN(400))
		}
	}
	return b.String()
}

// log returns the output of a test run.
func (a *agent) log(file, lines int) string {
	var b strings.Builder
	for range lines {
		fmt.Fprintf(&b, "2026-11-%02dT%02d:%02d:%02dZ ok %d.%03ds build_%06x of %s\n", 1+a.IntN(28), a.IntN(24), a.IntN(60), a.IntN(60), a.IntN(9), a.IntN(1000), a.IntN(1<<24), a.symbol(file))
	}
	return b.String()
}

func (a *agent) task() {
	a.known = append(a.known, a.focus...)
	a.focus = nil
	for range 3 + a.IntN(3) {
		a.focus = append(a.focus, a.IntN(len(a.files)))
	}
	a.add(map[string]any{"role": "user", "content": fmt.Sprintf("Please find out why %s fails, and fix it.", a.symbol(a.focus[0]))})
	for range 30 + a.IntN(60) {
		a.step()
	}
	a.add(map[string]any{"type": "message", "role": "assistant", "content": fmt.Sprintf("Done: I changed %s and %s.", a.files[a.focus[0]], a.files[a.focus[1]])})
}

// step is one answer with a call, and its result.
func (a *agent) step() {
	f := a.file()
	if a.IntN(2) == 0 {
		a.add(map[string]any{"type": "message", "role": "assistant", "content": fmt.Sprintf("The cause may be %s, which %s calls.", a.symbol(f), a.symbol(f))})
	}
	var arguments map[string]any
	var name, output string
	switch n := a.IntN(10); {
	case n < 4:
		name, arguments, output = "read_file", map[string]any{"path": a.files[f], "offset": a.IntN(400)}, a.code(f, 20+a.IntN(160))
	case n < 6:
		name, arguments = "grep", map[string]any{"pattern": a.symbol(f)}
		for range 3 + a.IntN(20) {
			g := a.IntN(len(a.files))
			if a.IntN(3) > 0 {
				g = a.focus[a.IntN(len(a.focus))]
			}
			output += fmt.Sprintf("%s:%d:\t%s(ctx, %d)\n", a.files[g], a.IntN(900), a.symbol(f), a.IntN(9))
		}
	case n < 8:
		name, arguments, output = "edit_file", map[string]any{"path": a.files[f], "old": a.code(f, 4), "new": a.code(f, 6)}, "The file was changed."
	default:
		name, arguments, output = "shell", map[string]any{"command": "go test ./" + a.files[f][:strings.LastIndexByte(a.files[f], '/')] + "/..."}, a.log(f, 5+a.IntN(80))
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		panic(err)
	}
	a.calls++
	id := fmt.Sprint("call_", a.calls)
	a.add(map[string]any{"type": "function_call", "call_id": id, "name": name, "arguments": string(raw)})
	a.add(map[string]any{"type": "function_call_output", "call_id": id, "output": output})
}

// tally counts the costs and losses of one way to cut a session.
type tally struct {
	needs, cut       int     // distinctive strings in answers that the client's history has, and those that the prompt lacks
	oldNeeds, oldCut int     // of those last seen 40 or more items back
	cost             float64 // in tokens of full price, with the head
	tokens, cached   float64 // of history and ledger
	requests         int
	orphans, noUser  int
}

func (s tally) share() float64 { return float64(s.cut) / float64(s.needs) }

// head is the cost of a client's instructions and tools, in tokens.
const head = 28_000

// meter counts tokens, of each text once.
type meter struct {
	counter *tokens.Counter
	known   map[string]float64
	named   map[string]map[string]bool
}

func (m *meter) count(text string) int { return m.counter.Count("gpt-5", text) }

func (m *meter) item(it wire.Item) float64 {
	n, ok := m.known[string(it.Raw)]
	if !ok {
		n = float64(m.counter.CountItem("gpt-5", it))
		m.known[string(it.Raw)] = n
	}
	return n
}

// play sends a session through a window, with a ledger of so many tokens, 0 for none. A client compacts its history to one
// message of the user's and its last six items when it has too many items.
func (s *tally) play(t *testing.T, m *meter, items []wire.Item, w *view.Window, ledgerTokens int) {
	t.Helper()
	const compactAt = 400
	l := newLayer(t, Options{MaxTokens: max(1, ledgerTokens)})
	var state layer.State
	var history, before, answer []wire.Item
	seen := make(map[string]int) // where a name stood last, in items
	at := 0
	see := func(it wire.Item) {
		for name := range m.names(it) {
			seen[name] = at
		}
		at++
		history = append(history, it)
	}
	for i, it := range items {
		byModel := it.Kind == wire.ToolCall || it.Role == wire.Assistant
		if !byModel {
			see(it)
			continue
		}
		if i > 0 && items[i-1].Role != wire.Assistant {
			if len(history) > compactAt && history[len(history)-1].Kind == wire.ToolResult {
				last := history[len(history)-6:]
				for last[0].Kind == wire.ToolResult {
					last = last[1:]
				}
				kept := slices.Clone(last)
				history, seen = nil, make(map[string]int)
				see(wire.NewMessage(dialects.Responses, wire.User, "Summary: the work goes on in "+strings.Join(slices.Collect(names(kept[0].Input(0))), ", ")))
				for _, it := range kept {
					see(it)
				}
			}
			var sent []wire.Item
			sent, state = prompt(t, m, l, state, history, w, ledgerTokens)
			s.pay(m, sent, before)
			before = sent
		}
		s.need(m, it, before, seen, at)
		answer = append(answer, it)
		if i+1 < len(items) && (items[i+1].Kind == wire.ToolCall) {
			continue
		}
		for _, it := range answer {
			see(it)
		}
		answer = nil
	}
}

// prompt returns the items that are sent of a history.
func prompt(t *testing.T, m *meter, l *Layer, state layer.State, history []wire.Item, w *view.Window, ledgerTokens int) ([]wire.Item, layer.State) {
	t.Helper()
	v := view.Assemble(view.Request{Items: history, Window: w})
	if v.Start.Units == 0 || ledgerTokens == 0 {
		return v.Items, state
	}
	lost := slices.Clone(history[:v.From])
	if v.Pinned >= 0 {
		lost = slices.Delete(lost, v.Pinned, v.Pinned+1)
	}
	turn := &layer.Turn{Count: m.count, Cut: cut(fmt.Sprint(v.Start.Units, len(history) < 200), lost, v.Items)}
	r := layertest.Must(l.Recall(t.Context(), turn, state, 1<<20))(t)
	if r.State != nil {
		state = r.State
	}
	var blocks []wire.Item
	for _, text := range r.Messages {
		blocks = append(blocks, wire.NewMessage(dialects.Responses, wire.Developer, text))
	}
	return append(blocks, v.Items...), state
}

// pay adds what a request costs after the one before it.
func (s *tally) pay(m *meter, sent, before []wire.Item) {
	all, cached := float64(head), 0.0
	if before != nil {
		cached = head
	}
	same := before != nil
	for i, it := range sent {
		n := m.item(it)
		all += n
		if same = same && i < len(before) && string(before[i].Raw) == string(it.Raw); same {
			cached += n
		}
	}
	s.requests++
	s.cost += all - 0.9*cached
	s.tokens += all - head
	s.cached += max(0, cached-head)
	s.orphans += len(wiretest.Check(dialects.Responses, sent))
	if !slices.ContainsFunc(sent, func(it wire.Item) bool { return it.Role == wire.User }) {
		s.noUser++
	}
}

// need counts the names in what the model answers.
func (s *tally) need(m *meter, answer wire.Item, sent []wire.Item, seen map[string]int, at int) {
	have := make(map[string]bool)
	for _, it := range sent {
		for name := range m.names(it) {
			have[name] = true
		}
	}
	for name := range m.names(answer) {
		last, ok := seen[name]
		if !ok {
			continue
		}
		s.needs++
		if !have[name] {
			s.cut++
		}
		if at-last >= 40 {
			s.oldNeeds++
			if !have[name] {
				s.oldCut++
			}
		}
	}
}

// names are the names of an item, each once.
func (m *meter) names(it wire.Item) map[string]bool {
	all, ok := m.named[string(it.Raw)]
	if ok {
		return all
	}
	all = make(map[string]bool)
	for text := range texts(it) {
		for name := range names(text) {
			all[name] = true
		}
	}
	m.named[string(it.Raw)] = all
	return all
}

// What coding agents are recommended keeps the names that later steps need, and the prompt cache: the window alone loses as
// much of them here as was seen of real agents, about one in twelve.
func TestCodingAgent(t *testing.T) {
	t.Parallel()
	m := &meter{tokens.New(), make(map[string]float64), make(map[string]map[string]bool)}
	session := newAgent(1)
	for range 5 {
		session.task()
	}
	under := func(w *view.Window, ledgerTokens int) (s tally) {
		s.play(t, m, session.items, w, ledgerTokens)
		t.Logf("window %v, ledger %d: %d requests, needed but cut %.1f %% of %d, of those last seen 40 items back %.1f %% of %d, cost %.0f, cached %.1f %%",
			w != nil, ledgerTokens, s.requests, 100*s.share(), s.needs, 100*float64(s.oldCut)/float64(s.oldNeeds), s.oldNeeds, s.cost, 100*s.cached/s.tokens)
		return s
	}

	recorded := &view.Window{MaxItems: 80, EvictBatch: 40, InFlight: view.InFlightWindow}
	recommended := &view.Window{MaxItems: 110, EvictBatch: 80, InFlight: view.InFlightWindow}
	full, alone, listed := under(nil, 0), under(recorded, 0), under(recommended, 3000)
	if full.cut > 0 {
		t.Errorf("the client's own history lacks %d names", full.cut)
	}
	if alone.share() < 0.05 || alone.share() > 0.12 {
		t.Errorf("the window alone loses %.3f, want about 0.08", alone.share())
	}
	if listed.share() > 0.02 {
		t.Errorf("needed but cut: %.3f, want at most 0.02", listed.share())
	}
	if share := listed.cost / full.cost; share > 0.65 {
		t.Errorf("cost: %.3f of what the client would pay, want at most 0.65", share)
	}
	if share := listed.cached / listed.tokens; share < 0.88 {
		t.Errorf("cached: %.3f, want at least 0.88", share)
	}
	if listed.orphans+listed.noUser > 0 {
		t.Errorf("%d orphans, %d requests without a user message", listed.orphans, listed.noUser)
	}
}
