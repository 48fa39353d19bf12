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

// BenchmarkHead times reading a head (read), and joining it with the head that the client's server writes (join). parse is fasthttp's
// reading of the same head, for comparison.
func BenchmarkHead(b *testing.B) {
	b.Run("parse", func(b *testing.B) {
		var resp fasthttp.ResponseHeader
		resp.DisableNormalizing()
		resp.SetNoDefaultContentType(true)
		source, r := bytes.NewReader(nil), bufio.NewReaderSize(nil, 8<<10)
		for b.Loop() {
			source.Reset(upstreamHead)
			r.Reset(source)
			if err := resp.Read(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	var h Head
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			if _, err := h.Read(upstreamHead); err != nil {
				b.Fatal(err)
			}
		}
	})
	var dst []byte
	b.Run("join", func(b *testing.B) {
		own := []byte("HTTP/1.1 200 OK\r\nContent-Length: 812\r\n\r\n")
		for b.Loop() {
			dst, _ = h.Join(dst[:0], own)
		}
	})
	if !bytes.Equal(dst, upstreamHead) {
		b.Errorf("%s", dst)
	}
}
