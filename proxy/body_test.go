package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy/limit"
)

// TestLargeBodiesTakeLittleMoreThanTheirBytes: the buffer of a body stays until its answer is stored.
func TestLargeBodiesTakeLittleMoreThanTheirBytes(t *testing.T) {
	for _, size := range []int{1 << 20, 2<<20 + 1, 5 << 20, 60_000_000} {
		most := size + size/4 + maxPooled
		for _, length := range []int{-1, size} {
			buf := make([]byte, 0, perRead)
			for len(buf) < size {
				if len(buf) == cap(buf) {
					buf = grow(buf, length)
				}
				buf = buf[:min(cap(buf), size)]
			}
			if cap(buf) > most {
				t.Errorf("a body of %d bytes, length %d, takes %d", size, length, cap(buf))
			}
		}

		enc, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		packed := enc.EncodeAll(bytes.Repeat([]byte("x"), size), nil)
		held := 0
		plain, err := decode([]byte("zstd"), packed, 3*size, func(n int) bool { held += n; return true })
		if err != nil || len(plain) != size || cap(plain) > most || held != cap(plain) {
			t.Errorf("a body of %d bytes is decoded to %d that take %d, and %d are counted: %v", size, len(plain), cap(plain), held, err)
		}
	}
}

// framings are the ways to send a large body, in two pieces: with its length, and in chunks.
func framings() map[string]func(body string) (header string, pieces []string) {
	return map[string]func(body string) (header string, pieces []string){
		"length": func(body string) (string, []string) {
			return fmt.Sprintf("Content-Length: %d\r\n", len(body)), []string{body[:len(body)/2], body[len(body)/2:]}
		},
		"chunks": func(body string) (string, []string) {
			half := len(body) / 2
			return "transfer-encoding: chunked\r\n", []string{chunk(body[:half-9]) + chunk(body[half-9:half]), chunk(body[half:]) + chunk("")}
		},
	}
}

// noise is text without repetitions, so that nothing of it can be lost, doubled or moved unseen.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return string(b)
}

// TestLargeBodiesPassUnheld: a file of any size passes as it arrives, on a path where nothing reads it. Small bodies have a length
// upstream.
func TestLargeBodiesPassUnheld(t *testing.T) {
	const most = 2 << 20
	for name, frame := range framings() {
		for _, size := range []int{1000, maxPooled - 1, maxPooled + 100, 3*most + 1} {
			for _, more := range []string{"", "X-Session-Id: s\r\n", "Expect: 100-continue\r\n", "Connection: transfer-encoding\r\n"} {
				t.Run(fmt.Sprintf("%s, %d, %q", name, size, more), func(t *testing.T) {
					began, heads := make(chan struct{}, 1), make(chan *http.Request, 1)
					r := start(t, rigOptions{
						upstream: reading(t, func(req *http.Request) string {
							begin := make([]byte, 1)
							_, _ = io.ReadFull(req.Body, begin)
							began <- struct{}{}
							rest, err := io.ReadAll(req.Body)
							heads <- req
							if err != nil {
								return ""
							}
							return sized(fmt.Sprintf("%x", sha256.Sum256(append(begin, rest...))))
						}),
						tune: func(o *Options) {
							o.MaxBody = most
							o.Limits = limit.New(limit.Config{Options: limit.Options{Global: limit.Global{BodyBytes: most}}, Now: fixed})
						},
					})
					c, br := r.dial(t)
					body := noise(size)
					header, pieces := frame(body)
					for range 2 { // the connection can be used again
						write(c, "POST /v1/files HTTP/1.1\r\nHost: x\r\n"+header+more+"\r\n")
						if strings.HasPrefix(more, "Expect") {
							if resp, err := http.ReadResponse(br, nil); err != nil || resp.StatusCode != http.StatusContinue {
								t.Fatalf("%v %v", resp, err)
							}
						}
						write(c, pieces[0])
						if size > most {
							await(t, began, "beginning of the body, while its end is not here,")
						}
						write(c, pieces[1])
						resp, err := http.ReadResponse(br, nil)
						if err != nil {
							t.Fatal(err)
						}
						sum, err := io.ReadAll(resp.Body)
						if want := fmt.Sprintf("%x", sha256.Sum256([]byte(body))); err != nil || string(sum) != want {
							t.Errorf("%d %q %v, want %s", resp.StatusCode, sum, err, want)
						}
						if got := resp.Header.Get("X-Memory"); strings.HasPrefix(got, "bypass;") != (more == "X-Session-Id: s\r\n") {
							t.Errorf("X-Memory: %q", got)
						}
						if req, chunked := await(t, heads, "request"), name == "chunks" && size > maxPooled; (req.ContentLength < 0) != chunked {
							t.Errorf("upstream got a length of %d, %v", req.ContentLength, req.TransferEncoding)
						}
						if size <= most {
							<-began
						}
					}
				})
			}
		}
	}
}

