package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// ids draws identifiers made of what key schemes trip over.
func ids() *rapid.Generator[string] {
	return rapid.OneOf(
		rapid.StringOfN(rapid.RuneFrom([]rune("ab:{}\x00~=.")), 0, 6, -1),
		rapid.String(),
		rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 70), func(b []byte) string { return string(b) }),
		rapid.Map(rapid.IntRange(0, 300), func(n int) string { return strings.Repeat("x", n) }),
	)
}

func TestKeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := Group{ids().Draw(t, "owner a"), ids().Draw(t, "name a")}
		b := Group{ids().Draw(t, "owner b"), ids().Draw(t, "name b")}
		if a != b && redisGroupKey(a) == redisGroupKey(b) {
			t.Fatalf("%q and %q share %q", a, b, redisGroupKey(a))
		}
		if a.Owner != b.Owner && redisIndexKey(a.Owner) == redisIndexKey(b.Owner) {
			t.Fatalf("%q and %q share %q", a.Owner, b.Owner, redisIndexKey(a.Owner))
		}
		if a != b && (bytes.HasPrefix(groupPrefix(a), groupPrefix(b)) || bytes.HasPrefix(groupPrefix(b), groupPrefix(a))) {
			t.Fatalf("one bbolt prefix of %q and %q begins the other", a, b)
		}
		for _, key := range []string{redisGroupKey(a), redisIndexKey(a.Owner)} {
			tag := key[strings.IndexByte(key, '{')+1 : strings.IndexByte(key, '}')]
			if tag == "" || !strings.HasSuffix(key, "{"+tag+"}") || strings.ContainsAny(tag, "{}") || strings.Count(key, "{") != 1 {
				t.Fatalf("%q leaves its hash tag", key)
			}
			if len(key) > 160 {
				t.Fatalf("a key of %d bytes", len(key))
			}
		}
	})
}

// What is too long for a length byte must not look like what just fits, whatever a caller makes of it.
func TestHashedKeyPartIsNoLength(t *testing.T) {
	owner, name := strings.Repeat("o", 300), strings.Repeat("n", 222)
	sum := sha256.Sum256([]byte(owner))
	crafted := Group{Owner: string(sum[:]) + "\xde" + name} // 255 bytes
	if bytes.HasPrefix(groupPrefix(crafted), groupPrefix(Group{owner, name})) {
		t.Error("keys of one group are keys of another")
	}
}

// decodeID is the inverse of writeID for what is not hashed: that it exists proves that no two short ids meet.
func TestShortIDsCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ids().Draw(t, "id")
		var b strings.Builder
		writeID(&b, id)
		got := b.String()
		switch {
		case strings.HasPrefix(got, "~"):
			if len(id) <= maxEncodedID {
				t.Fatalf("%q is short and hashed", id)
			}
		case strings.HasPrefix(got, "="):
			if back, err := decodeBase64(got[1:]); err != nil || back != id {
				t.Fatalf("%q became %q and reads back as %q, %v", id, got, back, err)
			}
		default:
			if got != id {
				t.Fatalf("%q became %q", id, got)
			}
		}
	})
}

func TestOpenRejects(t *testing.T) {
	const secret = "hunter2"
	f := func(url, want string) {
		t.Helper()
		s, err := Open(url, Options{})
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s opens", url)
		}
		if !strings.Contains(err.Error(), "store.url") || !strings.Contains(err.Error(), want) {
			t.Fatalf("%s: %q does not say store.url and %q", url, err, want)
		}
		if strings.Contains(err.Error(), secret) {
			t.Fatalf("%s: the password is in %q", url, err)
		}
	}
	f("", "no scheme")
	f("redis", "no scheme")
	f("bolt:", "no file")
	f(secret+":x@host", "unknown scheme")
	f("redis:host", "two slashes")
	f("redis://u:"+secret+"@host:port", "not a valid host and port")
	f("redis://u:"+secret+"/x@host:6379", "not a valid host and port")
	f("redis://u:"+secret+"@a,b", "several hosts")
	f("redis://host/"+secret, "database number")
	f("redis://host/0?"+secret+"=1", "options after the question mark")
	f("redis://host/0?%zz"+secret, "question mark")
	f("redis://u:%zz"+secret+"@host", "percent-encoded")
	f("redis+sentinel://u:"+secret+"@host", "name of the master")
	f("redis+sentinel://host/m/x"+secret, "database number")
	f("redis://host/-1", "database number")
	f("redis://host/99999999999", "database number")
	f("redis://host?db=-1", "database number")
	f("redis+sentinel://host/m/-1", "database number")
	f("redis+cluster://host/1", "no database but 0")
	f("redis://", "want a host")
	f("rediss://u:"+secret+"@:6379/0", "want a host")
	f("redis+cluster://a,,b", "want a host")
	f("redis+sentinel:///m", "want a host")
}

