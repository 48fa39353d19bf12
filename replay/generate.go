package main

import (
	"bufio"
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
)

// profile is the shape of a generated session. The shapes below come to what was recorded of five real sessions: 2,458
// items, 952 tool calls, 24 user texts, rounds of up to hundreds of items, a full history of 83 thousand tokens a request.
type profile struct {
	name    string
	seed    uint64
	rounds  []int // answers between one user text and the next
	compact int   // the answer after which the client compacts its history, 0 for none
	huge    []int // KiB of the largest tool results, spread over the session
	scale   float64
}

func profiles() []profile {
	return []profile{
		{name: "rename", seed: 1, rounds: []int{6, 82, 166, 12, 28}, huge: []int{64, 96}, scale: 0.93},
		{name: "flaky-test", seed: 2, rounds: []int{2, 122, 20, 6}, huge: []int{200}, scale: 0.93},
		{name: "new-endpoint", seed: 3, rounds: []int{8, 24, 37, 18, 32, 24}, huge: []int{72}, scale: 0.93},
		{name: "upgrade", seed: 4, rounds: []int{3, 46, 85, 9}, huge: []int{120}, scale: 0.93},
		{name: "compacted", seed: 5, rounds: []int{5, 16, 57, 49, 19}, compact: 104, huge: []int{80}, scale: 0.93},
	}
}

// sampleProfile is the session that is shipped: as long as the others, with smaller results and one of 64 KiB.
func sampleProfile() profile {
	return profile{name: "sample", seed: 6, rounds: []int{3, 25, 90, 40, 6}, compact: 130, huge: []int{64}, scale: 0.25}
}

//go:embed sessions/sample.jsonl
var sampleFile embed.FS

// sample is the shipped session.
func sample() ([]*session, error) {
	raw, err := sampleFile.ReadFile("sessions/sample.jsonl")
	if err != nil {
		return nil, err
	}
	return parse(bytes.NewReader(raw), "sample")
}

// generated are the sessions of the profiles, read as any recording is.
func generated() ([]*session, error) {
	var b bytes.Buffer
	if err := writeSessions(&b, profiles()); err != nil {
		return nil, err
	}
	return parse(&b, "generated")
}

// writeSessions writes sessions in the format of README.md, the same for the same profiles.
func writeSessions(w io.Writer, list []profile) error {
	out := bufio.NewWriter(w)
	for i := range list {
		g := &author{profile: list[i], words: words{rand.New(rand.NewPCG(list[i].seed, 1))}, enc: json.NewEncoder(out)} //nolint:gosec // repeatable on purpose
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
}

// object is one line. Names are sorted, which makes lines the same each time.
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
		g.line(object{"type": "message", "role": "user", "content": g.task(i)})
		g.note("working-memory_update", object{"task": object{"round": i + 1, "goal": g.goal()}})
		for range n - 1 {
			g.loop()
		}
		g.answer++
		if i%2 == 0 { // beside an answer without calls, which costs a request of its own
			g.note("working-memory_update", object{"done": object{fmt.Sprintf("round %d", i+1): g.clause()}})
		}
		g.line(object{"type": "message", "role": "assistant", "content": g.conclusion()})
	}
	return g.err
}

// note is what a model writes down with a layer's tool. The one before an answer is written with it.
func (g *author) note(name string, arguments object) {
	raw, err := json.Marshal(arguments)
	if err != nil && g.err == nil {
		g.err = err
	}
	g.line(object{"type": "layer_call", "name": name, "arguments": string(raw)})
}

// loop is one answer with calls, and their results.
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
	if g.answer == g.compact {
		g.line(object{"type": "client_compaction", "text": g.handover(), "keep": 6})
	}
}

// isHuge spreads the largest results evenly.
func (g *author) isHuge() (kib int, ok bool) {
	for i, kib := range g.huge {
		if g.answer == g.total*(2*i+1)/(2*len(g.huge)) {
			return kib, true
		}
	}
	return 0, false
}

// use is one call of a tool.
func (g *author) use() (name, arguments, result string) {
	var args object
	switch n := g.IntN(100); {
	case n < 34:
		from := 1 + 40*g.IntN(20)
		name, args = "read_file", object{"path": g.file(), "offset": from, "limit": 200}
		result = g.code(g.size(900, 9000))
	case n < 62:
		name, args = "shell", object{"command": g.command(), "timeout_ms": 120000}
		result = g.log(g.size(120, 5200))
	case n < 78:
		name, args = "grep", object{"pattern": g.identifier(), "path": g.pick(folders)}
		result = g.matches(g.size(150, 3600))
	case n < 94:
		name, args = "edit_file", object{"path": g.file(), "old": g.code(g.size(150, 700)), "new": g.code(g.size(150, 900))}
		result = "The file was changed."
	default:
		name, args = "list_files", object{"path": g.pick(folders)}
		result = g.listing(g.size(200, 2400))
	}
	raw, err := json.Marshal(args)
	if err != nil && g.err == nil {
		g.err = err
	}
	return name, string(raw), result
}

// size draws from between two sizes, the small ones more often.
func (g *author) size(low, high int) int {
	f := g.Float64()
	return int(g.scale * (float64(low) + f*f*float64(high-low)))
}
