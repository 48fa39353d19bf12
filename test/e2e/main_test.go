// Package e2e runs the real binary between real SDKs and a strict scripted upstream, all on this machine.
//
// The SDKs are the official openai clients for Node and for Go and the Vercel AI SDK. The scenarios for Node are in
// testdata/node, those for Go in gosdk_test.go. The same scenarios run directly against the upstream and through the proxy, and
// must have the same results (differential_test.go).
//
// E2E_RACE=1 builds the binary with the race detector.
package e2e

import (
	"os"
	"testing"

	"remora/test/kit"
)

func TestMain(m *testing.M) { os.Exit(kit.RunWithoutLeaks(m)) }
