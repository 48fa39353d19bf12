package index_test

import (
	"math"
	"testing"
	"time"

	"remora/memory/index"
)

// meant is an index of three statements, of which those that are given a vector have one.
func meant(vectors ...[]float32) *index.Index {
	ix := index.New()
	for i, text := range []string{"The kettle is broken.", "The sky is blue today.", "I like my old kettle."} {
		ix.Add(index.Turn{ID: string(rune('a' + i)), Session: string(rune('s' + i)), Role: index.RoleUser, Time: time.Unix(0, 0), Text: text, Content: [16]byte{byte(i)}})
	}
	for i, v := range vectors {
		if v != nil {
			ix.SetVectors(i, []index.Vector{index.Quantise(v)})
		}
	}
	return ix
}

func ask(text string, vector ...float32) index.Question {
	return index.Question{Text: text, Meaning: index.Meaning{Vector: index.Quantise(vector), Floor: 0.4, Weight: 20}}
}

// TestMeaning: what is near in meaning is found without a word of the question, and goes before what shares words.
func TestMeaning(t *testing.T) {
	ix := meant([]float32{1, 0, 0.1}, []float32{0, 1, 0}, nil)
	hits := ix.Search(ask("Which appliance needs fixing?", 1, 0.1, 0), 3, nil)
	if len(hits) != 3 || hits[0].ID != "a" || hits[0].Near < 0.98 || hits[0].Match > 0.1 || hits[1].Near > 0.2 {
		t.Errorf("have %+v", hits)
	}
	if hits := ix.Search(ask("What of the old kettle?", 0, 1, 0), 3, nil); hits[0].ID != "b" {
		t.Errorf("by meaning: %+v", hits)
	}
	for name, q := range map[string]index.Question{
		"no vector": ask("Zebras quack?"), "a vector of zeros": ask("Zebras quack?", 0, 0, 0), "of other dimensions": ask("Zebras quack?", 1, 0),
		"not a number": ask("Zebras quack?", float32(math.NaN()), 1, 0), "nothing near": ask("Zebras quack?", -1, 0, 0),
	} {
		if hits := ix.Search(q, 3, nil); len(hits) != 0 {
			t.Errorf("%s: found %+v", name, hits)
		}
	}
	plain := meant()
	with, without := ix.Search(ask("What of the old kettle?"), 3, nil), plain.Search(ask("What of the old kettle?"), 3, nil)
	for i := range with {
		if with[i].ID != without[i].ID || with[i].Score != without[i].Score {
			t.Errorf("a question without a vector is answered as %+v, by an index without vectors as %+v", with[i], without[i])
		}
	}
}

// TestLacking: what has no vector is listed by item, the newest first, and a vector goes with its turn.
func TestLacking(t *testing.T) {
	ix := meant([]float32{1, 0}, nil, nil)
	for _, part := range []string{"One.", "Two."} {
		ix.Add(index.Turn{ID: "d", Session: "s", Text: part, Content: [16]byte{9}})
	}
	var names []string
	for _, l := range ix.Unembedded("", 100, 100) {
		names = append(names, l.Session+l.Texts[0])
	}
	if got, want := len(names), 3; got != want || names[0] != "sOne." || names[1] != "uI like my old kettle." {
		t.Errorf("rest are %q", names)
	}
	if l := ix.Unembedded("s", 100, 100); len(l) != 1 || len(l[0].Texts) != 2 || l[0].First != 3 || l[0].Content[0] != 9 {
		t.Errorf("of one session rest are %+v", l)
	}
	if l := ix.Unembedded("", 2, 100); len(l) != 1 {
		t.Errorf("of the newest two rest are %+v", l)
	}
	if l := append(ix.Unembedded("", 100, 1), ix.Unembedded("none", 100, 1)...); len(l) != 1 {
		t.Errorf("rest are %+v", l)
	}

	before := ix.Bytes()
	ix.SetVectors(3, []index.Vector{index.Quantise([]float32{0, 1}), index.Quantise([]float32{1, 1})})
	if ix.Bytes() <= before {
		t.Error("vectors take no memory")
	}
	rest := ix.Without(func(session string) bool { return session == "t" })
	if l := rest.Unembedded("", 100, 100); len(l) != 1 || l[0].Session != "u" {
		t.Errorf("after a session was taken out, rest are %+v", l)
	}
	if hits := rest.Search(ask("Zebras quack?", 0, 1), 1, nil); len(hits) != 1 || hits[0].Text != "One." {
		t.Errorf("after a session was taken out, found is %+v", hits)
	}
}

func BenchmarkMeaning(b *testing.B) {
	ix := index.New()
	const dimensions = 256
	for i := range 10_000 {
		ix.Add(index.Turn{ID: "x", Session: "s", Text: "The kettle is broken."})
		v := make([]float32, dimensions)
		for j := range v {
			v[j] = float32(math.Sin(float64(i * (j + 1))))
		}
		ix.SetVectors(i, []index.Vector{index.Quantise(v)})
	}
	q := make([]float32, dimensions)
	q[0] = 1
	for _, c := range []struct {
		name string
		q    index.Question
	}{{"words", ask("Which appliance is broken?")}, {"vectors", ask("Which appliance is broken?", q...)}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				ix.Search(c.q, 50, nil)
			}
		})
	}
}
