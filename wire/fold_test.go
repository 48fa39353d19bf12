package wire_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	. "remora/wire"
	"remora/wire/wiretest"
)

// answer is one answer in both its forms. Chat deltas are given without their frame.
type answer struct {
	name    string
	dialect Dialect
	stream  string
	whole   string
	// raws are the items of each choice as the stream builds them; nil if they are those of the whole answer.
	raws [][]string
}

func chatStream(chunks ...string) string {
	var b strings.Builder
	b.WriteString(": OPENROUTER PROCESSING\n\n")
	for _, c := range chunks {
		fmt.Fprintf(&b, "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"model\":\"m\",\"obfuscation\":\"xy\",\"usage\":null,%s}\n\n", c)
	}
	b.WriteString("data: [DONE]\n\n")
	return b.String()
}

func delta(d string) string {
	return `"choices":[{"index":0,"delta":` + d + `,"finish_reason":null}]`
}

func message(content string) string {
	return `"choices":[{"index":0,"message":{"role":"assistant","content":"` + content + `"},"finish_reason":null}]`
}

const (
	finishStop  = `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`
	finishTools = `"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]`
	usageChunk  = `"choices":[],"usage":{"total_tokens":3}`
)

func wholeChat(messages ...string) string {
	var choices []string
	for i, m := range messages {
		choices = append(choices, fmt.Sprintf(`{"index":%d,"message":%s,"finish_reason":"stop"}`, i, m))
	}
	return `{"id":"chatcmpl-1","object":"chat.completion","model":"m","choices":[` + strings.Join(choices, ",") + `],"usage":{"total_tokens":3}}`
}

