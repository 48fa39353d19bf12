package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/valyala/fasthttp"
)

// answerText is every answer of the model.
const answerText = "Noted. I keep it for as long as we talk, and say it again whenever you ask."

// answerBody has the members of a short answer of a real API: 0.4 KB.
const answerBody = `{"id":"chatcmpl-B0000000000000000000000000000","object":"chat.completion","created":1763689200,` +
	`"model":"gpt-5-mini","choices":[{"index":0,"message":{"role":"assistant","content":"` + answerText +
	`","refusal":null},"finish_reason":"stop"}],"usage":{"prompt_tokens":90,"completion_tokens":20,` +
	`"total_tokens":110},"system_fingerprint":"fp_0000000000"}`

// streamWord is the text of each piece of a stream.
const streamWord = "again, "

const (
	chunksHeader   = "X-Bench-Chunks"   // answer with a stream of this many pieces
	intervalHeader = "X-Bench-Interval" // time before each piece; 0 is back to back
)

// serveUpstream is the mock API. It uses as little processor time as possible.
func serveUpstream(ctx context.Context) error {
	s := &fasthttp.Server{
		Handler:            answerAsAsked,
		NoDefaultDate:      true,
		MaxRequestBodySize: 64 << 20,
		ReadBufferSize:     16 << 10,
	}
	return serve(ctx, s)
}

func answerAsAsked(ctx *fasthttp.RequestCtx) {
	chunks, err := strconv.Atoi(string(ctx.Request.Header.Peek(chunksHeader)))
	if err != nil {
		ctx.SetContentType("application/json")
		ctx.SetBodyString(answerBody)
		return
	}
	interval, _ := time.ParseDuration(string(ctx.Request.Header.Peek(intervalHeader))) // none is back to back
	stream := &paced{left: chunks, interval: interval, next: time.Now().Add(interval)}
	time.Sleep(interval)
	ctx.Response.ImmediateHeaderFlush = true
	ctx.SetContentType("text/event-stream")
	ctx.SetBodyStream(stream, -1)
}

// paced is a streamed answer. Each Read is one event, which carries the time at which it was written.
type paced struct {
	left     int
	interval time.Duration
	next     time.Time
	ended    bool
}

func (s *paced) Read(p []byte) (int, error) {
	const head = `data: {"id":"chatcmpl-B0000000000000000000000000000","object":"chat.completion.chunk",` +
		`"created":1763689200,"model":"gpt-5-mini","choices":[{"index":0,"delta":{`
	switch {
	case s.left > 0:
		s.left--
		time.Sleep(time.Until(s.next))
		s.next = s.next.Add(s.interval)
		// OpenAI pads its chunks with a member of this name, whose value clients ignore.
		return len(fmt.Appendf(p[:0], head+`"content":"`+streamWord+`"},"finish_reason":null}],`+stampMark+`%019d"}`+"\n\n",
			time.Now().UnixNano())), nil
	case !s.ended:
		s.ended = true
		return copy(p, head+`},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n"), nil
	default:
		return 0, io.EOF
	}
}

// serveBare is the proxy for comparison: the minimum that a proxy on fasthttp must do. With the address of a Redis server it also
// reads a value before each call and writes one after it, of the size of a turn's commit: about the minimum cost of a session on
// Redis.
func serveBare(ctx context.Context, upstream, store string) error {
	client := &fasthttp.HostClient{
		Addr: upstream, MaxConns: 4096, StreamResponseBody: true, ReadBufferSize: 16 << 10,
		NoDefaultUserAgentHeader: true, DisableHeaderNamesNormalizing: true, DisablePathNormalizing: true,
	}
	forward := func(ctx *fasthttp.RequestCtx) error {
		ctx.Response.ImmediateHeaderFlush = true
		ctx.Request.Header.Del("Connection")
		err := client.Do(&ctx.Request, &ctx.Response)
		ctx.Response.Header.Del("Connection")
		return err
	}
	if store != "" {
		forward = between(redis.NewClient(&redis.Options{Addr: store, PoolSize: 2 * loadConns}), forward) //nolint:contextcheck // uses the request's
	}
	s := &fasthttp.Server{
		NoDefaultServerHeader: true, DisableHeaderNamesNormalizing: true, ReadBufferSize: 16 << 10,
		MaxRequestBodySize: 64 << 20,
		Handler: func(ctx *fasthttp.RequestCtx) {
			if err := forward(ctx); err != nil {
				ctx.Error("bad gateway", fasthttp.StatusBadGateway)
			}
		},
	}
	return serve(ctx, s)
}

// between reads a value before each call, and writes it after it. Each connection has its own value.
func between(db *redis.Client, call func(*fasthttp.RequestCtx) error) func(*fasthttp.RequestCtx) error {
	value := make([]byte, 1500)
	return func(ctx *fasthttp.RequestCtx) error {
		key := ctx.RemoteAddr().String()
		if err := db.Get(ctx, key).Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
		if err := call(ctx); err != nil {
			return err
		}
		return db.Set(ctx, key, value, 0).Err()
	}
}

// serve serves until ctx ends. Like the proxy, it logs its address.
func serve(ctx context.Context, s *fasthttp.Server) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	fmt.Printf(`{"msg":"started","url":"http://%s"}`+"\n", l.Addr())
	<-ctx.Done()
	_ = l.Close() // ends Serve
	return <-served
}
