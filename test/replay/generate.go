package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
)

// profile is the shape of a generated session. The profiles together have the proportions of five recorded sessions: 2,504 items,
// 976 tool calls, 24 user messages, runs of up to hundreds of items.
type profile struct {
	name      string
	seed      uint64
	rounds    []int      // answers between one user text and the next
	compactAt int        // the answer after which the client compacts its history; 0 for never
	compact   compaction // how it does, besides the text
	huge      []int      // sizes of the largest tool results in KiB, spread over the session
	scale     float64
}

func profiles() []profile {
	return []profile{
		{name: "rename", seed: 1, rounds: []int{6, 82, 166, 12, 28}, compactAt: 225, huge: []int{64, 96}, scale: 0.93},
		{name: "flaky-test", seed: 2, rounds: []int{2, 122, 20, 6}, compactAt: 128, compact: compaction{Prompts: true}, huge: []int{200}, scale: 0.93},
		{name: "new-endpoint", seed: 3, rounds: []int{8, 24, 37, 18, 32, 24}, huge: []int{72}, scale: 0.93},
		{name: "upgrade", seed: 4, rounds: []int{3, 46, 85, 9}, compactAt: 118, compact: compaction{Prompts: true}, huge: []int{120}, scale: 0.93},
		{name: "compacted", seed: 5, rounds: []int{5, 16, 57, 49, 19}, compactAt: 104, compact: compaction{Keep: 6}, huge: []int{80}, scale: 0.93},
	}
}

// sampleProfile is the profile of the shipped session: as long as the others, with smaller results and one of 64 KiB.
func sampleProfile() profile {
	return profile{name: "sample", seed: 6, rounds: []int{3, 25, 90, 40, 6}, compactAt: 130, compact: compaction{Keep: 6}, huge: []int{64}, scale: 0.25}
}

// sample returns the shipped session, which is in sessions/sample.jsonl as well.
func sample() ([]*session, error) { return written([]profile{sampleProfile()}) }

// generated returns the sessions of the profiles.
func generated(seed uint64) ([]*session, error) { return written(seeded(seed)) }

// seeded returns the profiles for other sessions of the same shapes; with 0, those of the targets and the published figures.
func seeded(seed uint64) []profile {
	const apart = 1000 // distance between the seeds of profiles
	all := profiles()
	for i := range all {
		all[i].seed += apart * seed
	}
	return all
}

// written returns the sessions of some profiles, parsed like a recording.
func written(list []profile) ([]*session, error) {
	var b bytes.Buffer
	if err := writeSessions(&b, list); err != nil {
		return nil, err
	}
	return parse(&b, "generated")
}

// writeSessions writes sessions in the format of README.md. They are deterministic for the profiles.
func writeSessions(w io.Writer, list []profile) error {
	out := bufio.NewWriter(w)
	for i := range list {
		g := &author{profile: list[i], words: words{rand.New(rand.NewPCG(list[i].seed, 1))}, enc: json.NewEncoder(out)}
		g.enc.SetEscapeHTML(false)
		if err := g.write(); err != nil {
			return err
		}
	}
	return out.Flush()
}

// author writes one session.
type author struct {
	profile
	words
	enc    *json.Encoder
	err    error
	answer int // answers so far
	calls  int
	total  int // answers of the session
	files  []string
	known  []string   // strings met so far, the latest last: paths, identifiers, numbers
	reads  [][]string // lines of the files read so far, the latest last
	edited []string   // changed files
}

// object is one line. Its names are sorted, so lines are deterministic.
type object map[string]any

func (g *author) line(o object) {
	if g.err == nil {
		g.err = g.enc.Encode(o)
	}
}

func (g *author) write() error {
	for _, n := range g.rounds {
		g.total += n
	}
	for range 40 {
		g.files = append(g.files, g.path())
	}
	g.line(object{"session": g.name, "instructions": instructions, "tools": agentTools()})
	for i, n := range g.rounds {
		task := g.task(i)
		g.learn(task, 3)
		g.line(object{"type": "message", "role": "user", "content": task})
		g.note("working-memory_update", object{"task": object{"round": i + 1, "goal": g.goal()}})
		for range n - 1 {
			g.loop()
		}
		g.answer++
		if i%2 == 0 { // with an answer without calls, notes cost an additional request
			g.note("working-memory_update", object{"done": object{fmt.Sprintf("round %d", i+1): g.clause()}})
		}
		g.line(object{"type": "message", "role": "assistant", "content": g.conclusion()})
	}
	return g.err
}

