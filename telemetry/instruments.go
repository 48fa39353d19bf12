package telemetry

import (
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
)

// scope is the instrumentation scope in exported data.
const scope = "remora"

// Buckets. Those of GenAI metrics are recommended by the semantic conventions.
var (
	callSeconds  = []float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92}
	chunkSeconds = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}
	tokenCounts  = []float64{1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864}
	workSeconds  = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}
)

// instruments are all metrics.
type instruments struct {
	callDuration, firstChunk, tokenUsage metric.Float64Histogram

	requests, turns, panics        metric.Int64Counter
	sent, saved, recalled, cached  metric.Int64Counter
	windowed, orphans              metric.Int64Counter
	hookErrors, storeErrors        metric.Int64Counter
	lost, quarantined, dropped     metric.Int64Counter
	steps, hooks, stores           metric.Float64Histogram
	streams, spoolBytes, spoolSize metric.Int64ObservableGauge
}

// maker creates instruments and collects the errors.
type maker struct {
	meter metric.Meter
	errs  []error
}

func (m *maker) counter(name, unit, help string) metric.Int64Counter {
	c, err := m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.errs = append(m.errs, err)
	return c
}

func (m *maker) histogram(name, unit, help string, buckets []float64) metric.Float64Histogram {
	h, err := m.meter.Float64Histogram(name, metric.WithUnit(unit), metric.WithDescription(help),
		metric.WithExplicitBucketBoundaries(buckets...))
	m.errs = append(m.errs, err)
	return h
}

func (m *maker) gauge(name, unit, help string) metric.Int64ObservableGauge {
	g, err := m.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help))
	m.errs = append(m.errs, err)
	return g
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	m := &maker{meter: meter}
	i := &instruments{
		callDuration: m.histogram("gen_ai.client.operation.duration", "s", "How long calls of models took, from sending the request to the end of the answer.", callSeconds),
		firstChunk:   m.histogram("gen_ai.client.operation.time_to_first_chunk", "s", "Time from sending a request for a stream to the first piece of the answer.", chunkSeconds),
		tokenUsage:   m.histogram("gen_ai.client.token.usage", "{token}", "Tokens of calls of models, as upstream counted them.", tokenCounts),

		requests: m.counter("remora.requests", "{request}", "Requests that have ended, by class of status."),
		turns:    m.counter("remora.turns", "{turn}", "Requests that named a session, by how memory served them."),
		panics:   m.counter("remora.panics", "{panic}", "Panics that were recovered from; 0 in a correct program."),
		sent:     m.counter("remora.tokens.sent", "{token}", "Input tokens of remembered calls, as upstream counted them."),
		cached:   m.counter("remora.tokens.cached", "{token}", "Those of the tokens sent that upstream read from its prompt cache."),
		saved:    m.counter("remora.tokens.saved", "{token}", "Tokens of history that windows and budgets left out of views."),
		recalled: m.counter("remora.tokens.recalled", "{token}", "Tokens that layers put into views."),
		windowed: m.counter("remora.items.windowed", "{item}", "Items that windows left out of views."),
		orphans:  m.counter("remora.items.orphaned", "{item}", "Items taken out of views because their call or result was missing."),

		steps:       m.histogram("remora.step.duration", "s", "How long steps of a request took.", workSeconds),
		hooks:       m.histogram("remora.layer.hook.duration", "s", "How long hooks of layers took.", workSeconds),
		hookErrors:  m.counter("remora.layer.hook.errors", "{error}", "Hooks of layers that failed, by class."),
		stores:      m.histogram("remora.store.operation.duration", "s", "How long operations of the store took.", workSeconds),
		storeErrors: m.counter("remora.store.operation.errors", "{error}", "Operations of the store that failed."),
		lost:        m.counter("remora.spool.lost", "{turn}", "Turns that neither the store nor the spool has taken."),
		quarantined: m.counter("remora.spool.quarantined", "{turn}", "Spooled turns that cannot be read and were set aside."),
		dropped:     m.counter("remora.export.failures", "{failure}", "Exports of spans or metrics that failed."),
		streams:     m.gauge("remora.streams.open", "{stream}", "Streamed answers under way."),
		spoolBytes:  m.gauge("remora.spool.size", "By", "Bytes of turns that wait for the store, on local disk or, if that fails, in memory."),
		spoolSize:   m.gauge("remora.spool.turns", "{turn}", "Records of turns that wait for the store, on local disk or, if that fails, in memory. A long turn may have two."),
	}
	return i, errors.Join(m.errs...)
}

// row is a set of attributes as options for both kinds of instruments, so that a measurement allocates nothing.
type row struct {
	add []metric.AddOption
	rec []metric.RecordOption
}

func newRow(kv ...attribute.KeyValue) *row {
	o := metric.WithAttributeSet(attribute.NewSet(kv...))
	return &row{[]metric.AddOption{o}, []metric.RecordOption{o}}
}

// maxSeries bounds the series of one metric. OpenTelemetry counts the others in one series with the attribute
// otel.metric.overflow.
const maxSeries = 4096

// table caches the rows of one kind of key, since creating a row costs more than the measurement.
type table[K comparable] = growingMap[K, *row]

func newTable[K comparable](attrs func(K) []attribute.KeyValue) *table[K] {
	return &table[K]{
		limit: maxSeries, make: func(k K) *row { return newRow(attrs(k)...) },
		rest: newRow(attribute.Bool("otel.metric.overflow", true)),
	}
}

// Keys of the tables. All of their fields are bounded.
type (
	callKey  struct{ operation, provider, model, layer, failure, token string }
	eventKey struct{ what, which, failure string }
)

func (k callKey) attrs() []attribute.KeyValue {
	kv := []attribute.KeyValue{
		semconv.GenAIOperationNameKey.String(k.operation), semconv.GenAIProviderNameKey.String(k.provider),
		semconv.GenAIRequestModel(k.model),
	}
	if k.layer != "" {
		kv = append(kv, attribute.String("layer", k.layer))
	}
	if k.failure != "" {
		kv = append(kv, semconv.ErrorTypeKey.String(k.failure))
	}
	if k.token != "" {
		kv = append(kv, semconv.GenAITokenTypeKey.String(k.token))
	}
	return kv
}

// tables hold the rows of all metrics.
type tables struct {
	calls                                *table[callKey]
	requests, turns, steps, hooks, store *table[eventKey]
}

func newTables() tables {
	named := func(what, which string) *table[eventKey] {
		return newTable(func(k eventKey) []attribute.KeyValue {
			kv := []attribute.KeyValue{attribute.String(what, k.what)}
			if which != "" {
				kv = append(kv, attribute.String(which, k.which))
			}
			if k.failure != "" {
				kv = append(kv, semconv.ErrorTypeKey.String(k.failure))
			}
			return kv
		})
	}
	return tables{
		calls:    newTable(callKey.attrs),
		requests: named("class", ""),
		turns:    named("status", ""),
		steps:    named("step", ""),
		hooks:    named("layer", "hook"),
		store:    named("operation", ""),
	}
}
