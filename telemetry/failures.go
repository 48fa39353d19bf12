package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"remora/telemetry/seldom"
)

// failures is OpenTelemetry's error handler: it logs failed exports.
type failures struct {
	t      *Telemetry
	log    *slog.Logger
	secret *strings.Replacer // removes the values of headers, which a collector may quote in its answer

	lines seldom.Lines
}

// failureEvery is the interval between logged failures: an unavailable collector fails every export.
const failureEvery = time.Minute

func newFailures(t *Telemetry, o Options, log *slog.Logger) *failures {
	var pairs []string
	for _, list := range [][]Header{o.Traces.Headers, o.Metrics.Headers} {
		for _, h := range list {
			if s := h.Value.Reveal(); s != "" {
				pairs = append(pairs, s, h.Value.String())
			}
			// In "Bearer KEY" the second word alone is secret too.
			if _, s, ok := strings.Cut(h.Value.Reveal(), " "); ok && s != "" {
				pairs = append(pairs, s, h.Value.String())
			}
		}
	}
	return &failures{t: t, log: log, secret: strings.NewReplacer(pairs...)}
}

// text returns an error's text without secrets.
func (f *failures) text(err error) string {
	const longest = 512
	s := f.secret.Replace(err.Error())
	return strings.ToValidUTF8(s[:min(len(s), longest)], "")
}

func (f *failures) redact(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(f.text(err))
}

// Handle logs an error, unless it has logged another one within failureEvery.
func (f *failures) Handle(err error) {
	if err == nil {
		return
	}
	f.t.in.dropped.Add(context.Background(), 1)
	if unlogged, due := f.lines.Due("export", f.t.now(), failureEvery); due {
		f.log.Warn("export telemetry", "error", f.text(err), "unlogged", unlogged)
	}
}

// otherTroubles is OpenTelemetry's log of its own, which would else be lines of text on standard error. Values are left out: they quote
// variables such as OTEL_EXPORTER_OTLP_HEADERS, with keys.
type otherTroubles struct{ log *slog.Logger }

func (otherTroubles) Init(logr.RuntimeInfo)            {}
func (otherTroubles) Enabled(int) bool                 { return false }
func (otherTroubles) Info(int, string, ...any)         {}
func (o otherTroubles) WithValues(...any) logr.LogSink { return o }
func (o otherTroubles) WithName(string) logr.LogSink   { return o }

func (o otherTroubles) Error(_ error, problem string, _ ...any) {
	o.log.Warn(unusable, "problem", problem)
}

// unusable is logged for a problem that is no export.
const unusable = "OpenTelemetry cannot use a part of its settings, such as a variable OTEL_*"
