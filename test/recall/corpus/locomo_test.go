package corpus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/test/recall/corpus"
)

const sample = `[{"sample_id": "c1", "conversation": {
  "speaker_a": "Ada", "speaker_b": "Ben",
  "session_1_date_time": "1:56 pm on 8 May, 2023",
  "session_1": [
    {"speaker": "Ada", "dia_id": "D1:1", "text": "Hello!"},
    {"speaker": "Ben", "dia_id": "D1:2", "text": "Look. ", "blip_caption": "a boat", "img_url": ["x"]}
  ],
  "session_2_date_time": "12:05 am on 25 December, 2023",
  "session_2": [{"speaker": "Ben", "dia_id": "D2:1", "text": "I sold it."}],
  "session_3_date_time": "9:00 am on 26 December, 2023"
}, "qa": [
  {"question": "What did Ben show?", "answer": "a boat", "evidence": ["D1:02"], "category": 4},
  {"question": "What happened to it?", "answer": 1, "evidence": ["D1:2; D2:1", "D9:9"], "category": 1},
  {"question": "When?", "answer": "25 December", "evidence": ["D:2:1"], "category": 2},
  {"question": "Why?", "answer": "-", "evidence": [], "category": 3},
  {"question": "Who bought it?", "adversarial_answer": "Ada", "evidence": ["D2:1", "D2:1"], "category": 5}
]}]`

func TestRead(t *testing.T) {
	got, err := corpus.Read(strings.NewReader(sample))
	if err != nil {
		t.Fatal(err)
	}
	may, december := time.Date(2023, 5, 8, 13, 56, 0, 0, time.UTC), time.Date(2023, 12, 25, 0, 5, 0, 0, time.UTC)
	want := []*corpus.Conversation{{
		Name: "c1", Speakers: [2]string{"Ada", "Ben"},
		Sessions: []corpus.Session{
			{Name: "session_1", At: may, Turns: []corpus.Turn{
				{ID: "D1:1", Speaker: "Ada", Text: "Hello!"},
				{ID: "D1:2", Speaker: "Ben", Text: "Look.", Caption: "a boat"},
			}},
			{Name: "session_2", At: december, Turns: []corpus.Turn{{ID: "D2:1", Speaker: "Ben", Text: "I sold it."}}},
		},
		Questions: []corpus.Question{
			{Text: "What did Ben show?", Category: corpus.SingleHop, Answer: "a boat", Evidence: []string{"D1:2"}},
			{Text: "What happened to it?", Category: corpus.MultiHop, Answer: "1", Evidence: []string{"D1:2", "D2:1"}},
			{Text: "When?", Category: corpus.Temporal, Answer: "25 December", Evidence: []string{"D2:1"}},
			{Text: "Who bought it?", Category: corpus.Adversarial, Evidence: []string{"D2:1"}},
		},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if said := got[0].Sessions[0].Turns[1].Said(); said != "Ben: Look. [picture: a boat]" {
		t.Error(said)
	}
}

func TestReadNamesTheField(t *testing.T) {
	for text, want := range map[string]string{
		`{}`:                     "want a list",
		`[]`:                     "want a list",
		`[{"conversation": {}}]`: "conversation 1: speaker_a: want a text",
		strings.Replace(sample, "1:56 pm", "noon", 1):                          `session_1: date_time: want the form`,
		strings.Replace(sample, `"session_1": [`, `"session_1": 7, "x": [`, 1): "session_1: want a list of turns",
	} {
		if _, err := corpus.Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "noon") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
