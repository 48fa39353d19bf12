package main

import "testing"

// TestMeets: an upstream that is the proxy itself is found by its address, and another server on this machine is not taken for it.
func TestMeets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen, to string
		want       bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "localhost:8080", true},
		{"127.0.0.1:8080", "LocalHost:8080", true},
		{"127.0.0.1:8080", "0.0.0.0:8080", true},
		{"127.0.0.1:8080", "[::ffff:127.0.0.1]:8080", true},
		{"127.0.0.1:8080", "127.0.0.1:8081", false},
		{"127.0.0.1:8080", "127.0.0.2:8080", false},
		{"127.0.0.2:8080", "localhost:8080", false},
		{"127.0.0.1:8080", "[::1]:8080", false},
		{"127.0.0.1:8080", "10.0.0.1:8080", false},
		{"127.0.0.1:8080", "model:8080", false},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"[::1]:8080", "localhost:8080", true},
		{":8080", "127.0.0.1:8080", true},
		{":8080", "127.0.0.9:8080", true},
		{":8080", "[::1]:8080", true},
		{":8080", "localhost:8080", true},
		{":8080", "model:8080", false},
		{":8080", "10.0.0.1:8080", false},
		{"0.0.0.0:8080", "localhost:8080", true},
		{"remora:8080", "remora:8080", true},
		{"10.0.0.1:8080", "10.0.0.1:8080", true},
		{"10.0.0.1:8080", "127.0.0.1:8080", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"", "127.0.0.1:8080", false},
	} {
		if got := meets(tt.listen, tt.to); got != tt.want {
			t.Errorf("a connection to %s reaches a listener on %s: %v", tt.to, tt.listen, got)
		}
	}
}
