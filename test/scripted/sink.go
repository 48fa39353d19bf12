package scripted

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
)

// Errors of an answer that ends early. All of them are returned to serve.
var (
	errGone   = errors.New("client gone")
	errBroken = errors.New("aborted by a fault")
	errStop   = errors.New("ended early by a fault") // but cleanly
)

// sink writes one answer, and applies the request's fault.
type sink struct {
	s    *Server
	w    http.ResponseWriter
	r    *http.Request
	rec  *Recorded
	f    fault
	kind Kind     // empty until the endpoint sets it
	id   identity // empty until the endpoint sets it
	// released is that of the request's arrival, so that a Release also ends later stalls.
	released <-chan struct{}

	out    io.Writer     // where events go: the connection, in pieces, compressed
	zip    *gzip.Writer  // the compressor in out; nil without
	inline func() []byte // returns the event of an error in the stream
	events int
	err    error // of the first event of a stream that failed: none follows it
}

// json writes a whole body.
func (k *sink) json(status int, body []byte) error {
	return k.whole(status, "application/json", body)
}

// fail answers with an error, in the shape of the server's kind.
func (k *sink) fail(e *apiError) error {
	if e.history {
		k.s.recordFault(k.r.Method + " " + k.r.URL.Path + ": " + e.message)
	}
	switch {
	case len(e.own) > 0:
		return k.json(e.status, e.own)
	case k.kind.google():
		return k.json(e.status, googleBody(e.status, e.message))
	}
	return k.json(e.status, e.body())
}

// status answers with the status of a fault.
func (k *sink) status(code int) error {
	e := &apiError{status: code, message: "Scripted status " + strconv.Itoa(code) + ".", kind: "server_error"}
	switch {
	case code < http.StatusBadRequest:
		k.header(code, "application/json")
		return nil
	case code == http.StatusUnauthorized:
		e.message, e.kind, e.code = "Incorrect API key provided.", "invalid_request_error", "invalid_api_key"
	case code == http.StatusTooManyRequests:
		e.message, e.kind, e.code = "Rate limit reached for requests.", "requests", "rate_limit_exceeded"
	case code == http.StatusInternalServerError:
		e = serverError()
	case code < http.StatusInternalServerError:
		e.kind = "invalid_request_error"
	}
	return k.json(code, e.body())
}

// whole writes an answer that is not streamed.
func (k *sink) whole(status int, contentType string, body []byte) error {
	if k.f.gzip {
		var buf bytes.Buffer
		zip := gzip.NewWriter(&buf)
		if _, err := zip.Write(body); err != nil {
			return err
		}
		if err := zip.Close(); err != nil {
			return err
		}
		body = buf.Bytes()
	}
	if k.f.length {
		k.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	}
	k.header(status, contentType)
	if k.f.chunk == 0 && k.f.stallAfter < 0 && k.f.cutAfter < 0 {
		return k.write(body)
	}
	size := k.f.chunk
	if size == 0 {
		size = (len(body) + 1) / 2
	}
	for len(body) > 0 {
		n := min(size, len(body))
		if err := k.emit(body[:n]); err != nil {
			return err
		}
		body = body[n:]
	}
	return k.check()
}

// write writes the whole body. net/http chooses the framing: Content-Length for small bodies, chunks for others.
func (k *sink) write(p []byte) error {
	if _, err := k.w.Write(p); err != nil {
		return errGone
	}
	k.count()
	return nil
}

// header sends the response head, with all headers of a real answer, generated from the request.
func (k *sink) header(status int, contentType string) {
	k.vendorHeaders()
	h := k.w.Header()
	h.Set("Content-Type", contentType)
	if k.f.gzip {
		h.Set("Content-Encoding", "gzip")
	}
	if k.f.close {
		h.Set("Connection", "close")
	}
	if k.f.retryAfter != "" {
		h.Set("Retry-After", k.f.retryAfter)
	}
	k.w.WriteHeader(status)
}

