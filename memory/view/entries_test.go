package view

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/wire/dialects"
)

// TestLeaveOut takes items out of a view one after the other: each entry says why it is not sent, and a copy of the view
// keeps what it has.
func TestLeaveOut(t *testing.T) {
	all := items(t, dialects.Chat, "u1 a1 u2 a2[3,4] fo3 u5 a5 u6")
	v := Assemble(Request{Items: all, Window: &Window{MaxItems: 7, EvictBatch: 1, InFlight: InFlightKeep}})
	copied := v
	v.LeaveOut(0, Out{0, ReasonBudget}, Out{1, ReasonSummary})
	v.LeaveOut(0, Out{1, ReasonPolicy})

	why := func(v View) (words []string) {
		for _, e := range v.entries {
			words = append(words, e.why.String())
		}
		return words
	}
	for _, c := range []struct {
		v       View
		items   string
		why     []string // of u1 a1 u2, a2's text and calls 3 and 4, fo3 u5 a5 u6
		counts  Counts
		leftOut []LeftOut
	}{
		{
			copied, "a2[3] fo3 u5 a5 u6",
			[]string{"window", "window", "window", "", "", "orphan", "", "", "", ""},
			Counts{Sent: 6, Windowed: 3, Orphans: 1},
			[]LeftOut{{Item: 3, Call: "c4", At: 1}},
		},
		{
			v, "u5 u6",
			[]string{"window", "window", "window", "budget", "budget", "orphan", "summary", "", "policy", ""},
			Counts{Sent: 2, Windowed: 7, Orphans: 1},
			[]LeftOut{{Item: 3, Call: "c4"}},
		},
	} {
		if got := notation(c.v.Items); got != c.items || c.v.Count() != c.counts {
			t.Errorf("%s and %+v, want %s and %+v", got, c.v.Count(), c.items, c.counts)
		}
		if diff := cmp.Diff(c.why, why(c.v)); diff != "" {
			t.Errorf("why (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(c.leftOut, c.v.LeftOut()); diff != "" {
			t.Errorf("left out (-want +got):\n%s", diff)
		}
	}
}
