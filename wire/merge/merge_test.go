package merge_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"remora/wire"
	"remora/wire/dialects"
	. "remora/wire/merge"
)

var update = flag.Bool("update", false, "write what is seen into testdata")

// play is a client's request: the answers of upstream, and what becomes of them.
type play struct {
	dialect wire.Dialect
	options Options
	answers []string
	deny    map[string]bool // calls, by id
	without map[int]bool    // answers that are not released
	odd     bool            // upstream does not keep to the API, so that the client's stream does not either
}

func hide(name string) bool { return strings.HasPrefix(name, "mem_") }

func hides(c wire.Call) bool { return hide(c.Name) }

// run plays it in the chunks that cut makes, and returns the client's bytes. Each chunk is overwritten after its write,
// like the buffer that upstream's answer is read into.
func (p play) run(cut func(string) []string) (client string, s *Merger) {
	var out strings.Builder
	s = New(p.dialect, p.options)
	for i, a := range p.answers {
		if i > 0 {
			s.Next()
		}
		for _, chunk := range cut(a) {
			read := []byte(chunk)
			out.Write(s.Write(read))
			clear(read)
		}
		s.EOF()
		if p.without[i] {
			continue
		}
		out.Write(s.Release(func(c wire.Call) bool { return !p.deny[c.ID] }))
	}
	out.Write(s.Finish())
	return out.String(), s
}

func inOne(s string) []string { return []string{s} }

func pieces(seed uint64) func(string) []string {
	r := rand.New(rand.NewPCG(seed, 1))
	return func(s string) []string {
		var out []string
		for len(s) > 0 {
			n := 1 + r.IntN(min(len(s), 1+r.IntN(40+len(s)/8)))
			out, s = append(out, s[:n]), s[n:]
		}
		return out
	}
}

// TestPlays plays testdata/*.txtar. An answer's lines are events: "d" and a delta of choice 0, "f" and a finish reason,
// "u" and a usage, or an event's whole data but for what stands in front of each event (front). What the client gets
// is shown alike.
func TestPlays(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			p, want := read(t, archive)
			client, s := p.run(inOne)
			got := spoken(p.dialect, client)
			if *update && got != want {
				archive.Files[len(archive.Files)-1].Data = []byte(got)
				if err := os.WriteFile(file, txtar.Format(archive), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("the client sees:\n%s", d)
			}
			if !p.odd {
				audit(t, p, client, s)
			}
			everyWay(t, p)
		})
	}
}

// everyWay: neither chunks nor line ends matter.
func everyWay(t *testing.T, p play) {
	t.Helper()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		q := p
		q.answers = nil
		for _, a := range p.answers {
			q.answers = append(q.answers, strings.ReplaceAll(a, "\n", end))
		}
		want, s := q.run(inOne)
		merged := s.Merged()
		for seed := range uint64(10) {
			got, s := q.run(pieces(seed))
			if got != want {
				t.Fatalf("line end %q, seed %d:\n%s", end, seed, cmp.Diff(want, got))
			}
			if d := cmp.Diff(merged, s.Merged()); d != "" {
				t.Fatalf("line end %q, seed %d, merged:\n%s", end, seed, d)
			}
		}
	}
}

func read(tb testing.TB, archive *txtar.Archive) (p play, want string) {
	tb.Helper()
	p = play{dialect: dialects.Chat, deny: map[string]bool{}, without: map[int]bool{}}
	words, _, _ := strings.Cut(string(archive.Comment), "\n")
	for word := range strings.FieldsSeq(words) {
		key, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch key {
		case "responses":
			p.dialect = dialects.Responses
		case "chat":
		case "hide":
			p.options.Hide = hide
		case "calls":
			p.options.HoldCalls = true
		case "all":
			p.options.HoldAll = true
		case "deny":
			p.deny[value] = true
		case "odd":
			p.odd = true
		case "without":
			p.without[n] = true
		default:
			tb.Fatalf("unknown word %q", word)
		}
	}
	for _, f := range archive.Files {
		if f.Name == "client" {
			want = string(f.Data)
			continue
		}
		p.answers = append(p.answers, stream(p.dialect, len(p.answers), string(f.Data)))
	}
	return p, want
}

// front returns the text before the data of each event of an answer.
func front(d wire.Dialect, answer, event int) string {
	if d == dialects.Responses {
		return fmt.Sprintf(`{"sequence_number":%d,`, event)
	}
	return fmt.Sprintf(`{"id":"id%d","created":%d,"model":"m%d",`, answer, answer, answer)
}

