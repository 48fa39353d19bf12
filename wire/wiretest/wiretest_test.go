package wiretest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestCheck(t *testing.T) {
	t.Parallel()
	f := func(d wire.Dialect, list string, want ...string) {
		t.Helper()
		r := wiretest.Request(t, d, `{"`+d.Rules().List+`":[`+list+`]}`)
		var got []string
		for _, err := range wiretest.Check(d, r.Items()) {
			got = append(got, err.Error())
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s:\n%s", list, d)
		}
	}
	const (
		user  = `{"role":"user","content":"x"}`
		calls = `{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{"name":"f"}},{"id":"b","function":{"name":"f"}}]}`
		a, b  = `{"role":"tool","tool_call_id":"a","content":""}`, `{"role":"tool","tool_call_id":"b","content":""}`
		old   = `{"role":"assistant","content":null,"function_call":{"name":"f"}}`
		oldF  = `{"role":"function","name":"f","content":""}`
	)
	list := func(parts ...string) string { return strings.Join(parts, ",") }
	f(dialects.Chat, list(user, calls, b, a, user, calls, a, b, user))
	f(dialects.Chat, list(old, oldF, old, oldF))
	f(dialects.Chat, list(calls, a, user, b), `item 0: call "b" without result directly behind it`, `item 3: result without call "b" in the message before`)
	f(dialects.Chat, list(a, calls, a, a, b), `item 0: result without call "a" in the message before`, `item 3: second result for call "a"`)
	f(dialects.Chat, list(calls), `item 0: call "a" without result directly behind it`, `item 0: call "b" without result directly behind it`)
	f(dialects.Chat, list(old, user, oldF), `item 0: call "f" without result directly behind it`, `item 2: result without call "f" in the message before`)

	const (
		fc, fo = `{"type":"function_call","call_id":"a","name":"f"}`, `{"type":"function_call_output","call_id":"a","output":""}`
		cc, co = `{"type":"custom_tool_call","call_id":"a","name":"f"}`, `{"type":"custom_tool_call_output","call_id":"a","output":""}`
		shell  = `{"type":"local_shell_call","call_id":"a"}`
		noID   = `{"type":"function_call_output","output":""}`
		hosted = `{"type":"web_search_call","id":"ws"}`
	)
	f(dialects.Responses, list(fc, user, fo, hosted, noID))
	f(dialects.Responses, list(fc, cc, co, fo))
	f(dialects.Responses, list(shell, fo))
	f(dialects.Responses, list(shell, `{"type":"local_shell_call_output","id":"a","output":""}`))
	f(dialects.Responses, list(fc, co), `item 1: result without a custom_tool call "a" before it`, `item 0: function call "a" without result`)
	f(dialects.Responses, list(fo, fc), `item 0: result without a function call "a" before it`, `item 1: function call "a" without result`)
	f(dialects.Responses, list(fc, fo, fo), `item 2: second result for function call "a"`)
}
