package providers

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// upstreamHead is the head of an answer as OpenAI sends it.
var upstreamHead = []byte(strings.ReplaceAll(`HTTP/1.1 200 OK
Date: Mon, 23 Nov 2026 08:00:00 GMT
Content-Type: application/json
Content-Length: 812
access-control-expose-headers: X-Request-ID
openai-organization: user-abc
openai-processing-ms: 512
openai-version: 2020-10-01
x-envoy-upstream-service-time: 530
x-ratelimit-limit-requests: 10000
x-ratelimit-limit-tokens: 200000
x-ratelimit-remaining-requests: 9999
x-ratelimit-remaining-tokens: 199980
x-ratelimit-reset-requests: 8.64s
x-ratelimit-reset-tokens: 6ms
x-request-id: req_0123456789abcdef
strict-transport-security: max-age=31536000; includeSubDomains; preload
cf-cache-status: DYNAMIC
Set-Cookie: __cf_bm=abc; path=/; secure
X-Content-Type-Options: nosniff
Server: cloudflare
CF-RAY: 8e0-FRA
alt-svc: h3=":443"

`, "\n", "\r\n"))

// BenchmarkHead is what it costs that the lines of an answer's head reach the client as upstream sent them: reading it, and
// placing the line that frames the body. parse is fasthttp alone.
func BenchmarkHead(b *testing.B) {
	var resp fasthttp.ResponseHeader
	resp.DisableNormalizing()
	resp.SetNoDefaultContentType(true)
	source, r := bytes.NewReader(nil), bufio.NewReaderSize(nil, 8<<10)
	peek := func() []byte {
		source.Reset(upstreamHead)
		r.Reset(source)
		head, err := r.Peek(len(upstreamHead))
		if err != nil {
			b.Fatal(err)
		}
		return head
	}
	b.Run("parse", func(b *testing.B) {
		for b.Loop() {
			peek()
			if err := resp.Read(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if err := readDisguised(&resp, r, peek()); err != nil {
				b.Fatal(err)
			}
		}
	})
	sent := resp.AppendBytes(nil)
	var dst []byte
	b.Run("place", func(b *testing.B) {
		for b.Loop() {
			dst, _ = PlaceFraming(dst[:0], sent)
		}
	})
	if !bytes.Contains(dst, []byte("\r\nContent-Length: 812\r\naccess")) {
		b.Errorf("%s", dst)
	}
}
