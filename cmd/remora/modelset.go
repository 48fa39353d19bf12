package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"remora/memory"
	"remora/memory/layer"
	"remora/memory/layers/semanticrecall"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/memory/wordvectors"
	"remora/providers"
	"remora/providers/complete"
	"remora/providers/models"
	"remora/telemetry"
	"remora/wire"
)

// modelSet holds the layers, and the models that layers and summaries call.
type modelSet struct {
	layers   *pipeline.Pipeline
	overflow pipeline.ModelSource // nil for none
	embeds   *memory.Embeddings   // nil for none
	words    *wordTable           // used by embeds, nil for none
	counter  *tokens.Counter
	catalog  *models.Catalog
	routes   *providers.Set
	client   *providers.Client
	lost     func(turns int) // counts lost turns, nil without telemetry

	telemetry *telemetry.Telemetry // nil for none
}

func (m *modelSet) close() {
	m.catalog.Close()
	m.client.Close()
}

// openModels opens the layers and their models. before is the set that a reload replaces, nil at the start: the new set takes
// over its token counter, its HTTP client, the context lengths of models and the states of agent runs in progress.
func openModels(c *Config, upstreams *providers.Set, log *slog.Logger, t *telemetry.Telemetry, before *modelSet) (*modelSet, error) {
	m := &modelSet{routes: upstreams, telemetry: t}
	o := pipeline.Options{Policy: c.Memory.Policy.policy(), AtomicOnly: c.Memory.AtomicRecall, Log: log, Now: time.Now}
	if t != nil {
		m.lost = t.Lost
		o.Observe = func(ctx context.Context, e pipeline.Event) {
			t.Hook(ctx, telemetry.Hook{Layer: e.Layer, Name: e.Hook, Begun: e.Begun, Took: e.Duration, Class: string(e.Class)})
		}
	}

	if before != nil {
		m.counter, m.client, m.words, o.Previous = before.counter, before.client, before.words, before.layers
	} else {
		m.counter, m.client = tokens.New(), providers.NewClient(c.Server.Upstream)
	}
	m.catalog = models.New(m.client, upstreams, c.Models, log, time.Now)
	if before != nil {
		m.catalog.TakeOver(before.catalog)
	}
	o.Count, o.CountItem = m.counter.Count, m.counter.CountItem
	if err := m.open(c, upstreams, o); err != nil {
		if before == nil {
			m.close()
		} else {
			m.catalog.Close()
		}
		return nil, err
	}
	return m, nil
}

func (m *modelSet) open(c *Config, upstreams *providers.Set, o pipeline.Options) (err error) {
	var list []pipeline.Layer
	for _, l := range c.Memory.layers.list {
		if l.Model, err = m.model(upstreams, l.ID, l.model); err != nil {
			return fmt.Errorf("%s.model: %w", l.path, err)
		}
		list = append(list, l.Layer)
		if l.embeddings.On() {
			if m.embeds, err = m.embeddings(upstreams, l.ID, l.embeddings); err != nil {
				return fmt.Errorf("%s.embeddings.%w", l.path, err)
			}
			m.embeds.Observe = o.Observe
		}
	}
	if m.embeds == nil || m.embeds.Table == nil {
		m.words = nil // free the memory of a table that is no longer used
	}
	if m.overflow, err = m.model(upstreams, "overflow", c.Memory.Policy.OverflowModel); err != nil {
		return fmt.Errorf("memory.policy.overflow_model: %w", err)
	}
	if m.layers, err = pipeline.New(list, o); err != nil {
		return fmt.Errorf("memory.%w", err)
	}
	return nil
}

// model returns the model of a layer, nil if none is configured.
func (m *modelSet) model(upstreams *providers.Set, layerID string, o modelOptions) (pipeline.ModelSource, error) {
	if o.Model == "" {
		return nil, nil
	}
	source, err := m.source(upstreams, layerID, complete.Options{Provider: o.Provider, Model: o.Model})
	if err != nil {
		return nil, err
	}
	return func(c pipeline.Credential) layer.Model { return source.Bind(c) }, nil
}

// source opens the model of a layer. Its calls are counted as those of clients are.
func (m *modelSet) source(upstreams *providers.Set, layerID string, o complete.Options) (s *complete.Source, err error) {
	if m.telemetry != nil {
		o.Observe = func(ctx context.Context, operation string) func(int, wire.Usage, error) {
			return m.telemetry.Ask(ctx, telemetry.Send{Provider: s.Provider(), Operation: operation, Model: o.Model, Layer: layerID})
		}
	}
	s, err = complete.New(m.client, upstreams, o)
	return s, err
}

// embeddings opens the embedding model of a layer.
func (m *modelSet) embeddings(upstreams *providers.Set, id string, o semanticrecall.Embeddings) (*memory.Embeddings, error) {
	o = o.WithDefaults()
	e := &memory.Embeddings{Layer: id, Floor: float32(o.MinSimilarity), Weight: float32(o.Weight), Wait: o.Timeout}
	if o.File != "" {
		words, err := openWords(o.File, m.words)
		if err != nil {
			return nil, fmt.Errorf("file: %w", err)
		}
		m.words, e.ID, e.Table = words, words.id(), words.table.Vector
		return e, nil
	}
	source, err := m.source(upstreams, id, complete.Options{Provider: o.Provider, Model: o.Model, Dimensions: o.Dimensions})
	if err != nil {
		return nil, err
	}
	e.ID = fmt.Sprintf("%s\x00%s\x00%d", source.Provider(), o.Model, o.Dimensions)
	e.Source = func(c memory.Credential) memory.Embedder { return source.Bind(c) }
	return e, nil
}

// wordTable is a table of word vectors, with the state of its file when it was read.
type wordTable struct {
	path    string
	size    int64
	changed time.Time
	table   *wordvectors.Table
}

// openWords reads a table. It returns before if the file has not changed since that was read.
func openWords(path string, before *wordTable) (*wordTable, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if before != nil && before.path == path && before.size == info.Size() && before.changed.Equal(info.ModTime()) {
		return before, nil
	}
	table, err := wordvectors.Open(path)
	if err != nil {
		return nil, err
	}
	return &wordTable{path, info.Size(), info.ModTime(), table}, nil
}

// id identifies the vectors: it changes with the file.
func (w *wordTable) id() string {
	return fmt.Sprintf("%s\x00%d\x00%d", w.path, w.size, w.changed.UnixNano())
}

// context returns the size of a model's context in tokens, 0 if it is unknown.
func (m *modelSet) context(model string) int {
	if p := m.routes.Pick(model); p != nil {
		return m.catalog.Context(p.Name(), model)
	}
	return 0
}