const (
	deltaHead, deltaTail   = `"choices":[{"index":0,"delta":`, `,"finish_reason":null}]}`
	finishHead, finishTail = `"choices":[{"index":0,"delta":{},"finish_reason":"`, `"}]}`
	usageHead              = `"choices":[],"usage":`
)

// stream spells an answer out.
func stream(d wire.Dialect, answer int, script string) string {
	var out strings.Builder
	n := 0
	for line := range strings.Lines(script) {
		line = strings.TrimSuffix(line, "\n")
		verb, rest, _ := strings.Cut(line, " ")
		data := front(d, answer, n)
		switch {
		case verb == "d":
			data += deltaHead + rest + deltaTail
		case verb == "f":
			data += finishHead + rest + finishTail
		case verb == "u":
			data += usageHead + rest + "}"
		case strings.HasPrefix(line, "{"):
			data += line[1:]
		case line == "[DONE]":
			data = line
		default: // as it is
			out.WriteString(line + "\n")
			continue
		}
		n++
		if d == dialects.Responses {
			out.WriteString("event: " + wire.Text(wire.Member([]byte(data), "type")) + "\n")
		}
		out.WriteString("data: " + data + "\n\n")
	}
	return out.String()
}

// spoken is the inverse of stream. The text before an event is shown if it is not the first answer's.
func spoken(d wire.Dialect, client string) string {
	var out strings.Builder
	n := 0
	blocks := strings.SplitAfter(client, "\n\n")
	for _, b := range blocks {
		data, ok := strings.CutPrefix(strings.TrimSuffix(b, "\n\n"), "data: ")
		if d == dialects.Responses {
			var name string
			name, data, ok = strings.Cut(strings.TrimSuffix(b, "\n\n"), "\ndata: ")
			ok = ok && name == "event: "+wire.Text(wire.Member([]byte(data), "type"))
		}
		if !ok {
			out.WriteString(b)
			continue
		}
		if rest, ok := strings.CutPrefix(data, front(d, 0, n)); ok {
			data = "{" + rest
		}
		n++
		rest, ok := strings.CutPrefix(data, "{")
		switch {
		case ok && strings.HasPrefix(rest, finishHead) && strings.HasSuffix(rest, finishTail):
			data = "f " + rest[len(finishHead):len(rest)-len(finishTail)]
		case ok && strings.HasPrefix(rest, deltaHead) && strings.HasSuffix(rest, deltaTail):
			data = "d " + rest[len(deltaHead):len(rest)-len(deltaTail)]
		case ok && strings.HasPrefix(rest, usageHead):
			data = "u " + rest[len(usageHead):len(rest)-1]
		}
		out.WriteString(data + "\n")
	}
	return out.String()
}