// vendorHeaders sets the vendor's headers. They depend only on the request.
func (k *sink) vendorHeaders() {
	if k.id == "" {
		k.id = k.s.ids.of(k.r.Method, k.r.RequestURI, k.rec.Body)
	}
	h := k.w.Header()
	h["x-request-id"] = []string{"req_" + string(k.id[:32])}
	h["openai-processing-ms"] = []string{strconv.Itoa(10 + k.id.created()%90)}
	h["openai-organization"] = []string{"org-scripted"}
	h["openai-version"] = []string{"2020-10-01"}
	h["x-ratelimit-limit-requests"] = []string{"10000"}
	h["x-ratelimit-remaining-requests"] = []string{"9999"}
	h["x-ratelimit-reset-requests"] = []string{"6ms"}
	h["x-ratelimit-limit-tokens"] = []string{"2000000"}
	h["x-ratelimit-remaining-tokens"] = []string{"1999000"}
	h["x-ratelimit-reset-tokens"] = []string{"30ms"}
}

// stream begins a stream of events. It sends the head immediately.
func (k *sink) stream(inline func() []byte) {
	k.header(http.StatusOK, "text/event-stream; charset=utf-8")
	k.inline = inline
	k.out = pieces{k.w, http.NewResponseController(k.w), k.f.chunk}
	if k.f.gzip {
		k.zip = gzip.NewWriter(k.out)
		k.out = k.zip
	}
	if http.NewResponseController(k.w).Flush() != nil {
		k.err = errGone
	}
}

// event writes one event, unless one before it failed; name is empty in Chat.
func (k *sink) event(name string, data []byte) {
	switch {
	case k.err != nil:
		return
	case k.f.errorInStream && k.events == 2:
		k.err = cmp.Or(k.emit(k.inline()), errStop)
		return
	case k.f.comments && k.events%3 == 0:
		k.err = k.push([]byte(": OPENROUTER PROCESSING\n\n"))
	}
	b := make([]byte, 0, len(name)+len(data)+24)
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	b = append(append(append(b, "data: "...), data...), "\n\n"...)
	if k.err == nil {
		k.err = k.emit(b)
	}
}

// end completes a stream. Its error is that of the first event that failed.
func (k *sink) end() error {
	if k.err == nil {
		k.err = k.check()
	}
	if k.err == nil && k.zip != nil && k.zip.Close() != nil {
		return errGone
	}
	return k.err
}

// emit writes one event or one piece of a body and flushes it.
func (k *sink) emit(p []byte) error {
	if err := k.check(); err != nil {
		return err
	}
	if k.out == nil {
		k.out = pieces{k.w, http.NewResponseController(k.w), 0}
	}
	if err := k.push(p); err != nil {
		return err
	}
	k.count()
	return nil
}

func (k *sink) push(p []byte) error {
	if k.r.Context().Err() != nil {
		return errGone
	}
	if _, err := k.out.Write(p); err != nil {
		return errGone
	}
	if k.zip != nil && k.zip.Flush() != nil {
		return errGone
	}
	return nil
}

func (k *sink) count() {
	k.events++
	k.s.update(k.rec, func(r *Recorded) { r.Events++ })
}

// check applies the faults that are due after the events so far.
func (k *sink) check() error {
	switch k.events {
	case k.f.cutAfter:
		return errBroken
	case k.f.stallAfter:
		k.f.stallAfter = -1 // once
		return k.stall()
	}
	return nil
}

// stall waits for Release. It returns errGone if the client disconnects or the server closes before.
func (k *sink) stall() error {
	select {
	case <-k.released:
		return nil
	case <-k.r.Context().Done():
		return errGone
	}
}

// pieces writes in pieces of n bytes, or in one if n is 0, and flushes each.
type pieces struct {
	w    io.Writer
	ctrl *http.ResponseController
	n    int
}

func (p pieces) Write(b []byte) (int, error) {
	size := p.n
	if size <= 0 {
		size = max(len(b), 1)
	}
	for at := 0; at < len(b); at += size {
		if n, err := p.w.Write(b[at:min(at+size, len(b))]); err != nil {
			return at + n, err
		}
		if err := p.ctrl.Flush(); err != nil {
			return at, err
		}
	}
	return len(b), nil
}
