package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/memory"
)

// TestManyClientsLeaveAtAnyMoment runs clients that read their answers, break off or send rubbish, on reused
// connections, with and without sessions. Every turn that began has to end once, nothing may be left behind, and no client
// may see another one's answer.
func TestManyClientsLeaveAtAnyMoment(t *testing.T) {
	addr := upstream(t, func(c net.Conn, r *bufio.Reader) {
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			tag := req.Header.Get("X-Tag")
			switch rand.IntN(4) {
			case 0:
				write(c, sized(fmt.Sprintf(`{"tag":%q,"size":%d}`, tag, len(body))))
			case 1:
				write(c, eventHead)
				for range 20 {
					write(c, chunk("data: "+tag+"\n\n"))
				}
				write(c, chunk(chatDone)+"0\r\n\r\n")
			case 2:
				write(c, eventHead+chunk("data: "+tag+"\n\n"))
				time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond) // long enough to be watched
				write(c, chunk(chatDone)+"0\r\n\r\n")
			default:
				write(c, eventHead+chunk("data: "+tag+"\n\n"))
				return // cut
			}
		}
	})
	b := newBook()
	b.calls, b.answers, b.turns = make(chan memory.Call, 1e5), make(chan memory.Answer, 1e5), make(chan *fakeTurn, 1e5)
	r := start(t, rigOptions{upstream: addr, memory: b.begin})
	var wg sync.WaitGroup
	for worker := range 32 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			for n := range 15 {
				c, err := net.Dial("tcp", r.addr)
				if err != nil {
					t.Error(err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(waitLimit))
				br := bufio.NewReader(c)
				for m := range 4 {
					tag := fmt.Sprintf("t%d-%d-%d.", worker, n, m)
					session := ""
					if rng.IntN(2) == 0 {
						session = tag
					}
					write(c, chatIn(session, chatBody, "X-Tag: "+tag+"\r\n"))
					if rng.IntN(4) == 0 {
						time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
						break // leave without reading
					}
					resp, err := http.ReadResponse(br, nil)
					if err != nil {
						break
					}
					if rng.IntN(4) == 0 {
						_, _ = resp.Body.Read(make([]byte, 10))
						break // leave in the middle
					}
					body, err := io.ReadAll(resp.Body)
					if len(body) > 0 && !bytes.Contains(body, []byte(tag)) && !bytes.Contains(body, []byte("proxy_error")) {
						t.Errorf("%s got %q", tag, body)
					}
					if err != nil {
						break
					}
				}
				shut(c)
			}
		})
	}
	wg.Wait()
	r.stop(t)
	if calls, answers := len(b.calls), len(b.answers); calls != answers || calls == 0 {
		t.Errorf("%d turns began, %d were committed", calls, answers)
	}
	if n := r.watcher.len(); n != 0 {
		t.Errorf("%d in flight", n)
	}
}

// TestLargePartsAreCommittedInTurn: large answers whose clients have left are committed a few at a time, since each
// takes several times its memory. Small ones, and those that a client reads to their end, do not wait.
func TestLargePartsAreCommittedInTurn(t *testing.T) {
	large := func(end string) string {
		return eventHead + chunk(`data: {"choices":[{"index":0,"delta":{"content":"`+strings.Repeat("x", largeCommit)+`"}}]}`+"\n\n"+end)
	}
	b := newBook()
	call := func(answer, until string) *rig {
		t.Helper()
		addr, _, gone := hanging(t, answer)
		r := start(t, rigOptions{upstream: addr, memory: b.begin})
		for range commitsAtOnce {
			r.commits.slots <- struct{}{}
		}
		c, br := r.dial(t)
		write(c, chatIn("s", chatBody))
		for got := ""; !strings.HasSuffix(got, until); {
			line, err := br.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			got = line
		}
		shut(c)
		await(t, gone, "end of the upstream request")
		return r
	}
	committed := func(cut memory.Aborted, size int) {
		t.Helper()
		if a := await(t, b.answers, "commit"); a.Aborted != cut || len(textOf(t, a.Reply)) != size {
			t.Errorf("committed %d bytes, cut %v, want %d, %v", len(textOf(t, a.Reply)), a.Aborted, size, cut)
		}
	}
	const end = "}}]}\n"
	waits := call(large(""), end)
	call(large(chatDone), "[DONE]\n")
	committed(memory.NotAborted, largeCommit)
	call(eventHead+chunk(`data: {"choices":[{"index":0,"delta":{"content":"small"}}]}`+"\n\n"), end)
	committed(memory.AbortedByClient, len("small"))
	<-waits.commits.slots
	committed(memory.AbortedByClient, largeCommit)
	stops := call(large(""), end)
	stops.stop(t)
	committed(memory.AbortedByClient, largeCommit)
}