func responsesStream(events ...string) string {
	var b strings.Builder
	for i, e := range events {
		typ := Text(Member([]byte(e), "type"))
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", typ, strings.Replace(e, "{", fmt.Sprintf(`{"sequence_number":%d,`, i), 1))
	}
	return b.String()
}

const (
	wholeOutput = `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA\u002b="},{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"a\"b"}]},{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"x\":1}","status":"completed"}`
	created     = `{"type":"response.created","response":{"id":"resp_1","model":"m","status":"in_progress","output":[],"usage":null,"error":null}}`
)

func completed(output string) string {
	return `{"type":"response.completed","response":{"id":"resp_1","model":"m","status":"completed","output":[` + output + `],"usage":{"total_tokens":3},"error":null}}`
}

var answers = []answer{
	{
		name: "text", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":"","refusal":null}`), delta(`{"content":"a\"\u00e9"}`), delta(`{"content":"\ud83d"}`), delta(`{"content":"\ude00"}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"a\"é😀","refusal":null,"annotations":[]}`),
		raws:   [][]string{{`{"role":"assistant","content":"a\"\u00e9\ud83d\ude00"}`}},
	},
	{
		name: "null then text", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":null}`), delta(`{"content":"x"}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"x"}`),
	},
	{
		name: "empty text", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":""}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":""}`),
	},
	{
		name: "parallel calls", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":null}`),
			delta(`{"tool_calls":[{"index":1,"id":"b","type":"function","function":{"name":"g","arguments":""},"extra_content":{"s":"t"}}]}`),
			delta(`{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}]}`),
			delta(`{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}}]}`),
			delta(`{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}`),
			delta(`{"tool_calls":[{"index":2,"id":"c","type":"custom","custom":{"name":"h","input":"r"}}]}`),
			delta(`{"tool_calls":[{"index":2,"custom":{"input":"aw"}},{"index":99999999999999999999,"id":"z"},{"index":-1,"id":"z"}]}`),
			finishTools, usageChunk),
		whole: wholeChat(`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}},{"id":"c","type":"custom","custom":{"name":"h","input":"raw"}}]}`),
		raws:  [][]string{{`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":"{}"},"extra_content":{"s":"t"}},{"id":"c","type":"custom","custom":{"name":"h","input":"raw"}}]}`}},
	},
	{
		name: "a name in pieces, and an id behind it", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","tool_calls":[{"index":0,"function":{"name":"get_","arguments":""}}]}`),
			delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"weather","arguments":"{}"}}]}`), finishTools, usageChunk),
		whole: wholeChat(`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"get_weather","arguments":"{}"}}]}`),
	},
	{
		name: "calls without index, and with one index", dialect: Chat,
		stream: chatStream(delta(`{"content":"","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{"}}]}`), delta(`{"tool_calls":[{"function":{"arguments":"}"}}]}`), delta(`{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"{}"}}]}`),
			delta(`{"tool_calls":[{"index":5,"id":"c","function":{"name":"f","arguments":"{}"}},{"index":5,"id":"d","function":{"name":"f","arguments":"{}"}}]}`), finishTools, usageChunk),
		whole: wholeChat(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{}"}},{"id":"c","function":{"name":"f","arguments":"{}"}},{"id":"d","function":{"name":"f","arguments":"{}"}}]}`),
		raws:  [][]string{{`{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"b","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}},{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]}`}},
	},
	{
		name: "choices", dialect: Chat,
		stream: chatStream(`"choices":[{"index":1,"delta":{"role":"assistant","content":"B"}}]`, `"choices":[{"index":0,"delta":{"role":"assistant","content":"A"}},{"index":1,"delta":{"content":"b"}}]`, `"choices":[{"index":0,"delta":{"content":"a"}},{"index":2000,"delta":{"content":"z"}}]`, `"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]`, `"choices":[{"index":1,"delta":{},"finish_reason":"length"}]`, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"Aa"}`, `{"role":"assistant","content":"Bb"}`),
	},
	{
		name: "refusal", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":null,"refusal":"I "}`), delta(`{"refusal":"can't"}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":null,"refusal":"I can't"}`),
	},
	{
		name: "legacy call", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":""}}`), delta(`{"function_call":{"arguments":"{}"}}`), `"choices":[{"index":0,"delta":{},"finish_reason":"function_call"}]`, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}`),
	},
	{
		name: "audio", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":null,"audio":{"id":"au","transcript":"a"}}`), delta(`{"audio":{"id":"au","data":"QU","transcript":"b"}}`), delta(`{"audio":{"data":"E=","expires_at":1}}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":null,"audio":{"id":"au","data":"QUE=","transcript":"ab","expires_at":1}}`),
		raws:   [][]string{{`{"role":"assistant","content":null,"audio":{"id":"au","transcript":"ab","data":"QUE=","expires_at":1}}`}},
	},
	{
		name: "audio with a member without a name", dialect: Chat, // found by FuzzFold
		stream: chatStream(delta(`{"role":"assistant","content":null,"audio":{"":1}}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":null,"audio":{"":1}}`),
	},
	{
		name: "reasoning and unknown members", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":"","reasoning":"th","reasoning_details":[{"text":"th"}],"x":{"a":1}}`), delta(`{"reasoning":"ink","reasoning_details":[ {"signature":"s"} ],"reasoning_content":"r","x":{"b":2},"n":1,"new":"a"}`), delta(`{"content":"done","n":1.0,"new":"b","gone":null}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"done","reasoning":"think","reasoning_details":[{"text":"th"},{"signature":"s"}],"reasoning_content":"r"}`),
		raws:   [][]string{{`{"role":"assistant","content":"done","reasoning":"think","reasoning_details":[{"text":"th"},{"signature":"s"}],"x":{"b":2},"reasoning_content":"r","n":1.0,"new":"ab"}`}},
	},
	{
		name: "signed thoughts in pieces", dialect: Chat, // OpenRouter with models of Anthropic; then LiteLLM
		stream: chatStream(delta(`{"role":"assistant","content":"","reasoning_details":[{"type":"reasoning.text","text":"a \"","signature":null,"index":0,"format":"f"}]}`),
			delta(`{"reasoning_details":[{"type":"reasoning.text","text":"b","index":0,"format":"f"}]}`), delta(`{"reasoning_details":[{"type":"reasoning.text","signature":"s","index":0,"format":"f"},{"type":"reasoning.text","text":"c","index":1}]}`),
			delta(`{"reasoning_details":[{"type":"reasoning.encrypted","data":"d","index":1},{"type":"reasoning.encrypted","data":"e","index":1}]}`),
			delta(`{"thinking_blocks":[{"type":"thinking","thinking":"x","signature":""}]}`), delta(`{"thinking_blocks":[{"type":"thinking","thinking":"y","signature":"t"}]}`), delta(`{"thinking_blocks":[{"type":"thinking","thinking":"z"}]}`),
			delta(`{"content":"done"}`), finishStop, usageChunk),
		whole: wholeChat(`{"role":"assistant","content":"done"}`),
		raws: [][]string{{`{"role":"assistant","content":"done","reasoning_details":[{"type":"reasoning.text","text":"a \"b","index":0,"format":"f","signature":"s"},{"type":"reasoning.text","text":"c","index":1},{"type":"reasoning.encrypted","data":"d","index":1},{"type":"reasoning.encrypted","data":"e","index":1}],` +
			`"thinking_blocks":[{"type":"thinking","thinking":"xy","signature":"t"},{"type":"thinking","thinking":"z"}]}`}},
	},
	{
		name: "text in lists", dialect: Chat, // Mistral
		stream: chatStream(delta(`{"role":"assistant","content":""}`), delta(`{"content":"a"}`), delta(`{"content":[{"type":"text","text":"b"}]}`), delta(`{"content":[{"type":"text","text":"c"},{"type":"text","text":"d"}]}`), delta(`{"content":"e"}`), delta(`{"content":""}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"abcde"}`),
	},
	{
		name: "thoughts and text in lists", dialect: Chat, // Mistral
		stream: chatStream(delta(`{"role":"assistant","content":""}`), delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}`), delta(`{"content":[{"type":"thinking","thinking":[{"type":"text","text":"m"}]}]}`), delta(`{"content":"a"}`), delta(`{"content":"b"}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm"}]},{"type":"text","text":"ab"}]}`),
	},
	{
		name: "a whole message", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":""}`), `"choices":[{"index":0,"message":{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},"delta":{},"finish_reason":"tool_calls"}]`, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"x","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`),
	},
	{
		name: "messages in pieces", dialect: Chat,
		stream: chatStream(message("a"), message("b"), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"ab"}`),
	},
	{
		name: "messages that grow", dialect: Chat,
		stream: chatStream(message("a"), message("ab"), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"ab"}`),
	},
	{
		name: "messages beside deltas", dialect: Chat, // Perplexity; MiniMax after them
		stream: chatStream(`"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"delta":{"role":"assistant","content":"a"}}]`, delta(`{"content":"b"}`), message("ab"), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"ab"}`),
	},
	{
		name: "messages beside deltas, behind one without", dialect: Chat,
		stream: chatStream(message("a"), `"choices":[{"index":0,"message":{"role":"assistant","content":"b"},"delta":{"content":"b"}}]`, finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"ab"}`),
	},
	{
		name: "a call whose pieces have ids of their own", dialect: Chat,
		stream: chatStream(delta(`{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{"}}]}`), delta(`{"tool_calls":[{"index":0,"id":"b","function":{"arguments":"}"}}]}`), finishTools, usageChunk),
		whole:  wholeChat(`{"role":"assistant","tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}`),
		raws:   [][]string{{`{"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}`}},
	},
	{
		name: "unsigned thoughts of several indexes", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"a","index":0}]}`), delta(`{"reasoning_details":[{"type":"reasoning.text","text":"b","index":1}]}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":"x"}`),
		raws:   [][]string{{`{"role":"assistant","content":"x","reasoning_details":[{"type":"reasoning.text","text":"a","index":0},{"type":"reasoning.text","text":"b","index":1}]}`}},
	},
	{
		name: "thoughts alone", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","reasoning_content":"x"}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":null,"reasoning_content":"x"}`),
	},
	{
		name: "an empty string behind a list", dialect: Chat,
		stream: chatStream(delta(`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}`), delta(`{"content":""}`), finishStop, usageChunk),
		whole:  wholeChat(`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"h"}]}]}`),
	},
	{
		name: "completed", dialect: Responses,
		stream: responsesStream(created, `{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"a\""}`, completed(wholeOutput)),
		whole:  `{"id":"resp_1","object":"response","model":"m","status":"completed","error":null,"output":[` + wholeOutput + `],"usage":{"total_tokens":3}}`,
		raws: [][]string{{
			`{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gA\u002b="}`,
			`{"type":"message","id":"msg_1","status":"completed","role":"assistant","content":[{"type":"output_text","annotations":[],"text":"a\"b"}]}`,
			`{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{\"x\":1}","status":"completed"}`,
		}},
	},
	{
		name: "items done, empty output", dialect: Responses,
		stream: responsesStream(created, `{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}`, `{"type":"response.output_item.done","output_index":0,"item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}}`, completed("")),
		whole:  `{"id":"resp_1","model":"m","status":"completed","output":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}],"usage":{"total_tokens":3}}`,
		raws:   [][]string{{`{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x"}]}`, `{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`}},
	},
}

