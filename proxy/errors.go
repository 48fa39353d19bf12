package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/resilience"
	"remora/proxy/limit"
	"remora/wire"
)

// Error is an error that the proxy answers with. Message goes to the caller, Err only into the log; neither holds a
// credential or content.
type Error struct {
	Status  int
	Code    string // machine-readable: the "code" of the envelope
	Message string
	Param   string // the field of the request that it is about, empty for none
	Err     error
	// Headers are sent with it.
	Headers iter.Seq2[string, string]
}

// Error is Message with its reason.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Codes of errors.
const (
	codeInternal     = "internal_error"
	codeBadRequest   = "bad_request"
	codeBodyTooLarge = "body_too_large"
	codeHeadTooLarge = "header_too_large"
	codeSlowRequest  = "request_timeout"
	codeNoProvider   = "model_not_found"
	codeUpgrade      = "websocket_not_remembered"
	codeUnreachable  = "upstream_unreachable"
	codeClosed       = "upstream_closed"
	codeTimeout      = "upstream_timeout"
	codeNoMemory     = "memory_unavailable"
	codeShutdown     = "shutting_down"
	codeDenied       = "steering_denied"
	codeLayer        = "layer_failed"
	codeCircuit      = "circuit_open"
	codeUpstream     = "upstream_error"
	codeUnread       = "upstream_unreadable"
	codeBackground   = "background_not_judged"
	codeCrowded      = "overloaded" // as beyond limits.global
)

func errBodyTooLarge(limit Size) *Error {
	return &Error{
		Status: fasthttp.StatusRequestEntityTooLarge, Code: codeBodyTooLarge,
		Message: fmt.Sprintf("request body is larger than %s (server.max_body)", limit),
	}
}

// errUnjudged refuses a body that can't be read where layers have to judge the answer. It tells where the body is wrong,
// and never quotes it.
func (x *exchange) errUnjudged() *Error {
	e := &Error{
		Status: fasthttp.StatusBadRequest, Code: codeBadRequest,
		Message: "request body cannot be read, and rules of this gateway have to judge its answer: ",
	}
	plain, err := x.decodeBody()
	if err != nil {
		e.Message += "its Content-Encoding cannot be undone"
		return e
	}
	what := "it is not a request of this endpoint"
	if !json.Valid(plain) {
		what = "it is not valid JSON"
	}
	e.Message += what
	var wrong *wire.ParseError
	if _, err := wire.Parse(x.dialect, plain); errors.As(err, &wrong) {
		e.Message += fmt.Sprintf(", at byte %d: %s", wrong.Offset, wrong.Reason)
	}
	return e
}

// errCrowded refuses a client for whose connection there is no room. It closes it: nothing else makes room.
func errCrowded(limit int) *Error {
	return &Error{
		Status: fasthttp.StatusServiceUnavailable, Code: codeCrowded,
		Message: fmt.Sprintf("limit of %d connections is reached (server.max_connections)", limit),
		Headers: maps.All(map[string]string{fasthttp.HeaderRetryAfter: "1", fasthttp.HeaderConnection: "close"}),
	}
}

// errIllegible and errLarge are about an answer of upstream's that is valid HTTP, but of which the proxy can make nothing
// where it has to.
var (
	errIllegible = errors.New("upstream's answer cannot be read")
	errLarge     = &Error{
		Status: fasthttp.StatusBadGateway, Code: codeUnread, Err: errIllegible,
		Message: fmt.Sprintf("upstream's answer is larger than %s, which is as much as layers can read", Size(foldLimit)),
	}
)

// errUnread tells why an answer cannot be read that layers have to read. It never quotes it.
func errUnread(why string) *Error {
	return &Error{
		Status: fasthttp.StatusBadGateway, Code: codeUnread,
		Message: "upstream's answer cannot be read, and layers of this gateway have to: " + why, Err: fmt.Errorf("%w: %s", errIllegible, why),
	}
}

// errHeld fails an answer rather than let pass what nobody has judged.
func errHeld() *Error {
	const why = "more of it has to be held back than there is room for"
	return &Error{
		Status: fasthttp.StatusBadGateway, Code: codeUnread,
		Message: "upstream's answer cannot be judged by rules of this gateway: " + why, Err: fmt.Errorf("%w: %s", errIllegible, why),
	}
}

