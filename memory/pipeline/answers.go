package pipeline

import (
	"context"
	"sync"

	"remora/memory/layer"
)

// answers are what a model has answered during one call of a hook. If the hook is called again because another request has changed
// its state, it gets the same answers to the same questions: the model costs money, and might say something else.
type answers struct {
	mu    sync.Mutex
	given map[question][]string // in the order in which they were asked
	read  map[question]int      // how many of them the present call has got
}

type question struct {
	system, prompt string
	maxTokens      int
}

type answersKey struct{}

// of returns the context of the next call of the hook.
func (a *answers) of(ctx context.Context) context.Context {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = make(map[question]int)
	return context.WithValue(ctx, answersKey{}, a)
}

// find returns the next answer to a question.
func (a *answers) find(q question) (answer string, found bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n := a.read[q]; n < len(a.given[q]) {
		a.read[q]++
		return a.given[q][n], true
	}
	return "", false
}

func (a *answers) add(q question, answer string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.given == nil {
		a.given = make(map[question][]string)
	}
	a.given[q] = append(a.given[q], answer)
	a.read[q]++
}

// remembering is a layer's model that gives the answers of a hook's first call again.
type remembering struct{ layer.Model }

// Complete implements [layer.Model].
func (m remembering) Complete(ctx context.Context, system, prompt string, maxTokens int) (string, error) {
	a, ok := ctx.Value(answersKey{}).(*answers)
	if !ok {
		return m.Model.Complete(ctx, system, prompt, maxTokens)
	}
	q := question{system, prompt, maxTokens}
	if answer, found := a.find(q); found {
		return answer, nil
	}
	answer, err := m.Model.Complete(ctx, system, prompt, maxTokens)
	if err == nil {
		a.add(q, answer)
	}
	return answer, err
}