// TestPassesAsItIs: an answer of which nothing has to be hidden reaches the client byte for byte, and its text at once.
func TestPassesAsItIs(t *testing.T) {
	t.Parallel()
	chat := strings.Join([]string{
		"\ufeff: OPENROUTER PROCESSING\n\n", "retry: 10\nid: 7\n\n\n",
		"data: {\"id\":\"\",\"choices\":[],\"prompt_filter_results\":[]}\n\n",
		"event: odd\r\ndata:{ \"id\" : \"a\" , \"created\":1.0,\"system_fingerprint\":null,\"choices\":[ {\"index\":0,\r\ndata: \"delta\":{\"role\":\"assistant\" , \"content\":\"\"},\"finish_reason\":null} ] ,\"usage\":null}\r\n\r\n",
		"data: {\"id\":\"b\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"x\\u0041\"}}]}\r\r",
		"data: {\"id\":\"b\",\"choices\":[{\"index\":1,\"delta\":{\"content\":\"two\",\"tool_calls\":[{\"index\":3,\"function\":{\"name\":\"mem_x\"}}]},\"finish_reason\":\"tool_calls\"}]}\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":5,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}},{\"id\":\"d\",\"custom\":{\"name\":\"g\"}}]}}]}\n\n",
		"data: {\"choices\":[{\"delta\":{\"content\":null,\"function_call\":null,\"tool_calls\":[{\"index\":6,\"id\":\"e\",\"function\":{\"name\":\"h\",\"arguments\":\"{}\"}}]},\"finish_reason\":null}]}\n\n", // LiteLLM
		"data: {\"choices\":[{\"delta\":{\"function_call\":null,\"tool_calls\":null},\"finish_reason\":null}]}\n\n",
		"data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\" more\"}}]}\n\n", // behind its end
		"data: not json\n\ndata: [1]\n\ndata\n\n",
		"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":{\"total_tokens\":1.50,\"x\":{\"y\":1}}}\n\n",
		"data: {\"choices\":[],\"usage\":{\"total_tokens\":1.50}}\n\n", "data: [DONE]\n\n", ": bye\n\n",
	}, "")
	responses := strings.ReplaceAll(stream(dialects.Responses, 0, `: hi
{"type":"response.created","response":{"id":"r","output":[]}}
{"type":"response.output_item.added","output_index":0,"item":{"type":"web_search_call","id":"ws"}}
{"type":"response.new.thing","x":1}
{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"}}
{"type":"response.completed","response":{"id":"other","output":[ {"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"} , {"type":"message","content":[]}],"usage":{"input_tokens":1}}}
`), `"sequence_number":4`, `"sequence_number":9`) + "data: [DONE]\n\n"
	for d, answer := range map[wire.Dialect]string{dialects.Chat: chat, dialects.Responses: responses} {
		for _, o := range []Options{{}, {Hide: hide}} {
			p := play{dialect: d, options: o, answers: []string{answer}}
			for seed := range uint64(100) {
				if got, _ := p.run(pieces(seed)); got != answer {
					t.Fatalf("%v, hide %v, seed %d:\n%s", d, o.Hide != nil, seed, cmp.Diff(answer, got))
				}
			}
			p.answers[0] += "data: {\"cut" // an event that nobody can read
			if got, _ := p.run(inOne); got != p.answers[0] {
				t.Errorf("%v, cut:\n%s", d, cmp.Diff(p.answers[0], got))
			}
		}
		// Holding and releasing changes nothing, as long as nothing overtakes the held bytes.
		plain := strings.NewReplacer("\ufeff: OPENROUTER PROCESSING\n\n", "", ": hi\n", "", ": bye\n\n", "", "retry: 10\nid: 7\n\n\n", "", "data: not json\n\ndata: [1]\n\ndata\n\n", "",
			",\"tool_calls\":[{\"index\":3,\"function\":{\"name\":\"mem_x\"}}]", "").Replace(answer)
		plain = strings.ReplaceAll(plain, `"sequence_number":9`, `"sequence_number":4`)
		for _, o := range []Options{{HoldAll: true}, {HoldAll: true, HoldCalls: true, Hide: hide}} {
			got, _ := play{dialect: d, options: o, answers: []string{plain}}.run(pieces(1))
			if got != plain {
				t.Errorf("%v held:\n%s", d, cmp.Diff(plain, got))
			}
		}
	}
}

// TestLive: text is never held, the end always, and a keep-alive always passes.
func TestLive(t *testing.T) {
	t.Parallel()
	say := stream(dialects.Chat, 0, `d {"content":"x"}`)
	call := stream(dialects.Chat, 0, `d {"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{}"}}]}`)
	end := stream(dialects.Chat, 0, "f tool_calls\nu {\"total_tokens\":1}\n[DONE]")
	f := func(o Options, want ...string) {
		t.Helper()
		s := New(dialects.Chat, o)
		var got []string
		for _, p := range []string{say, ": alive\n", call, "\n", say, end} {
			if s.Ended() {
				t.Error("ended too early")
			}
			got = append(got, string(s.Write([]byte(p))))
		}
		if !s.Ended() {
			t.Error("not ended")
		}
		if calls := callsOf(s.Reply().Choices[0][0]); len(calls) != 1 || calls[0].Name != "f" {
			t.Errorf("reply has calls %v", calls)
		}
		got = append(got, string(s.Release(func(wire.Call) bool { return true })), string(s.Finish()))
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%+v:\n%s", o, d)
		}
	}
	tail := end[:len(end)-len("data: [DONE]\n\n")]
	f(Options{}, say, ": alive\n", call, "\n", say, tail, "", "data: [DONE]\n\n")
	f(Options{HoldCalls: true}, say, ": alive\n", "", "\n", say, "", call, end)
	f(Options{HoldAll: true}, "", ": alive\n", "", "\n", "", "", say+call+say+tail, "data: [DONE]\n\n")
	f(Options{Hide: func(string) bool { return true }}, say, ": alive\n", "", "\n", say, "", "", strings.Replace(end, "tool_calls", "stop", 1))
}

