package proxy

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"remora/memory"
	"remora/wire"
)

// closeWrite ends the sending side of a client's connection, and leaves it able to read the answer.
func closeWrite(t *testing.T, c net.Conn) {
	t.Helper()
	half, ok := c.(interface{ CloseWrite() error })
	if !ok {
		t.Fatalf("%T cannot close one side", c)
	}
	if err := half.CloseWrite(); err != nil {
		t.Fatal(err)
	}
}

// TestACutRequestIsNeverCompleteUpstream: what a client that died has sent of a body is a valid shorter body to a server
// that gets it with a length.
func TestACutRequestIsNeverCompleteUpstream(t *testing.T) {
	line := `{"custom_id":"a","method":"POST"}` + "\n"
	several := chunk(strings.Repeat(line, 50)) + chunk(strings.Repeat(line, 50))
	large := strings.Repeat(chunk(strings.Repeat("x", 18<<10)), 100)
	conversation := chunk(chatBody)
	for _, c := range []struct {
		name, head, body string
		whole            bool
	}{
		{"whole", "Transfer-Encoding: chunked", several + "0\r\n\r\n", true},
		{"whole, with trailers", "Transfer-Encoding: chunked", several + "0\r\nX-Sum: 1\r\n\r\n", true},
		{"between chunks", "Transfer-Encoding: chunked", several, false},
		{"between chunks of a large body", "Transfer-Encoding: chunked", large, false},
		{"before the first chunk", "Transfer-Encoding: chunked", "", false},
		{"in a size", "Transfer-Encoding: chunked", several + "1", false},
		{"in a size line", "Transfer-Encoding: chunked", several + "1\r", false},
		{"in a chunk", "Transfer-Encoding: chunked", several + "5\r\nab", false},
		{"before the end of a chunk", "Transfer-Encoding: chunked", several + "2\r\nab", false},
		{"in the last chunk", "Transfer-Encoding: chunked", several + "0", false},
		{"behind the last chunk", "Transfer-Encoding: chunked", several + "0\r\n", false},
		{"in the last line", "Transfer-Encoding: chunked", several + "0\r\n\r", false},
		{"in the trailers", "Transfer-Encoding: chunked", several + "0\r\nX-Sum: 1\r\n", false},
		{"a conversation", "X-Session-Id: s\r\nTransfer-Encoding: chunked", conversation, false},
		{"a conversation behind its last chunk", "X-Session-Id: s\r\nTransfer-Encoding: chunked", conversation + "0\r\n", false},
		{"a whole conversation", "X-Session-Id: s\r\nTransfer-Encoding: chunked", conversation + "0\r\n\r\n", true},
		{"with a length", "Content-Length: 10", "12345", false},
		{"with a large length", "Content-Length: 300000", strings.Repeat("x", 200000), false},
		{"whole, with a length", "Content-Length: 300000", strings.Repeat("x", 300000), true},
	} {
		for _, overTLSToo := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", c.name, overTLSToo), func(t *testing.T) {
				asked := make(chan int, 1)
				b := newBook()
				ro := rigOptions{memory: b.begin, upstream: answering(t, func(_ *http.Request, body []byte) string {
					asked <- len(body)
					return sized(chatAnswer)
				})}
				if overTLSToo {
					ro.list = overTLS(t)
				}
				r := start(t, ro)
				conn, _ := r.dial(t)
				if overTLSToo {
					conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
				}
				br := bufio.NewReader(conn)
				write(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"+c.head+"\r\n\r\n"+c.body)
				if !c.whole {
					closeWrite(t, conn)
				}

				resp, err := http.ReadResponse(br, nil)
				if c.whole {
					if err != nil || resp.StatusCode != 200 {
						t.Fatalf("%v %v", resp, err)
					}
					shut(resp.Body)
					await(t, asked, "request")
					return
				}
				// A client that has gone in the middle of a body need not be answered.
				if err == nil {
					wantError(t, resp, 400, "bad_request")
				}
				r.stop(t)
				if len(asked) > 0 {
					t.Errorf("upstream got a request with %d bytes", <-asked)
				}
				if len(b.calls) > 0 {
					t.Error("a turn was begun")
				}
			})
		}
	}
}

