package wiretest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire"
)

// TB is what a test and a check of rapid have in common.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Parse reads an element.
func Parse(tb TB, d wire.Dialect, raw string) wire.Item {
	tb.Helper()
	it, err := wire.ParseItem(d, []byte(raw))
	if err != nil {
		tb.Fatal(err)
	}
	return it
}

// Request reads a body.
func Request(tb TB, d wire.Dialect, body string) *wire.Request {
	tb.Helper()
	r, err := wire.Parse(d, []byte(body))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Answer reads a whole answer.
func Answer(tb TB, d wire.Dialect, body string) wire.Reply {
	tb.Helper()
	r, err := wire.FoldBody(d, []byte(body))
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// Item wants an element, between blanks, to be read as an item. A want without Parts has one of its own kind.
func Item(tb testing.TB, d wire.Dialect, raw string, want wire.Item) {
	tb.Helper()
	got := Parse(tb, d, " "+raw+"\n")
	if want.Parts == nil {
		want.Parts = []wire.Part{{Kind: want.Kind}}
	}
	want.Dialect, want.Raw = d, []byte(raw)
	if d := cmp.Diff(want, got); d != "" {
		tb.Errorf("%s\n%s", raw, d)
	}
}

// Call is a call, or what a result says of it.
func Call(id, family, name string) wire.Call { return wire.Call{ID: id, Family: family, Name: name} }

// Calls are the parts of an item that makes these calls.
func Calls(all ...wire.Call) (parts []wire.Part) {
	for _, c := range all {
		parts = append(parts, wire.Part{Kind: wire.ToolCall, Call: c})
	}
	return parts
}

// Result is the part of an item that answers a call.
func Result(id, family, name string) []wire.Part {
	return []wire.Part{{Kind: wire.ToolResult, Call: Call(id, family, name)}}
}
