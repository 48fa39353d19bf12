package telemetry

import "go.opentelemetry.io/otel/propagation"

// Getter reads headers of a request. Peek finds a header however its name is spelled, and returns nil where there is
// none; the bytes are copied.
type Getter interface {
	Peek(name string) []byte
}

// Setter sets a header in place of those of the same name. fasthttp's request header is one.
type Setter interface {
	Set(name, value string)
}

// carrier adapts headers for the propagator of W3C Trace Context.
type carrier struct {
	get Getter
	set Setter
}

// maxHeader is the longest header that is read, in bytes. Longer ones than 512 may be left out by W3C's rules.
const maxHeader = 8 << 10

var _ propagation.TextMapCarrier = carrier{}

// Get returns the header of that name.
func (c carrier) Get(name string) string {
	if c.get == nil {
		return ""
	}
	v := c.get.Peek(name)
	if len(v) > maxHeader {
		return ""
	}
	return string(v)
}

// Set sets the header.
func (c carrier) Set(name, value string) {
	if c.set != nil {
		c.set.Set(name, value)
	}
}

// Keys is empty: no propagator that is used here asks for it.
func (c carrier) Keys() []string { return nil }
