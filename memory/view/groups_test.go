package view_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/view"
	"remora/wire"
	"remora/wire/dialects"
	"remora/wire/wiretest"
)

func TestGroups(t *testing.T) {
	for _, test := range []struct {
		name     string
		dialect  wire.Dialect
		notation string
		want     []int
	}{
		{"nothing", dialects.Responses, "", []int{}},
		{"messages stand alone", dialects.Responses, "u1 a1 k u2", []int{0, 0, 0, 0}},
		{"pairs", dialects.Responses, "u1 fc1 fc2 fo1 fo2 a1", []int{0, 2, 3, 2, 3, 0}},
		{"a message and its results", dialects.Chat, "u1 [1,2,3] fo1 fo2 fo3 a1", []int{0, 2, 2, 2, 2, 0}},
		{"ids that come back", dialects.Chat, "[1] fo1 [1] fo1", []int{1, 1, 3, 3}},
		{"ids that come back", dialects.Responses, "fc1 fo1 a1 fc1 fo1", []int{1, 1, 0, 4, 4}},
		{"calls without ids", dialects.Chat, "legacy function u1 legacy function", []int{1, 1, 0, 4, 4}},
		{"one id, two families", dialects.Responses, "fc1 cc1 fo1 co1", []int{1, 2, 1, 2}},
		{"a shell call answered by a function", dialects.Responses, "lc1 fo1", []int{1, 1}},
		// What upstream would refuse is left out of views, and stands alone.
		{"a result before its call", dialects.Responses, "fo1 u1 fc1", []int{0, 0, 0}},
		{"two results", dialects.Responses, "fc1 fo1 u1 fo1", []int{1, 1, 0, 0}},
		{"two calls", dialects.Responses, "fc1 u1 fc1 fo1", []int{0, 0, 3, 3}},
		{"a second result, the id comes back", dialects.Responses, "fc1 fo1 a1 fo1 u1 fc1 fo1", []int{1, 0, 0, 1, 0, 6, 6}},
		{"a second call, no result after it", dialects.Responses, "fc1 fo1 u1 fc1 fo1 u2 fc1", []int{1, 1, 0, 4, 4, 0, 0}},
		{"without partner", dialects.Responses, "fc1 fo2 u1 fc3 cc4 fo4", []int{0, 0, 0, 0, 0, 0}},
		{"results that name no call", dialects.Responses, "fc1 o u1 o fo1", []int{1, 0, 0, 0, 1}},
		{"reasoning and its answer", dialects.Responses, "u1 r1 a1 u2 r2", []int{0, 2, 2, 0, 0}},
		{"reasoning and its calls", dialects.Responses, "a1 r1 fc1 fc2 fo1 fo2 r2 w a2 u1", []int{0, 2, 2, 2, 2, 2, 7, 7, 7, 0}},
	} {
		t.Run(fmt.Sprintf("%s, %s", test.name, test.dialect), func(t *testing.T) {
			list := view.Items(t, test.dialect, test.notation)
			if diff := cmp.Diff(test.want, view.Groups(list)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.notation, diff)
			}
		})
	}
}

// conversation draws a history that a strict upstream accepts, in runs with parallel calls; ids come back.
func conversation(d wire.Dialect) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var words []string
		for range rapid.IntRange(1, 5).Draw(t, "runs") {
			words = append(words, "u")
			for range rapid.IntRange(0, 3).Draw(t, "steps") {
				ids := rapid.Permutation([]string{"1", "2", "3"}).Draw(t, "ids")[:rapid.IntRange(1, 3).Draw(t, "calls")]
				if d == dialects.Chat {
					words = append(words, "["+strings.Join(ids, ",")+"]")
				} else if rapid.Bool().Draw(t, "reasoning") {
					words = append(words, "r")
				}
				for i, id := range ids {
					if d == dialects.Responses {
						words = append(words, []string{"fc", "cc"}[i%2]+id)
					}
				}
				for i, id := range ids {
					words = append(words, []string{"fo", "co"}[i%2*int(d.Code()-dialects.Chat.Code())]+id)
				}
			}
			words = append(words, "a")
		}
		return strings.Join(words, " ")
	})
}

// On real items, judged by wire.Check: upstream accepts the rest after a cut at any budget, and reasoning and its
// answer are sent together or not at all.
func TestCutsLeaveNoOrphans(t *testing.T) {
	for _, d := range []wire.Dialect{dialects.Chat, dialects.Responses} {
		t.Run(d.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				notation := conversation(d).Draw(t, "conversation")
				all := view.Items(t, d, notation)
				if errs := wiretest.Check(d, all); errs != nil {
					t.Fatalf("the generator is wrong: %s: %v", notation, errs)
				}
				list := make([]view.Candidate, len(all))
				run := rapid.IntRange(0, len(all)).Draw(t, "run")
				for i, group := range view.Groups(all) {
					list[i] = view.Candidate{Cost: 1, Group: group, Stays: i >= run}
				}
				kept, _ := fit(nil, nil, whole(list), view.Policy{Budget: float64(rapid.IntRange(0, len(all)).Draw(t, "budget"))})
				var view []wire.Item
				for n, i := range kept.History {
					view = append(view, all[i])
					followed := n+1 < len(kept.History) && kept.History[n+1] == i+1
					if all[i].Kind == wire.Reasoning && !followed {
						t.Errorf("%s: reasoning %d lost what it led to", notation, i)
					}
					preceded := n > 0 && kept.History[n-1] == i-1
					if i > 0 && all[i-1].Kind == wire.Reasoning && !preceded {
						t.Errorf("%s: item %d lost its reasoning", notation, i)
					}
				}
				if errs := wiretest.Check(d, view); errs != nil {
					t.Errorf("%s: kept %v: %v", notation, kept.History, errs)
				}
			})
		})
	}
}

// Histories that share one id cost no more than others: a caller chooses them. A pass that is not linear takes
// minutes over as many.
func TestGroupsAreLinear(t *testing.T) {
	const n, limit = 200_000, 10 * time.Second
	grow := func(n int, notation string) []wire.Item {
		part := view.Items(t, dialects.Responses, notation)
		return slices.Repeat(part, n/len(part))
	}
	for name, list := range map[string][]wire.Item{
		"calls":               grow(n, "fc1"),
		"results":             grow(n, "fo1"),
		"one answer":          grow(n, "r1 fc1"),
		"pairs":               grow(n, "fc1 fo1"),
		"families":            grow(n, "lc1 cc1 fo1"),
		"calls, then results": slices.Concat(grow(n/2, "fc1"), grow(n/2, "fo1")),
		"results, then calls": slices.Concat(grow(n/2, "fo1"), grow(n/2, "fc1")),
	} {
		for try := 1; ; try++ { // the machine may be busy, or stand still, in one of them
			start := time.Now()
			view.Groups(list)
			took := time.Since(start)
			if took <= limit {
				break
			}
			if try == 3 {
				t.Errorf("%s: %d items took %v", name, n, took)
				break
			}
		}
	}
}

func BenchmarkGroups(b *testing.B) {
	list := slices.Repeat(view.Items(b, dialects.Responses, "u1 r1 fc1 fc2 fo1 fo2 r2 a1"), 50)
	b.ReportAllocs()
	for b.Loop() {
		view.Groups(list)
	}
}