// note adds the model's call of a layer's tool, which belongs to the next answer.
func (g *author) note(name string, arguments object) {
	g.line(object{"type": "layer_call", "name": name, "arguments": g.encoded(arguments)})
}

func (g *author) encoded(o object) string {
	raw, err := json.Marshal(o)
	if err != nil && g.err == nil {
		g.err = err
	}
	return string(raw)
}

// loop adds one answer with calls, and their results.
func (g *author) loop() {
	g.answer++
	if g.IntN(18) == 0 {
		g.note("working-memory_update", object{"progress": g.sentence(), "files": object{g.file(): g.clause()}})
	}
	if g.IntN(14) == 0 {
		g.note("durable-task-state_recordArtifact", object{"path": g.file()})
	}
	if g.IntN(100) < 60 {
		g.line(object{"type": "reasoning", "summary": []object{{"type": "summary_text", "text": g.sentence()}}})
	}
	if g.IntN(100) < 58 {
		g.line(object{"type": "message", "role": "assistant", "content": g.thought()})
	}

	parallel := 1
	if g.IntN(100) < 9 {
		parallel = 2 + g.IntN(2)
	}
	var results []object
	for range parallel {
		name, arguments, result := g.use()
		g.learn(result, 2)
		if result = g.salted(result); name == "read_file" {
			g.reads = append(g.reads, strings.Split(strings.TrimSpace(result), "\n"))
		}
		g.calls++
		id := fmt.Sprintf("call_%s_%04d", g.name, g.calls)
		g.line(object{"type": "function_call", "call_id": id, "name": name, "arguments": arguments})
		results = append(results, object{"type": "function_call_output", "call_id": id, "output": result})
	}

	if kib, ok := g.isHuge(); ok {
		results[0]["output"] = g.log(kib << 10)
	}
	for _, r := range results {
		g.line(r)
	}

	if g.answer == g.compactAt {
		c := object{"type": "client_compaction", "text": g.handover(), "keep": g.compact.Keep}
		if g.compact.Prompts {
			c["prompts"] = true
		}
		g.line(c)
	}
}

// learn records some of the distinctive strings of a text, which the agent may use again. It leaves out times, and line numbers
// after file names.
func (g *author) learn(text string, most int) {
	var all []string
	for _, s := range distinctive(text) {
		s, _, _ = strings.Cut(s, ":") // a file, without its line number
		if !isPlain(s) && strings.Trim(s, "0123456789-TZ") != "" {
			all = append(all, s)
		}
	}
	for range min(most, len(all)) {
		g.known = append(g.known, all[g.IntN(len(all))])
	}
}

// The age of the strings that an agent uses again, in percent and in positions of a list: mostly recent ones, some old ones,
// and a few of any age. With these, a window of 40 to 80 items cuts fewer of them than in recorded sessions (5 % against 8 %),
// and a larger part of those is old.
const (
	recent, recentAge         = 68, 10
	earlier, leastAge, oldAge = 30, 100, 50
)

// back returns the distance from the end of a list of n of the element that the agent uses.
func (g *author) back(n int) int {
	switch at := g.IntN(100); {
	case at < recent:
		return min(n-1, int(g.ExpFloat64()*recentAge))
	case at < recent+earlier:
		return min(n-1, int(leastAge+g.ExpFloat64()*oldAge))
	}
	return g.IntN(n)
}

// salted returns a result with some strings that the agent has met before: important ones occur more than once.
func (g *author) salted(result string) string {
	lines := strings.Split(result, "\n")
	for i := range lines {
		if lines[i] != "" && g.IntN(12) == 0 && len(g.known) > 0 {
			lines[i] += " // " + g.known[len(g.known)-1-g.back(len(g.known))]
		}
	}
	return strings.Join(lines, "\n")
}

// recalled returns a string that the agent has met before, and makes it the latest one.
func (g *author) recalled() string {
	if len(g.known) == 0 {
		return g.identifier()
	}
	s := g.known[len(g.known)-1-g.back(len(g.known))]
	g.known = append(g.known, s)
	return s
}

