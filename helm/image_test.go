package helm_test

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	// The largest image, unpacked; as it is pulled, packed, it is half of that.
	imageBytes = 40_000_000
	// What is in it besides the binary.
	certificates = 230_000
	zoneinfo     = 410_000
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What a review of the Dockerfile would look for.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := readFile(t, "../Dockerfile")
	stages := strings.Split(text, "\nFROM ")
	last := stages[len(stages)-1]
	if !strings.HasPrefix(last, "scratch\n") {
		t.Error("the image has more in it than Remora")
	}
	if strings.Contains(last, "\nRUN ") {
		t.Error("nothing can run in scratch")
	}
	for _, want := range []string{"\nUSER 65532:0\n", "\nENTRYPOINT [\"/remora\"]\n", "\nVOLUME /data\n", "/etc /etc\n"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last stage has no %q", want)
		}
	}
	goVersion := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(readFile(t, "../go.mod"))
	if goVersion == nil || !strings.Contains(text, "ARG GO_IMAGE=docker.io/library/golang:"+goVersion[1]+"-") {
		t.Error("the base image is not the Go of go.mod", goVersion)
	}
	for _, fetch := range []string{"apk ", "apt-get", "curl ", "wget ", "go install", "ADD "} {
		if strings.Contains(text, fetch) {
			t.Errorf("%q needs more network than modules and base image", fetch)
		}
	}
}

// The build of the Dockerfile, over just what .dockerignore lets through, in two folders: one binary, that is
// small enough. There is no container engine in the test: what it does not see is the base image.
func TestImageBuildIsReproducible(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("links the program twice")
	}
	command := regexp.MustCompile(`(?s)CGO_ENABLED=0 .*?go build (.*?) -o /out/remora`).FindStringSubmatch(readFile(t, "../Dockerfile"))
	if command == nil {
		t.Fatal("the Dockerfile has no go build")
	}
	flags := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(command[1], -1)
	// Both from one copy: somebody may be working on the sources meanwhile.
	src, again := t.TempDir(), t.TempDir()
	copyContext(t, src)
	if err := os.CopyFS(again, os.DirFS(src)); err != nil {
		t.Fatal(err)
	}
	var sums [2]string
	for i, src := range []string{src, again} {
		args := []string{"build"}
		for _, f := range flags {
			args = append(args, strings.Trim(f, `"`))
		}
		cmd := exec.CommandContext(t.Context(), "go", append(args, "-o", "remora.out", "./cmd/remora")...)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		binary := readFile(t, filepath.Join(src, "remora.out"))
		sum := sha256.Sum256([]byte(binary))
		sums[i] = hex.EncodeToString(sum[:])
		if strings.Contains(binary, src) {
			t.Error("the binary knows where it was built")
		}
		if size := len(binary) + certificates + zoneinfo; size > imageBytes {
			t.Errorf("the image would have %d bytes, at most %d", size, imageBytes)
		}
		t.Logf("%d bytes, sha256 %s", len(binary), sums[i])
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds differ: %s", sums)
	}
}

// copyContext copies what docker build would send: .dockerignore is a list of exceptions to "nothing", and of patterns
// below them that are left out after all.
func copyContext(t *testing.T, to string) {
	t.Helper()
	var keep []string
	for line := range strings.Lines(readFile(t, "../.dockerignore")) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "!"); ok {
			keep = append(keep, name)
		}
	}
	for _, name := range keep {
		err := filepath.WalkDir(filepath.Join("..", name), func(p string, d fs.DirEntry, err error) error {
			switch {
			case os.IsNotExist(err):
				return nil // docker takes a pattern that matches nothing
			case err != nil:
				return err
			case d.IsDir() && d.Name() == "testdata":
				return fs.SkipDir
			case d.IsDir() || strings.HasSuffix(p, "_test.go"):
				return nil
			}
			target := filepath.Join(to, strings.TrimPrefix(p, ".."))
			if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
				return err
			}
			return os.WriteFile(target, []byte(readFile(t, p)), 0o600)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