func fold(d Dialect, chunks [][]byte) (*Folder, bool) {
	f := NewFolder(d)
	ended := false
	for _, c := range chunks {
		_, ended = f.Write(c)
	}
	return f, ended
}

func raws(r Reply) [][]string {
	var out [][]string
	for _, items := range r.Choices {
		var c []string
		for _, it := range items {
			c = append(c, string(it.Raw))
		}
		out = append(out, c)
	}
	return out
}

func hashes(r Reply) (out [][]Hash) {
	for _, items := range r.Choices {
		var c []Hash
		for _, it := range items {
			c = append(c, it.ContentHash())
		}
		out = append(out, c)
	}
	return out
}

// TestFoldAnswers: an answer gives the same items streamed in any chunks and as a whole.
func TestFoldAnswers(t *testing.T) {
	t.Parallel()
	for _, a := range answers {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f, ended := fold(a.dialect, [][]byte{[]byte(a.stream)})
			once := f.Reply()
			if !ended || !once.Complete || once.ID == "" || once.Model != "m" || string(once.Usage) != `{"total_tokens":3}` || once.Error != nil || once.Truncated {
				t.Errorf("got %+v, ended %v", once, ended)
			}
			whole := wiretest.Answer(t, a.dialect, a.whole)
			want := a.raws
			if want == nil {
				want = raws(whole)
			}
			if d := diff(want, raws(once)); d != "" {
				t.Errorf("items:\n%s", d)
			}
			for _, items := range once.Choices {
				for _, it := range items {
					if !strict(it.Raw) {
						t.Errorf("no JSON: %s", it.Raw)
					}
				}
			}
			for seed := range uint64(50) {
				f, _ := fold(a.dialect, chunked(rand.New(rand.NewPCG(seed, 3)), []byte(a.stream)))
				if d := diff(once, f.Reply()); d != "" {
					t.Fatalf("in pieces, seed %d:\n%s", seed, d)
				}
			}
			if d := diff(hashes(once), hashes(whole)); d != "" {
				t.Errorf("hashes of the whole body:\n%s\n%s\n%s", d, raws(once), raws(whole))
			}
			if !whole.Complete || whole.ID != once.ID || whole.Model != "m" || string(whole.Usage) != string(once.Usage) {
				t.Errorf("whole: %+v", whole)
			}
		})
	}
}

