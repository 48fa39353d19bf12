package redis

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"remora/cache"
	"remora/cache/storetest"
)

func TestKeysAreInjective(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := cache.Group{Owner: storetest.IDs().Draw(t, "owner a"), Name: storetest.IDs().Draw(t, "name a")}
		b := cache.Group{Owner: storetest.IDs().Draw(t, "owner b"), Name: storetest.IDs().Draw(t, "name b")}
		if a != b && groupKey(a) == groupKey(b) {
			t.Fatalf("%q and %q share %q", a, b, groupKey(a))
		}
		if a.Owner != b.Owner && indexKey(a.Owner) == indexKey(b.Owner) {
			t.Fatalf("%q and %q share %q", a.Owner, b.Owner, indexKey(a.Owner))
		}
		for _, key := range []string{groupKey(a), indexKey(a.Owner)} {
			key = strings.Replace(key, halfTag(a.Owner), "", 1) // see TestHalves
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

// TestHalves: the slot of a key is that of what its first braces contain.
func TestHalves(t *testing.T) {
	for half, tag := range map[string]string{cache.LowHalf: "{b}", cache.HighHalf: "{fn}"} {
		for _, key := range []string{indexKey(half + "a"), groupKey(cache.Group{Owner: half + "a", Name: "n"}), groupKey(cache.Group{Owner: half})} {
			if at := strings.Index(key, "{"); !strings.HasPrefix(key[at:], tag) {
				t.Errorf("%q is not in the slot of %s", key, tag)
			}
		}
	}
}

// TestShortIDsCanBeReadBack: ids that are not hashed can be decoded, so they do not collide.
func TestShortIDsCanBeReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := storetest.IDs().Draw(t, "id")
		var b strings.Builder
		writeID(&b, id)
		got := b.String()
		switch {
		case strings.HasPrefix(got, "~"):
			if len(id) <= maxEncodedID {
				t.Fatalf("%q is short and hashed", id)
			}
		case strings.HasPrefix(got, "="):
			if back, err := base64.RawURLEncoding.DecodeString(got[1:]); err != nil || string(back) != id {
				t.Fatalf("%q became %q and reads back as %q, %v", id, got, back, err)
			}
		default:
			if got != id {
				t.Fatalf("%q became %q", id, got)
			}
		}
	})
}