func TestRedisURLs(t *testing.T) {
	f := func(scheme, rest, want string) {
		t.Helper()
		got, err := parseRedis(scheme, rest, Options{}.withDefaults())
		if err != nil {
			t.Fatalf("%s:%s: %v", scheme, rest, err)
		}
		n := got.node
		have := fmt.Sprintf("%v master=%s user=%s pass=%s db=%d tls=%t sentinel=%s/%s", got.hosts, got.master,
			n.Username, n.Password, n.DB, n.TLSConfig != nil, got.sentinelUser, got.sentinelPassword)
		if have != want {
			t.Fatalf("%s:%s\n got %s\nwant %s", scheme, rest, have, want)
		}
	}
	f("redis", "//localhost", "[localhost:6379] master= user= pass= db=0 tls=false sentinel=/")
	f("redis", "//u:p%40%2F@h:1/3", "[h:1] master= user=u pass=p@/ db=3 tls=false sentinel=/")
	f("rediss", "//:p@[::1]/2", "[[::1]:6379] master= user= pass=p db=2 tls=true sentinel=/")
	f("redis+sentinel", "//u:p@a,b:7/my/4?sentinel_username=su&sentinel_password=sp",
		"[a:26379 b:7] master=my user=u pass=p db=4 tls=false sentinel=su/sp")
	f("rediss+cluster", "//u:p@a:1,b/", "[a:1 b:6379] master= user=u pass=p db=0 tls=true sentinel=/")
}

func TestServerErrorsShowNoData(t *testing.T) {
	err := replyError([]byte("-ERR unknown command 'EVALSHA', with args beginning with: 'secret'\r\n"))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "EVALSHA") {
		t.Fatalf("error: %v", err)
	}
}

// stall is a run that waits until it is let go, and records the batches.
type stall struct {
	mu      sync.Mutex
	batches [][]int
	release chan struct{}
}

func (s *stall) run(_ context.Context, calls []int) {
	s.mu.Lock()
	s.batches = append(s.batches, append([]int(nil), calls...))
	s.mu.Unlock()
	<-s.release
}

func TestBatcherSendsQueuedCallsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &batcher[int]{run: s.run, slots: 1, maxCalls: 3, maxBytes: 100, inline: true}
		for i, size := range []int{1, 1, 1, 1, 1, 90, 90, 500} {
			go func() {
				if err := b.do(t.Context(), i, size); err != nil {
					t.Error(err)
				}
			}()
			synctest.Wait()
		}
		for range 5 {
			s.release <- struct{}{}
			synctest.Wait()
		}
		b.work.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [1 2 3] [4 5] [6] [7]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

func TestBatcherLetsCallersLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &batcher[int]{run: s.run, slots: 1, maxCalls: 3, maxBytes: 100, inline: true}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		plain, leave := context.WithCancel(t.Context())
		results := make(chan error, 3)
		go func() { results <- b.do(plain, 0, 1) }() // in flight
		synctest.Wait()
		go func() { results <- b.do(ctx, 1, 1) }() // queued
		go func() { results <- b.do(t.Context(), 2, 1) }()
		synctest.Wait()
		leave()
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("the caller in flight got %v", err)
		}
		if err := <-results; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the queued caller got %v", err)
		}
		s.release <- struct{}{}
		s.release <- struct{}{}
		if err := <-results; err != nil {
			t.Errorf("the caller who stayed got %v", err)
		}
		b.work.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [2]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

func TestBatcherFillsItsSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stall{release: make(chan struct{})}
		b := &batcher[int]{run: s.run, slots: 2, maxCalls: 10, maxBytes: 100}
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() { _ = b.do(t.Context(), i, 1) })
			synctest.Wait()
		}
		if got, want := fmt.Sprint(s.batches), "[[0] [1]]"; got != want {
			t.Errorf("in flight %s, want %s", got, want)
		}
		close(s.release)
		wg.Wait()
		b.work.Wait()
		if got, want := fmt.Sprint(s.batches), "[[0] [1] [2 3 4]]"; got != want {
			t.Errorf("batches %s, want %s", got, want)
		}
	})
}

