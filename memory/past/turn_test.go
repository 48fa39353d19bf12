package past

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory/pipeline"
	"remora/memory/session"
)

// counting is an embedding model that counts what it is asked for.
type counting struct {
	mu    sync.Mutex
	asked map[string]int
}

func (c *counting) Embed(_ context.Context, texts []string) ([][]float32, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([][]float32, len(texts))
	for i, text := range texts {
		c.asked[text]++
		all[i] = []float32{1, 0}
	}
	return all, nil
}

func (*counting) Refused(error) bool { return false }

// TestQuestionsAreAskedOnce: a layer that asks several questions, and asks them again when the view changes, costs one call of the
// embedding model for each.
func TestQuestionsAreAskedOnce(t *testing.T) {
	t.Parallel()
	store, err := stores.Open("memory:", cache.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := New(t.Context(), Options{Sessions: session.New(store, 0), Store: store, Log: slog.New(slog.DiscardHandler), Now: time.Now})
	model := &counting{asked: make(map[string]int)}
	e := &Embeddings{Source: func(pipeline.Credential) Embedder { return model }, Wait: time.Minute}
	turn := NewTurn(p, session.Scope{Tenant: "t", Session: "s", Resource: "r"}, e, pipeline.Credential{})
	for range 2 {
		for _, question := range []string{"Where do I live?", "Who is my doctor?"} {
			if _, err := turn.Search(t.Context(), question, 5); err != nil {
				t.Fatal(err)
			}
		}
	}
	for question, n := range model.asked {
		if n != 1 {
			t.Errorf("%q was asked for %d times", question, n)
		}
	}
	if len(model.asked) != 2 {
		t.Errorf("asked for %v", model.asked)
	}
}
