package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The image is the binary, and less than 1 MB of certificates and time zones.
const maxBinary = 38 << 20

// TestImageSize builds the binary as the Dockerfile does. Whoever executes a template anywhere, as cobra's
// SetVersionTemplate does, makes the linker keep every method of every type, and meets this test.
func TestImageSize(t *testing.T) {
	t.Parallel()
	docker, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	build := regexp.MustCompile(`go build (.*) -ldflags "(.*)" -o \S+ \./cmd/remora`).FindStringSubmatch(string(docker))
	if build == nil {
		t.Fatal("Dockerfile does not say how the binary is built")
	}
	binary := filepath.Join(t.TempDir(), "remora")
	args := append([]string{"build"}, strings.Fields(build[1])...)
	cmd := exec.Command("go", append(args, "-ldflags", build[2], "-o", binary, ".")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(binary)
	if err != nil {
		t.Fatal(err)
	}
	if info.Size() > maxBinary {
		t.Errorf("the binary has %.1f MB, want at most %d", float64(info.Size())/(1<<20), maxBinary>>20)
	}
}