// TestFoldCut: of a stream that breaks off, texts are kept and incomplete calls are left out.
func TestFoldCut(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, stream, want string) {
		t.Helper()
		folder, ended := fold(d, [][]byte{[]byte(stream)})
		r := folder.Reply()
		if ended || r.Complete {
			t.Errorf("%q: ended %v, complete %v", stream, ended, r.Complete)
		}
		if got := fmt.Sprint(raws(r)); got != want {
			t.Errorf("%q:\n got %s\nwant %s", stream, got, want)
		}
	}
	cut := func(chunks ...string) string { return strings.TrimSuffix(chatStream(chunks...), "data: [DONE]\n\n") }
	f(Chat, "", "[]")
	f(Chat, "data: {\"choices\":[{\"ind", "[]")
	f(Chat, cut(delta(`{"role":"assistant","content":""}`)), "[[]]")
	f(Chat, cut(delta(`{"content":"a"}`), delta(`{"content":"b"}`)), `[[{"role":"assistant","content":"ab"}]]`)
	f(Chat, cut(delta(`{"content":"a","tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{}"}},{"index":1,"id":"2","function":{"name":"f","arguments":"{\"x"}}]}`)),
		`[[{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{}"}}]}]]`)
	f(Chat, cut(delta(`{"content":null,"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":""}}],"function_call":{"name":"f","arguments":"{"}}`)), "[[]]")
	f(Chat, cut(delta(`{"content":null,"function_call":{"name":"f","arguments":"{}"}}`)), `[[{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}}]]`)
	f(Responses, responsesStream(created, `{"type":"response.output_item.added","output_index":0,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"","status":"in_progress"}}`, `{"type":"response.function_call_arguments.done","output_index":0,"arguments":"{}"}`),
		`[[{"type":"function_call","call_id":"c","name":"f","arguments":"{}","status":"completed"}]]`)
	f(Chat, cut(delta(`{"content":"a","tool_calls":[{"index":0,"id":"1","custom":{"name":"f","input":"1"}}]}`)), `[[{"role":"assistant","content":"a"}]]`)
	f(Responses, responsesStream(created, `{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","id":"rs"}}`,
		`{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"a\""}`, `{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"b"}`, `{"type":"response.refusal.delta","output_index":1,"content_index":1,"delta":"no"}`,
		`{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{"}`, `{"type":"response.output_text.delta","output_index":-1,"delta":"z"}`),
		`[[{"type":"reasoning","id":"rs"} {"type":"message","role":"assistant","content":[{"type":"output_text","text":"a\"b"},{"type":"refusal","refusal":"no"}]}]]`)
}

