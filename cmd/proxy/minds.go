package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"remora/memory"
	"remora/memory/budget"
	"remora/memory/layer"
	"remora/memory/pipeline"
	"remora/memory/tokens"
	"remora/providers"
	"remora/providers/catalog"
	"remora/providers/complete"
	"remora/telemetry"
)

// minds are the layers, and what they and summaries think with.
type minds struct {
	layers   *pipeline.Pipeline
	overflow pipeline.ModelSource // nil for none
	counter  *tokens.Counter
	catalog  *catalog.Catalog
	routes   *providers.Set
	client   *providers.Client
	lost     func(turns int) // counts turns that were lost, nil where nobody counts
}

func (m *minds) close() {
	m.catalog.Close()
	m.counter.Close()
	m.client.Close()
}

// minds opens the layers and connects them with their models. before is what they take the place of, nil at the start:
// what it counts and connects with goes on, and so do states of agent runs under way.
func (c *Config) minds(upstreams *providers.Set, log *slog.Logger, t *telemetry.Telemetry, before *minds) (*minds, error) {
	m := &minds{routes: upstreams}
	o := pipeline.Options{Policy: c.Memory.Policy.policy(), AtomicOnly: c.Memory.AtomicRecall, Log: log, Now: time.Now}
	if t != nil {
		m.lost = t.Lost
		o.Observe = func(ctx context.Context, e pipeline.Event) {
			t.Hook(ctx, telemetry.Hook{Layer: e.Layer, Name: e.Hook, Begun: e.Begun, Took: e.Duration, Class: string(e.Class)})
		}
	}
	if before != nil {
		m.counter, m.client, o.Previous = before.counter, before.client, before.layers
	} else {
		m.counter, m.client = tokens.New(tokens.Options{}), providers.NewClient(c.Server.Upstream)
	}
	m.catalog = catalog.New(m.client, upstreams, c.Models, log, time.Now)
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

func (m *minds) open(c *Config, upstreams *providers.Set, o pipeline.Options) (err error) {
	var list []pipeline.Layer
	for _, l := range c.Memory.layers.list {
		if l.Model, err = m.model(upstreams, l.model); err != nil {
			return fmt.Errorf("%s.model: %w", l.path, err)
		}
		list = append(list, l.Layer)
	}
	if m.overflow, err = m.model(upstreams, c.Memory.Policy.OverflowModel); err != nil {
		return fmt.Errorf("memory.policy.overflow_model: %w", err)
	}
	if m.layers, err = pipeline.New(list, o); err != nil {
		return fmt.Errorf("memory.%w", err)
	}
	return nil
}

// model finds a model, nil where none is named.
func (m *minds) model(upstreams *providers.Set, o modelOptions) (pipeline.ModelSource, error) {
	if o.Model == "" {
		return nil, nil
	}
	source, err := complete.New(m.client, upstreams, complete.Options{Provider: o.Provider, Model: o.Model})
	if err != nil {
		return nil, err
	}
	return model{source}, nil
}

// model is a model behind a provider as layers ask it.
type model struct{ *complete.Source }

// Bind returns the model with the caller's credential.
func (m model) Bind(c pipeline.Credential) layer.Model { return m.Source.Bind(complete.Credential(c)) }

// memory puts together what the sections store and memory say about memory.
func (c *Config) memory(log *slog.Logger, m *minds) memory.Options {
	return memory.Options{
		CommitWait:   c.Store.CommitWait,
		ReadWait:     c.Store.ReadWait,
		OpenDelay:    c.Store.OpenDelay,
		RetryDelay:   c.Store.RetryDelay,
		SessionTTL:   c.Store.SessionTTL,
		OnStoreError: c.Memory.OnStoreError,
		Shape:        c.shape(m),
		Lost:         m.lost,
		Log:          log,
		Now:          time.Now,
	}
}

// shape is what of that may change while the proxy runs.
func (c *Config) shape(m *minds) memory.Shape {
	s := memory.Shape{
		Window:        c.Memory.layers.window,
		Layers:        m.layers,
		Summarize:     c.Memory.Policy.Overflow == budget.OverflowSummarize,
		OverflowModel: m.overflow,
		ToolResult:    c.Memory.Policy.ToolResult,
		Context:       m.context,
		Price:         m.counter.CountItem,
		AtMost:        tokens.AtMost,
	}
	if c.Memory.PromptCache.Enabled {
		s.PromptCache = &c.Memory.PromptCache.Config
	}
	return s
}

// context is how many tokens a model takes, 0 if nobody knows.
func (m *minds) context(model string) int {
	if p := m.routes.Pick(model); p != nil {
		return m.catalog.Context(p.Name(), model)
	}
	return 0
}
