package memory_test

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"remora/cache"
	"remora/cache/stores"
	"remora/memory"
	"remora/memory/layers/semanticrecall"
	"remora/memory/pipeline"
)

// meaning is an embedding model for which some words mean the same.
type meaning struct {
	mu    sync.Mutex
	texts map[string]int // how often each was asked for
	calls int
	fails error
	seen  []memory.Credential
}

var same = map[string]string{"appliance": "kettle", "fixing": "broken", "which": "", "needs": "", "the": "", "is": ""}

const dimensions = 64

func (m *meaning) Bind(c memory.Credential) memory.Embedder {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, c)
	return m
}

func (m *meaning) Refused(err error) bool { return errors.Is(err, errRefused) }

var errRefused = errors.New("refused")

func (m *meaning) Embed(_ context.Context, texts []string) ([][]float32, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls++
	if m.fails != nil {
		return nil, m.fails
	}
	var all [][]float32
	for _, text := range texts {
		m.texts[text]++
		v := make([]float32, dimensions)
		for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' }) {
			if other, ok := same[word]; ok {
				word = other
			}
			if word != "" {
				h := fnv.New32a()
				_, _ = h.Write([]byte(word))
				v[h.Sum32()%dimensions]++
			}
		}
		all = append(all, v)
	}
	return all, nil
}

func (m *meaning) asked(text string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.texts[text]
}

// near are embeddings by m.
func near(m *meaning, id string) *memory.Embeddings {
	m.texts = map[string]int{}
	return &memory.Embeddings{Source: m.Bind, ID: id, Layer: "semantic-recall", Floor: 0.4, Weight: 20, Wait: time.Minute}
}

// nearby is the layer semantic_recall with embeddings.
func nearby(t *testing.T, e *memory.Embeddings) memory.Shape {
	t.Helper()
	l := recaller(t)
	impl, err := semanticrecall.New(semanticrecall.Options{Embeddings: semanticrecall.Embeddings{Model: "m"}})
	if err != nil {
		t.Fatal(err)
	}
	l.Impl = impl
	return memory.Shape{Layers: layersOf(t, l), Embeddings: e}
}

// TestEmbeddings: vectors are made after the turn, once, by whichever process; they go with their session, and another model
// makes them anew.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const statement, paraphrase = "The kettle is broken", "Which appliance needs fixing?"
		store, err := stores.Open("memory:", cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var one, two meaning
		o := memory.Options{SessionTTL: 10 * time.Hour, Now: time.Now, Shared: true, Shape: nearby(t, near(&one, "one"))}
		l := &lab{t: t, m: memory.New(store, nil, patient(o)), store: store}
		other := &lab{t: t, m: memory.New(store, nil, patient(o)), store: store}
		version := func() uint64 {
			t.Helper()
			r, err := store.Read(t.Context(), []cache.Query{{Group: cache.Group{Owner: "tenant", Name: "e:one"}}})
			if err != nil {
				t.Fatal(err)
			}
			return r[0].Version
		}

		c := in("one", "ada")
		c.Credential = memory.Credential{Header: "Authorization", Value: "Bearer ada's", Provider: "up"}
		l.tell(c, statement)
		synctest.Wait()
		before := one.asked(statement) // as a question, and as a statement
		if version() == 0 || one.seen[0] != c.Credential {
			t.Error("no vectors are stored, or not on behalf of the caller")
		}
		wantTold(t, other.tell(in("asks", "ada"), paraphrase), "kettle", true)
		wantTold(t, other.tell(in("bob asks", "bob"), paraphrase), "kettle", false)
		synctest.Wait()
		if n := one.asked(statement); n != before {
			t.Errorf("the statement was embedded %d times, want %d", n, before)
		}

		shape := nearby(t, near(&two, "two"))
		l.m.Reshape(shape)
		l.tell(in("asks again", "ada"), paraphrase)
		synctest.Wait()
		if two.asked(statement) != 1 {
			t.Errorf("another model was asked %d times for the statement, want once", two.asked(statement))
		}
		wantTold(t, l.tell(in("asks once more", "ada"), paraphrase), "kettle", true)

		if err := l.m.Delete(t.Context(), memory.Scope{Tenant: "tenant", Session: "one"}); err != nil {
			t.Fatal(err)
		}
		if version() != 0 {
			t.Error("vectors outlive their session")
		}
		synctest.Wait()
		l.m.Close()
		other.m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEmbeddingsRest: a model that fails is left alone for a while, and told of once; then words are searched.
func TestEmbeddingsRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := stores.Open("memory:", cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		m := &meaning{fails: errors.New("down")}
		e := near(m, "one")
		var classes []pipeline.Class
		var mu sync.Mutex
		e.Observe = func(_ context.Context, ev pipeline.Event) {
			mu.Lock()
			defer mu.Unlock()
			classes = append(classes, ev.Class)
		}
		var log journal
		said := log.String
		l := &lab{t: t, store: store, m: memory.New(store, nil, patient(memory.Options{Now: time.Now, Log: slog.New(slog.NewTextHandler(&log, nil)), Shape: nearby(t, e)}))}
		l.tell(in("one", "ada"), "The kettle is broken")
		for i := range 12 {
			wantTold(t, l.tell(in(fmt.Sprint("asks ", i), "ada"), "Who bought my kettle?"), "kettle is broken", true)
			synctest.Wait()
		}
		if m.calls > 3 || len(classes) != m.calls || classes[0] != pipeline.ClassError {
			t.Errorf("a model that fails was asked %d times at once, observed were %v", m.calls, classes)
		}
		time.Sleep(time.Minute)
		m.mu.Lock()
		m.fails = nil
		m.mu.Unlock()
		l.tell(in("asks later", "ada"), "Who bought my kettle?")
		synctest.Wait()
		wantTold(t, l.tell(in("asks now", "ada"), "Which appliance needs fixing?"), "kettle is broken", true)
		if n := strings.Count(said(), "embedding model does not answer"); n != 1 || !strings.Contains(said(), "answers again") || strings.Contains(said(), "kettle") {
			t.Errorf("the log tells of it %d times:\n%s", n, said())
		}
		l.m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestEmbeddingsAreBounded: however little room an index has, texts are embedded once.
func TestEmbeddingsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, err := stores.Open("memory:", cache.Options{Now: time.Now})
		if err != nil {
			t.Fatal(err)
		}
		var m meaning
		l := &lab{t: t, store: store, m: memory.New(store, nil, patient(memory.Options{Now: time.Now, IndexBytes: 64 << 10, Shape: nearby(t, near(&m, "one"))}))}
		const turns = 60
		for i := range turns {
			l.tell(in(fmt.Sprint("told ", i), "ada"), fmt.Sprintf("The parrot number %d eats nuts and %d seeds.", i, i*i))
			synctest.Wait()
		}
		most := 0
		for _, n := range m.texts {
			most = max(most, n)
		}
		if most > 2 && m.texts["I_see."] != most {
			t.Errorf("a text was embedded %d times in %d turns", most, turns)
		}
		total := 0
		for _, n := range m.texts {
			total += n
		}
		if total > 4*turns {
			t.Errorf("%d texts were embedded in %d turns, want three for each at most", total, turns)
		}
		l.m.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}
