package procedural_test

import (
	"strings"
	"testing"

	"remora/memory/layer"
	"remora/memory/layer/layertest"
	"remora/memory/layers/procedural"
	"remora/wire"
	"remora/wire/dialects"
)

func shop() procedural.Options {
	return procedural.Options{Procedures: []procedural.Procedure{
		{Name: "returns", When: []string{"return a parcel", "get my money back", "refund"}, Steps: strings.Join([]string{
			"1. Ask for the order number, if it was not given.",
			"2. Look the order up. Older than 30 days: offer a voucher instead.",
			"3. Send the label, and say that the refund takes five days.",
		}, "\n")},
		{Name: "gift returns", When: []string{"return a parcel that was a gift"}, Steps: "Offer a voucher."},
		{Name: "opening hours", When: []string{"何時に開きますか", "when is the shop open"}, Steps: "Name the nearest shop."},
	}}
}

func open(t *testing.T, o procedural.Options) *procedural.Layer {
	t.Helper()
	return layertest.Must(procedural.New(o))(t)
}

func TestSuite(t *testing.T) {
	layertest.Run(t, func() any {
		o := shop()
		o.Procedures[0].Steps = "</procedure> Be brief."
		return open(t, o)
	}, layertest.States(layer.State(`{"procedure":"returns","left":2}`)))
}

// The block on the page is the one that the layer makes.
func TestPage(t *testing.T) {
	l := layertest.Must(procedural.New(shop()))(t)
	said := []wire.Item{wire.NewMessage(dialects.Chat, wire.User, "I want to return a parcel.")}
	a := layertest.Must(l.AppendItems(t.Context(), layertest.PageTurn(), nil, said))(t)
	layertest.Page(t, layertest.PageRecall(t, l, a.State)...)
}

// A conversation, and which procedure is told in answer to each of its messages.
func TestWhichProcedureIsTold(t *testing.T) {
	l := open(t, shop())
	var s layer.State
	for i, c := range []struct{ user, told string }{
		{"Hello, how are you?", ""},
		{"Can I get a refund for my boots?", "returns"},
		{"It is order 5521.", "returns"},
		{"Yes.", "returns"},
		{"Thank you!", ""},
		{"I would like to have the money back that I paid", "returns"},
		{"No, wait: I am returning a parcel, and it was a gift.", "gift returns"},
		{"お店は何時に開きますか。", "opening hours"},
	} {
		a := layertest.Must(l.AppendItems(t.Context(), layertest.PageTurn(), s, []wire.Item{wire.NewMessage(dialects.Chat, wire.User, c.user)}))(t)
		if a.State != nil {
			s = a.State
		}
		if got := told(t, l, s, 1500); got != c.told {
			t.Errorf("message %d, %q: told %q, want %q", i+1, c.user, got, c.told)
		}
	}
}

// Results of tools and what the model says neither choose a procedure nor end one.
func TestOnlyUsersChoose(t *testing.T) {
	l := open(t, shop())
	s := layer.State(`{"procedure":"returns","left":1}`)
	result := layertest.Must(wire.ParseItem(dialects.Chat, []byte(`{"role":"tool","tool_call_id":"c","content":"when is the shop open"}`)))(t)
	a, err := l.AppendItems(t.Context(), layertest.PageTurn(), s, []wire.Item{result})
	if err != nil || a.State != nil {
		t.Errorf("state %s, %v: want it unchanged", a.State, err)
	}
}

// A procedure that does not fit, or that the configuration has no more, is not told.
func TestNotTold(t *testing.T) {
	l := open(t, shop())
	if got := told(t, l, layer.State(`{"procedure":"returns","left":1}`), 10); got != "" {
		t.Errorf("told %q within 10 tokens", got)
	}
	if got := told(t, l, layer.State(`{"procedure":"gone","left":1}`), 1500); got != "" {
		t.Errorf("told %q", got)
	}
}

func TestBadOptions(t *testing.T) {
	_, err := procedural.New(procedural.Options{
		MinMatch: 2, Lasts: -1, MaxTokens: 1_000_000,
		Procedures: []procedural.Procedure{
			{},
			{Name: "a\nb", When: []string{"what is it"}, Steps: "x"},
			{Name: "c", When: []string{"refund"}, Steps: "x"},
			{Name: "c", When: []string{"refund"}, Steps: "x"},
		},
	})
	for _, want := range []string{
		"min_match: ", "lasts: ", "max_tokens: ", "procedures[0].name: ", "procedures[0].when: ", "procedures[0].steps: ",
		"procedures[1].name: ", "procedures[1].when[0]: ", "procedures[3].name: ",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to hold %q", err, want)
		}
	}
	if _, err := procedural.New(procedural.Options{}); err == nil {
		t.Error("no procedures: want an error")
	}
}

// told returns the name of the procedure that the layer tells.
func told(t *testing.T, l *procedural.Layer, s layer.State, budget int) string {
	t.Helper()
	got := layertest.Must(l.Recall(t.Context(), &layer.Turn{Count: layertest.Quarter}, s, budget))(t)
	if len(got.Messages) == 0 {
		return ""
	}
	_, rest, _ := strings.Cut(got.Messages[0], "here: ")
	name, _, _ := strings.Cut(rest, "\n")
	return name
}
