package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"remora/providers"
)

// sentTo starts a proxy with these prompt cache options. ask sends a request and returns the body that upstream got,
// with its Content-Encoding.
func sentTo(t *testing.T, key, marks bool) (ask func(in string) (body, encoding string)) {
	t.Helper()
	bodies, encodings := make(chan string, 1), make(chan string, 1)
	addr := answering(t, func(req *http.Request, body []byte) string {
		bodies <- string(body)
		encodings <- req.Header.Get("Content-Encoding")
		return sized(chatAnswer)
	})
	r := start(t, rigOptions{
		upstream: addr, memory: newBook().begin,
		provider: func(o *providers.Options) { o.PromptCacheKey, o.CacheControl = key, marks },
		tune:     func(o *Options) { o.Session.Key = "the same on all replicas" },
	})
	return func(in string) (string, string) {
		t.Helper()
		if got := r.exchange(t, strings.Replace(in, "\r\n", "\r\nConnection: close\r\n", 1)); !strings.Contains(got, "hello") {
			t.Fatalf("the answer to %q: %q", in, got)
		}
		return await(t, bodies, "request"), await(t, encodings, "request")
	}
}

func responsesIn(session, body string) string {
	return strings.Replace(chatIn(session, body), "chat/completions", "responses", 1)
}

// TestPromptCacheKey: what names a session to the provider is the same on every replica, another one for every session and
// tenant, and tells neither. It is added after all else, and never where the client has its own.
func TestPromptCacheKey(t *testing.T) {
	ask, replica, off := sentTo(t, true, false), sentTo(t, true, false), sentTo(t, false, false)
	const responsesBody = `{"model":"m","input":"hi" }` + "\n"
	keyed := func(body, key string) string {
		end := strings.LastIndexByte(strings.TrimRight(body, " }\n"), '"') + 1
		if strings.HasSuffix(body, "1.0}") {
			end = len(body) - 1
		}
		return body[:end] + `,"prompt_cache_key":"` + key + `"` + body[end:]
	}
	names := regexp.MustCompile(`"prompt_cache_key":"([0-9a-f]{32})"`)
	seen := make(map[string]string)
	for _, c := range []struct{ who, in, body string }{
		{"chat", chatIn("s", chatBody), chatBody},
		{"another session", chatIn("s2", chatBody), chatBody},
		{"another tenant", strings.Replace(chatIn("s", chatBody), "Bearer k", "Bearer k2", 1), chatBody},
		{"responses", responsesIn("s3", responsesBody), responsesBody},
	} {
		got, _ := ask(c.in)
		m := names.FindStringSubmatch(got)
		if m == nil {
			t.Fatalf("%s: no key in %s", c.who, got)
		}
		if d := cmp.Diff(keyed(c.body, m[1]), got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.who, d)
		}
		if other, taken := seen[m[1]]; taken {
			t.Errorf("%s has the key of %s", c.who, other)
		}
		seen[m[1]] = c.who
		if again, _ := replica(c.in); again != got {
			t.Errorf("%s: a replica sends %s, not %s", c.who, again, got)
		}
		if plain, _ := off(c.in); plain != c.body {
			t.Errorf("%s, with the option off: %s", c.who, plain)
		}
	}
	for name, own := range map[string]string{
		"the client's key": strings.Replace(chatBody, `"x"`, `"prompt_cache_key":"mine","x"`, 1),
		"null":             strings.Replace(chatBody, `"x"`, `"prompt_cache_key":null,"x"`, 1),
	} {
		if got, _ := ask(chatIn("s", own)); got != own {
			t.Errorf("%s: %s becomes %s", name, own, got)
		}
	}
	none := strings.Replace(chatIn("s", chatBody), "X-Session-Id: s\r\n", "", 1)
	if got, _ := ask(none); got != chatBody {
		t.Errorf("without a session: %s", got)
	}
	if got, _ := ask(chatIn("s", chatBody, "X-Memory: off\r\n")); got != chatBody {
		t.Errorf("with memory off: %s", got)
	}
}

// TestCacheControl: breakpoints are put into Chat Completions of a session alone.
func TestCacheControl(t *testing.T) {
	ask := sentTo(t, false, true)
	want := strings.Replace(chatBody, `"hi"`, `[{"type":"text","text":"hi","cache_control":{"type":"ephemeral"}}]`, 1)
	if got, _ := ask(chatIn("s", chatBody)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got, _ := ask(strings.Replace(chatIn("s", chatBody), "X-Session-Id: s\r\n", "", 1)); got != chatBody {
		t.Errorf("without a session: %s", got)
	}
	responsesBody := `{"model":"m","input":[{"role":"user","content":"hi"}]}`
	if got, _ := ask(responsesIn("s", responsesBody)); got != responsesBody {
		t.Errorf("Responses: %s", got)
	}
}

// TestDressedBodyIsPlain: a compressed body goes decoded if something is added to it, and else as it came.
func TestDressedBodyIsPlain(t *testing.T) {
	ask := sentTo(t, true, true)
	own := `{"model":"m","prompt_cache_key":"mine","messages":[{"role":"assistant","content":"hi"}]}`
	for _, c := range []struct{ name, body, encoding string }{{"added", chatBody, ""}, {"nothing", own, "gzip"}} {
		packed := pack(t, c.body)
		got, encoding := ask(chatIn("s", packed, "Content-Encoding: gzip\r\n"))
		if encoding != c.encoding || (got == packed) != (c.encoding != "") {
			t.Errorf("%s: Content-Encoding %q, want %q: %q", c.name, encoding, c.encoding, got)
		}
		if c.encoding == "" && !strings.Contains(got, `"prompt_cache_key":"`) {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	if got, _ := ask(chatIn("s", pack(t, chatBody), "Content-Encoding: gzip\r\n", "Content-Encoding: identity\r\n")); !strings.Contains(got, `"prompt_cache_key":"`) {
		t.Errorf("beside identity: %s", got)
	}
}

func pack(t *testing.T, body string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestToollessCompressed: a compressed request that is sent again without layers' tools is the client's own again, and
// says so.
func TestToollessCompressed(t *testing.T) {
	packed := pack(t, chatBody)
	addr := answering(t, func(req *http.Request, body []byte) string {
		if strings.Contains(string(body), "mem_x") {
			return "HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nno tools!"
		}
		if encoding := req.Header.Get("Content-Encoding"); string(body) != packed || encoding != "gzip" {
			return sized(fmt.Sprintf("Content-Encoding %q: %q", encoding, body))
		}
		return sized(chatAnswer)
	})
	m := &steerer{book: newBook(), tools: [][]byte{[]byte(`{"type":"function","function":{"name":"mem_x"}}`)}}
	r := start(t, rigOptions{upstream: addr, memory: m.begin})
	if got := r.exchange(t, chatIn("s", packed, "Content-Encoding: gzip\r\n", "Connection: close\r\n")); !strings.Contains(got, "hello") {
		t.Error(got)
	}
}
