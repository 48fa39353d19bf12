package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"remora/test/scripted"
	"remora/test/scripted/script"
	"remora/wire"
)

// TestTurnShowsWhatItCost: a turn's record has each layer's tokens and items, and those of system, tools, history, and the total.
func TestTurnShowsWhatItCost(t *testing.T) {
	g := startGate(t, `[{kind: working_memory}, {kind: static_content, text: Be brief.}, {kind: plan_memory}]`, scripted.Options{})
	turns := make(map[string]string)
	for _, d := range dialects {
		session := "X-Session-Id: " + d.String()
		g.say(t, d, `CALL working-memory_update {"name":"Ada"} ;; SAY Noted.`, session)
		turns[d.String()] = g.say(t, d, "SAY Bye.", session).header.Get("X-Turn-Id")
	}
	g.proxy.Stop()
	for session, turn := range turns {
		var got struct {
			View struct {
				Tokens struct{ System, Tools, History, Layers, Total int }
			}
			Layers []struct {
				ID            string
				Tokens, Items int
			}
		}
		decode(t, []byte(g.proxy.transcriptOf(t, "--session", session, "--turn", turn, "--record")), &got)
		var names []string
		sum := 0
		for _, l := range got.Layers {
			names = append(names, l.ID)
			if sum += l.Tokens; (l.Tokens > 0) != (l.Items == 1) || (l.Tokens > 0) != (l.ID != "plan") {
				t.Errorf("%s: layer %+v", session, l)
			}
		}
		if want := "working-memory static-content plan"; strings.Join(names, " ") != want {
			t.Errorf("%s: layers %q, want %s", session, names, want)
		}
		u := got.View.Tokens
		if u.Layers != sum || u.Tools == 0 || u.History == 0 || u.Total != u.System+u.Tools+u.History+u.Layers {
			t.Errorf("%s: %+v, layers have %d", session, u, sum)
		}
	}
}

// TestUsageOfSeveralRounds: if a hidden call makes the model answer twice, the client gets the input of the last round, by
// which agents compact their history, and the output of both. The turn's record and X-Memory have the sums.
func TestUsageOfSeveralRounds(t *testing.T) {
	const arguments = `{"name":"Ada"}`
	g := startGate(t, `[{kind: working_memory}]`, scripted.Options{Respond: func(p scripted.Prompt) (scripted.Answer, bool) {
		if strings.Contains(string(p.Body), "call_id") {
			return scripted.Answer{Text: "Noted.", Usage: script.Usage{Prompt: 130, Cached: 100}}, true
		}
		call := scripted.Call{Name: "working-memory_update", Arguments: arguments}
		return scripted.Answer{Calls: []scripted.Call{call}, Usage: script.Usage{Prompt: 100}}, true
	}})

	// The scripted API counts one output token per four bytes, and one more per answer.
	const output = int64((len("working-memory_update")+len(arguments))/4 + 1 + len("Noted.")/4 + 1)
	last := wire.Usage{Input: 130, Cached: 100, Output: output, CacheKnown: true}
	sum := wire.Usage{Input: 230, Cached: 100, Output: output, CacheKnown: true}
	total := fmt.Sprintf(`"total_tokens":%d`, last.Input+last.Output)

	usage := func(t *testing.T, body string) wire.Usage {
		t.Helper()
		all := regexp.MustCompile(`"usage":(\{(?:[^{}]|\{[^{}]*\})*\})`).FindAllStringSubmatch(body, -1)
		if len(all) == 0 {
			t.Fatalf("no usage in %s", body)
		}
		return wire.ParseUsage([]byte(all[len(all)-1][1]))
	}

	turns := make(map[dialect]string)
	for _, d := range dialects {
		t.Run(d.String(), func(t *testing.T) {
			body := d.body(t, "hello")
			if d.stream && d.path == "chat/completions" {
				body = strings.Replace(body, `"stream":true`, `"stream":true,"stream_options":{"include_usage":true}`, 1)
			}
			r := g.ask(t, d.path, body, "X-Session-Id: "+d.String())
			turns[d] = r.header.Get("X-Turn-Id")

			if got := usage(t, r.body); got != last || !strings.Contains(r.body, total) {
				t.Errorf("usage %+v, want %+v and %s: %s", got, last, total, r.body)
			}
			want := fmt.Sprintf(";rounds=2;input=%d;output=%d", sum.Input, sum.Output)
			if got := r.header.Get("X-Memory"); strings.Contains(got, want) == d.stream {
				t.Errorf("X-Memory is %s, the sum %s; streamed %v", got, want, d.stream)
			}
		})
	}

	g.proxy.Stop()
	for _, d := range dialects {
		record := g.proxy.transcriptOf(t, "--session", d.String(), "--turn", turns[d], "--record")
		if got := usage(t, regexp.MustCompile(`\s`).ReplaceAllString(record, "")); got != sum {
			t.Errorf("%s: the record says %+v, want %+v", d, got, sum)
		}
	}
}