// TestFoldEnds holds, for a stream in given pieces, how much of each piece may pass before the commit.
func TestFoldEnds(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, want string, pieces ...string) {
		t.Helper()
		folder := NewFolder(d)
		var got []string
		for _, p := range pieces {
			safe, ended := folder.Write([]byte(p))
			s := fmt.Sprint(safe)
			if ended {
				s += "!"
			}
			got = append(got, s)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q: got %s, want %s", pieces, s, want)
		}
	}
	f(Chat, "12 0!", "data: {\"a\"\n\n", "data: [DONE]\n\n")
	f(Chat, "11!", "data: {}\n\n\ndata: [DONE]\n\n: bye\n\n")
	f(Chat, "10 0! 2! 3!", "data: {}\n\n", "data: [DONE]\n", "\r\n", "abc")
	f(Chat, "10 9 0!", "data: {}\n\n", "data: [DO", "NE]\n\n")
	f(Chat, "14 10!", "data: [DONE] x", "\ndata: x\n\ndata:[DONE]\r\n\r\n")
	f(Chat, "0! 10!", "data: {\"error\":{\"message\":\"x\"}}\n\n", "data: {}\n\n")
	f(Chat, "0!", "data: {\"error\":{\"message\":\"x\"},\"choices\":[]}\n\n")
	f(Chat, "58", "data: {\"error\":{},\"choices\":[{\"finish_reason\":\"error\"}]}\n\n")
	f(Responses, "0 0 0 0!", "event: response.completed\n", "data: {\"type\":\"response.completed\",", "\"response\":{}}\n", "\n")
	f(Chat, "0! 9!", "data: [DONE]\n", "data: x\n\n")
	f(Chat, "0!", "data: [DONE]\ndata: x\n\n")
	f(Responses, "0 0!", "event: error\n", "data: {\"type\":\"odd\"}\n\n")
	f(Responses, "6 0!", "data: ", "{\"type\":\"response.failed\"}\n\n")
	f(Responses, "28!", "event: response.x\ndata: {}\n\nevent: error\r\ndata: {}\r\n\r\n")
	f(Responses, "0! 3!", "data: {\"type\":\"response.incomplete\"}\n\n", "abc")
	f(Responses, "14", "data: [DONE]\n\n")
}

