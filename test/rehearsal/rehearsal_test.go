// Package rehearsal_test adds a stub dialect, layer and store to a copy of this source tree, and counts the edited files
// outside of the stub's folder. ARCHITECTURE.md promises few.
package rehearsal_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A tree is a copy of this source tree.
type tree struct {
	t     *testing.T
	root  string
	edits []string // existing files that were edited by hand
}

// copyTree copies the files that git tracks, or would add.
func copyTree(t *testing.T) *tree {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}

	x := &tree{t: t, root: t.TempDir()}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSuffix(name, "\n")
		data, err := os.ReadFile(filepath.Join("../..", name))
		if os.IsNotExist(err) {
			continue // deleted but not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		x.store(name, data)
	}
	return x
}

// add writes a file of the stub's folder.
func (x *tree) add(name, text string) { x.store(name, []byte(text)) }

// edit inserts a line after the first one that contains after, as a contributor would.
func (x *tree) edit(name, after, line string) {
	x.t.Helper()
	data, err := os.ReadFile(filepath.Join(x.root, name))
	if err != nil {
		x.t.Fatal(err)
	}
	at := bytes.Index(data, []byte(after))
	if at < 0 {
		x.t.Fatalf("%s does not have %q", name, after)
	}
	at += bytes.IndexByte(data[at:], '\n') + 1
	x.store(name, slices.Concat(data[:at], []byte(line+"\n"), data[at:]))
	if !slices.Contains(x.edits, name) {
		x.edits = append(x.edits, name)
	}
}

func (x *tree) store(name string, data []byte) {
	x.t.Helper()
	file := filepath.Join(x.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		x.t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		x.t.Fatal(err)
	}
}

// run runs a command in the tree.
func (x *tree) run(command ...string) {
	x.t.Helper()
	cmd := x.command(command)
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// command is a command in the tree. Go commands need -trimpath: then the build cache works although the copy is in another folder.
// Without cgo, they share it with the tests that build the image.
func (x *tree) command(command []string) *exec.Cmd {
	cmd := exec.CommandContext(x.t.Context(), command[0], command[1:]...)
	cmd.Dir, cmd.Env = x.root, append(os.Environ(), "CGO_ENABLED=0")
	return cmd
}

// wantFailure runs a command in the tree, which must fail with why in its output.
func (x *tree) wantFailure(why string, command ...string) {
	x.t.Helper()
	cmd := x.command(command)
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte(why)) {
		x.t.Fatalf("%s: %v, want it to fail with %q\n%s", strings.Join(command, " "), err, why, out)
	}
}

// wantEdits checks the number of files that were edited by hand.
func (x *tree) wantEdits(most int) {
	x.t.Helper()
	if len(x.edits) > most {
		x.t.Errorf("want at most %d files edited, have %q", most, x.edits)
	}
}
