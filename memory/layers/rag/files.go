package rag

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// file is a document file. Equal values mean the same content, judged by size and time.
type file struct {
	path    string
	folder  string // in which it was found; empty if the configuration itself lists the file
	shown   string // the name in citations: from the configured file or folder on, with slashes
	size    int64
	changed time.Time
}

// maxEntries limits the folder entries visited.
const maxEntries = 1_000_000

// look lists the current files in the order of the configuration, files of a folder by path.
func (o *Options) look() ([]file, error) {
	var all []file
	seen := map[string]bool{}
	bytes, entries := int64(0), 0
	add := func(one file) error {
		if seen[one.path] {
			return nil
		}
		seen[one.path] = true
		if all = append(all, one); len(all) > o.MaxFiles {
			return fmt.Errorf("paths: want at most %d files, there are more (max_files)", o.MaxFiles)
		}
		if bytes += one.size; bytes > int64(o.MaxBytes) {
			return fmt.Errorf("paths: want at most %d bytes in all files, there are more (max_bytes)", o.MaxBytes)
		}
		return nil
	}

	for i, configured := range o.Paths {
		root, err := filepath.EvalSymlinks(configured) // WalkDir does not follow a link
		if err != nil {
			return nil, fmt.Errorf("paths[%d]: %w", i, because(configured, err))
		}
		info, err := os.Stat(root)
		if err != nil {
			return nil, fmt.Errorf("paths[%d]: %w", i, because(configured, err))
		}
		base := filepath.Base(filepath.Clean(configured))
		if !info.IsDir() {
			if !info.Mode().IsRegular() {
				return nil, fmt.Errorf("paths[%d]: %s: want a regular file or a folder", i, configured) // a pipe would never end
			}
			if err := add(file{root, "", base, info.Size(), info.ModTime()}); err != nil {
				return nil, err
			}
			continue
		}
		inside, err := os.OpenRoot(root)
		if err != nil {
			return nil, fmt.Errorf("paths[%d]: %w", i, because(configured, err))
		}
		err = filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
			switch entries++; {
			case errors.Is(err, fs.ErrNotExist) && at != root:
				return nil // deleted since its folder was read
			case err != nil:
				return fmt.Errorf("paths[%d]: %w", i, because(at, err))
			case entries > maxEntries:
				return fmt.Errorf("paths[%d]: want at most %d entries in its folders, there are more", i, maxEntries)
			case at != root && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir() || !o.includes(d.Name()):
				return nil
			}
			shown, err := filepath.Rel(root, at)
			if err != nil {
				return err
			}
			info, err := inside.Stat(shown) // follows links in the folder: Kubernetes mounts files as such
			if err != nil || !info.Mode().IsRegular() {
				return nil //nolint:nilerr // deleted, or a link that dangles or leads out of the folder
			}
			return add(file{at, root, path.Join(nameOf(base), filepath.ToSlash(shown)), info.Size(), info.ModTime()})
		})
		_ = inside.Close() // it was only read
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// nameOf returns the name of a folder in citations, empty if it has none.
func nameOf(base string) string {
	if base == "." || base == ".." || base == string(filepath.Separator) {
		return ""
	}
	return base
}

func (o *Options) includes(name string) bool {
	return slices.ContainsFunc(o.Include, func(pattern string) bool {
		ok, _ := path.Match(pattern, name)
		return ok
	})
}

// because returns why a file cannot be read, with its path only once.
func because(name string, err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		err = e.Err
	}
	return fmt.Errorf("%s: %w", name, err)
}

// open opens a file. One that was found in a folder must still be in it: people who can put links into a folder of documents must
// not be able to show other files of the machine to users.
func (f *file) open() (*os.File, error) {
	if f.folder == "" {
		return os.Open(f.path)
	}
	name, err := filepath.Rel(f.folder, f.path)
	if err != nil {
		return nil, err
	}
	return os.OpenInRoot(f.folder, name)
}

// read returns the text of a file, empty for a deleted file and for one in a folder that is not text.
func (f *file) read(limit int) (string, error) {
	r, err := f.open()
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil // the next look will not list it
	}
	if err != nil {
		return "", fmt.Errorf("paths: %w", because(f.path, err))
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("paths: %w", because(f.path, err))
	case len(data) > limit: // it has grown since look
		return "", errors.New("paths: want fewer bytes in all files (max_bytes)")
	case utf8.Valid(data) && bytes.IndexByte(data, 0) < 0:
		return strings.TrimPrefix(string(data), "\uFEFF"), nil
	case f.folder == "":
		return "", fmt.Errorf("paths: %s: want UTF-8 text", f.path)
	}
	return "", nil
}
