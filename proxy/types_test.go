package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"remora/memory"
)

// TestWholeAnswerOfAStreamsType: some gateways say text/event-stream of every answer. It is stored, whether the client has asked for
// a stream or not, and reaches it unchanged.
func TestWholeAnswerOfAStreamsType(t *testing.T) {
	for _, body := range []string{chatBody, liveChat} {
		for _, pieces := range [][]string{{chatAnswer}, {"\n", " \n" + chatAnswer[:1], chatAnswer[1:30], chatAnswer[30:] + "\n"}} {
			t.Run(fmt.Sprint(body == liveChat, len(pieces)), func(t *testing.T) {
				addr, next := speaking(t, eventHead)
				b := newBook()
				r := start(t, rigOptions{upstream: addr, memory: b.begin})
				c, br := r.dial(t)
				write(c, chatIn("s", body))
				for _, piece := range pieces {
					next <- chunk(piece)
				}
				next <- "0\r\n\r\n"
				close(next)
				resp, err := http.ReadResponse(br, nil)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := io.ReadAll(resp.Body); string(got) != strings.Join(pieces, "") || err != nil {
					t.Errorf("the client got %q, %v", got, err)
				}
				if got := resp.Header.Get("X-Memory"); !strings.HasPrefix(got, "ok;") {
					t.Errorf("X-Memory: %s", got)
				}
				got := await(t, b.answers, "commit")
				if got.Aborted != memory.NotAborted || !got.Reply.Complete || textOf(t, got.Reply) != "hello" {
					t.Errorf("answer %+v", got)
				}
			})
		}
	}
}

// TestStreamOfAWrongTypeBehindBlankLines: the events reach the client as they come.
func TestStreamOfAWrongTypeBehindBlankLines(t *testing.T) {
	addr, next := speaking(t, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
	b := newBook()
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	c, br := r.dial(t)
	write(c, chatIn("s", liveChat))
	for _, piece := range []string{"\n", "\n\r\n", chatEvents[0]} {
		next <- chunk(piece)
	}
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	begun := make([]byte, len("\n\n\r\n"+chatEvents[0]))
	if _, err := io.ReadFull(resp.Body, begun); err != nil || string(begun) != "\n\n\r\n"+chatEvents[0] {
		t.Fatalf("the client got %q, %v", begun, err)
	}
	for _, event := range append(chatEvents[1:], chatDone) {
		next <- chunk(event)
	}
	next <- "0\r\n\r\n"
	close(next)
	drain(resp.Body)
	if got := await(t, b.answers, "commit"); !got.Reply.Complete || textOf(t, got.Reply) != "hello" {
		t.Errorf("answer %+v", got)
	}
}