// TestEnds: an answer has ended as soon as its last event has begun, when a judged one has become unclear, and with the stream. An
// error alone is the end and waits like any other; beside choices it passes at once.
func TestEnds(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n"
	const failed = `data: {"error":{"message":"x"}}` + "\n\n"
	const failedBeside = `data: {"error":{"message":"x"},"choices":[{"index":0,"delta":{}}]}` + "\n\n"
	const unclear = `data: {"choices":[{"index":0,"message":{"tool_calls":[{"id":"a","function":{"name":"rm","arguments":"{}"}}]}}]}` + "\n\n"
	for _, c := range []struct {
		judged            bool
		rest, got, finish string
		ended             bool
	}{
		{false, "data: [DO", "", "data: [DO", false},
		{false, "data: [DONE]\n", "", "data: [DONE]\n", true},
		{true, "data: [DONE]\n", "", "data: [DONE]\n", true},
		{true, "data: [DONE]", "", "data: [DONE]", false},
		{false, failed, "", failed, true},
		{true, failed, "", failed, true},
		{false, failedBeside, failedBeside, "", false},
		{true, unclear, "", "", true},
	} {
		s := New(dialects.Chat, Options{HoldCalls: c.judged})
		got := string(s.Write([]byte(text + c.rest)))
		ended := s.Ended()
		s.EOF()
		if rest := string(s.Finish()); got != text+c.got || rest != c.finish || ended != c.ended || !s.Ended() {
			t.Errorf("judged %v, %q: got %q, then %q, ended %v, %v", c.judged, c.rest, got, rest, ended, s.Ended())
		}
	}
}

// TestBounded: of what would have to be held beyond the bound nothing passes, nor is it part of the client's answer.
func TestBounded(t *testing.T) {
	t.Parallel()
	for _, o := range []Options{{HoldCalls: true}, {HoldAll: true}, {HoldCalls: true, Hide: hide}} {
		s := New(dialects.Chat, o)
		s.SetLimit(1000)
		var got bytes.Buffer
		for range 20 {
			p := stream(dialects.Chat, 0, `d {"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"0123456789"}}]}`)
			got.Write(s.Write([]byte(p)))
		}
		if !s.Degraded() || s.Ended() {
			t.Errorf("degraded %v, ended %v", s.Degraded(), s.Ended())
		}
		got.Write(s.Write([]byte("data: [DONE]\n\n")))
		got.Write(s.Release(func(wire.Call) bool { return false }))
		if got.Write(s.Finish()); got.Len() > 0 || !s.Ended() || len(s.Merged().Choices) > 0 {
			t.Errorf("%+v: got %q, merged %v", o, got.String(), s.Merged())
		}
	}
	// The events of a hidden call are not held.
	s := New(dialects.Responses, Options{Hide: hide})
	s.SetLimit(1000)
	call := `{"type":"function_call","id":"h","call_id":"h","name":"mem_x","arguments":"` + strings.Repeat("x", 1200) + `"}`
	s.Write([]byte(stream(dialects.Responses, 0, `{"type":"response.output_item.added","output_index":0,"item":`+call+`}
{"type":"response.function_call_arguments.delta","output_index":0,"delta":"`+strings.Repeat("x", 400)+`"}
{"type":"response.output_item.done","output_index":0,"item":`+call+"}\n")))
	if s.Degraded() {
		t.Error("a hidden call is held")
	}
	// The items that the client has seen are: its list at the end needs them.
	for _, whole := range []string{"", `{"type":"response.completed","response":{"output":[]}}` + "\n"} {
		s = New(dialects.Responses, Options{Hide: hide})
		s.SetLimit(1000)
		for range 10 {
			s.Write([]byte(stream(dialects.Responses, 0, `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","id":"m","x":"`+
				strings.Repeat("x", 200)+`"}}`+"\n"+whole)))
			if whole != "" {
				s.Next()
			}
		}
		if !s.Degraded() {
			t.Errorf("items are kept without a bound, in one answer each %v", whole != "")
		}
	}
	s = New(dialects.Responses, Options{})
	s.SetLimit(100)
	if got := s.Write([]byte("data: {\"type\":\"" + strings.Repeat("x", 100))); len(got) == 0 || !s.Degraded() {
		t.Error("an endless event is kept")
	}
	rest := "x\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"output\":[]}}\n\n"
	if got := string(s.Write([]byte(rest))); got != rest || !s.Ended() {
		t.Errorf("behind it %q, ended %v", got, s.Ended())
	}
}