func TestFoldErrors(t *testing.T) {
	t.Parallel()
	f := func(d Dialect, stream, wantErr, finish string, complete bool) {
		t.Helper()
		folder, _ := fold(d, [][]byte{[]byte(stream)})
		r := folder.Reply()
		if string(r.Error) != wantErr || r.Finish != finish || r.Complete != complete {
			t.Errorf("%q: got %s, %q, %v", stream, r.Error, r.Finish, r.Complete)
		}
	}
	f(Chat, "data: {\"error\":{\"code\":1}}\n\n", `{"code":1}`, "", true)
	f(Chat, "data: {\"error\":{\"code\":1},\"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n", `{"code":1}`, "error", true)
	f(Chat, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\n", "", "stop", true)
	f(Chat, "data: [DONE]", "", "", true)
	f(Responses, "data: {\"type\":\"error\",\"code\":\"x\"}\n\n", `{"type":"error","code":"x"}`, "", true)
	f(Responses, "event: error\ndata: {\"type\":\"error\",\"error\":{\"code\":\"x\"}}\n\n", `{"code":"x"}`, "", true)
	f(Responses, "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"x\"}}}\n\n", `{"code":"x"}`, "failed", true)

	r, err := FoldBody(Chat, []byte(`{"error":{"code":1}}`))
	if err != nil || string(r.Error) != `{"code":1}` || r.Choices != nil {
		t.Errorf("got %+v, %v", r, err)
	}
	if r, err = FoldBody(Chat, []byte("\ufeff {\"model\":\"m\"}\n")); err != nil || r.Model != "m" || !r.Complete {
		t.Errorf("behind a mark: got %+v, %v", r, err)
	}
	for _, bad := range []string{``, `[]`, `{"a":1`, `{}x`, `<html>`, "\ufeff", "\ufeff\ufeff{}"} {
		if _, err := FoldBody(Chat, []byte(bad)); err == nil {
			t.Errorf("fold %q: no error", bad)
		}
	}
}

// TestAnswersHaveTheirRole: an answer goes back as the assistant's, also where upstream has left its role out, or calls it
// otherwise.
func TestAnswersHaveTheirRole(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`{"role": "assistant", "content": "hi"}`: `{"role": "assistant", "content": "hi"}`,
		`{"content": "hi"}`:                      `{"content": "hi","role":"assistant"}`,
		`{"role": null, "content": "hi"}`:        `{"role": "assistant", "content": "hi"}`,
		`{"role": "model", "content": "hi"}`:     `{"role": "assistant", "content": "hi"}`,
	} {
		r, err := FoldBody(Chat, []byte(`{"choices":[{"index":0,"message":`+message+`,"finish_reason":"stop"}]}`))
		if err != nil || len(r.Choices) != 1 || string(r.Choices[0][0].Raw) != want || r.Choices[0][0].Role != Assistant {
			t.Errorf("%s: %v, %+v", message, err, r.Choices)
		}
	}
}

func TestFoldBounded(t *testing.T) {
	t.Parallel()
	folder := NewFolder(Chat)
	piece := []byte(`data: {"choices":[{"index":0,"delta":{"content":"` + strings.Repeat("x", 1<<20) + `"}}]}` + "\n\n")
	for range 40 {
		folder.Write(piece)
	}
	_, ended := folder.Write([]byte("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{\"n\":1}}\n\ndata: [DONE]\n\n"))
	r := folder.Reply()
	if !ended || !r.Truncated || r.Finish != "stop" || len(r.Usage) == 0 || len(r.Choices[0][0].Raw) > MaxFolded {
		t.Errorf("ended %v, truncated %v, finish %q, %d bytes", ended, r.Truncated, r.Finish, len(r.Choices[0][0].Raw))
	}
}

// TestChoiceThatFailed: a choice that failed before it said anything is no message.
func TestChoiceThatFailed(t *testing.T) {
	t.Parallel()
	for reason, items := range map[string]int{"error": 0, "stop": 1} {
		folder := NewFolder(Chat)
		folder.Write([]byte(`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":"` + reason + "\"}]}\n\n"))
		if r := folder.Reply(); len(r.Choices[0]) != items || r.Finish != reason {
			t.Errorf("%s: %v, finish %q", reason, raws(r), r.Finish)
		}
	}
}

