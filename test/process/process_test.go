package process

import (
	"strings"
	"testing"
)

// TestOriginIsFound: the origin is found when its line is complete, in whatever pieces it arrives and however long the log is.
func TestOriginIsFound(t *testing.T) {
	const other = `{"msg":"started","url":"http://other/v1"}` + "\n"
	l := NewLog()
	write := func(s string) { _, _ = l.Write([]byte(s)) }
	write(strings.Repeat("x", maxLog) + "\nanother line\n" + strings.Repeat("y", maxLog))
	write(`{"msg":"started","version":"(1, go)","ur`)
	write(`l":"http://127.0.0.1:80`)
	select {
	case at := <-l.Listens():
		t.Fatalf("%s is found before its line is complete", at)
	default:
	}
	write("80/v1\"}\n" + other)
	if at := <-l.Listens(); at != "http://127.0.0.1:8080" {
		t.Errorf("found %s", at)
	}
	if log := l.String(); len(log) != maxLog || !strings.HasSuffix(log, other) {
		t.Errorf("the log has %d bytes", len(log))
	}
}