// TestAResetRequestIsNeverCompleteUpstream: as above, where the client's machine resets the connection instead of closing it.
func TestAResetRequestIsNeverCompleteUpstream(t *testing.T) {
	for _, rest := range []string{"", "0", "0\r\n", "0\r\n\r", "0\r\nX-Sum: 1\r\n"} {
		t.Run(fmt.Sprintf("%q", rest), func(t *testing.T) {
			asked := make(chan int, 1)
			r := start(t, rigOptions{upstream: answering(t, func(_ *http.Request, body []byte) string {
				asked <- len(body)
				return sized(chatAnswer)
			})})
			conn, br := r.dial(t)
			write(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n")
			if _, err := br.ReadString('\n'); err != nil { // the proxy reads the body
				t.Fatal(err)
			}
			write(conn, chunk(chatBody)+rest)
			if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
				t.Fatal(err)
			}
			shut(conn)

			r.stop(t)
			if len(asked) > 0 {
				t.Errorf("upstream got a request with %d bytes", <-asked)
			}
		})
	}
}

// TestExpectIsAnsweredInAnySpelling: a client that has asked waits for 100 Continue before it sends the body.
func TestExpectIsAnsweredInAnySpelling(t *testing.T) {
	for _, expect := range []string{"Expect: 100-continue", "expect: 100-continue", "EXPECT: 100-Continue", "eXpect:100-continue"} {
		for _, session := range []string{"", "X-Session-Id: s\r\n"} {
			t.Run(expect+" "+session, func(t *testing.T) {
				addr, requests := recording(t, sized(chatAnswer), func(string) int { return len(chatBody) })
				r := start(t, rigOptions{memory: newBook().begin, upstream: addr})
				c, br := r.dial(t)
				write(c, fmt.Sprintf("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n%s%s\r\ncontent-length: %d\r\n\r\n", session, expect, len(chatBody)))

				resp, err := http.ReadResponse(br, nil)
				if err != nil || resp.StatusCode != http.StatusContinue {
					t.Fatalf("%v %v", resp, err)
				}
				shut(resp.Body)
				write(c, chatBody)
				resp, err = http.ReadResponse(br, nil)
				if err != nil || resp.StatusCode != 200 {
					t.Fatalf("%v %v", resp, err)
				}
				shut(resp.Body)
				if got := await(t, requests, "request"); strings.Contains(strings.ToLower(got), "expect") || !strings.HasSuffix(got, chatBody) {
					t.Errorf("upstream got %s", got)
				}
			})
		}
	}
}

// TestAnEmptyChunkedBodyGoesOnWithItsLength: some servers answer 411 to a POST that says nothing of its body.
func TestAnEmptyChunkedBodyGoesOnWithItsLength(t *testing.T) {
	addr, requests := recording(t, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", noBody)
	r := start(t, rigOptions{upstream: addr})
	for _, c := range []struct{ in, want string }{
		{"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Content-Length: 0\r\n\r\n"},
		{"transfer-encoding: chunked\r\n\r\n0\r\nx: y\r\n\r\n", "Content-Length: 0\r\n\r\n"},
		{"content-length: 0\r\n\r\n", "content-length: 0\r\n\r\n"},
		{"\r\n", "\r\n"},
	} {
		r.exchange(t, "POST /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"+c.in)
		want := "POST /v1/x HTTP/1.1\r\nHost: " + addr + "\r\n" + c.want
		if diff := gocmp.Diff(want, await(t, requests, "request")); diff != "" {
			t.Error(diff)
		}
	}
}

// readHead reads the head of an answer as it is.
func readHead(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	head := ""
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, head)
		}
		head += line
	}
	return head
}

