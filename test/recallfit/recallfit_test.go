package main

import (
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"remora/memory/index"
)

// TestWeightsOfTheIndex: the built-in weights find as much as when they were fitted, in three languages.
func TestWeightsOfTheIndex(t *testing.T) {
	all, err := dialogues(nil)
	if err != nil {
		t.Fatal(err)
	}
	const want = 0.74 // of a question's evidence, among the first ten turns
	found, questions := 0.0, 0
	for _, d := range all {
		ix := index.New()
		for _, turn := range d.turns {
			ix.Add(turn)
		}
		for _, q := range d.questions {
			questions++
			for _, h := range ix.Search(index.Question{Text: q.text}, 10, nil) {
				if slices.Contains(q.evidence, h.Order) {
					found += 1 / float64(len(q.evidence))
				}
			}
		}
	}
	if share := found / float64(questions); share < want {
		t.Errorf("%.3f of the evidence of %d questions is among ten turns, want %.2f", share, questions, want)
	} else {
		t.Logf("%.3f of %d questions", share, questions)
	}
}

// TestFit: weights fitted to some conversations find the evidence of others, and are written as source.
func TestFit(t *testing.T) {
	all, err := dialogues(nil)
	if err != nil {
		t.Fatal(err)
	}
	all = all[:4]
	samples := samplesOf(all)
	var others []*sample
	for _, s := range samples {
		if s.dialogue > 0 {
			others = append(others, s)
		}
	}
	m := fitModel(others)
	var f figures
	for _, s := range samples {
		if s.dialogue == 0 {
			f.add(judge(&all[0], s.question, s.rescored(m), s.sessions))
		}
	}
	if share := f.found[1] / float64(f.questions); f.questions == 0 || share < 0.5 {
		t.Errorf("%.3f of the evidence of %d questions is among ten turns, want half", share, f.questions)
	}

	path := filepath.Join(t.TempDir(), "weights.go")
	if err := writeModel(path, m, len(all), len(others)); err != nil {
		t.Fatal(err)
	}
	if _, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.AllErrors); err != nil {
		t.Error(err)
	}
}

// TestWeightsAreNotLost: weights fitted to generated conversations alone do not replace those fitted to files.
func TestWeightsAreNotLost(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights.go")
	err := run(t.Context(), []string{"-write", path}, io.Discard, io.Discard)
	if _, statErr := os.Stat(path); err == nil || !strings.Contains(err.Error(), "LOCOMO=") || !errors.Is(statErr, fs.ErrNotExist) {
		t.Errorf("error %v, file %v", err, statErr)
	}
}