func TestRedisURLs(t *testing.T) {
	f := func(scheme, rest, want string) {
		t.Helper()
		got, err := parseURL(scheme, rest, cache.Options{}.WithDefaults())
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

// errorReply is an error reply as go-redis returns it.
type errorReply string

func (e errorReply) Error() string { return string(e) }
func (errorReply) RedisError()     {}

func TestServerErrorsShowNoData(t *testing.T) {
	err := cleanError(errorReply("ERR unknown command 'EVALSHA', with args beginning with: 'secret'"))
	if err == nil || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "EVALSHA") {
		t.Fatalf("error: %v", err)
	}
}

// TestFaultsOfReplies: an error reply concerns the keys of the command, or all keys of the server.
func TestFaultsOfReplies(t *testing.T) {
	for reply, want := range map[string]cache.Fault{
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                cache.FaultKey,
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 0f, on @user_script:3.": cache.FaultKey,
		"ERR Error running script (call to f_0f): @user_script:3: WRONGTYPE Operation against a key":       cache.FaultKey,
		"ERR user_script:7: attempt to perform arithmetic on a nil value script: 0f, on @user_script:7.":   cache.FaultKey,
		"NOPERM this user has no permissions to access one of the keys used as arguments":                  cache.FaultKey,
		"CLUSTERDOWN Hash slot not served":                                                                                    cache.FaultKey,
		"TRYAGAIN Multiple keys request during rehashing of slot":                                                             cache.FaultKey,
		"MOVED 42 10.0.0.1:6379":                                                                                              cache.FaultKey,
		"NOPERM this user has no permissions to run the 'evalsha' command":                                                    cache.FaultShard,
		"WRONGPASS invalid username-password pair or user is disabled.":                                                       cache.FaultShard,
		"OOM command not allowed when used memory > 'maxmemory'.":                                                             cache.FaultShard,
		"ERR Error running script (call to f_0f): @user_script:9: @user_script: 9: -OOM command not allowed when used memory": cache.FaultShard,
		"CLUSTERDOWN The cluster is down":                                                                                     cache.FaultShard,
		"LOADING Redis is loading the dataset in memory":                                                                      cache.FaultShard,
		"READONLY You can't write against a read only replica.":                                                               cache.FaultShard,
		"MISCONF Redis is configured to save RDB snapshots":                                                                   cache.FaultShard,
		"NOREPLICAS Not enough good replicas to write.":                                                                       cache.FaultShard,
		"ERR unknown command 'EVALSHA'":                                                                                       cache.FaultShard,
	} {
		err := cache.OnShard("h:1", cleanError(errorReply(reply)))
		have, shards := cache.FaultOf(err)
		if have != want || want == cache.FaultShard && fmt.Sprint(shards) != "[h:1]" {
			t.Errorf("%s: a fault of %s %q, want %s", reply, have, shards, want)
		}
		code, _, _ := strings.Cut(reply, " ")
		unserved := want == cache.FaultKey && slices.Contains([]string{"CLUSTERDOWN", "TRYAGAIN", "MOVED"}, code)
		if errors.Is(err, cache.ErrUnserved) != unserved {
			t.Errorf("%s: %v, want an ErrUnserved: %t", reply, err, unserved)
		}
		if have, _ := cache.FaultOf(cache.OnShard("", cleanError(errorReply(reply)))); want == cache.FaultShard && have != cache.FaultStore {
			t.Errorf("%s, of the only server: a fault of %s", reply, have)
		}
	}
}

// TestServerOfAnotherKind: the error says what store.url should be.
func TestServerOfAnotherKind(t *testing.T) {
	for reply, want := range map[string]string{
		"MOVED 42 10.0.0.1:6379":                         "want redis+cluster:// in store.url",
		"CLUSTERDOWN Hash slot not served":               "want redis+cluster:// in store.url",
		"ERR This instance has cluster support disabled": "want redis:// in store.url",
		"ERR unknown command 'sentinel', with args beginning with: 'get-master-addr-by-name'": "want the addresses of Sentinels",
		"ERR SELECT is not allowed in cluster mode":                                           "want redis+cluster:// in store.url",
		"ERR DB index is out of range":                                                        "no such database",
		redis.Nil.Error():                                                                     "no such master",
	} {
		o := op{err: errorReply(reply)}
		err := o.cleanError()
		if ofKey := errors.Is(err, cache.ErrUnserved); !strings.Contains(err.Error(), want) || errors.Is(err, cache.ErrDenied) == ofKey {
			t.Errorf("%s: %v", reply, err)
		}
	}
	if o := (op{err: errorReply("MOVED 42 10.0.0.1:6379"), shard: "10.0.0.2:6379"}); strings.Contains(o.cleanError().Error(), "store.url") {
		t.Errorf("in a cluster: %v", o.cleanError())
	}
}

// TestForeignReplies: keys that another program has written cause an error, no panic.
func TestForeignReplies(t *testing.T) {
	for _, reply := range []any{nil, int64(7), "7", []any{}, []any{"7"}, []any{"x", "a"}, []any{int64(7), "a"}, []any{"7", int64(1)}, []any{"7", "a", "b"}} {
		o := op{cmd: redis.NewCmd(t.Context())}
		o.cmd.SetVal(reply)
		if r, err := o.result(1); !errors.Is(err, errBadReply) {
			t.Errorf("%#v is read as %+v, %v", reply, r, err)
		}
		if n, err := o.number(); reply != int64(7) && !errors.Is(err, errBadReply) {
			t.Errorf("%#v is read as %d, %v", reply, n, err)
		}
	}

	o := op{cmd: redis.NewCmd(t.Context())}
	o.cmd.SetVal([]any{"7", int64(1)})
	if all, err := o.list(); !errors.Is(err, errBadReply) {
		t.Errorf("read as %q, %v", all, err)
	}
	o.cmd.SetVal([]any{"7", "", nil})
	if r, err := o.result(2); err != nil || r.Version != 7 || r.Values[0] == nil || r.Values[1] != nil {
		t.Errorf("read as %+v, %v", r, err)
	}
}

// TestBatchesAreCopiedUnlessTheyLast: a caller that returned early may reuse its buffers, so they are copied. Lasting data is
// not: a large body would be in memory twice.
func TestBatchesAreCopiedUnlessTheyLast(t *testing.T) {
	reused, lasting := []byte("reused"), []byte("lasting")
	args := commitOp(cache.Batch{Puts: []cache.Put{{Name: "a", Data: reused}, {Name: "b", Data: lasting, Lasting: true}}}).args
	reused[0] = 'x'
	data := func(arg any) []byte {
		b, ok := arg.(*blob)
		if !ok {
			t.Fatalf("an argument of type %T", arg)
		}
		return *b
	}
	if got := data(args[len(args)-3]); string(got) != "reused" {
		t.Errorf("%q, want a copy", got)
	}
	if &data(args[len(args)-1])[0] != &lasting[0] {
		t.Error("what lasts is copied")
	}
}