// TestAnswerHeadersKeepOrderCaseAndRepetition: the head of an answer is upstream's, byte for byte, wherever in it the line
// stands that frames the body. What the proxy says of a session comes last.
func TestAnswerHeadersKeepOrderCaseAndRepetition(t *testing.T) {
	lines := []string{
		"X-First: 1", "set-cookie: a=1", "content-type: %s", "SERVER: cloud", "Set-Cookie: b=2", "x-request-id: r", "Server: ",
		"SET-COOKIE: c=3; Path=/", "date: Thu, 01 Jan 1970 00:00:00 GMT", "!odd: kept", "~odd: kept", "X-Last: 9",
	}
	const own = "X-Session-Id: s\r\n"
	stream := strings.Join(chatEvents, "") + chatDone
	post := func(more, protocol string) string {
		return fmt.Sprintf("POST /v1/chat/completions HTTP/1.%s\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s", protocol, more, len(chatBody), chatBody)
	}
	const session = "X-Session-Id: s\r\n"
	for _, c := range []struct {
		name, request, status, contentType string
		framing, body                      string // of upstream's
		want                               string // framing line that the client gets, "" for upstream's
		end                                string // lines after upstream's
	}{
		{name: "whole", request: post("", "1"), framing: fmt.Sprintf("content-length: %d", len(chatAnswer)), body: chatAnswer},
		{name: "as most spell it", request: post("", "1"), framing: fmt.Sprintf("Content-Length: %d", len(chatAnswer)), body: chatAnswer},
		{name: "empty", request: post("", "1"), framing: "CONTENT-LENGTH: 0"},
		{name: "large", request: post("", "1"), framing: "content-length: 300000", body: strings.Repeat("x", 300000)},
		{name: "chunks", request: post("", "1"), framing: "transfer-encoding: chunked", body: chunk(chatAnswer) + chunk("")},
		{name: "a stream", request: post("", "1"), contentType: "text/event-stream", framing: "Transfer-Encoding: chunked", body: chunk(stream) + chunk("")},
		{
			name: "a stream with a length", request: post("", "1"), contentType: "text/event-stream", framing: fmt.Sprintf("content-length: %d", len(stream)), body: stream,
			want: "Transfer-Encoding: chunked",
		},
		{name: "a length that chunks overrule", request: post("", "1"), framing: "content-length: 9\r\ntransfer-encoding: chunked", body: chunk("one") + chunk(""), want: "transfer-encoding: chunked"},
		{name: "HEAD", request: "HEAD /v1/files/f HTTP/1.1\r\nHost: x\r\n\r\n", framing: "content-length: 70"},
		{name: "no content", request: "DELETE /v1/files/f HTTP/1.1\r\nHost: x\r\n\r\n", status: "204 No Content", framing: ""},
		{name: "not modified", request: "GET /v1/files/f HTTP/1.1\r\nHost: x\r\n\r\n", status: "304 Not Modified", framing: "content-length: 70"},
		{name: "an error of upstream's", request: post("", "1"), status: "429 Too Many Requests", framing: "content-length: 2", body: "{}"},
		{
			name: "HTTP/1.0", request: post("", "0"), framing: fmt.Sprintf("content-length: %d", len(chatAnswer)), body: chatAnswer,
			end: "Connection: close\r\n",
		},
		{
			name: "HTTP/1.0, kept", request: post("Connection: keep-alive\r\n", "0"), framing: fmt.Sprintf("content-length: %d", len(chatAnswer)), body: chatAnswer,
			end: "Connection: keep-alive\r\n",
		},
		{
			name: "HTTP/1.0, a stream", request: post("", "0"), contentType: "text/event-stream", framing: "Transfer-Encoding: chunked", body: chunk(stream) + chunk(""),
			want: "none", end: "Connection: close\r\n",
		},
		{name: "closing", request: post("Connection: close\r\n", "1"), framing: fmt.Sprintf("content-length: %d", len(chatAnswer)), body: chatAnswer, end: "Connection: close\r\n"},
		{name: "of a session", request: post(session, "1"), framing: fmt.Sprintf("content-length: %d", len(chatAnswer)), body: chatAnswer, end: own},
		{
			name: "of a session, chunks", request: post(session, "1"), framing: "Transfer-Encoding: chunked", body: chunk(chatAnswer) + chunk(""),
			want: fmt.Sprintf("Content-Length: %d", len(chatAnswer)), end: own,
		},
		{name: "of a session, a stream", request: post(session, "1"), contentType: "text/event-stream", framing: "transfer-encoding: chunked", body: chunk(stream) + chunk(""), end: own},
	} {
		for _, place := range []int{0, 3, len(lines)} {
			t.Run(fmt.Sprintf("%s, %d", c.name, place), func(t *testing.T) {
				head := func(framing string) string {
					all := slices.Clone(lines)
					if framing != "" {
						all = slices.Insert(all, place, framing)
					}
					return "HTTP/1.1 " + cmp.Or(c.status, "200 OK") + "\r\n" + fmt.Sprintf(strings.Join(all, "\r\n"), cmp.Or(c.contentType, "application/json")) + "\r\n"
				}
				r := start(t, rigOptions{memory: newBook().begin, upstream: answering(t, func(*http.Request, []byte) string {
					return head(c.framing) + "\r\n" + c.body
				})})
				conn, br := r.dial(t)
				write(conn, c.request)
				got := readHead(t, br)
				want := head(strings.TrimPrefix(cmp.Or(c.want, c.framing), "none")) + c.end
				if c.end == own {
					got = got[:min(len(want), len(got))] // then comes what it is about
				} else {
					want += "\r\n"
				}
				if diff := gocmp.Diff(want, got); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestAnswersOnOneConnectionKeepTheirHeads: also where the requests come at once.
func TestAnswersOnOneConnectionKeepTheirHeads(t *testing.T) {
	large := strings.Repeat("x", 100_000)
	answers := map[string]string{
		"/v1/a": "HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 3\r\nx-b: 2\r\n\r\none",
		"/v1/b": "HTTP/1.1 200 OK\r\nX-A: 1\r\nTransfer-Encoding: chunked\r\nX-B: 2\r\n\r\n" + chunk("two") + chunk(""),
		"/v1/c": "HTTP/1.1 404 Not Found\r\nX-A: 1\r\nContent-Length: 100000\r\nX-B: 2\r\n\r\n" + large,
		"/v1/d": "HTTP/1.1 200 OK\r\nX-Long: " + strings.Repeat("y", 3000) + "\r\nContent-Length: 4\r\nX-B: 2\r\n\r\nlast",
	}
	var requests, want string
	for _, path := range []string{"/v1/a", "/v1/b", "/v1/c", "/v1/a", "/v1/d"} {
		requests += "GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"
		want += answers[path]
	}
	requests += "GET /v1/a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
	want += strings.Replace(answers["/v1/a"], "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)

	r := start(t, rigOptions{upstream: answering(t, func(r *http.Request, _ []byte) string { return answers[r.URL.Path] })})
	if diff := gocmp.Diff(want, r.exchange(t, requests)); diff != "" {
		t.Error(diff)
	}
}

// TestAnswersWithoutEncodingKeepTheOtherHeaders: taking out the line of an encoding that was undone moves no other.
func TestAnswersWithoutEncodingKeepTheOtherHeaders(t *testing.T) {
	lines := "content-type: text/event-stream\r\nx-a: 1\r\nSet-Cookie: a=1\r\n%sx-b: 2\r\nserver: s\r\nx-b: 3\r\n"
	packed := gzipped(strings.Join(chatEvents, "") + chatDone)
	layers := &steerer{book: newBook(), steering: &memory.Steering{}, review: func(wire.Reply) memory.Next { return memory.Next{} }}
	r := start(t, rigOptions{memory: layers.begin, upstream: answering(t, func(*http.Request, []byte) string {
		return "HTTP/1.1 200 OK\r\n" + fmt.Sprintf(lines, "content-ENCODING: gzip\r\n") + "Transfer-Encoding: chunked\r\n\r\n" + chunk(packed) + chunk("")
	})})
	got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
	if want := "HTTP/1.1 200 OK\r\n" + fmt.Sprintf(lines, ""); !strings.HasPrefix(got, want) {
		t.Error(gocmp.Diff(want, got))
	}
	if !strings.Contains(got, "hel") {
		t.Errorf("the answer is still packed: %q", got)
	}
}

// TestHeadersOfARemoraBehindThisOneAreReplaced: clients get one X-Memory, whatever upstream says of its own.
func TestHeadersOfARemoraBehindThisOneAreReplaced(t *testing.T) {
	const theirs = "x-a: 1\r\nX-Session-Id: theirs\r\nx-turn-id: T9\r\nX-MEMORY: degraded\r\nServer-Timing: cdn;dur=1\r\nx-b: 2\r\n"
	layers := newBook()
	r := start(t, rigOptions{memory: layers.begin, upstream: answering(t, func(*http.Request, []byte) string { return sized(chatAnswer, theirs) })})
	got := r.exchange(t, chatIn("s", chatBody, "Connection: close\r\n"))
	for _, once := range []string{"x-session-id: s\r\n", "x-turn-id: t1\r\n", "x-memory: ok;"} {
		name, _, _ := strings.Cut(once, ":")
		if low := strings.ToLower(got); !strings.Contains(low, once) || strings.Count(low, "\n"+name+":") != 1 {
			t.Errorf("%s is not there, or there twice: %q", once, got)
		}
	}
	if !strings.Contains(got, "x-a: 1\r\nServer-Timing: cdn;dur=1\r\nx-b: 2\r\n") || strings.Count(got, "Server-Timing:") != 2 {
		t.Errorf("upstream's other lines: %q", got)
	}

	got = r.exchange(t, strings.Replace(chatIn("s", chatBody, "Connection: close\r\n"), "X-Session-Id: s\r\n", "", 1))
	if !strings.Contains(got, theirs) {
		t.Errorf("without a session all lines are upstream's: %q", got)
	}
}