// TestACutUploadIsNeverCompleteUpstream: upstream learns that a body which goes on as it arrives has no end, and the client, if it
// still listens, why.
func TestACutUploadIsNeverCompleteUpstream(t *testing.T) {
	closes := func(t *testing.T, c net.Conn) { t.Helper(); closeWrite(t, c) }
	for name, frame := range framings() {
		for _, c := range []struct {
			name   string
			end    func(*testing.T, net.Conn)
			part   int // of the second piece that is sent, from its end if it is negative
			status int
			code   string
			leaves bool
		}{
			{"closed in the middle", closes, 1 << 20, 400, "bad_request", true},
			{"closed before the last byte", closes, -1, 400, "bad_request", true},
			{"reset", func(t *testing.T, c net.Conn) {
				t.Helper()
				if err := c.(*net.TCPConn).SetLinger(0); err != nil { //nolint:forcetypeassert // it is one
					t.Error(err)
				}
				shut(c)
			}, 1 << 20, 0, "", true},
			{"no chunk", func(_ *testing.T, c net.Conn) { write(c, "hello\r\n\r\n") }, 0, 400, "bad_request", false},
			{"silent", func(*testing.T, net.Conn) {}, 1 << 20, 408, "request_timeout", false},
		} {
			if c.name == "no chunk" && name != "chunks" {
				continue
			}
			t.Run(name+", "+c.name, func(t *testing.T) {
				began, got := make(chan struct{}, 1), make(chan error, 1)
				r := start(t, rigOptions{
					tune: func(o *Options) {
						if c.status == 408 {
							o.ReadTimeout = time.Second
						}
					},
					upstream: reading(t, func(req *http.Request) string {
						began <- struct{}{}
						_, err := io.Copy(io.Discard, req.Body)
						got <- err
						return sized("{}")
					}),
				})
				conn, br := r.dial(t)
				header, pieces := frame(noise(4 << 20))
				part := (len(pieces[1]) + c.part) % len(pieces[1])
				write(conn, "POST /v1/files HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"+pieces[0]+pieces[1][:part])
				await(t, began, "request") // before a reset discards it
				c.end(t, conn)
				if c.status > 0 {
					resp, err := http.ReadResponse(br, nil)
					if err == nil {
						wantError(t, resp, c.status, c.code)
					} else if !c.leaves { // else it was seen to have gone before the body was seen to end
						t.Fatal(err)
					}
				}
				if err := await(t, got, "end of the body"); err == nil {
					t.Error("upstream got a complete request")
				}
				r.stop(t)
				if n := r.upstreamFailures(); n > 0 {
					t.Errorf("the log blames upstream: %s", r.log)
				}
			})
		}
	}
}