// errBackground refuses a request whose answer would go past the rules that have to judge it.
func errBackground() *Error {
	return &Error{
		Status: fasthttp.StatusBadRequest, Code: codeBackground, Param: background,
		Message: "rules of this gateway have to judge the answer, and cannot judge that of a background request: leave out background",
	}
}

func upstreamFault(err error) bool {
	return errors.Is(err, providers.ErrUnreachable) || errors.Is(err, providers.ErrTimeout) ||
		errors.Is(err, providers.ErrClosed) || errors.Is(err, providers.ErrMalformed) || errors.Is(err, errIllegible)
}

func (s *Server) logUpstream(p providers.Provider, e *Error) {
	s.log.LogAttrs(context.Background(), slog.LevelWarn, "upstream failed",
		slog.String("provider", p.Name()), slog.String("code", e.Code), slog.String("error", e.Err.Error()))
}

// asError finds the status and code for an error of a lower package.
func asError(err error) *Error {
	var e *Error
	var layer *memory.LayerError
	var refusal *limit.Refusal
	var open *resilience.OpenError
	switch {
	case errors.As(err, &e):
		return e
	case errors.As(err, &layer):
		return &Error{Status: fasthttp.StatusInternalServerError, Code: codeLayer, Message: "memory layer " + layer.Layer + " could not begin (on_init_error: throw)", Err: err}
	case errors.As(err, &refusal):
		return &Error{Status: refusal.Status(), Code: refusal.Code(), Message: refusal.Error(), Headers: refusal.Headers()}
	case errors.As(err, &open):
		return &Error{Status: fasthttp.StatusServiceUnavailable, Code: codeCircuit, Message: "upstream has failed too often of late", Err: err, Headers: retryAfter(open.RetryAfter)}
	case errors.Is(err, memory.ErrUnavailable):
		return noMemory(err)
	case errors.Is(err, providers.ErrTarget):
		return &Error{Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: "request target is not supported", Err: err}
	case errors.Is(err, providers.ErrTrace):
		return &Error{Status: fasthttp.StatusForbidden, Code: codeBadRequest, Message: "TRACE is refused: its answer would show headers that this gateway adds", Err: err}
	case errors.Is(err, providers.ErrUnreachable):
		return &Error{Status: fasthttp.StatusBadGateway, Code: codeUnreachable, Message: "upstream cannot be reached", Err: err}
	case errors.Is(err, providers.ErrTimeout):
		return &Error{Status: fasthttp.StatusGatewayTimeout, Code: codeTimeout, Message: "upstream did not answer in time", Err: err}
	case errors.Is(err, providers.ErrClosed):
		return &Error{Status: fasthttp.StatusBadGateway, Code: codeClosed, Message: "upstream closed the connection before its answer was complete", Err: err}
	case errors.Is(err, providers.ErrMalformed):
		return &Error{Status: fasthttp.StatusBadGateway, Code: codeClosed, Message: "upstream answered with something that is not valid HTTP", Err: err}
	case errors.Is(err, providers.ErrAborted):
		return &Error{Status: fasthttp.StatusServiceUnavailable, Code: codeShutdown, Message: "server is shutting down", Err: err}
	default:
		return &Error{Status: fasthttp.StatusInternalServerError, Code: codeInternal, Message: "internal error", Err: err}
	}
}

// noMemory tells of a store that cannot be read, and when it is asked again.
func noMemory(err error) *Error {
	e := &Error{Status: fasthttp.StatusServiceUnavailable, Code: codeNoMemory, Message: "session memory is unavailable", Err: err}
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		e.Headers = retryAfter(later.RetryAfter())
	}
	return e
}

// envelope is an error as OpenAI's SDKs read it; type tells that it is the proxy's own.
type envelope struct {
	Error struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	} `json:"error"`
}

func (e *Error) body() []byte {
	var v envelope
	v.Error.Message, v.Error.Type, v.Error.Code = e.Message, "proxy_error", e.Code
	if e.Param != "" {
		v.Error.Param = &e.Param
	}
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: encode an error envelope: " + err.Error())
	}
	return b
}

func errDenied(reason string) *Error {
	if reason == "" {
		reason = "the answer was denied by a rule of this gateway"
	}
	return &Error{Status: fasthttp.StatusForbidden, Code: codeDenied, Message: reason}
}

