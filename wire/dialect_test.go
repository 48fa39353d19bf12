package wire_test

import (
	"testing"

	. "remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

// TestRules: each dialect has its own Rules with the names that every caller relies on, and an item is only read in the
// dialect that it is written in.
func TestRules(t *testing.T) {
	for _, d := range dialects.All() {
		r := d.Rules()
		if got, err := dialects.Parse(r.Name); got != d || err != nil {
			t.Errorf("%s: ParseDialect = %s, %v", r.Name, got, err)
		}
		if got := dialects.ByCode(d.Code()); got != d || d.Code() == 0 {
			t.Errorf("%s: code %d is of %s", r.Name, d.Code(), got)
		}
		if r.List == "" || r.Result == "" || r.Text == "" || r.AnswerText == "" || r.InstructionRole == RoleNone || r.Format == "" {
			t.Errorf("%s: a rule is missing: %+v", r.Name, r)
		}
		if part := d.TextPart(User, []byte(`"hi"`)); !Valid(part) {
			t.Errorf("%s: text part %s", r.Name, part)
		}
	}
	if d, err := dialects.Parse("unknown"); err == nil {
		t.Errorf("unknown is dialect %s", d)
	}
	if got := dialects.ByCode(200).String(); got != "unknown" {
		t.Errorf("dialect 200 is %q", got)
	}

	const body = `{"messages":[],"input":"hi","previous_response_id":"r","conversation":{"id":"c"},"background":true,
		"response_format":{"type":"json_object"},"text":{"format":{"type":"json_schema"}}}`
	for _, c := range []struct {
		d                                         Dialect
		previous, format                          string
		conversation, continues, kept, background bool
	}{
		{Chat, "", "json_object", false, false, false, false},
		{Responses, "r", "json_schema", true, true, true, true},
		{Dialect{}, "", "", false, false, false, false},
	} {
		r := wiretest.Request(t, c.d, body)
		if r.Previous() != c.previous || r.Format() != c.format || r.InConversation() != c.conversation ||
			r.Continues() != c.continues || r.KeptByID() != c.kept || r.InBackground() != c.background {
			t.Errorf("%s: previous %q, format %q, conversation %t, continues %t, kept %t, background %t", c.d,
				r.Previous(), r.Format(), r.InConversation(), r.Continues(), r.KeptByID(), r.InBackground())
		}
	}
}

// TestErrorEvent: each dialect's stream ends with the error that its SDKs raise.
func TestErrorEvent(t *testing.T) {
	f := Fault{Message: `no "x"`, Type: "proxy_error", Code: "bad"}
	for d, want := range map[Dialect]string{
		Chat:      "data: {\"error\":{\"message\":\"no \\\"x\\\"\",\"type\":\"proxy_error\",\"param\":null,\"code\":\"bad\"}}\n\n",
		Responses: "event: error\ndata: {\"type\":\"error\",\"code\":\"bad\",\"message\":\"no \\\"x\\\"\",\"param\":null,\"sequence_number\":4}\n\n",
	} {
		if got := string(d.ErrorEvent(f, 4)); got != want {
			t.Errorf("%s: got %s", d, got)
		}
		folder := NewFolder(d)
		if _, ended := folder.Write(d.ErrorEvent(f, 4)); !ended || folder.Reply().Error == nil {
			t.Errorf("%s: the event does not end a stream with an error", d)
		}
	}
}

// TestWholeBodyOfAnAnswerToCome: the body of an answer in the background is whole, the answer is not.
func TestWholeBodyOfAnAnswerToCome(t *testing.T) {
	for status, complete := range map[string]bool{"queued": false, "in_progress": false, "completed": true, "incomplete": true, "failed": true} {
		r, err := FoldBody(Responses, []byte(`{"id":"r","status":"`+status+`","output":[]}`))
		if err != nil || r.Complete != complete {
			t.Errorf("%s: complete %t, %v", status, r.Complete, err)
		}
	}
}
