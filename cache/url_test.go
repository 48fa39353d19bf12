package cache_test

import (
	"strings"
	"testing"

	"remora/cache"
	"remora/cache/stores"
)

func TestOpenRejects(t *testing.T) {
	const secret = "hunter2"
	f := func(url, want string) {
		t.Helper()
		s, err := stores.Open(url, cache.Options{})
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
	f("redis://u:"+secret+"/x@host:6379", "/ is %2F")
	f("redis://u:"+secret+"@a,b", "several hosts")
	f("redis://host/"+secret, "database number")
	f("redis://host/0?"+secret+"=1", "options after the question mark")
	f("redis://host/0?%zz"+secret, "question mark")
	f("redis://u:%zz"+secret+"@host", "percent-encoded")
	f("redis://u:a/"+secret+"@host/0", "/ is %2F")
	f("redis://:7/"+secret+"@host:6379", "/ is %2F")
	f("redis://:7?"+secret+"@host:6379", "? is %3F")
	f("redis://:a@b/"+secret+"@host:6379", "/ is %2F")
	f("redis+sentinel://:a/"+secret+"@host/my", "/ is %2F")
	f("redis+cluster://:a/"+secret+"@host", "/ is %2F")
	f("redis+sentinel://u:"+secret+"@host", "name of the master")
	f("redis+sentinel://host/m/x"+secret, "database number")
	f("redis://host/-1", "database number")
	f("redis://host/99999999999", "database number")
	f("redis://host?db=-1", "database number")
	f("redis+sentinel://host/m/-1", "database number")
	f("redis+cluster://host/1", "only has database 0")
	f("redis+cluster://host?db=3", "only has database 0")
	f("redis://", "want a host")
	f("rediss://u:"+secret+"@:6379/0", "want a host")
	f("redis+cluster://a,,b", "want a host")
	f("redis+sentinel:///m", "want a host")
	f("redis://u:"+secret+"@300.1.1.1", "IP address")
	f("redis+cluster://a,256.1.1.1:7000", "IP address")
	f("redis://h:0", "65535")
	f("redis+sentinel://h:65536/m", "65535")
}
