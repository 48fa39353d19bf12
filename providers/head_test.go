package providers

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func crlf(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") }

// TestHead reads heads that go on to the client. Lines end in CR LF, unless they say otherwise.
func TestHead(t *testing.T) {
	t.Parallel()
	f := func(name, raw, want string, wantLength int, wantKeep bool) {
		t.Helper()
		var h Head
		keep, err := h.Read([]byte(crlf(raw)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if diff := cmp.Diff(crlf(want), string(h.Lines())); diff != "" {
			t.Errorf("%s:\n%s", name, diff)
		}
		if n, told := h.Length(); n != wantLength || told != (wantLength != -2) || keep != wantKeep {
			t.Errorf("%s: length %d, told %v, keep %v", name, n, told, keep)
		}
	}
	const ok = "HTTP/1.1 200 OK\n"
	f("as it came", ok+"a: b\nContent-Type: c; d=e\nA: \n\n", ok+"a: b\nContent-Type: c; d=e\nA: \n", -2, true)
	f("the lines that frame the body", ok+"A: b\ncontent-length: 4\nB: c\n\n", ok+"A: b\nB: c\n", 4, true)
	f("chunks win", ok+"Content-Length: 4\nTransfer-Encoding: Chunked\n\n", ok, -1, true)
	f("chunks come first", ok+"Transfer-Encoding: chunked\nContent-Length: 4\n\n", ok, -1, true)
	f("another form", ok+"A:b\nC :  d \t\n\n", ok+"A: b\nC: d\n", -2, true)
	f("no reason", "HTTP/1.1 200\n\n", "HTTP/1.1 200\n", -2, true)
	f("spaces before the status", "HTTP/1.1   404 Not  Found\n\n", "HTTP/1.1 404 Not  Found\n", -2, true)
	f("folded", ok+"A: b\n  c\n\td\nE: f\n\n", ok+"A: b c d\nE: f\n", -2, true)
	f("letters of other alphabets", ok+"A: \u00e9\u5bc6\tb\n\n", ok+"A: \u00e9\u5bc6\tb\n", -2, true)
	f("left over", "\n"+ok+"A: b\n\n", ok+"A: b\n", -2, true)
	f("the connection closes", ok+"Connection: close, X-Y\nx-y: 1\nA: b\n\n", ok+"A: b\n", -2, false)
	f("1.0", "HTTP/1.0 200 OK\nA: b\n\n", ok+"A: b\n", -2, false)
	f("1.0, kept", "HTTP/1.0 200 OK\nConnection: Keep-Alive\nKeep-Alive: 3\n\n", ok, -2, true)
	f("close wins", ok+"Connection: close, keep-alive\nConnection: keep-alive\n\n", ok, -2, false)
	f("what frames the body can't be listed away", ok+"connection: content-length, transfer-encoding\ncontent-length: 4\n\n", ok, 4, true)
	f("the connection", ok+"Upgrade: h2\n folded\nTrailer: X\nTE: x\nProxy-Connection: y\nZ: 1\n\n", ok+"Z: 1\n", -2, true)
	f("another protocol", "HTTP/1.1 101 Switching\nConnection: Upgrade\nUpgrade: x\n\n", "HTTP/1.1 101 Switching\nConnection: Upgrade\nUpgrade: x\n", -2, false)

	var h Head // lines end in CR LF from here on, whatever upstream writes
	if _, err := h.Read([]byte("HTTP/1.1 200 OK\nA: b\nC: d\r\n\r\n")); err != nil || string(h.Lines()) != crlf(ok+"A: b\nC: d\n") {
		t.Errorf("%q %v", h.Lines(), err)
	}
	if _, err := h.Read([]byte("HTTP/1.1 200 OK\r\nA: b\n\n")); !errors.Is(err, ErrMalformed) {
		t.Errorf("an empty line without CR: %v", err)
	}
}

// TestHeadsThatAreRefused: fasthttp or net/http would have taken some of them.
func TestHeadsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"220 hello\n\n", "\n\n", "HTTP/1.1 20 OK\n\n", "HTTP/1.1 2000 OK\n\n", "HTTP/1.1 099 OK\n\n", "HTTP/1.1 -20 OK\n\n", "HTTP/1.1200 OK\n\n",
		"HTTP/1.1 200 OK\nA\n\n", "HTTP/1.1 200 OK\n: b\n\n", "HTTP/1.1 200 OK\n A: b\n\n", "HTTP/1.1 200 OK\nA: b\x00\n\n",
		"HTTP/1.1 200 OK\nA: b\rContent-Length: 5\n\n", "HTTP/1.1 200 O\x7fK\n\n", "HTTP/1.1 200 OK\nA\x0b: b\n\n",
		"HTTP/1.1 200 OK\nContent-Length: 4\nContent-Length: 4\n\n", "HTTP/1.1 200 OK\nContent-Length: +4\n\n", "HTTP/1.1 200 OK\nContent-Length: 4, 4\n\n",
		"HTTP/1.1 200 OK\nContent-Length: \n\n", "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999\n\n",
		"HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked\n\n", "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n",
	} {
		var h Head
		if _, err := h.Read([]byte(crlf(raw))); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestHeadChanges(t *testing.T) {
	t.Parallel()
	const raw = "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Encoding: gzip\r\nx-a: 2\r\ncontent-encoding: br\r\nX-AB: 3\r\ncontent-length: 5\r\nContent-Type: t\r\n\r\n"
	var h, other Head
	if _, err := h.Read([]byte(raw)); err != nil {
		t.Fatal(err)
	}
	other.Copy(&h)
	if got := string(h.ContentEncoding()) + " " + string(h.ContentType()); got != "gzip, br t" {
		t.Error(got)
	}
	for names, want := range map[string]string{
		"x-a content-encoding":  "HTTP/1.1 200 OK\r\nX-AB: 3\r\ncontent-length: 7\r\nContent-Type: t\r\nOwn: 1\r\n\r\n",
		"content-type":          "HTTP/1.1 200 OK\r\nX-A: 1\r\nContent-Encoding: gzip\r\nx-a: 2\r\ncontent-encoding: br\r\nX-AB: 3\r\ncontent-length: 7\r\nOwn: 1\r\n\r\n",
		"x content content-len": strings.Replace(raw[:len(raw)-2], "length: 5", "length: 7", 1) + "Own: 1\r\n\r\n",
	} {
		h.Copy(&other)
		h.Drop(strings.Fields(names)...)
		const own = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\nOwn: 1\r\n\r\n"
		got, end := h.Join(nil, []byte(own+"body"))
		if diff := cmp.Diff(want, string(got)); diff != "" || end != len(own) {
			t.Errorf("%s: up to %d\n%s", names, end, diff)
		}
		if dropped := strings.Contains(names, "encoding"); dropped != (len(h.ContentEncoding()) == 0) {
			t.Errorf("%s: %q", names, h.ContentEncoding())
		}
	}
	h.Copy(&other)
	h.Add("X-Own", "1")
	h.AddBytes("x-last", []byte("2"))
	h.Replace("x-own", []byte("longer"))
	if got := string(h.Lines()); !strings.HasSuffix(got, "t\r\nX-Own: longer\r\nx-last: 2\r\n") {
		t.Errorf("added: %q", got)
	}
	h.Reset()
	h.Add("X-Own", "1")
	if got, _ := h.Join(nil, []byte("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n")); string(got) != "HTTP/1.1 503 No\r\nContent-Length: 0\r\nX-Own: 1\r\n\r\n" {
		t.Errorf("the proxy's own answer: %q", got)
	}
	h.Reset()
	if h.Status() != 0 || len(h.Lines()) != 0 || string(other.ContentType()) != "t" {
		t.Errorf("%+v", h)
	}
}

// FuzzHead: a head that is taken can be read by others, and says the same to them.
func FuzzHead(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nConnection: close, X\r\nX: 1\r\n folded\r\nContent-Length: 3\r\n\r\nabc"))
	f.Add([]byte("HTTP/1.0 200 OK\nConnection:\n\n"))
	f.Add(upstreamHead)
	f.Fuzz(func(t *testing.T, data []byte) {
		n := headEnd(data, 0)
		if n == 0 {
			return
		}
		before := bytes.Clone(data)
		var h Head
		_, err := h.Read(data[:n])
		if !bytes.Equal(before, data) {
			t.Fatal("the bytes were changed")
		}
		if err != nil {
			return
		}
		head, end := h.Join(nil, []byte("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
		for line := range bytes.SplitSeq(head, []byte("\n")) {
			if len(line) > 0 && (line[len(line)-1] != '\r' || isBlank(line[0])) {
				t.Fatalf("line %q of %q", line, head)
			}
		}
		if end != len("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") {
			t.Fatal(end)
		}
		for name := range h.All() {
			if !isToken(name) {
				return // upstream's, as it came
			}
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
		if err != nil {
			t.Fatalf("%q: %v", head, err)
		}
		if resp.StatusCode != h.Status() {
			t.Errorf("%q: status %d, read as %d", head, resp.StatusCode, h.Status())
		}
	})
}

// isToken reports whether a name is one that all servers and clients take.
func isToken(name []byte) bool {
	return len(bytes.TrimLeft(bytes.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-_")) == 0
}
