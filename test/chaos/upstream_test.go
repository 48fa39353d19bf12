package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	upstream429   = "upstream answers every second call with 429"
	upstream500   = "upstream answers every second call with 500"
	upstreamHang  = "upstream falls silent in every second call"
	upstreamReset = "upstream breaks every second answer off"
)

// faults is an upstream that fails the first call of every second turn, and answers its retry.
type faults struct {
	http.Handler
	fail http.HandlerFunc

	mu   sync.Mutex
	seen map[string]bool // texts that it failed
}

func (f *faults) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var ask struct{ Messages []message }
	if err == nil {
		err = json.Unmarshal(body, &ask)
	}
	if err != nil || len(ask.Messages) == 0 {
		http.Error(w, "bad body", http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if f.failing(ask.Messages[len(ask.Messages)-1].Content) {
		f.fail(w, r)
		return
	}
	f.Handler.ServeHTTP(w, r)
}

// failing reports whether the call with this text must fail. A text is client/turn/try.
func (f *faults) failing(text string) bool {
	var turn int
	parts := strings.Split(text, "/")
	if _, err := fmt.Sscan(parts[1], &turn); err != nil || turn%2 == 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key := parts[0] + "/" + parts[1]
	again := f.seen[key]
	f.seen[key] = true
	return !again
}

// failed reports whether a client's current turn has failed here.
func (f *faults) failed(c *talker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.seen[fmt.Sprintf("%s/%d", c.name, len(c.said))]
}

// half sends the beginning of an answer.
func half(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, "data: {\"id\":\"x\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"half\"}}]}\n\n")
	_ = http.NewResponseController(w).Flush()
}

// TestUpstreamFails: clients get upstream's failures unchanged, and no others. Answered turns are stored once, although clients
// retry.
func TestUpstreamFails(t *testing.T) {
	t.Parallel()
	const slowDown, broken = `{"error":{"message":"slow down","type":"rate_limit"}}`, `{"error":{"message":"broken"}}`
	refuse := func(status int, body string) (http.HandlerFunc, func(error) bool) {
		return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				_, _ = io.WriteString(w, body)
			}, func(err error) bool {
				got, ok := errors.AsType[*refusal](err)
				return ok && got.status == status && got.body == body
			}
	}
	fail429, saw429 := refuse(http.StatusTooManyRequests, slowDown)
	fail500, saw500 := refuse(http.StatusInternalServerError, broken)
	cut := func(err error) bool {
		_, answered := errors.AsType[*refusal](err)
		return !answered
	}
	for _, c := range []struct {
		scenario string
		turns    int
		limit    time.Duration // of upstream's silence
		fail     http.HandlerFunc
		saw      func(error) bool
	}{
		{upstream429, scale(6, 20), callLimit, fail429, saw429},
		{upstream500, scale(6, 20), callLimit, fail500, saw500},
		// With few cores the limit must be long, so there are few of these failures.
		{upstreamHang, scale(4, 20), time.Duration(scale(20, 3)) * time.Second, func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.Header.Get("X-Session-Id"), "0") {
				half(w) // in the middle of an answer; else before it
			}
			<-r.Context().Done()
		}, func(err error) bool { // a stream that ends early, or Remora's word for it
			got, answered := errors.AsType[*refusal](err)
			return !answered || got.status == http.StatusGatewayTimeout && strings.Contains(got.body, `"proxy_error"`)
		}},
		{upstreamReset, scale(6, 20), callLimit, func(w http.ResponseWriter, _ *http.Request) {
			half(w)
			panic(http.ErrAbortHandler)
		}, cut},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			t.Parallel()
			f := &faults{Handler: newUpstream(t, atOnce).Config.Handler, fail: c.fail, seen: map[string]bool{}}
			up := httptest.NewServer(f)
			t.Cleanup(up.Close)
			fl := newFleet(t, 1, config(up.URL, "bolt:remora.db",
				fmt.Sprintf("server: {upstream: {response_header_timeout: %[1]s, stream_idle_timeout: %[1]s}}", c.limit)))
			clients := newCrowd(fl, 12)
			clients.excused = func(client *talker, err error) bool { return f.failed(client) && c.saw(err) }
			clients.talk(c.turns)
			fl.drained()
			fl.stop()
			clients.finish(c.scenario, openArchive(t, fl.replicas[0].Dir, "bolt:remora.db"))
		})
	}
}
