package golden

import (
	"strings"
	"testing"
)

// TestLateRequestsFail: a request after the client has its answer, such as one of a layer's model, counts for its turn: the next
// turn and the end of the proxy find it.
func TestLateRequestsFail(t *testing.T) {
	u := newUpstream("")
	if err := u.expect("one", []*message{{}}); err != nil {
		t.Fatal(err)
	}
	u.take(received{})
	u.given()
	if got, err := u.settled(); err != nil || len(got) != 1 {
		t.Fatalf("%d requests, %v", len(got), err)
	}
	u.take(received{start: "POST /late HTTP/1.1"})
	u.given()
	if err := u.expect("two", nil); err == nil || !strings.HasPrefix(err.Error(), "one: upstream was asked 2 times") || !strings.Contains(err.Error(), "/late") {
		t.Errorf("a late request: %v", err)
	}
	if err := u.expect("", nil); err != nil {
		t.Errorf("it is found twice: %v", err)
	}
}
