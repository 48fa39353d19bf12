package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// problem is one thing that an operator has to change.
type problem struct {
	path string // in the configuration, as server.listen or providers[1].base_url; or the name of a variable
	text string
}

// problems is all that is wrong with a configuration: one line each, so that nobody has to start nine times to find
// nine mistakes.
type problems []problem

func (p *problems) add(path, format string, args ...any) {
	*p = append(*p, problem{path, fmt.Sprintf(format, args...)})
}

func (p problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.path + ": " + one.text
	}
	return strings.Join(lines, "\n")
}

// err is p as an error, nil when there is none.
func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

// addErrors takes over the problems that a package reports about its own options, joined into one error of lines
// "path: text". Values that could not be read were left at zero: what is said about those is a mere consequence.
func (p *problems) addErrors(err error) {
	known := slices.Clone(*p)
	for _, e := range flatten(err) {
		path, text, found := strings.Cut(e.Error(), ": ")
		if !found {
			path, text = "config", e.Error()
		}
		if !known.covers(path) {
			p.add(path, "%s", text)
		}
	}
}

// warnings are what a proxy can be started with, but hardly is meant to be.
func (c *Config) warnings() (found problems) {
	found.addErrors(c.admin(nil, nil).Validate())
	if dir := c.Store.Spool.Dir; dir != "" {
		if err := writable(dir); err != nil {
			found.add("store.spool.dir", "a proxy could not write to %s here: %v", dir, err)
		}
	}
	return found
}

// writable tells whether this user could make files in a folder, or make the folder. Nothing stays that was not there.
func writable(dir string) error {
	at := filepath.Clean(dir)
	info, err := os.Stat(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder", at)
	}
	const writeAndSearch = 2 | 1 // W_OK and X_OK of access(2)
	if err := syscall.Access(at, writeAndSearch); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if at == filepath.Clean(dir) {
		return nil // what is tried there might meet a proxy that looks for its records
	}
	probe, err := os.MkdirTemp(at, ".remora-check-*") // some file systems, such as /proc, only say no now
	if err != nil {
		return err
	}
	return os.Remove(probe)
}

// covers tells whether path, or something above or below it, was reported.
func (p problems) covers(path string) bool {
	return slices.ContainsFunc(p, func(one problem) bool { return within(path, one.path) || within(one.path, path) })
}

// within tells whether path is outer or lies below it.
func within(path, outer string) bool {
	rest, ok := strings.CutPrefix(path, outer)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

// flatten undoes errors.Join, however deep. What was put in front of a join, as by fmt.Errorf("schema: %w", err), comes
// out in front of each of its errors.
func flatten(err error) []error {
	if err == nil {
		return nil
	}
	var all []error
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			all = append(all, flatten(e)...)
		}
		return all
	}
	inner := errors.Unwrap(err)
	parts := flatten(inner)
	before, ok := strings.CutSuffix(err.Error(), fmt.Sprint(inner))
	if !ok || len(parts) < 2 {
		return []error{err}
	}
	for _, e := range parts {
		all = append(all, fmt.Errorf("%s%w", before, e))
	}
	return all
}

// didYouMean is a half sentence with the known word that is closest to an unknown one, or nothing.
func didYouMean(word string, known []string) string {
	best, least := "", max(len(word)/3, 1)+1
	for _, k := range known {
		if d := editDistance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return ", did you mean " + best + "?"
}

// editDistance counts the bytes to insert, delete, replace or swap with their neighbour to turn a into b.
func editDistance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
