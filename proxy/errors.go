package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
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
	Headers [][2]string // are sent with it: name and value
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
	codeUnasked      = "content_type_not_json"
	codeCrowded      = "overloaded" // as beyond limits.global
)

func errBodyTooLarge(limit Size) *Error {
	return &Error{
		Status: fasthttp.StatusRequestEntityTooLarge, Code: codeBodyTooLarge,
		Message: fmt.Sprintf("request body is larger than %s (server.max_body)", limit),
	}
}

// errCrowded refuses a client for whose connection there is no room. It closes it: nothing else makes room.
func errCrowded(limit int) *Error {
	return &Error{
		Status: fasthttp.StatusServiceUnavailable, Code: codeCrowded,
		Message: fmt.Sprintf("limit of %d connections is reached (server.max_connections)", limit),
		Headers: [][2]string{{fasthttp.HeaderRetryAfter, "1"}, {fasthttp.HeaderConnection, "close"}},
	}
}

// badRequest refuses a request that the client has to change.
func badRequest(message string, err error) *Error {
	return &Error{Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: message, Err: err}
}

// errBrokenBody refuses a body that ends early or is malformed.
func errBrokenBody(err error) *Error { return badRequest("request body is incomplete or broken", err) }

// Answers of upstream that are valid HTTP, but that the proxy cannot read although layers need it to. errNoRoom is like errLarge, for
// when the process buffers as much as it may.
var (
	errIllegible = errors.New("upstream's answer cannot be read")
	errLarge     = cannotRead(fmt.Sprintf("upstream's answer is larger than %s, which is as much as layers can read", Size(foldLimit)), errIllegible)
	errNoRoom    = cannotRead("there is no room to read upstream's answer, and layers of this gateway have to (limits.global.body_bytes)", errIllegible)
)

func cannotRead(message string, err error) *Error {
	return &Error{Status: fasthttp.StatusBadGateway, Code: codeUnread, Message: message, Err: err}
}

// isLarge reports whether an answer is larger than can be buffered.
func isLarge(err error) bool { return errors.Is(err, errLarge) || errors.Is(err, errNoRoom) }

// errUnread is the error for an answer that layers have to read and cannot, for the reason why. It never quotes the answer.
func errUnread(why string) *Error {
	return cannotRead("upstream's answer cannot be read, and layers of this gateway have to: "+why, fmt.Errorf("%w: %s", errIllegible, why))
}

// errHeld fails an answer of which more would have to be held back than there is room for, so that nothing passes unjudged.
func errHeld() *Error {
	const why = "more of it has to be held back than there is room for"
	return cannotRead("upstream's answer cannot be judged by rules of this gateway: "+why, fmt.Errorf("%w: %s", errIllegible, why))
}

// errTwoCredentials refuses a request with two credentials in one place: its session would belong to one of them, or limits would
// count for one, while upstream may check the other.
func errTwoCredentials() *Error {
	return badRequest("request has two different credentials in one header or query parameter: send one", nil)
}

// errUnreadable refuses a body that cannot be read, for the reason why, where layers have to judge the answer.
func errUnreadable(why string) *Error {
	return badRequest("request body cannot be read, and rules of this gateway have to judge its answer: "+why, nil)
}

// errUnasked refuses a request that any web page could have sent, and that would use a provider's key of the proxy's own.
func errUnasked() *Error {
	return &Error{
		Status: fasthttp.StatusUnsupportedMediaType, Code: codeUnasked,
		Message: "the request comes from a web page, and a provider here has a key of its own: send Content-Type: application/json, for which browsers ask first",
	}
}

// errWebSocket refuses a WebSocket: frames are neither remembered nor judged yet. Agents that hear so at once use HTTP for the rest
// of their run.
func errWebSocket(guarded bool) *Error {
	e := &Error{
		Status: fasthttp.StatusUpgradeRequired, Code: codeUpgrade,
		Message: "WebSocket requests are not remembered: send responses by HTTP POST, or X-Memory: off",
	}
	if guarded { // with or without memory
		e.Message = "rules of this gateway cannot judge WebSocket requests: send responses by HTTP POST"
	}
	return e
}

// errBackground refuses a request whose answer would go past the rules that have to judge it.
func errBackground() *Error {
	return &Error{
		Status: fasthttp.StatusBadRequest, Code: codeBackground, Param: "background",
		Message: "rules of this gateway have to judge the answer, and cannot judge that of a background request: leave out background",
	}
}

// upstreamFailure is what to say of an error on the way to upstream or back: the class in telemetry, the rest to the client.
type upstreamFailure struct {
	err           error
	class         string
	status        int
	code, message string
}

