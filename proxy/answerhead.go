package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/proxy/listener"
	"remora/wire"
)

// answerHead is the head of upstream's answer, with the lines that the proxy adds. It is pooled, apart from the exchange, which it
// outlives: fasthttp writes an answer after its handler has returned.
type answerHead struct {
	providers.Head
	pool *sync.Pool
}

// Release returns the head to its pool.
func (h *answerHead) Release() {
	if cap(h.Lines()) <= listener.MaxPooled {
		h.pool.Put(h)
	}
}

// answerWith answers with a head of upstream's. fasthttp adds the line that frames the body.
func (a *answer) answerWith(h *providers.Head) {
	if h != &a.head.Head {
		a.head.Copy(h)
	}
	resp := &a.req.ctx.Response
	resp.SetStatusCode(h.Status())
	if n, told := h.Length(); told && a.req.ctx.IsHead() {
		resp.Header.SetContentLength(n)
	}
}

// arrangeHead sends the head with the answer, in place of fasthttp's.
//
// The write deadline, the one that fasthttp would set, makes fasthttp send each answer before it handles the next request on the
// connection, instead of gathering the answers to pipelined requests. So the head begins a write of its own, and streamToClose,
// which bypasses fasthttp's buffer, cannot overtake it.
func (a *answer) arrangeHead(deadline time.Time) {
	if a.req.ctx.Hijacked() {
		return
	}
	_ = a.req.ctx.SetWriteDeadline(deadline)
	if len(a.head.Lines()) > 0 {
		listener.ReplaceHead(a.req.ctx.Conn(), bodyAfter(a.req.ctx), a.head)
		a.head = nil
	}
}

// bodyAfter is how many bytes of body fasthttp writes right after the answer's head.
func bodyAfter(ctx *fasthttp.RequestCtx) int {
	resp := &ctx.Response
	switch status := resp.StatusCode(); {
	case resp.IsBodyStream(), resp.SkipBody, ctx.IsHead():
		return 0
	case status < fasthttp.StatusOK, status == fasthttp.StatusNoContent, status == fasthttp.StatusNotModified:
		return 0
	}
	return len(resp.Body())
}

// noteEncoding reports, in X-Memory and the log, an answer that is not stored since its Content-Encoding is unknown.
func (a *answer) noteEncoding() {
	turn := a.req.turn
	kept := a.req.late.turn != nil || turn.kept() && !turn.steering.Judges()
	if kept && a.attempt.status < fasthttp.StatusMultipleChoices && !decodable(a.head.ContentEncoding()) {
		a.notStored("the Content-Encoding of the answer is unknown")
	}
}

// noteNoPath logs, once for each provider, a 404 that a base URL without a path explains. The client gets upstream's answer as
// it came: that URL may be right, and the 404 about something else.
func (a *answer) noteNoPath() {
	provider := a.attempt.out.provider
	if a.attempt.status != fasthttp.StatusNotFound || !a.req.dialect.Known() || provider.Path() != "" {
		return
	}
	if _, logged := a.req.noPath.LoadOrStore(provider.Name(), true); !logged {
		a.req.s.log.Warn("upstream answers 404, and its base_url has no path: most servers want one that ends in /v1 (providers[].base_url)",
			"provider", provider.Name())
	}
}

// report adds the proxy's headers to the answer, and reports whether there are any: the request names a session. They replace
// upstream's, which may be a Remora, too; Server-Timing is added beside upstream's.
func (a *answer) report() bool {
	h, turn := a.head, a.req.turn
	kept := turn.kept()
	if !kept && a.req.status == "" {
		return false
	}
	h.Drop("x-session-id", "x-memory")
	h.Add("X-Session-Id", safeValue(a.req.head.id.session))
	if !kept {
		h.AddBytes("X-Memory", a.appendMemory(nil, nil))
		return true
	}
	h.Drop("x-turn-id")
	h.Add("X-Turn-Id", turn.ID)
	h.AddBytes("X-Memory", a.appendMemory(make([]byte, 0, 128), &turn.reported))
	h.AddBytes("Server-Timing", a.req.trace.appendServerTiming(make([]byte, 0, 64)))
	return true
}

