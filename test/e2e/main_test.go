// Package e2e runs the real binary between real SDKs and a strict scripted upstream, all on this machine.
//
// The SDKs are the official openai clients for Node and for Go and the Vercel AI SDK. The scenarios for Node are in
// testdata/node, those for Go in gosdk_test.go. The same scenarios run directly against the upstream and through the proxy, and
// must have the same results (differential_test.go).
//
// E2E_RACE=1 builds the binary with the race detector.
package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"remora/test/kit"
	"remora/test/process"
)

// binary is the proxy under test, built once for all tests.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "remora-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "make a folder for the binary:", err)
		os.Exit(1)
	}
	code := 1
	if binary, err = build(dir); err == nil {
		code = kit.RunWithoutLeaks(m)
	} else {
		fmt.Fprintln(os.Stderr, err)
	}
	_ = os.RemoveAll(dir) // a temporary folder: the system removes it too
	os.Exit(code)
}

func build(dir string) (string, error) {
	path := filepath.Join(dir, "remora")
	var flags []string
	if os.Getenv("E2E_RACE") == "1" {
		flags = append(flags, "-race")
	}
	return path, process.Build(context.Background(), path, flags...)
}
