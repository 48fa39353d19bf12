// Package rehearsal_test adds a stub of each thing that contributors add, to a copy of this source tree, and counts the
// files outside of the stub's own folder that it takes. ARCHITECTURE.md promises few.
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
	edits []string // the files of ours that were written by hand
}

// copyTree copies the files that git knows, or would add.
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
			continue // deleted, and not committed
		}
		if err != nil {
			t.Fatal(err)
		}
		x.store(name, data)
	}
	return x
}

// add writes a file of the stub's own folder.
func (x *tree) add(name, text string) { x.store(name, []byte(text)) }

// edit puts a line behind the first one that holds a text, as a contributor would.
func (x *tree) edit(name, behind, line string) {
	x.t.Helper()
	data, err := os.ReadFile(filepath.Join(x.root, name))
	if err != nil {
		x.t.Fatal(err)
	}
	at := bytes.Index(data, []byte(behind))
	if at < 0 {
		x.t.Fatalf("%s does not have %q", name, behind)
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

// run executes a command in the tree. Commands of Go need -trimpath: what they compile is in the cache then, wherever the
// copy is.
func (x *tree) run(command ...string) {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), command[0], command[1:]...)
	cmd.Dir = x.root
	if out, err := cmd.CombinedOutput(); err != nil {
		x.t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
}

// wantFailure executes a command in the tree that fails and says why.
func (x *tree) wantFailure(why string, command ...string) {
	x.t.Helper()
	cmd := exec.CommandContext(x.t.Context(), command[0], command[1:]...)
	cmd.Dir = x.root
	if out, err := cmd.CombinedOutput(); err == nil || !bytes.Contains(out, []byte(why)) {
		x.t.Fatalf("%s: %v, want it to fail with %q\n%s", strings.Join(command, " "), err, why, out)
	}
}

// wantEdits compares the number of files that were edited by hand.
func (x *tree) wantEdits(most int) {
	x.t.Helper()
	if len(x.edits) > most {
		x.t.Errorf("want at most %d files edited, have %q", most, x.edits)
	}
}
