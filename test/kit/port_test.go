package kit

import (
	"fmt"
	"net"
	"testing"
)

// TestFreePort: a port can be listened on, and is reserved until the test ends.
func TestFreePort(t *testing.T) {
	var port int
	t.Run("its test", func(t *testing.T) {
		port = FreePort(t)
		for range 2 { // a server that is started again
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			if err != nil {
				t.Fatal(err)
			}
			_ = l.Close()
			if claim(t, port) == nil {
				t.Errorf("port %d is found twice", port)
			}
		}
	})
	if err := claim(t, port); err != nil {
		t.Errorf("port %d is not given back: %v", port, err)
	}
}