// excerpt returns some lines of a file that the agent has read, as in an edit.
func (g *author) excerpt() string {
	if len(g.reads) == 0 {
		return g.code(g.size(150, 700))
	}
	lines := g.reads[len(g.reads)-1-min(len(g.reads)-1, g.back(len(g.reads))/10)]
	from := g.IntN(len(lines))
	return strings.Join(lines[from:min(len(lines), from+2+g.IntN(5))], "\n")
}

// sentence returns a sentence of the model, about strings that it has met.
func (g *author) sentence() string {
	return []string{
		"The failure comes from " + g.recalled() + ": " + g.pick(reasons) + ".",
		"I decided to keep " + g.recalled() + " as it is, because " + g.pick(reasons) + ".",
		"Next I look at " + g.recalled() + " again, since " + g.recalled() + " depends on it.",
		fmt.Sprintf("The test of %s takes %d ms and fails in %d of 50 runs.", g.recalled(), 20+g.IntN(900), 1+g.IntN(9)),
		"Both " + g.recalled() + " and " + g.recalled() + " are wrong, since " + g.pick(reasons) + ".",
		"I will " + g.pick(verbs) + " the " + g.pick(nouns) + " of " + g.recalled() + " first and then run the tests.",
	}[g.IntN(6)]
}

func (g *author) sentences(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = g.sentence()
	}
	return strings.Join(all, " ")
}

func (g *author) thought() string { return g.sentences(1 + g.IntN(3)) }

func (g *author) conclusion() string {
	return "Done. " + g.sentences(4+g.IntN(4)) + " I changed " + g.changed(4) + ", and all tests pass."
}

// changed returns the files that were changed last.
func (g *author) changed(most int) string {
	var all []string
	for i := len(g.edited) - 1; i >= 0 && len(all) < most; i-- {
		if !slices.Contains(all, g.edited[i]) {
			all = append(all, g.edited[i])
		}
	}
	return strings.Join(all, ", ")
}

// handover returns a client's summary of its history.
func (g *author) handover() string {
	var met []string
	for range 12 {
		met = append(met, g.recalled())
	}
	return "Summary of the conversation so far, to go on from:\n\n- Task: " + g.goal() + "\n- Changed: " + g.changed(12) +
		"\n- Of interest: " + strings.Join(met, ", ") + "\n- " + strings.ReplaceAll(g.sentences(8), ". ", ".\n- ")
}

// isHuge reports whether the next result is one of the largest, and its size. They are spread evenly.
func (g *author) isHuge() (kib int, ok bool) {
	for i, kib := range g.huge {
		if g.answer == g.total*(2*i+1)/(2*len(g.huge)) {
			return kib, true
		}
	}
	return 0, false
}

// use returns one tool call and its result.
func (g *author) use() (name, arguments, result string) {
	var args object
	switch n := g.IntN(100); {
	case n < 34:
		from := 1 + 40*g.IntN(20)
		name, args = "read_file", object{"path": g.file(), "offset": from, "limit": 200}
		result = g.code(g.size(900, 9000))
	case n < 62:
		name, args = "shell", object{"command": g.shell(), "timeout_ms": 120000}
		result = g.log(g.size(120, 5200))
	case n < 78:
		name, args = "grep", object{"pattern": g.recalled(), "path": g.pick(folders)}
		result = g.matches(g.size(150, 3600))
	case n < 94:
		path := g.file()
		g.edited = append(g.edited, path)
		name, args = "edit_file", object{"path": path, "old": g.excerpt(), "new": g.code(g.size(150, 900))}
		result = "The file was changed."
	default:
		name, args = "list_files", object{"path": g.pick(folders)}
		result = g.listing(g.size(200, 2400))
	}
	return name, g.encoded(args), result
}

// shell returns a command, mostly about something that the agent has met.
func (g *author) shell() string {
	switch g.IntN(5) {
	case 0:
		return "git log --oneline -S " + g.recalled()
	case 1:
		return "rg -n " + g.recalled() + " " + g.pick(folders)
	case 2:
		return "go test ./" + g.pick(folders) + "/... -run " + g.recalled()
	}
	return g.command()
}

// size returns a random size between two, smaller ones more often.
func (g *author) size(low, high int) int {
	f := g.Float64()
	return int(g.scale * (float64(low) + f*f*float64(high-low)))
}
