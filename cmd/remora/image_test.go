package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"remora/memory"
	"remora/test/kit"
	"remora/test/process"
)

// The image is the binary, and less than 1 MB of certificates and time zones.
const maxBinary = 38 << 20

// TestImage builds the binary as the Dockerfile does, and checks its size and version. If any code executes a template, as
// cobra's SetVersionTemplate does, the linker keeps every method of every type, and the binary is too large.
func TestImage(t *testing.T) {
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
	flags := os.Expand(build[2], func(name string) string { return map[string]string{"VERSION": "1.2.3"}[name] })
	cmd := exec.Command("go", append(args, "-ldflags", flags, "-o", binary, ".")...)
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

	for _, arg := range []string{"--version", "version"} {
		if out, err := exec.Command(binary, arg).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "remora version 1.2.3 (") {
			t.Errorf("%s: %v %s", arg, err, out)
		}
	}
	if out, err := exec.Command(binary, "version").Output(); err != nil || !strings.HasSuffix(string(out), fmt.Sprintf("\nsessions are stored in format %d\n", memory.RecordVersion)) {
		t.Errorf("%v: %s", err, out)
	}
	if page := metricsOf(t, binary); !strings.Contains(page, `service_version="1.2.3"`) {
		t.Errorf("no service_version 1.2.3:\n%s", page)
	}
}

// metricsOf starts a proxy and returns its metrics page.
func metricsOf(t *testing.T, binary string) string {
	t.Helper()
	admin := kit.FreeAddr(t)
	cmd := exec.Command(binary, "--listen", "127.0.0.1:0")
	cmd.Dir = t.TempDir()
	cmd.Env = append(process.Environ(), "REMORA_STORE_URL=memory:", "REMORA_SERVER_ADMIN_LISTEN="+admin)
	process.DieWithParent(cmd)
	proxy, err := process.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := proxy.Stop(); err != nil {
			t.Error(err)
		}
	}()

	return pageAt(t, admin, "/metrics")
}

// TestImageLabels: each build argument is declared in the stage that uses it (else it would be empty there), and sets one of the
// labels that registries show.
func TestImageLabels(t *testing.T) {
	t.Parallel()
	docker, err := os.Open("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = docker.Close() }()

	declared, labels := map[string]bool{}, map[string]string{}
	variable := regexp.MustCompile(`\$\{?([A-Z_]+)`)
	label := regexp.MustCompile(`org\.opencontainers\.image\.([a-z]+)="([^"]*)"`)
	lines := bufio.NewScanner(docker)
	for lines.Scan() {
		line := lines.Text()
		switch words := strings.Fields(line); {
		case len(words) == 0 || words[0] == "#":
			continue
		case words[0] == "FROM": // arguments from before the first stage count in FROM alone, those of the platform always
			clear(declared)
			continue
		case words[0] == "ARG":
			name, _, _ := strings.Cut(words[1], "=")
			declared[name] = true
			continue
		}
		for _, m := range variable.FindAllStringSubmatch(line, -1) {
			if !declared[m[1]] {
				t.Errorf("%s is not declared in its stage: %s", m[1], line)
			}
		}
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			labels[m[1]] = m[2]
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"title": "remora", "version": "$VERSION", "revision": "$REVISION", "source": "$SOURCE", "licenses": "$LICENSES",
	} {
		if labels[name] != want {
			t.Errorf("label %s is %q, want %q", name, labels[name], want)
		}
	}
}
