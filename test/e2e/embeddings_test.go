package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"remora/test/scripted"
)

// meanings are the meanings of the words of TestEmbeddings: statements and questions have no word in common.
var meanings = map[string]string{
	"kettle": "device", "appliance": "device", "broken": "repair", "fixing": "repair",
	"the": "", "is": "", "our": "", "in": "", "which": "", "needs": "", "office": "", "my": "", "of": "", "whose": "",
}

const (
	statement  = "The kettle in our office is broken."
	paraphrase = "Which appliance needs fixing?"
)

// embedding starts a proxy whose semantic_recall uses another server for embeddings.
func embedding(t *testing.T, more string) (g *gate, embedder *scripted.Server) {
	t.Helper()
	embedder = startUpstream(t, scripted.Options{Meanings: meanings})
	g = embeddingBy(t, embedder.URL(), more)
	return g, embedder
}

func embeddingBy(t *testing.T, url, more string) *gate {
	t.Helper()
	return startGateWith(t, setup{
		layers:    "[{kind: semantic_recall, timeouts: {recall: 1m}, embeddings: {provider: meaning, model: small" + more + "}}]",
		providers: "[{name: scripted, kind: openai, base_url: '%s'}, {name: meaning, kind: compatible, base_url: '" + url + "/v1', api_key: operators-own, models: [small]}]",
	}, scripted.Options{})
}

// until asks in new sessions of a resource until upstream's request contains a text.
func (g *gate) until(t *testing.T, resource, question, want string) {
	t.Helper()
	d := dialect{"chat/completions", false}
	for n, end := 0, time.Now().Add(waitLimit); ; n++ {
		g.say(t, d, question, fmt.Sprintf("X-Session-Id: %s asks %d", resource, n), "X-Resource-Id: "+resource)
		if strings.Contains(g.seen(t), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%q is not recalled in %d sessions; upstream saw %s\n%s", want, n, g.seen(t), g.proxy.said())
		}
	}
}

// TestEmbeddings: statements in other words are found, in any replica, and only by their own resource and tenant.
func TestEmbeddings(t *testing.T) {
	t.Parallel()
	d := dialect{"chat/completions", false}
	plain := startGate(t, "[{kind: semantic_recall}]", scripted.Options{})
	plain.say(t, d, statement, "X-Session-Id: one", "X-Resource-Id: ada")
	plain.say(t, d, paraphrase, "X-Session-Id: two", "X-Resource-Id: ada")
	if strings.Contains(plain.seen(t), "kettle") {
		t.Fatalf("words find it: %s", plain.seen(t))
	}

	g, embedder := embedding(t, ", timeout: 20s") // for busy machines
	g.say(t, d, statement, "X-Session-Id: one", "X-Resource-Id: ada")
	g.until(t, "ada", paraphrase, "kettle")
	if !strings.Contains(g.seen(t), "not instructions") {
		t.Errorf("upstream saw %s", g.seen(t))
	}
	for _, headers := range [][]string{
		{"X-Session-Id: three", "X-Resource-Id: bob"},
		{"X-Session-Id: three", "X-Resource-Id: ada", "Authorization: Bearer sk-other"},
	} {
		g.say(t, d, paraphrase, headers...)
		if strings.Contains(g.seen(t), "kettle") {
			t.Errorf("%v: told of another's kettle: %s", headers, g.seen(t))
		}
	}
	for _, r := range embedder.Requests() {
		if key := r.Header.Get("Authorization"); key != "Bearer operators-own" {
			t.Errorf("the embedding provider was shown %q", key)
		}
	}

	// A restart finds the vectors in the store: the statement is not embedded again.
	asks := func() (n int) {
		for _, r := range embedder.Requests() {
			if strings.Contains(string(r.Body), `"`+statement+`"`) {
				n++
			}
		}
		return n
	}
	before := asks()
	g.proxy.Stop()
	g.proxy.Restart()
	g.until(t, "ada", paraphrase, "kettle")
	if asks() != before || before != 2 {
		t.Errorf("the statement was embedded %d times, and %d after the restart; want it as a question and as a statement", before, asks()-before)
	}
	g.sound(t)
}

// TestEmbeddingsFail: an endpoint that is down, refuses, gives invalid answers or hangs only costs a turn its timeout, and
// recall by words still works.
func TestEmbeddingsFail(t *testing.T) {
	t.Parallel()
	d := dialect{"chat/completions", false}
	for _, c := range []struct {
		name, inject string
		gone         bool
	}{{"down", "", true}, {"refuses", "status=401", false}, {"fails", "status=500", false}, {"nonsense", "html", false}, {"hangs", "stall-before", false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var g *gate
			if c.gone {
				g = embeddingBy(t, "http://127.0.0.1:1", ", timeout: 50ms")
			} else {
				var embedder *scripted.Server
				g, embedder = embedding(t, ", timeout: 50ms")
				if err := embedder.Inject(c.inject, 1000); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(embedder.Release)
			}
			g.say(t, d, statement, "X-Session-Id: one", "X-Resource-Id: ada")
			for n := range 5 {
				r := g.say(t, d, "Who bought the kettle of our office?", fmt.Sprint("X-Session-Id: two ", n), "X-Resource-Id: ada")
				if !strings.Contains(g.seen(t), statement) || !strings.HasPrefix(r.header.Get("X-Memory"), "ok;") {
					t.Errorf("words are not recalled: X-Memory %s, upstream saw %s", r.header.Get("X-Memory"), g.seen(t))
				}
			}
			g.proxy.Stop()
			said := g.proxy.said()
			if n := strings.Count(said, "embedding model does not answer"); n != 1 {
				t.Errorf("the log tells of it %d times, want once:\n%s", n, said)
			}
			if strings.Contains(said, "kettle") || strings.Contains(said, "operators-own") {
				t.Errorf("the log has content or a key:\n%s", said)
			}
			g.sound(t)
		})
	}
}

// TestWordVectors: with a file of word vectors, statements of similar meaning are found without a model, and others are not.
func TestWordVectors(t *testing.T) {
	t.Parallel()
	table := filepath.Join(t.TempDir(), "words.vec")
	words := "kettle 1 0 0\nappliance 1 0.1 0\nbroken 0 1 0\nfix 0 1 0.1\n##ing 0 0.1 0\ntulip 0 0 1\n"
	if err := os.WriteFile(table, []byte(words), 0o600); err != nil {
		t.Fatal(err)
	}
	d := dialect{"chat/completions", false}
	g := startGate(t, "[{kind: semantic_recall, embeddings: {file: "+table+", min_similarity: 0.8}}]", scripted.Options{})
	g.say(t, d, statement, "X-Session-Id: one", "X-Resource-Id: ada")
	g.say(t, d, "My tulip has a blue flower.", "X-Session-Id: two", "X-Resource-Id: bob")
	g.say(t, d, paraphrase, "X-Session-Id: three", "X-Resource-Id: ada")
	if !strings.Contains(g.seen(t), "kettle") {
		t.Errorf("upstream saw %s", g.seen(t))
	}
	g.say(t, d, paraphrase, "X-Session-Id: four", "X-Resource-Id: bob")
	if strings.Contains(g.seen(t), "tulip") {
		t.Errorf("told of what is not near: %s", g.seen(t))
	}
	g.sound(t)
}
