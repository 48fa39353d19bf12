package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/test/kit"
)

// TestSessionIsCompleted: an operator completes a child session, and its parent session gets what the child has learned.
func TestSessionIsCompleted(t *testing.T) {
	t.Parallel()
	up := startUpstream(t)
	address := kit.FreeAddr(t)
	d := &workspace{t: t, dir: t.TempDir()}
	d.start(fmt.Sprintf(`
server: {admin_listen: %q, admin_token: an-operators-token}
providers: [{name: up, kind: compatible, base_url: %q}]
memory: {layers: [{kind: task_state, id: task}]}
`, address, up.URL()+"/v1"))
	post := func(session, token, body string) int {
		t.Helper()
		url := "http://" + address + "/admin/v1/sessions/" + session + "/complete"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		if text, err := io.ReadAll(res.Body); err != nil || strings.Contains(string(text), "key-a") {
			t.Errorf("%v, %s", err, text)
		}
		return res.StatusCode
	}
	const key = "Authorization: Bearer key-a"
	d.say("chat/completions", chat("user: SAY Hello."), "X-Session-Id: parent", key)
	d.say("chat/completions", chat(`user: CALL task_recordArtifact {"path":"found.txt"} | theirs {}`),
		"X-Session-Id: the/child", "X-Parent-Session-Id: parent", key)
	shown := func(session string) string {
		d.say("chat/completions", chat("user: SAY And?"), "X-Session-Id: "+session, key)
		all := up.Requests()
		return string(all[len(all)-1].Body)
	}
	if strings.Contains(shown("parent"), "found.txt") {
		t.Error("the parent knows before the child has ended")
	}
	for _, c := range []struct {
		session, token, body string
		want                 int
	}{
		{"the%2Fchild", "wrong", `{"key":"key-a"}`, http.StatusUnauthorized},
		{"the%2Fchild", "an-operators-token", `{"key":"key-b"}`, http.StatusNotFound},
		{"the%2Fchild", "an-operators-token", ``, http.StatusNotFound}, // of callers without a credential
		{"child", "an-operators-token", `{"key":"key-a"}`, http.StatusNotFound},
		{"the%2Fchild", "an-operators-token", `{"keys":"key-a"}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":"key-a","tenant":"00"}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":["key-a",1]}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"tenant":"00"}`, http.StatusNotFound},
		{"the%2Fchild", "an-operators-token", `{"key":"","tenant":"00"}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":""}`, http.StatusBadRequest}, // as from a variable that is not set
		{"the%2Fchild", "an-operators-token", `{"key":null}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":[]}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":["key-a",""]}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"tenant":""}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"tenant":null}`, http.StatusBadRequest},
		{"the%2Fchild", "an-operators-token", `{"key":["key-a","key-b"]}`, http.StatusNotFound},
		{"the%2Fchild", "an-operators-token", `{"key":["key-a"],"success":true}`, http.StatusNoContent},
	} {
		if got := post(c.session, c.token, c.body); got != c.want {
			t.Errorf("%s with %s: %d, want %d", c.session, c.body, got, c.want)
		}
	}
	if body := shown("parent"); !strings.Contains(body, "found.txt") {
		t.Errorf("the parent learnt nothing: %s", body)
	}
	if strings.Contains(d.proxy.Log(), "key-a") {
		t.Error("the log holds a key")
	}
}
