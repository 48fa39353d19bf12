package semanticrecall

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Embeddings are an embedding model of a provider, or a table of word vectors in a file.
type Embeddings struct {
	// Provider is a name from the list of providers; empty is the one that lists the model.
	Provider string `mapstructure:"provider"`
	// Model is the model's name as that provider knows it.
	Model string `mapstructure:"model"`
	// Dimensions is the requested vector size; 0 is the model's own.
	Dimensions int `mapstructure:"dimensions"`
	// File is the path of a table of word vectors, used instead of a model.
	File string `mapstructure:"file"`
	// MinSimilarity is the cosine above which a statement is similar to the question; default 0.4.
	MinSimilarity float64 `mapstructure:"min_similarity"`
	// Weight multiplies the cosine above that, which is added to a statement's score; default 20.
	Weight float64 `mapstructure:"weight"`
	// Timeout is how long a request waits for the vector of its question; default 300ms.
	Timeout time.Duration `mapstructure:"timeout"`
}

const (
	defaultSimilarity = 0.4
	defaultWeight     = 20
	limitWeight       = 1000
	defaultTimeout    = 300 * time.Millisecond
	limitDimensions   = 4096
)

// On reports whether embeddings are configured.
func (e Embeddings) On() bool { return e.Model != "" || e.File != "" }

// WithDefaults returns the options with defaults for all unset numbers.
func (e Embeddings) WithDefaults() Embeddings {
	e.MinSimilarity = cmp.Or(e.MinSimilarity, defaultSimilarity)
	e.Weight = cmp.Or(e.Weight, defaultWeight)
	e.Timeout = cmp.Or(e.Timeout, defaultTimeout)
	return e
}

// Near reports whether a statement with this cosine is similar to the question.
func (e Embeddings) Near(cosine float32) bool {
	return e.On() && float64(cosine) > e.WithDefaults().MinSimilarity
}

// check returns one error per wrong key.
func (e Embeddings) check() error {
	var errs []error
	report := func(format string, a ...any) { errs = append(errs, fmt.Errorf("embeddings."+format, a...)) }
	if !e.On() && e != (Embeddings{}) {
		report("model: want the name of a model, or embeddings.file")
	}
	if e.Model != "" && e.File != "" {
		report("file: want a model or a file, have both")
	}
	if e.File != "" && (e.Provider != "" || e.Dimensions != 0) {
		report("file: want neither provider nor dimensions beside it, which are those of a model")
	}
	if e.Dimensions < 0 || e.Dimensions > limitDimensions {
		report("dimensions: want 1 to %d, or 0 for all that the model has", limitDimensions)
	}
	if e = e.WithDefaults(); !(e.MinSimilarity > 0 && e.MinSimilarity < 1) {
		report("min_similarity: want a number above 0, below 1")
	}
	if !(e.Weight > 0 && e.Weight <= limitWeight) {
		report("weight: want a number above 0, at most %d", limitWeight)
	}
	return errors.Join(errs...)
}
