package past

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"remora/memory/index"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/session"
)

// Turn is the past of one turn, which is updated once. The turn's own session is searched only if the view lacks a part of it:
// most views have all of it, and the session changes with every turn.
type Turn struct {
	past       *Past
	scope      session.Scope
	embeddings *Embeddings
	credential pipeline.Credential

	mu     sync.Mutex
	asked  map[string]*asked // by question: layers ask again when the view changes
	beyond bool              // the session has more than the view
	fresh  *index.Index
	own    bool // fresh has the session
	found  map[search][]layer.Statement
}

type search struct {
	question string
	limit    int
	meaning  bool
}

// NewTurn returns the past for a turn's layers. With nil embeddings it is searched only by words.
func NewTurn(p *Past, s session.Scope, e *Embeddings, c pipeline.Credential) *Turn {
	return &Turn{past: p, scope: s, embeddings: e, credential: c}
}

// ReachBeyond records that the view lacks a part of the session. It may be called on nil.
func (t *Turn) ReachBeyond() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.beyond = true
}

// Empty is layer.Past.
func (t *Turn) Empty() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.beyond && keyOf(t.scope).resource == ""
}

// Search is layer.Past.
func (t *Turn) Search(ctx context.Context, question string, limit int) ([]layer.Statement, error) {
	if t.Empty() {
		return nil, nil
	}
	asked := t.ask(question) //nolint:contextcheck // waits for less, and its answer serves the next search
	if err := t.read(ctx); err != nil {
		return nil, err
	}
	meaning := t.meaning(ctx, asked)

	t.mu.Lock()
	defer t.mu.Unlock()
	s := search{question, limit, meaning.Vector != nil}
	found, known := t.found[s]
	if !known {
		found = t.search(index.Question{Text: question, Now: t.past.o.Now(), Meaning: meaning}, limit)
		t.found[s] = found
	}
	return found, nil
}

// read brings the index up to date.
func (t *Turn) read(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fresh != nil && (t.own || !t.beyond) {
		return nil
	}
	ix, err := t.past.update(ctx, t.embeddings, t.scope, t.beyond)
	if err != nil {
		return fmt.Errorf("read what was said before: %w", err)
	}
	t.fresh, t.own, t.found = ix, t.beyond, make(map[search][]layer.Statement)
	return nil
}

func (t *Turn) search(q index.Question, limit int) []layer.Statement {
	var skip func(*index.Turn) bool
	if !t.own { // the index of the session may be outdated
		skip = func(said *index.Turn) bool { return said.Session == t.scope.Session }
	}
	hits := t.fresh.Search(q, limit, skip)
	found := make([]layer.Statement, len(hits))
	for i, h := range hits {
		found[i] = layer.Statement{
			ID: h.ID, Session: layer.Digest(h.Session), Order: h.Order, Own: h.Session == t.scope.Session,
			Role: h.Role, Named: h.Speaker != h.Role && strings.HasPrefix(h.Text, h.Speaker+": "),
			Time: h.Time, Text: h.Text, Content: h.Content,
			Score: h.Score, Match: h.Match, Near: h.Near,
		}
	}
	return found
}

// asked is a question whose vector is on its way.
type asked struct {
	done   chan struct{}
	vector index.Vector // once done is closed; nil for none
}

// ask requests the vector of a question, once. It returns nil without a model.
func (t *Turn) ask(question string) *asked {
	e := t.embeddings
	if e == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if a := t.asked[question]; a != nil {
		return a
	}
	a := &asked{done: make(chan struct{})}
	if t.asked == nil {
		t.asked = make(map[string]*asked)
	}
	t.asked[question] = a
	if e.Table != nil {
		a.vector = index.Quantise(e.Table(question))
		close(a.done)
		return a
	}
	t.past.work.Go(func() {
		defer close(a.done)
		ctx, cancel := context.WithTimeout(t.past.life, e.Wait)
		defer cancel()
		if vectors, err := e.embed(ctx, &t.past.o, t.credential, []string{question}); err == nil {
			a.vector = vectors[0]
		}
	})
	return a
}

// meaning waits for the vector of a question, for at most half of the context's time.
func (t *Turn) meaning(ctx context.Context, a *asked) (m index.Meaning) {
	if a == nil {
		return m
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2) //nolint:forbidigo // as the context's own clock
		defer cancel()
	}
	select {
	case <-a.done:
		return index.Meaning{Vector: a.vector, Floor: t.embeddings.Floor, Weight: t.embeddings.Weight}
	case <-ctx.Done():
		return m
	}
}
