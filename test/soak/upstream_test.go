package soak

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valyala/fasthttp"
)

// Headers by which clients control the upstream's answer. The proxy forwards them.
const (
	piecesHeader = "X-Soak-Pieces" // answer with a stream of this many pieces
	everyHeader  = "X-Soak-Every"  // time between pieces; for an answer that is not streamed, its duration
	callHeader   = "X-Soak-Call"   // answer with this tool call
)

// whole is the text of an answer that is not streamed.
const whole = "Noted. I keep it for as long as we talk, and say it again whenever you ask. Until then it stays between us, " +
	"together with the date, the place and the names of those who were there, as far as you have told me about them."

// piece returns the text of the nth piece of a stream.
func piece(n int) string { return fmt.Sprintf("again %06d, ", n) }

// spoken returns the whole text of a stream.
func spoken(pieces int) string {
	var b strings.Builder
	for n := range pieces {
		b.WriteString(piece(n))
	}
	return b.String()
}

// upstream is a mock API. It ignores the body, and answers by the headers in the dialect of the path.
type upstream struct {
	ids atomic.Int64
}

// newUpstream starts an upstream and returns its base URL.
func newUpstream(t *testing.T) string {
	t.Helper()
	u := &upstream{}
	s := &fasthttp.Server{Handler: u.answer, NoDefaultDate: true, MaxRequestBodySize: 64 << 20, ReadBufferSize: 8 << 10}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = l.Close() // ends Serve
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/v1"
}

func (u *upstream) answer(ctx *fasthttp.RequestCtx) {
	h := &ctx.Request.Header
	every, _ := time.ParseDuration(string(h.Peek(everyHeader))) // none is at once
	pieces, _ := strconv.Atoi(string(h.Peek(piecesHeader)))     // none is no stream
	call, id := string(h.Peek(callHeader)), u.ids.Add(1)        // none is a text
	responses := strings.HasSuffix(string(ctx.Path()), "/responses")
	if pieces > 0 {
		ctx.SetContentType("text/event-stream")
		ctx.Response.ImmediateHeaderFlush = true
		events := chatEvents
		if responses {
			events = responsesEvents
		}
		ctx.SetBodyStreamWriter(func(w *bufio.Writer) { events(w, id, pieces, every) })
		return
	}
	time.Sleep(every)
	ctx.SetContentType("application/json")
	if responses {
		_, _ = fmt.Fprintf(ctx, `{"id":"resp_%024d","object":"response","created_at":1763689200,"status":"completed","model":"gpt-5-mini",`+
			`"output":[%s],"usage":{"input_tokens":90,"output_tokens":40,"total_tokens":130}}`, id, responsesItem(id, whole))
		return
	}
	said := `"content":` + strconv.Quote(whole)
	finish := "stop"
	if call != "" {
		said, finish = `"content":null,"tool_calls":[`+call+`]`, "tool_calls"
	}
	_, _ = fmt.Fprintf(ctx, `{"id":"chatcmpl-%024d","object":"chat.completion","created":1763689200,"model":"gpt-5-mini","choices":[{"index":0,`+
		`"message":{"role":"assistant",%s,"refusal":null},"finish_reason":%q}],`+
		`"usage":{"prompt_tokens":90,"completion_tokens":40,"total_tokens":130}}`, id, said, finish)
}

// responsesItem returns the output of an answer with a text.
func responsesItem(id int64, text string) string {
	return fmt.Sprintf(`{"id":"msg_%024d","type":"message","status":"completed","role":"assistant",`+
		`"content":[{"type":"output_text","text":%q,"annotations":[]}]}`, id, text)
}

// pace calls send for each piece of a stream, at its time, until the client disconnects.
func pace(w *bufio.Writer, pieces int, every time.Duration, send func(n int)) bool {
	begun := time.Now()
	for n := range pieces {
		time.Sleep(time.Until(begun.Add(time.Duration(n+1) * every)))
		send(n)
		if w.Flush() != nil {
			return false
		}
	}
	return true
}

func chatEvents(w *bufio.Writer, id int64, pieces int, every time.Duration) {
	head := fmt.Sprintf(`data: {"id":"chatcmpl-%024d","object":"chat.completion.chunk","created":1763689200,"model":"gpt-5-mini","choices":[{"index":0,`, id)
	if pace(w, pieces, every, func(n int) {
		_, _ = fmt.Fprintf(w, "%s\"delta\":{\"content\":%q},\"finish_reason\":null}]}\n\n", head, piece(n))
	}) {
		_, _ = fmt.Fprintf(w, "%s\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n", head)
	}
}

func responsesEvents(w *bufio.Writer, id int64, pieces int, every time.Duration) {
	serial := 0
	event := func(kind, members string) {
		_, _ = fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, serial, members)
		serial++
	}
	response := func(status, output string) string {
		return fmt.Sprintf(`"response":{"id":"resp_%024d","object":"response","created_at":1763689200,"status":%q,"model":"gpt-5-mini","output":[%s]}`,
			id, status, output)
	}
	item := fmt.Sprintf("msg_%024d", id)
	event("response.created", response("in_progress", ""))
	event("response.output_item.added", fmt.Sprintf(`"output_index":0,"item":{"id":%q,"type":"message","status":"in_progress","role":"assistant","content":[]}`, item))
	event("response.content_part.added", fmt.Sprintf(`"item_id":%q,"output_index":0,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}`, item))
	if !pace(w, pieces, every, func(n int) {
		event("response.output_text.delta", fmt.Sprintf(`"item_id":%q,"output_index":0,"content_index":0,"delta":%q`, item, piece(n)))
	}) {
		return
	}
	text := spoken(pieces)
	event("response.output_text.done", fmt.Sprintf(`"item_id":%q,"output_index":0,"content_index":0,"text":%q`, item, text))
	event("response.content_part.done", fmt.Sprintf(`"item_id":%q,"output_index":0,"content_index":0,"part":{"type":"output_text","text":%q,"annotations":[]}`, item, text))
	event("response.output_item.done", `"output_index":0,"item":`+responsesItem(id, text))
	event("response.completed", response("completed", responsesItem(id, text)))
}

// status200 is the status of every answer.
const status200 = http.StatusOK
