package process

import (
	"net"
	"testing"
)

// TestFreeAddr: a port can be listened on, and is reserved until it is released.
func TestFreeAddr(t *testing.T) {
	addr, release, err := FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a server that is started again
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err := claim(addr); err == nil {
			t.Errorf("%s is found twice", addr)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = claim(addr)
	if err != nil {
		t.Fatalf("%s is not given back: %v", addr, err)
	}
	_ = release()
}