// failureOf returns nil for any other error.
func failureOf(err error) *upstreamFailure {
	for _, f := range [...]upstreamFailure{
		{providers.ErrTimeout, "timeout", fasthttp.StatusGatewayTimeout, codeTimeout, "upstream did not answer in time"},
		{providers.ErrUnreachable, "unreachable", fasthttp.StatusBadGateway, codeUnreachable, "upstream cannot be reached"},
		{providers.ErrClosed, "closed", fasthttp.StatusBadGateway, codeClosed, "upstream closed the connection before its answer was complete"},
		{providers.ErrMalformed, "malformed", fasthttp.StatusBadGateway, codeClosed, "upstream answered with something that is not valid HTTP"},
		{providers.ErrLargeHead, "malformed", fasthttp.StatusBadGateway, codeClosed, "the head of upstream's answer is too large (server.upstream.max_header)"},
		{errIllegible, "malformed", fasthttp.StatusBadGateway, codeUnread, "upstream's answer cannot be read"},
		{providers.ErrAborted, "cancelled", fasthttp.StatusServiceUnavailable, codeShutdown, "server is shutting down"},
	} {
		if errors.Is(err, f.err) {
			return &f
		}
	}
	return nil
}

// upstreamFault reports whether an error is upstream's, and not the client's or ours.
func upstreamFault(err error) bool {
	return failureOf(err) != nil && !errors.Is(err, providers.ErrAborted)
}

// asError finds the status and code for an error of a lower package.
func asError(err error) *Error {
	var e *Error
	var layer *memory.LayerError
	var refusal *limit.Refusal
	var open *retry.OpenError
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
		return badRequest("request target is not supported", err)
	case errors.Is(err, providers.ErrTrace):
		return &Error{Status: fasthttp.StatusForbidden, Code: codeBadRequest, Message: "TRACE is refused: its answer would show headers that this gateway adds", Err: err}
	}
	if f := failureOf(err); f != nil {
		return &Error{Status: f.status, Code: f.code, Message: f.message, Err: err}
	}
	return &Error{Status: fasthttp.StatusInternalServerError, Code: codeInternal, Message: "internal error", Err: err}
}

// noMemory is the error for a store that cannot be read. Its Retry-After is the time of the next try.
func noMemory(err error) *Error {
	e := &Error{Status: fasthttp.StatusServiceUnavailable, Code: codeNoMemory, Message: "session memory is unavailable", Err: err}
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		e.Headers = retryAfter(later.RetryAfter())
	}
	return e
}

// fault returns the error for the body; its type says that it comes from the proxy.
func (e *Error) fault() wire.Fault {
	return wire.Fault{Message: e.Message, Type: "proxy_error", Code: e.Code, Param: e.Param}
}

func errDenied(reason string) *Error {
	reason = cmp.Or(reason, "the answer was denied by a rule of this gateway")
	return &Error{Status: fasthttp.StatusForbidden, Code: codeDenied, Message: reason}
}

// write makes e the response. It is the only writer of error bodies.
func (e *Error) write(resp *fasthttp.Response, d wire.Dialect) {
	resp.ResetBody()
	h := &resp.Header
	// The head of upstream's answer must not be mixed into the proxy's own.
	h.Reset()
	h.DisableNormalizing()
	h.SetNoDefaultContentType(true)
	h.SetStatusCode(e.Status)
	h.SetContentType("application/json")
	for _, line := range e.Headers {
		h.Set(line[0], line[1])
	}
	resp.SetBody(d.ErrorBody(e.fault()))
}

// response is the whole answer, for a connection that nothing is read from.
func (e *Error) response() []byte {
	var resp fasthttp.Response
	e.write(&resp, wire.Dialect{})
	resp.Header.SetContentLength(len(resp.Body()))
	return append(resp.Header.AppendBytes(nil), resp.Body()...)
}

// retryAfter is the header that says when to come back, in whole seconds.
func retryAfter(d time.Duration) [][2]string {
	return [][2]string{{"Retry-After", strconv.FormatInt(int64(math.Ceil(max(d.Seconds(), 1))), 10)}}
}

// drainBody discards the rest of a request's body, for a second and a megabyte at most, before its connection is closed: closing
// with unread bytes resets the connection, and the client loses the answer.
func drainBody(ctx *fasthttp.RequestCtx, now time.Time) {
	if rest := ctx.RequestBodyStream(); rest != nil {
		_ = ctx.Conn().SetReadDeadline(now.Add(time.Second))
		_, _ = io.CopyN(io.Discard, rest, 1<<20)
	}
}

// drainHead discards the rest of a head, for a second and a megabyte at most.
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