// TestBoltTakesBadCallOut has one call that bbolt refuses among good ones.
func TestBoltTakesBadCallOut(t *testing.T) {
	st, err := Open("bolt:"+filepath.Join(t.TempDir(), "store.db"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	s, ok := st.(*boltStore)
	if !ok {
		t.Fatal("not a bolt store")
	}
	call := func(name string, b Batch) *boltCall {
		b.Group = Group{"o", name}
		return &boltCall{batches: []Batch{b}, outcomes: make([]Outcome, 1)}
	}
	huge := make([]byte, 1<<31) // longer than a value may be; never touched, so it takes no memory
	good, bad, late := call("good", Batch{}), call("bad", Batch{Puts: []Put{{"n", huge}}}), call("late", Batch{})
	s.run(t.Context(), []*boltCall{good, bad, late})
	if good.err != nil || good.outcomes[0].Version != 1 || late.err != nil || late.outcomes[0].Version != 1 || bad.err == nil {
		t.Fatalf("good %+v, bad %+v, late %+v", good, bad.err, late)
	}
	got, err := st.Read(t.Context(), []Query{{Group: Group{"o", "good"}}, {Group: Group{"o", "bad"}}, {Group: Group{"o", "late"}}})
	if err != nil || got[0].Version != 1 || got[1].Version != 0 || got[2].Version != 1 {
		t.Fatalf("read %+v, %v", got, err)
	}
}

// FuzzSpoolSegment gives the reader of segments a file of any bytes, behind frames that are whole.
func FuzzSpoolSegment(f *testing.F) {
	f.Add([]byte("rec"), []byte{}, uint64(0))
	f.Add([]byte{}, appendFrame(nil, []byte("x"))[:8], uint64(8))
	f.Add([]byte("rec"), make([]byte, 64), uint64(11))
	f.Add([]byte("rec"), []byte{255, 255, 255, 255, 0, 0, 0, 0}, uint64(1<<63))
	f.Add([]byte("rec"), append([]byte{0, 0, 0, 1, 9, 9, 9, 9, 'x'}, appendFrame(nil, []byte("behind damage"))...), uint64(22))
	f.Fuzz(func(t *testing.T, rec, tail []byte, mark uint64) {
		data := append(appendFrame(appendFrame(nil, rec), rec), tail...)
		file, size := bytes.NewReader(data), int64(len(data))
		var seg segment
		if err := seg.scan(file, size, int64(mark)); err != nil {
			t.Fatal(err)
		}
		one := frameBytes(len(rec))
		if seg.end < 2*one || seg.end > size || seg.head > seg.end {
			t.Fatalf("head %d, end %d of %d bytes, whose first %d are whole", seg.head, seg.end, size, 2*one)
		}
		if int64(mark) == one && seg.head != one {
			t.Fatalf("mark %d made head %d", mark, seg.head)
		}
		n := 0
		for at := seg.head; at < seg.end; n++ {
			rec, err := readFrame(file, at, seg.end)
			next := at + frameBytes(len(rec))
			if errors.Is(err, errTorn) {
				next, err = nextFrame(file, at, seg.end)
			}
			if err != nil || next <= at {
				t.Fatalf("after %d comes %d, %v", at, next, err)
			}
			at = next
		}
		if n != seg.records {
			t.Fatalf("%d records from the head on, and scan counts %d", n, seg.records)
		}
	})
}

// FuzzRedisReply gives the parsers of replies any bytes.
func FuzzRedisReply(f *testing.F) {
	f.Add([]byte("*3\r\n$1\r\n7\r\n$-1\r\n$0\r\n\r\n"), 2)
	f.Add([]byte("*1\r\n$1\r\n7\r\n"), 0)
	f.Add([]byte(":12\r\n"), 1)
	f.Add([]byte("-ERR x\r\n"), 1)
	f.Add([]byte("*1\r\n$9223372036854775807\r\nx\r\n"), 0)
	f.Fuzz(func(t *testing.T, reply []byte, names int) {
		if names < 0 || names > 1000 {
			return
		}
		_, _ = parseInt(reply)
		_, _ = parseList(op{reply: reply})
		_, _ = errorCode(reply), replyError(reply)
		r, err := parseResult(reply, names)
		if err == nil && len(r.Values) != names {
			t.Fatalf("%d values for %d names", len(r.Values), names)
		}
	})
}