// TestFailureInAChoice: OpenRouter tells in the choice why it failed.
func TestFailureInAChoice(t *testing.T) {
	t.Parallel()
	folder := NewFolder(Chat)
	folder.Write([]byte(`data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"error","error":{"code":502}}]}` + "\n\n"))
	if got := string(folder.Reply().Error); got != `{"code":502}` {
		t.Errorf("error %q", got)
	}
}

// TestFinishOfTheFirstChoice: of several choices the first one's finish reason is the answer's.
func TestFinishOfTheFirstChoice(t *testing.T) {
	t.Parallel()
	for _, choices := range []string{
		`{"index":0,"message":{"content":"a"},"finish_reason":"length"},{"index":1,"message":{"content":"b"},"finish_reason":"stop"}`,
		`{"index":1,"message":{"content":"b"},"finish_reason":"stop"},{"index":0,"message":{"content":"a"},"finish_reason":"length"}`,
	} {
		folder := NewFolder(Chat)
		folder.Write([]byte(`data: {"choices":[` + choices + "]}\n\n"))
		whole, err := FoldBody(Chat, []byte(`{"choices":[`+choices+`]}`))
		if streamed := folder.Reply(); err != nil || whole.Finish != "length" || streamed.Finish != "length" {
			t.Errorf("%s: finish %q, streamed %q, %v", choices, whole.Finish, streamed.Finish, err)
		}
	}
}

// TestFoldMessages: how deltas become the message that is stored.
func TestFoldMessages(t *testing.T) {
	t.Parallel()
	const call = `"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`
	const called = `"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]`
	for _, c := range [][2]string{
		// OpenAI spells a missing content, before other members. Other servers leave it out.
		{`"delta":{"role":"assistant","content":null,` + call + `,"refusal":null}`, `{"role":"assistant","content":null,` + called + `}`},
		{`"delta":{"role":"assistant",` + call + `}`, `{"role":"assistant",` + called + `}`},
		// The last chunk repeats the calls.
		{`"delta":{` + call + `}},{"index":0,"delta":{},"message":{"role":"assistant",` + called + `}`, `{"role":"assistant",` + called + `}`},
		// A list of more than a text stays one.
		{
			`"delta":{"content":[{"type":"text","text":"a"},{"type":"reference","reference_ids":[1]}]}`,
			`{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"reference","reference_ids":[1]}]}`,
		},
		{`"delta":{"content":[{"type":"summary","text":"a"}]}`, `{"role":"assistant","content":[{"type":"summary","text":"a"}]}`},
		{`"delta":{"content":[{"type":"text"}]}`, `{"role":"assistant","content":[{"type":"text"}]}`},
		// A text replaces what is none.
		{`"delta":{"content":1}},{"index":0,"delta":{"content":"x"}`, `{"role":"assistant","content":"x"}`},
		// The last chunk repeats in a message what the deltas have said.
		{`"delta":{"content":" Hi."}},{"index":0,"delta":{},"message":{"role":"assistant","content":"Hi."}`, `{"role":"assistant","content":" Hi."}`},
	} {
		folder := NewFolder(Chat)
		for chunk := range strings.SplitSeq(c[0], `},{"index":0,`) {
			folder.Write([]byte(`data: {"choices":[{"index":0,` + chunk + "}]}\n\n"))
		}
		folder.Write([]byte(`data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}` + "\n\n"))
		if got := string(folder.Reply().Choices[0][0].Raw); got != c[1] {
			t.Errorf("%s:\n got %s\nwant %s", c[0], got, c[1])
		}
	}
}

// TestWholeChoices: a whole answer may have choices without a message, in any order, and numbers that no API gives.
func TestWholeChoices(t *testing.T) {
	t.Parallel()
	r, err := FoldBody(Chat, []byte(`{"choices":[{"index":-1,"message":{"content":"x"}},{"finish_reason":"length"},{"index":2,"message":"x"},
		{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}`))
	if got, want := fmt.Sprint(raws(r)), `[[{"content":"a","role":"assistant"}] [] []]`; err != nil || got != want || r.Finish != "stop" {
		t.Errorf("got %s, finish %q, %v, want %s", got, r.Finish, err, want)
	}
}

