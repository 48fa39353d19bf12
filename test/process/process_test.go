package process

import (
	"strings"
	"testing"
)

// TestGreetingIsFound: the origin is found when its line is complete, in whatever pieces it arrives and however long the log is.
func TestGreetingIsFound(t *testing.T) {
	l := NewLog()
	write := func(s string) { _, _ = l.Write([]byte(s)) }
	write(strings.Repeat("x", maxLog) + "\nanother line\n" + strings.Repeat("y", maxLog))
	write("remora listens o")
	write("n http://127.0.0.1:80")
	select {
	case at := <-l.Listens():
		t.Fatalf("%s is found before its line is complete", at)
	default:
	}
	write("80/v1\nlistens on http://other\n")
	if at := <-l.Listens(); at != "http://127.0.0.1:8080" {
		t.Errorf("found %s", at)
	}
	if log := l.String(); len(log) != maxLog || !strings.HasSuffix(log, "http://other\n") {
		t.Errorf("the log has %d bytes", len(log))
	}
}
