package process

import (
	"net"
	"testing"
)

// TestFreePort: a port can be listened on, and is reserved until it is released.
func TestFreePort(t *testing.T) {
	port, release, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // a server that is started again
		l, err := net.Listen("tcp", Loopback(port))
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		if _, err := claim(port); err == nil {
			t.Errorf("%d is found twice", port)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = claim(port)
	if err != nil {
		t.Fatalf("%d is not given back: %v", port, err)
	}
	_ = release()
}