// TestTooManyItems: of a response that does not end, items beyond the bound do not pass where some are hidden.
func TestTooManyItems(t *testing.T) {
	t.Parallel()
	const more = 3
	var script strings.Builder
	for i := range wire.MaxIndex + more {
		fmt.Fprintf(&script, `{"type":"response.output_item.added","item":{"type":"function_call","id":"v%d","call_id":"v%[1]d","name":"f","arguments":""}}`+"\n", i)
	}
	script.WriteString(`{"type":"response.completed","response":{"id":"r","output":[{"type":"message","id":"unseen"}]}}` + "\n")
	for _, c := range []struct {
		options Options
		want    int
	}{{Options{}, wire.MaxIndex + more}, {Options{Hide: hide}, wire.MaxIndex}} {
		p := play{dialect: dialects.Responses, options: c.options, answers: []string{stream(dialects.Responses, 0, script.String())}}
		if got, _ := p.run(inOne); strings.Count(got, "output_item.added\n") != c.want {
			t.Errorf("%d items pass, want %d", strings.Count(got, "output_item.added\n"), c.want)
		}
	}
}

// TestUnclearEnd: of a judged answer nothing passes from the event on that some clients would read in another way, be it the last
// one without its end; and so does no call of a choice that is not judged.
func TestUnclearEnd(t *testing.T) {
	t.Parallel()
	const begun = `data: {"choices":[{"delta":{"content":"a"}}]}` + "\n\n"
	const call = `{"choices":[{"index":1,"delta":{"tool_calls":[{"id":"a","function":{"name":"rm","arguments":"{}"}}]}}]}`
	for _, o := range []Options{{HoldCalls: true}, {HoldAll: true}} {
		for _, tc := range []struct {
			end      string
			unjudged bool
		}{{"data: [" + call + "]", false}, {"data: [" + call + "]\n\n", false}, {"data: " + call, true}, {"data: " + call + "\n\n", true}} {
			p := play{dialect: dialects.Chat, options: o, answers: []string{begun + tc.end}}
			got, s := p.run(inOne)
			if strings.Contains(got, "rm") || s.Unjudged() != tc.unjudged || (s.Reply().Unclear == "") != tc.unjudged {
				t.Errorf("%+v, %q: got %q, unjudged %v, unclear %q", o, tc.end, got, s.Unjudged(), s.Reply().Unclear)
			}
		}
	}
}