// own are the headers that the proxy adds to answers.
const own = "X-Session-Id, X-Turn-Id, X-Memory, Server-Timing"

// openToPages does CORS for the proxy's own headers: if upstream allows a web page to read its answer, the page may also read the
// headers that the proxy adds, and send those that it reads. Upstream's lines stay. reported: the proxy has added its headers.
func (a *answer) openToPages(reported bool) {
	if !a.req.head.paged {
		return
	}
	allowed := false
	var listed []byte
	for name, value := range a.head.All() {
		switch {
		case bytes.EqualFold(name, []byte(fasthttp.HeaderAccessControlAllowOrigin)):
			allowed = true
		case bytes.EqualFold(name, []byte(fasthttp.HeaderAccessControlAllowHeaders)):
			listed = append(append(listed, value...), ',')
		}
	}
	switch {
	case !allowed:
	case a.req.ctx.IsOptions():
		if more := a.req.head.ownAsked(a.req.s.names, listed); len(more) > 0 {
			if d, _ := dialectOf(a.req.ctx.RequestURI()); d.Known() {
				a.head.Add(fasthttp.HeaderAccessControlAllowHeaders, strings.Join(more, ", "))
			}
		}
	case reported:
		a.head.Add(fasthttp.HeaderAccessControlExposeHeaders, own)
	}
}

// openErrorToPages lets any web page read an error that the proxy made: without that, a page only sees that the request failed.
func (a *answer) openErrorToPages() {
	if a.req.head.paged {
		a.head.Add(fasthttp.HeaderAccessControlAllowOrigin, "*")
		a.head.Add(fasthttp.HeaderAccessControlExposeHeaders, own+", Retry-After")
	}
}

// reportWhole adds to X-Memory what is known at the end of an answer. If the answer cannot be read, that is the reason. If it has
// several rounds, that is their number and the tokens of all of them: the usage in its body has only the input of the last one. A
// stream's headers were sent before.
func (a *answer) reportWhole() {
	if !a.req.turn.kept() || a.modelCalls < 2 && a.req.reason == "" {
		return
	}
	report := a.appendMemory(nil, &a.req.turn.reported)
	if a.modelCalls > 1 {
		sum := wire.ParseUsage(a.usage)
		report = fmt.Appendf(report, ";rounds=%d;input=%d;output=%d", a.modelCalls, sum.Input, sum.Output)
	}
	a.head.Replace("x-memory", report)
}

// appendMemory writes X-Memory, an item of RFC 8941 with parameters. A request without a turn has no summary.
func (a *answer) appendMemory(dst []byte, s *memory.Summary) []byte {
	r, status := a.req, a.req.status
	switch {
	case r.reason != "" && s != nil:
		status = statusBypass
	case s != nil && s.Side && s.Status == memory.StatusOK:
		status = "side"
	case s != nil:
		status = s.Status.String()
	}
	dst = append(dst, status...)
	if status == statusBypass {
		dst = append(append(append(dst, `;reason="`...), r.reason...), '"')
	}
	if s != nil {
		for _, p := range [...]struct {
			name  string
			value int
		}{
			{";items=", s.Items}, {";sent=", s.Sent}, {";windowed=", s.Windowed}, {";orphans=", s.Orphans}, {";recalled=", s.Recalled},
		} {
			dst = strconv.AppendInt(append(dst, p.name...), int64(p.value), 10)
		}
		if s.Repaired > 0 {
			dst = strconv.AppendInt(append(dst, ";repaired="...), int64(s.Repaired), 10)
		}
		if len(s.Skipped) > 0 {
			dst = append(append(append(dst, `;skipped="`...), strings.Join(s.Skipped, " ")...), '"')
		}
	}
	return append(append(append(dst, `;source="`...), r.head.id.source...), '"')
}
