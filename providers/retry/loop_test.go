package retry_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/providers"
	"remora/providers/retry"
)

// call is the loop as a proxy has it.
func call(c *providers.Client, x *providers.Exchange, p *retry.Plan, body []byte, h *providers.Head) error {
	a, err := p.Begin()
	if err != nil {
		return err
	}
	for {
		send := body
		if a.Model != "" {
			if send, err = retry.WithModel(body, a.Model); err != nil {
				return err
			}
		}
		head := fmt.Sprintf("POST /v1/responses HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n", len(send))
		err := c.Send(x, a.Provider.Address(), []byte(head), send, h)
		next, again := p.Next(retry.Outcome{Err: err, Head: h})
		if !again {
			return err
		}
		if err := x.Again(next.Delay); err != nil {
			return err
		}
		a = next
		h.Reset()
	}
}

// TestLoop runs the loop against real connections: a does not listen, b is busy twice, and then answers.
func TestLoop(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if got = append(got, string(body)); len(got) < 3 {
			w.Header().Set("Retry-After-Ms", "2")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, "hello")
	}))
	defer s.Close()
	list := three(retry.Options{
		Retry:    retry.Retry{Attempts: 2, BaseDelay: time.Millisecond},
		Fallback: []retry.Target{{Provider: "b", Model: "other"}},
	})
	list[0].Provider.BaseURL, list[1].Provider.BaseURL = "http://127.0.0.1:1/v1", s.URL+"/v1"
	list[1].Resilience.Retry = retry.Retry{Attempts: 3, BaseDelay: time.Millisecond}
	o := providers.ClientOptions{MaxIdleConns: 8}
	o.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil } //nolint:nilnil // no proxy
	c := providers.NewClient(o)
	defer c.Close()

	b := setUp(t, list, nil)
	p := b.plan()
	var x providers.Exchange
	defer x.Close()
	sent := 0
	x.Sent = func() { sent++ }
	var h providers.Head
	if err := call(c, &x, &p, []byte(`{"model":"m","input":"i"}`), &h); err != nil || h.Status() != http.StatusOK {
		t.Fatal(err, h.Status())
	}
	if body, err := x.Next(); string(body) != "hello" || err != nil {
		t.Errorf("%q %v", body, err)
	}
	if diff := cmp.Diff(strings.Repeat(`{"model":"other","input":"i"} `, 3), strings.Join(got, " ")+" "); diff != "" || sent != 1 {
		t.Error(diff, sent)
	}

	// A client that goes away ends the wait.
	list[0].Resilience.Retry = retry.Retry{Attempts: 2, BaseDelay: time.Hour, MaxDelay: time.Hour}
	p = setUp(t, list, nil).plan()
	var y providers.Exchange
	defer y.Close()
	done := make(chan error)
	go func() { done <- call(c, &y, &p, []byte(`{}`), &h) }()
	y.Abort()
	if err := <-done; !errors.Is(err, providers.ErrAborted) {
		t.Error(err)
	}
}
