package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"remora/address"
	"remora/secret"
)

// Options are the section "telemetry" of the configuration.
type Options struct {
	// ServiceName is the resource attribute service.name.
	ServiceName string         `mapstructure:"service_name"`
	Traces      TraceOptions   `mapstructure:"traces"`
	Metrics     MetricsOptions `mapstructure:"metrics"`

	// Version is the resource attribute service.version, empty for none. Set by main.
	Version string `mapstructure:"-"`
	// Now is the clock, nil for the system's. Set by main.
	Now func() time.Time `mapstructure:"-"`
}

// TraceOptions configure the export of spans.
type TraceOptions struct {
	// Endpoint is a collector's OTLP/HTTP URL, such as http://collector:4318; /v1/traces is added to a URL without a path. Empty
	// disables tracing.
	Endpoint string `mapstructure:"endpoint"`
	// Headers are sent with every export.
	Headers []Header `mapstructure:"headers"`
	// SampleRatio is the share of sampled traces, 0 to 1.
	SampleRatio float64 `mapstructure:"sample_ratio"`
	// ParentBased makes a request's trace context decide whether its trace is sampled. Otherwise SampleRatio alone decides; the
	// trace id is continued in both cases.
	ParentBased bool `mapstructure:"parent_based"`
	// Content adds the text of messages to spans.
	Content bool `mapstructure:"content"`
}

// MetricsOptions configure the export of metrics.
type MetricsOptions struct {
	// Endpoint is as in TraceOptions, with /v1/metrics. Empty disables the export.
	Endpoint string `mapstructure:"endpoint"`
	// Headers are sent with every export.
	Headers []Header `mapstructure:"headers"`
	// Interval is the time between two exports.
	Interval time.Duration `mapstructure:"interval"`
	// Prometheus serves the metrics by [Telemetry.Handler].
	Prometheus bool `mapstructure:"prometheus"`
}

// Header is a header of exports.
type Header struct {
	Name  string        `mapstructure:"name"`
	Value secret.String `mapstructure:"value"`
}

// Validate returns all problems of o, joined, each under its path: "telemetry.traces.endpoint: ...".
func (o Options) Validate() error {
	var errs []error
	report := func(key string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("telemetry.%s: %w", key, err))
		}
	}
	if o.ServiceName == "" {
		report("service_name", errors.New("want a name, have none"))
	}
	report("traces.endpoint", checkEndpoint(o.Traces.Endpoint))
	report("metrics.endpoint", checkEndpoint(o.Metrics.Endpoint))
	for _, s := range []struct {
		path    string
		headers []Header
	}{{"traces", o.Traces.Headers}, {"metrics", o.Metrics.Headers}} {
		for i, h := range s.headers {
			report(fmt.Sprintf("%s.headers[%d]", s.path, i), h.check())
		}
	}
	if r := o.Traces.SampleRatio; !(r >= 0 && r <= 1) { // NaN is neither
		report("traces.sample_ratio", fmt.Errorf("want 0 to 1, have %v", r))
	}
	if o.Metrics.Interval < time.Second {
		report("metrics.interval", fmt.Errorf("want 1s or more, have %s", o.Metrics.Interval))
	}
	return errors.Join(errs...)
}

func (h Header) check() error {
	switch {
	case !httpguts.ValidHeaderFieldName(h.Name):
		return fmt.Errorf("name: want the name of a header, have %q", h.Name)
	case !httpguts.ValidHeaderFieldValue(h.Value.Reveal()):
		return errors.New("value: has characters that no header may have")
	}
	return nil
}

// checkEndpoint checks a URL. It must not contain secrets, since errors show it.
func checkEndpoint(s string) error {
	if s == "" {
		return nil
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return errors.New("want a URL such as http://collector:4318")
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return errors.New("want a URL such as http://collector:4318")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("want a URL without user, query and fragment; credentials go into headers")
	}
	return address.CheckURL(u)
}

// endpoint is the URL of one signal: path is used for addresses that have none.
func endpoint(s, path string) string {
	u, err := url.Parse(s)
	if err != nil || strings.Trim(u.Path, "/") != "" {
		return s
	}
	u.Path = path
	return u.String()
}

func headerMap(list []Header) map[string]string {
	m := make(map[string]string, len(list))
	for _, h := range list {
		m[h.Name] = h.Value.Reveal()
	}
	return m
}