// TestUpstreamMayAnswerBeforeTheBody: a client that writes all of a body before it reads gets the answer that upstream gave to the
// beginning of it. No other request follows on the connection.
func TestUpstreamMayAnswerBeforeTheBody(t *testing.T) {
	long := noise(100 << 10)
	for name, frame := range framings() {
		for _, c := range []struct{ name, method, answer, status, body string }{
			{"refused", "POST", "HTTP/1.1 401 Unauthorized\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nno", "401", "no"},
			{"refused in chunks", "PUT", "HTTP/1.1 413 Too Large\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk("n") + chunk("o") + chunk(""), "413", "no"},
			{"refused at length", "POST", "HTTP/1.1 400 Bad Request\r\nContent-Length: 102400\r\n\r\n" + long, "400", long},
			{"refused without a word", "POST", "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "403", ""},
			{"redirected", "POST", "HTTP/1.1 307 Temporary Redirect\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", "307", ""},
			{"done", "POST", sized("{}"), "200", "{}"},
			{"done without a word", "POST", "HTTP/1.1 204 No Content\r\n\r\n", "204", ""},
			{"closed", "POST", "", "502", "upstream_closed"},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				over := make(chan struct{})
				r := start(t, rigOptions{upstream: upstream(t, func(up net.Conn, r *bufio.Reader) {
					if _, err := http.ReadRequest(r); err != nil {
						return
					}
					write(up, c.answer)
					if c.answer != "" {
						<-over
					}
				})})
				conn, br := r.dial(t)
				header, pieces := frame(noise(24 << 20)) // more than the connections hold
				if _, err := io.WriteString(conn, c.method+" /v1/files HTTP/1.1\r\nHost: x\r\n"+header+"\r\n"+pieces[0]+pieces[1]); err != nil {
					t.Fatalf("send: %v", err)
				}
				all, err := io.ReadAll(br)
				close(over)
				resp, perr := http.ReadResponse(reader(string(all)), nil)
				if err != nil || perr != nil {
					t.Fatalf("%v %v %.300q", err, perr, all)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || !strings.HasPrefix(resp.Status, c.status) || c.status != "502" && string(body) != c.body || !strings.Contains(string(body), c.body) {
					t.Errorf("%s %.300q %v, want %s %.300q", resp.Status, body, err, c.status, c.body)
				}
				if !resp.Close || c.status == "401" && resp.Header.Get("X-A") != "1" {
					t.Errorf("headers %v", resp.Header)
				}
			})
		}
	}
}

// TestWhatIsReadHereIsHeld: a body that memory or the choice of a provider needs, or that may have to be sent again, is in memory, and
// so has a limit.
func TestWhatIsReadHereIsHeld(t *testing.T) {
	const most = 2 << 20
	const form = "Content-Type: multipart/form-data; boundary=x\r\n"
	models := func(o *providers.Options) { o.Models = []string{"m", "*"} }
	for name, frame := range framings() {
		for _, c := range []struct {
			name, target, header string
			size                 int
			provider             func(*providers.Options)
			retries              bool
			status, calls        int
		}{
			{"a conversation", "/v1/chat/completions", "", most + 1, nil, false, 413, 0},
			{"a conversation in another spelling", "/v1/%72esponses", "", most + 1, nil, false, 413, 0},
			{"may name an answer", "/v1/responses/compact", "", most + 1, nil, false, 413, 0},
			{"about an answer", "/v1/responses/resp_1/cancel", "", most + 1, nil, false, 413, 0},
			{"by model", "/v1/embeddings", "Content-Type: application/json\r\n", most + 1, models, false, 413, 0},
			{"by model, of any type", "/v1/embeddings", "", most + 1, models, false, 413, 0},
			{"by model, a form", "/v1/files", form, most + 1, models, false, 503, 1},
			{"anything else", "/v1/embeddings", "", most + 1, nil, false, 503, 1},
			{"may be sent again", "/v1/files", "", most, nil, true, 200, 2},
			{"too large to be sent again", "/v1/files", "", most + 1, nil, true, 503, 1},
		} {
			t.Run(name+", "+c.name, func(t *testing.T) {
				var calls atomic.Int32
				addr := answering(t, func(_ *http.Request, body []byte) string {
					if n := calls.Add(1); n == 1 {
						return "HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n"
					}
					return sized(fmt.Sprint(len(body)))
				})
				r := start(t, rigOptions{upstream: addr, provider: c.provider, tune: func(o *Options) { o.MaxBody = most }})
				r.response = func(context.Context, string, string) (memory.Response, error) { return memory.Response{}, nil }
				if c.retries {
					o := providers.Options{Name: "a", Kind: "compatible", BaseURL: "http://" + addr + "/v1"}
					other := o
					other.Name = "b"
					r.route(t, []retry.Entry{
						{Provider: o, Resilience: retry.Options{Retry: retry.Retry{Attempts: 2, BaseDelay: time.Millisecond}}}, {Provider: other},
					})
				}
				header, pieces := frame(noise(c.size))
				got := r.exchange(t, "POST "+c.target+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+c.header+header+"\r\n"+pieces[0]+pieces[1])
				if !strings.HasPrefix(got, fmt.Sprintf("HTTP/1.1 %d ", c.status)) || int(calls.Load()) != c.calls {
					t.Errorf("%d calls, %.300q", calls.Load(), got)
				}
			})
		}
	}
}

// deadlines is a connection that counts the deadlines for reading.
type deadlines struct {
	net.Conn
	set int
}

func (d *deadlines) SetReadDeadline(time.Time) error {
	d.set++
	return nil
}

// TestAHeldBodyHasToGoOn: the more of a body is held, the more of it has to come in each read_timeout.
func TestAHeldBodyHasToGoOn(t *testing.T) {
	const piece = 16 << 10
	for _, c := range []struct {
		name     string
		streamed bool
		size     int64
		want     int
	}{
		{"small", false, 1 << 20, 16},
		{"large", false, 16 << 20, 60},
		{"large, streamed", true, 16 << 20, 256},
	} {
		conn, ctx := new(deadlines), new(fasthttp.RequestCtx)
		ctx.Init2(conn, nil, false)
		b := body{s: &Server{now: fixed}, ctx: ctx, stream: strings.NewReader(strings.Repeat("x", int(c.size)+1)), length: c.size + 1, streamed: c.streamed}
		for p := make([]byte, piece); b.read < c.size; {
			if _, err := b.next(p); err != nil {
				t.Fatal(err)
			}
		}
		if conn.set != c.want {
			t.Errorf("%s: the client got more time %d times, want %d", c.name, conn.set, c.want)
		}
	}
}
