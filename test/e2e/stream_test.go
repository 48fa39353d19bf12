package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"remora/test/scripted"
)

// TestStreamsAreLive stalls upstream after each of its events in turn: the client must already have all earlier events. With a
// session, only the terminal event waits for the commit.
func TestStreamsAreLive(t *testing.T) {
	up := startUpstream(t, scripted.Options{})
	p := startProxy(t, setup{upstream: up.URL()})
	client := &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}
	t.Cleanup(client.CloseIdleConnections)
	for _, dialect := range []struct{ name, path, body string }{
		{"chat", "/v1/chat/completions", `{"model":"m","stream":true,"messages":[{"role":"user","content":"REASON think ;; SAY a b c d e f g ;; CALL f {\"a\":1}"}]}`},
		{"responses", "/v1/responses", `{"model":"m","stream":true,"input":"REASON think ;; SAY a b c d e f g ;; CALL f {\"a\":1}"}`},
	} {
		for _, session := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/session=%v", dialect.name, session), func(t *testing.T) {
				up.Reset()
				whole := post(t, client, up.URL()+dialect.path, dialect.body, nil)
				want, err := io.ReadAll(whole.Body)
				if err != nil {
					t.Fatal(err)
				}
				events := bytes.Count(want, []byte("\n\n"))
				for n := range events {
					up.Reset()
					header := http.Header{"X-Script": {fmt.Sprintf("stall-after=%d", n)}}
					if session {
						header.Set("X-Session-Id", fmt.Sprintf("%s %d", dialect.name, n))
					}
					res := post(t, client, p.URL+dialect.path, dialect.body, header)
					got := readEvents(t, res.Body, n)
					stalled(t, up, n)
					letGo(t.Context(), t, up)
					rest, err := io.ReadAll(res.Body)
					if err != nil {
						t.Errorf("the rest after %d events: %v", n, err)
					}
					if got = append(got, rest...); !bytes.Equal(got, want) {
						t.Errorf("the stream that stalled after %d events is not the upstream's:\n%q\nwant\n%q", n, got, want)
					}
				}
			})
		}
	}
}

// TestSDKsSeeLiveStreams does the same with the SDKs for node, which release upstream after the first events.
func TestSDKsSeeLiveStreams(t *testing.T) {
	up := startUpstream(t, scripted.Options{})
	control := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		letGo(r.Context(), t, up)
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(control.Close)
	p := startProxy(t, setup{upstream: up.URL()})
	for _, session := range []bool{false, true} {
		records := runNode(t, nodeOptions{
			BaseURL: p.URL + "/v1", Session: session, Control: control.URL, Only: []string{"live.chat", "live.responses", "live.aisdk"},
		})
		if len(records) != 3 {
			t.Errorf("ran %d scenarios, want 3", len(records))
		}
		for name, r := range records {
			if n, _ := r.Result.(float64); r.Thrown != nil || n < 4 {
				t.Errorf("%s, session %v: %v events, %v", name, session, r.Result, r.Thrown)
			}
		}
	}
}

// TestAbortedStreamIsKept aborts a stream: upstream must notice, and the received part stays in the transcript, marked as
// aborted.
func TestAbortedStreamIsKept(t *testing.T) {
	up := startUpstream(t, scripted.Options{})
	p := startProxy(t, setup{upstream: up.URL()})
	client := &http.Client{Transport: &http.Transport{}, Timeout: waitLimit}
	t.Cleanup(client.CloseIdleConnections)
	res := post(t, client, p.URL+"/v1/chat/completions",
		`{"model":"m","stream":true,"messages":[{"role":"user","content":"SAY a b c d e f g h i"}]}`,
		http.Header{"X-Script": {"stall-after=3"}, "X-Session-Id": {"aborted"}})
	readEvents(t, res.Body, 3)
	_ = res.Body.Close() // this is the abort
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	if _, err := up.Await(ctx, func(r scripted.Recorded) bool { return r.End == scripted.ClientGone }); err != nil {
		t.Fatalf("upstream does not learn that the client has gone: %v", err)
	}
	p.Stop()
	var got []string
	for _, it := range p.transcript(t, "aborted") {
		for _, f := range facts(t, it.JSON) {
			got = append(got, fmt.Sprintf("%s partial=%v", f, it.Partial))
		}
	}
	if want := "user SAY a b c d e f g h i partial=false\nassistant a b c d e f  partial=true"; strings.Join(got, "\n") != want {
		t.Errorf("the transcript is %q, want %q", strings.Join(got, "\n"), want)
	}
}

func post(t *testing.T, client *http.Client, url, body string, header http.Header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(req.Header, header)
	req.Header.Set("Authorization", "Bearer "+credential)
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() }) // read completely, or aborted on purpose
	if res.StatusCode != http.StatusOK {
		t.Fatalf("status %s", res.Status)
	}
	return res
}

// readEvents reads exactly n events.
func readEvents(t *testing.T, r io.Reader, n int) []byte {
	t.Helper()
	var got []byte
	var b [1]byte
	for bytes.Count(got, []byte("\n\n")) < n {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			t.Fatalf("event %d of %d does not come while upstream stalls: %v", bytes.Count(got, []byte("\n\n"))+1, n, err)
		}
		got = append(got, b[0])
	}
	return got
}

// stalled waits until upstream's newest request is open with n events: it counts an event shortly after sending it.
func stalled(t *testing.T, up *scripted.Server, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	seq := last(t, up).Seq
	r, err := up.Await(ctx, func(r scripted.Recorded) bool { return r.Seq == seq && r.Events >= n })
	if err != nil || r.Events != n || r.End != scripted.Open {
		t.Errorf("upstream does not stall after %d events: %d, %s, %v", n, r.Events, r.End, err)
	}
}

func last(t *testing.T, up *scripted.Server) scripted.Recorded {
	t.Helper()
	all := up.Requests()
	if len(all) == 0 {
		t.Fatal("upstream got no request")
	}
	return all[len(all)-1]
}

// letGo releases upstream's newest request until it ends. A single Release may come before the stall: the client gets an event
// shortly before that.
func letGo(ctx context.Context, t *testing.T, up *scripted.Server) {
	t.Helper()
	seq := last(t, up).Seq
	ended := func(r scripted.Recorded) bool { return r.Seq == seq && r.End != scripted.Open }
	for deadline := time.Now().Add(waitLimit); time.Now().Before(deadline); {
		up.Release()
		moment, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
		_, err := up.Await(moment, ended)
		cancel()
		if err == nil {
			return
		}
	}
	t.Errorf("upstream does not end request %d", seq)
}
