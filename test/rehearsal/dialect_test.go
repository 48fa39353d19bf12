package rehearsal_test

import "testing"

// TestDialect: a dialect is a folder, a row in the table of dialects, and its paths. This one has one text part and one call.
func TestDialect(t *testing.T) {
	x := copyTree(t)
	x.add("wire/stub/stub.go", `// Package stub is a dialect with one text part and one call.
package stub

import (
	"bytes"

	"remora/wire"
	"remora/wire/sse"
)

// Dialect is the stub.
var Dialect = wire.Define(wire.Rules{
	Name: "stub", Code: 3, List: "said", InstructionRole: wire.System, Format: "format",
	Result: "output", Text: "text", AnswerText: "text",
}, codec{})

type codec struct{ wire.Opaque }

func (codec) Read(d *wire.Decoder, raw []byte) wire.Item {
	it := wire.Item{Dialect: Dialect, Raw: raw, ID: wire.Text(wire.Member(raw, "id"))}
	switch call := wire.Text(wire.Member(raw, "call")); {
	case call != "":
		it.Kind = wire.ToolCall
		it.Parts = d.AddPart(nil, wire.Part{Kind: it.Kind, Call: wire.Call{ID: it.ID, Family: wire.FamilyFunction, Name: call}})
	case wire.Member(raw, "output") != nil:
		it.Kind, it.Role = wire.ToolResult, wire.RoleTool
		it.Parts = d.AddPart(nil, wire.Part{Kind: it.Kind, Call: wire.Call{ID: it.ID, Family: wire.FamilyFunction}})
	default:
		it.Kind, it.Role = wire.Message, wire.RoleOf(wire.Member(raw, "role"))
		it.Parts = wire.MessageParts(d.Says(wire.Member(raw, "content"), 0, nil, nil))
	}
	return it
}

func (codec) Input(it wire.Item, _ int) []byte { return it.Raw }

func (codec) Function(name, _ string, _ []byte) []byte { return wire.AppendString(nil, name) }

func (codec) Result(c wire.Call, content []byte) []byte {
	out := append(wire.AppendString([]byte("{\"id\":"), c.ID), ",\"output\":"...)
	return append(append(out, content...), '}')
}

func (codec) Stream() wire.Stream { return new(fold) }

func (codec) Whole(m *wire.Meta, s *wire.Scanner) ([][]wire.Item, bool) {
	var items []wire.Item
	dec := wire.NewDecoder(Dialect)
	for name := range s.Each() {
		value := s.Raw()
		m.Note(name, value)
		if string(name) == "said" {
			for p := range wire.Children(value) {
				items = append(items, dec.Item(p.Value))
			}
		}
	}
	return [][]wire.Item{items}, true
}

type fold struct{ text, call []byte }

// effect is true for an event that ends the answer.
type effect bool

func (e effect) Keep(*sse.Block) wire.Effect { return e }

func (*fold) Begun(_, _ []byte) (begun, ended bool) { return false, false }
func (*fold) Lost([]byte) bool                      { return false }
func (*fold) Stop()                                 {}

func (f *fold) Event(_ *wire.Meta, b *sse.Block) (wire.Effect, bool) {
	if wire.Member(b.Data, "call") != nil {
		f.call = bytes.Clone(b.Data)
	}
	piece, _ := wire.Inside(wire.Member(b.Data, "text"))
	f.text = append(f.text, piece...)
	ends := wire.Member(b.Data, "end") != nil
	return effect(ends), ends
}

func (f *fold) Reply(r *wire.Reply, _ []byte) {
	dec := wire.NewDecoder(Dialect)
	items := []wire.Item{dec.Item(append(append([]byte("{\"role\":\"assistant\",\"content\":\""), f.text...), "\"}"...))}
	if f.call != nil {
		items = append(items, dec.Item(f.call))
	}
	r.Choices = [][]wire.Item{items}
}
`)
	x.add("wire/stub/merge.go", `package stub

import (
	"remora/wire"
	"remora/wire/merge"
)

type merger struct{ s *merge.Client }

func (codec) Merge(s *merge.Client) merge.Half { return merger{s} }

func (codec) Bodies(b *merge.Bodies) []byte { return b.Last() }

func (m merger) Event(b *merge.Block) {
	if b.Effect == wire.Effect(effect(true)) {
		m.s.Terminate(b)
		return
	}
	m.s.Pass(b)
}

func (merger) Release() {}
func (merger) Next()    {}

func (merger) Number() int { return 0 }

func (m merger) End() {
	for _, b := range m.s.Terminal() {
		m.s.Pass(b)
	}
}
`)
	x.edit("wire/dialects/dialects.go", "\t\tResponses,", "\t\tstub.Dialect,")
	x.edit("wire/dialects/dialects.go", "\"remora/wire/responses\"", "\t\"remora/wire/stub\"")
	x.edit("proxy/routes.go", "\"remora/wire/dialects\"", "\t\"remora/wire/stub\"")
	x.edit("proxy/routes.go", "var dialectRoutes", "\t{dialect: stub.Dialect, path: \"/stub\", bases: []string{\"/v1\"}},")

	x.add("proxy/stub_test.go", `package proxy

import (
	"fmt"
	"testing"

	"remora/wire"
	"remora/wire/merge"
	"remora/wire/stub"
)

func TestStub(t *testing.T) {
	const request = "{\"model\":\"m\",\"said\":[{\"role\":\"user\",\"content\":\"hi\"},{\"call\":\"f\",\"id\":\"a\",\"input\":\"{}\"},{\"id\":\"a\",\"output\":\"1\"}]}"
	const events = "data: {\"text\":\"hel\"}\n\ndata: {\"text\":\"lo\"}\n\ndata: {\"id\":\"b\",\"call\":\"g\",\"input\":\"{}\"}\n\ndata: {\"end\":true}\n\n"
	const whole = "{\"model\":\"m\",\"said\":[{\"role\":\"assistant\",\"content\":\"hello\"},{\"id\":\"b\",\"call\":\"g\",\"input\":\"{}\"}]}"
	for _, answer := range []string{sized(whole), eventHead + chunk(events) + "0\r\n\r\n"} {
		addr, requests := recording(t, answer, func(string) int { return len(request) })
		b := newBook()
		r := start(t, rigOptions{upstream: addr, memory: b.begin})
		resp, body := r.get(t, fmt.Sprintf("POST /v1/stub HTTP/1.1\r\nHost: x\r\nX-Session-Id: s\r\nContent-Length: %d\r\n\r\n%s", len(request), request))
		if resp.StatusCode != 200 || body != whole && body != events {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
		<-requests
		items := (<-b.calls).Request.Items()
		if len(items) != 3 || items[0].Text() != "hi" || !wire.Matches(items[1].Parts[0].Call, items[2].Answers()) {
			t.Errorf("items %+v", items)
		}
		reply := (<-b.answers).Reply
		if got := reply.Choices[0]; !reply.Complete || len(got) != 2 || got[0].Text() != "hello" || got[1].Parts[0].Call.Name != "g" || got[1].Input(0) != "{}" {
			t.Errorf("reply %+v", reply)
		}
	}

	m := merge.New(stub.Dialect, merge.Options{})
	if got := string(m.Write([]byte(events))) + string(m.Finish()); got != events {
		t.Errorf("merged %s", got)
	}
}
`)
	x.run("go", "build", "-trimpath", "./...")
	x.run("go", "test", "-trimpath", "-run=^TestRules$", "./wire")
	x.run("go", "test", "-trimpath", "-run=^TestStub$", "./proxy")
	x.wantEdits(2)
}
