//go:build !linux

package chaos

import "testing"

func smallDisk(t *testing.T, _ string) string {
	t.Helper()
	t.Skip("a small disk needs Linux")
	return ""
}