// TestCutEvent: what goes on after an event whose end is missing does not become a part of it.
func TestCutEvent(t *testing.T) {
	t.Parallel()
	const call = `data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"mem_x","arguments":"{}"}}]}}]}` + "\n\n"
	const cut = `data: {"choices":[{"delta":{"content":"a"},"finish_reason":null}]}`
	s := New(dialects.Chat, Options{Hide: hide})
	got := string(s.Write([]byte(call + cut)))
	s.EOF()
	got += string(s.Release(nil))
	s.Next()
	next := `data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n"
	got += string(s.Write([]byte(next))) + string(s.Finish())
	if want := cut + "\n\n" + next; !strings.HasSuffix(got, want) {
		t.Errorf("got %q, want %q at its end", got, want)
	}
}

func TestSumUsage(t *testing.T) {
	t.Parallel()
	f := func(a, b, want string) {
		t.Helper()
		if got := string(SumUsage([]byte(a), []byte(b))); got != want {
			t.Errorf("%s + %s = %s, want %s", a, b, got, want)
		}
	}
	f(``, `{"a":1.50}`, `{"a":1.50}`)
	f(`{"a":1}`, `null`, `{"a":1}`)
	f(`{"a":1,"d":{"c":2},"s":"x"}`, `{"a":2,"d":{"c":3,"n":1},"s":"y","t":[1]}`, `{"a":3,"d":{"c":5,"n":1},"s":"y","t":[1]}`)
	f(`{"a":null,"b":1}`, `{"a":3,"b":null}`, `{"a":3,"b":1}`)
	f(`{"cost":0.25}`, `{"cost":0.5}`, `{"cost":0.75}`)
	f(`{"a":9223372036854775807}`, `{"a":1}`, `{"a":9.223372036854776e+18}`)
	f(`{"a":-9223372036854775808}`, `{"a":-1}`, `{"a":-9.223372036854776e+18}`)
	f(`{"a":-9223372036854775807}`, `{"a":-1}`, `{"a":-9223372036854775808}`)
	f(`{"a":9223372036854775806}`, `{"a":1}`, `{"a":9223372036854775807}`)
	f(`{"a":true,"b":1}`, `{"a":2,"b":false}`, `{"a":2,"b":false}`)
	f(`{"a":1e308}`, `{"a":1e308}`, `{"a":1e308}`)
	f(`{ }`, `{"a":1}`, `{"a":1}`)
	f(`{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":1}}}}}}}}}`, `{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":2}}}}}}}}}`, `{"a":{"b":{"c":{"d":{"e":{"f":{"g":{"h":{"i":2}}}}}}}}}`)
}

// TestContinueUsage: of several rounds of the model a client gets the input of the last one, all outputs, and a total that
// is the sum of these two.
func TestContinueUsage(t *testing.T) {
	t.Parallel()
	f := func(want string, rounds ...string) {
		t.Helper()
		var got []byte
		for _, r := range rounds {
			got = ContinueUsage(got, []byte(r))
		}
		if string(got) != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	f(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`, `{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`)
	f(`{"prompt_tokens":30,"completion_tokens":9,"total_tokens":39,"prompt_tokens_details":{"cached_tokens":25},"completion_tokens_details":{"reasoning_tokens":3}}`,
		`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":1}}`,
		`{"prompt_tokens":20,"completion_tokens":3,"total_tokens":23,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens_details":{"reasoning_tokens":2}}`,
		`{"prompt_tokens":30,"completion_tokens":4,"total_tokens":34,"prompt_tokens_details":{"cached_tokens":25},"completion_tokens_details":{"reasoning_tokens":0}}`)
	f(`{"input_tokens":20,"output_tokens":5,"total_tokens":25,"cost":0.75}`,
		`{"input_tokens":10,"output_tokens":2,"total_tokens":12,"cost":0.25}`, `{"input_tokens":20,"output_tokens":3,"total_tokens":23,"cost":0.5}`)
	f(`{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`, `{"prompt_tokens":10,"completion_tokens":2,"total_tokens":12}`, `null`)
	// What the prompt consisted of, as other upstreams spell it, is of the last round, too.
	for _, input := range []string{
		`"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":4}`, `"input_tokens":9,"input_tokens_details":{"cached_tokens":4}`,
		`"prompt_cache_hit_tokens":4,"prompt_cache_miss_tokens":5`, `"cached_tokens":4`,
		`"cache_read_input_tokens":4,"cache_creation_input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":5}`,
	} {
		f(`{`+input+`,"completion_tokens":3}`, strings.NewReplacer("9", "8", "5", "6").Replace(`{`+input)+`,"completion_tokens":1}`, `{`+input+`,"completion_tokens":2}`)
	}
	f(`{"prompt_tokens":4,"total_tokens":6,"completion_tokens":2}`, `{"prompt_tokens":1,"total_tokens":3}`, `{"prompt_tokens":4,"completion_tokens":2,"total_tokens":6}`)
	f(`{"prompt_tokens":4,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens":3}`,
		`{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":1},"completion_tokens":1}`, `{"prompt_tokens":4,"completion_tokens":2}`)
	f(`{"output_tokens":2}`, `[]`, `{"output_tokens":2}`)
	f(`{"output_tokens":2}`, `{"output_tokens":2}`, `[]`)
	large := `{"output_tokens":1,"x":"` + strings.Repeat("x", 10<<10) + `"}`
	f(large, large, large)
	f(`{"prompt_tokens":4,"completion_tokens":"x","total_tokens":7}`,
		`{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3}`, `{"prompt_tokens":4,"completion_tokens":"x","total_tokens":5}`)
}

// BenchmarkText is a piece of text on its way through an answer that a layer's tools are hidden from.
func BenchmarkText(b *testing.B) {
	event := []byte(`data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763689200,"model":"gpt-5-mini","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}` + "\n\n")
	s := New(dialects.Chat, Options{Hide: hide})
	s.Write([]byte(`data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"role":"assistant","content":"A"}}]}` + "\n\n"))
	b.ReportAllocs()
	for b.Loop() {
		if got := s.Write(event); len(got) != len(event) {
			b.Fatalf("the client gets %q", got)
		}
	}
}
