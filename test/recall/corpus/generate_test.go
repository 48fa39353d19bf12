package corpus_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/test/recall/corpus"
)

func generate(t *testing.T, seed uint64) []*corpus.Conversation {
	t.Helper()
	all, err := corpus.Generate(seed)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSameSeedMakesTheSameCorpus(t *testing.T) {
	first := generate(t, corpus.Seed)
	if !reflect.DeepEqual(first, generate(t, corpus.Seed)) {
		t.Error("the same seed makes another corpus")
	}
	if reflect.DeepEqual(first, generate(t, corpus.Seed+1)) {
		t.Error("another seed makes the same")
	}
}

// TestCorpus: the corpus has long conversations of two people in three languages, with questions of all categories whose evidence
// is a turn.
func TestCorpus(t *testing.T) {
	languages := map[string]int{}
	for _, c := range generate(t, corpus.Seed) {
		languages[c.Language]++
		if len(c.Sessions) < 20 || c.Turns() < 350 || len(c.Questions) < 70 {
			t.Errorf("%s: %d sessions, %d turns, %d questions", c.Name, len(c.Sessions), c.Turns(), len(c.Questions))
		}

		said := map[string]string{}
		for i, s := range c.Sessions {
			if i > 0 && !s.At.After(c.Sessions[i-1].At) {
				t.Errorf("%s, %s: is not after the one before", c.Name, s.Name)
			}
			for _, turn := range s.Turns {
				if !slices.Contains(c.Speakers[:], turn.Speaker) || strings.ContainsAny(turn.Text, "{}|=") || strings.Contains(turn.Text, "  ") {
					t.Errorf("%s, %s: %s", c.Name, turn.ID, turn.Said())
				}
				said[turn.ID] = turn.Text
			}
		}
		if len(said) != c.Turns() {
			t.Errorf("%s: %d ids for %d turns", c.Name, len(said), c.Turns())
		}

		byCategory := map[corpus.Category]int{}
		asked := map[string]bool{}
		for _, q := range c.Questions {
			byCategory[q.Category]++
			for _, id := range q.Evidence {
				if said[id] == "" {
					t.Errorf("%s: %q: nobody said %s", c.Name, q.Text, id)
				}
			}
			if len(q.Evidence) == 0 || asked[q.Text] || strings.ContainsAny(q.Text+q.Answer, "{}|") {
				t.Errorf("%s: %+v", c.Name, q)
			}
			asked[q.Text] = true
			if q.Category == corpus.MultiHop && len(q.Evidence) < 2 {
				t.Errorf("%s: %q needs one turn alone", c.Name, q.Text)
			}
		}
		for _, category := range corpus.Categories() {
			if byCategory[category] == 0 {
				t.Errorf("%s: no question of category %s", c.Name, category)
			}
		}
	}
	if diff := cmp.Diff(map[string]int{"en": 14, "de": 5, "zh": 5}, languages); diff != "" {
		t.Error(diff)
	}
}

// TestAnswersOfOneTurnStandInIt: if the answer of a question is a number, a name or the like, its evidence has that word.
func TestAnswersOfOneTurnStandInIt(t *testing.T) {
	checked := 0
	for _, c := range generate(t, corpus.Seed) {
		for _, q := range c.Questions {
			if q.Category != corpus.SingleHop {
				continue
			}
			word := strings.TrimSuffix(q.Answer, " percent")
			for _, s := range c.Sessions {
				for _, turn := range s.Turns {
					if turn.ID != q.Evidence[0] || strings.ToLower(word) == word && !strings.ContainsAny(word, "0123456789") {
						continue // the answer is no single word, such as a reason
					}
					if checked++; !strings.Contains(turn.Text, strings.TrimSuffix(word, " party")) && len(word) > 3 && c.Language == "en" && !strings.HasSuffix(word, "minutes") && !strings.HasSuffix(word, "kilometres") {
						t.Errorf("%s: %q: %q is not in %q", c.Name, q.Text, q.Answer, turn.Text)
					}
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("%d answers were checked", checked)
	}
}