// TestOtherNames: a name that came in pieces has its first and its last piece as other names, in choice 0 only.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	for index, want := range map[string]string{"0": "map[1:[r d]]", "2": "map[]"} {
		folder := NewFolder(Chat)
		for _, calls := range []string{`{"index":0,"id":"a","function":{"name":"ls"}},{"index":1,"id":"b","function":{"name":"r"}}`, `{"index":1,"function":{"name":"m"}}`, `{"index":1,"function":{"name":"d","arguments":"{}"}}`} {
			folder.Write([]byte(`data: {"choices":[{"index":` + index + `,"delta":{"tool_calls":[` + calls + `]},"finish_reason":"tool_calls"}]}` + "\n\n"))
		}
		if got := fmt.Sprint(folder.Reply().OtherNames); got != want {
			t.Errorf("choice %s: %s, want %s", index, got, want)
		}
	}

	legacy := NewFolder(Chat)
	for _, call := range []string{`{"name":"r"}`, `{"name":"m","arguments":"{}"}`} {
		legacy.Write([]byte(`data: {"choices":[{"index":0,"delta":{"function_call":` + call + `},"finish_reason":"function_call"}]}` + "\n\n"))
	}
	if got := fmt.Sprint(legacy.Reply().OtherNames); got != "map[0:[r m]]" {
		t.Errorf("legacy: %s", got)
	}
}

// TestFoldBoundsNumbers: a stream cannot name more calls or members than any API has.
func TestFoldBoundsNumbers(t *testing.T) {
	t.Parallel()
	folder := NewFolder(Chat)
	for i := range 2 * MaxIndex {
		folder.Write(fmt.Appendf(nil, `data: {"choices":[{"index":0,"delta":{"m%d":1,"tool_calls":[{"index":0,"id":"%d","function":{"name":"f","arguments":"{}"}}]}}]}`+"\n\n", i, i))
	}
	it := folder.Reply().Choices[0][0]
	members := 0
	for range Children(it.Raw) {
		members++
	}
	if calls := strings.Count(string(it.Raw), `"arguments"`); calls > MaxIndex || members > 100 {
		t.Errorf("%d calls, %d members", calls, members)
	}
}

func FuzzFold(f *testing.F) {
	for i, a := range answers {
		f.Add([]byte(a.stream), uint64(i))
		f.Add([]byte(a.whole), uint64(i))
	}
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		for _, d := range []Dialect{Chat, Responses} {
			whole, err := FoldBody(d, data)
			if err == nil {
				hashes(whole)
			}
			one := NewFolder(d)
			safe, ended := one.Write(data)
			if safe < 0 || safe > len(data) || ended && safe == len(data) || !ended && safe < len(data) && !one.HasBegun() {
				t.Fatalf("safe %d of %d, ended %v", safe, len(data), ended)
			}
			want := one.Reply()
			hashes(want)
			pieces := NewFolder(d)
			var passed []byte
			finished := false
			for _, p := range chunked(rand.New(rand.NewPCG(seed, 4)), data) {
				n, e := pieces.Write(p)
				if finished && (n != len(p) || !e) || e && !finished && n == len(p) {
					t.Fatalf("piece %q: safe %d, ended %v", p, n, e)
				}
				if !finished {
					passed = append(passed, p[:n]...)
				}
				finished = e
			}
			if d := diff(want, pieces.Reply()); d != "" {
				t.Fatalf("%q in pieces:\n%s", data, d)
			}
			if finished != ended || !bytes.HasPrefix(data, passed) {
				t.Fatalf("%q: ended %v in pieces", data, finished)
			}
		}
	})
}

// chunked cuts data into random pieces.
func chunked(r *rand.Rand, data []byte) [][]byte {
	var out [][]byte
	for len(data) > 0 {
		n := 1 + r.IntN(min(len(data), 1+r.IntN(64+len(data)/64)))
		out = append(out, bytes.Clone(data[:n]))
		data = data[n:]
	}
	return out
}