// errorEvent ends a stream with the error that its SDK raises.
func (a *answer) errorEvent(e *Error) []byte {
	var out []byte
	if !a.gap.Open() {
		out = append(out, "\n\n"...)
	}
	if a.x.dialect == wire.Chat {
		return fmt.Appendf(out, "data: %s\n\n", e.body())
	}
	b, err := json.Marshal(struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
	}{"error", e.Code, e.Message, nil})
	if err != nil {
		panic("BUG: encode an error event: " + err.Error())
	}
	return fmt.Appendf(out, "event: error\ndata: %s\n\n", b)
}

// breakOff ends a stream that can't go on with an error that SDKs raise. What the client has of it is kept as cut. After
// an answer of upstream's the stream is whole; otherwise its connection breaks too.
func (a *answer) breakOff(w io.Writer, n *int64, err error) error {
	x, refused := a.x, errors.Is(err, errRefused)
	if !refused && !upstreamFault(err) {
		a.failed = err
		return err
	}
	e := asError(err)
	x.commit(a.stitch.Merged(), memory.CutUpstream)
	if !refused {
		a.failed = err
		_ = a.write(w, a.errorEvent(e), n) // a client that is gone is noticed below
		return err
	}
	x.s.stats.upstreamFailed.Add(1)
	x.s.logUpstream(x.provider, e)
	if err := a.write(w, a.errorEvent(e), n); err != nil {
		return err
	}
	a.done = true
	a.arm()
	return nil
}

// write makes e the response. It is the only writer of error bodies.
func (e *Error) write(resp *fasthttp.Response) {
	resp.ResetBody()
	h := &resp.Header
	// Whatever of an upstream's head came must not be mixed into the proxy's own answer.
	h.Reset()
	h.DisableNormalizing()
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(e.Status)
	h.SetContentType("application/json")
	if e.Headers != nil {
		for key, value := range e.Headers {
			h.Set(key, value)
		}
	}
	resp.SetBody(e.body())
}

// response is the whole answer, for a connection that nothing is read from.
func (e *Error) response() []byte {
	var resp fasthttp.Response
	e.write(&resp)
	resp.Header.SetContentLength(len(resp.Body()))
	return append(resp.Header.AppendBytes(nil), resp.Body()...)
}

// retryAfter is the header that says when to come back, in whole seconds.
func retryAfter(d time.Duration) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		yield("Retry-After", strconv.FormatInt(int64(math.Ceil(max(d.Seconds(), 1))), 10))
	}
}

// onProtocolError answers a request that could not be read as far as its handler. The server closes the connection
// after it; what the client still sends is read away before, since closing over unread bytes resets the connection and
// takes the answer with it.
func (s *Server) onProtocolError(ctx *fasthttp.RequestCtx, err error) {
	e := &Error{Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: "request is not valid HTTP", Err: err}
	var small *fasthttp.ErrSmallBuffer
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &small):
		e.Status, e.Code = fasthttp.StatusRequestHeaderFieldsTooLarge, codeHeadTooLarge
		e.Message = fmt.Sprintf("request head is larger than %s (server.max_header)", s.o.MaxHeader)
		drainHead(ctx, s.now())
	case errors.As(err, &timeout) && timeout.Timeout():
		e.Status, e.Code, e.Message = fasthttp.StatusRequestTimeout, codeSlowRequest, "request took too long to arrive"
	}
	s.stats.refused.Add(1)
	e.write(&ctx.Response)
}

// drainBody reads a request's body away, for a second and a megabyte at most, where its connection is closed behind the
// answer: closing over unread bytes would take the answer with it.
func drainBody(ctx *fasthttp.RequestCtx, now time.Time) {
	if rest := ctx.RequestBodyStream(); rest != nil {
		_ = ctx.Conn().SetReadDeadline(now.Add(time.Second))
		_, _ = io.CopyN(io.Discard, rest, 1<<20)
	}
}

// drainHead reads up to the end of a head, for a second and a megabyte at most.
func drainHead(ctx *fasthttp.RequestCtx, now time.Time) {
	c := ctx.Conn()
	_ = c.SetReadDeadline(now.Add(time.Second))
	var last [4]byte
	buf := make([]byte, 4<<10)
	for total := 0; total < 1<<20; {
		n, err := c.Read(buf)
		for _, b := range buf[:n] {
			copy(last[:], last[1:])
			last[3] = b
		}
		total += n
		if err != nil || string(last[:]) == "\r\n\r\n" {
			return
		}
	}
}
