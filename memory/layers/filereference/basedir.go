package filereference

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// Faults of a file, as its block names them.
const (
	faultTraversal  = "PATH_TRAVERSAL"
	faultExtension  = "DISALLOWED_EXTENSION"
	faultSymlink    = "SYMLINK"
	faultTooLarge   = "FILE_TOO_LARGE"
	faultPermission = "PERMISSION_DENIED"
	faultDeleted    = "DELETED"
	faultNotText    = "NOT_A_TEXT_FILE"
	faultOther      = "READ_FAILED"
)

// baseDir is the open base folder, with the rules for the files that may be read in it.
type baseDir struct {
	root           *os.Root
	allowed        map[string]bool // extensions
	maxFileSize    int
	followSymlinks bool
}

// openBaseDir opens the base folder. The caller closes its root.
func (l *Layer) openBaseDir() (*baseDir, error) {
	root, err := os.OpenRoot(l.o.BaseDir)
	if err != nil {
		return nil, errors.New("base_dir: cannot be opened")
	}
	return &baseDir{root: root, allowed: l.allowed, maxFileSize: l.o.MaxFileSize, followSymlinks: l.o.FollowSymlinks}, nil
}

// look checks a file without reading it. stamp changes whenever the content does.
func (d *baseDir) look(name string) (stamp, fault string) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", faultTraversal
	}
	if !d.allowed[strings.ToLower(strings.TrimPrefix(path.Ext(name), "."))] {
		return "", faultExtension
	}
	if !d.followSymlinks {
		for i := range len(name) {
			if name[i] != '/' {
				continue
			}
			if fault := linked(d.root, name[:i]); fault != "" {
				return "", fault
			}
		}
		if fault := linked(d.root, name); fault != "" {
			return "", fault
		}
	}
	info, err := d.root.Stat(name)
	switch {
	case err != nil:
		return "", faultOf(err)
	case !info.Mode().IsRegular():
		return "", faultNotText
	case info.Size() > int64(d.maxFileSize):
		return "", faultTooLarge
	}
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano()), ""
}

// linked returns the fault of a symbolic link.
func linked(root *os.Root, name string) string {
	info, err := root.Lstat(name)
	switch {
	case err != nil:
		return faultOf(err)
	case info.Mode()&fs.ModeSymlink != 0:
		return faultSymlink
	default:
		return ""
	}
}

func faultOf(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return faultDeleted
	case errors.Is(err, fs.ErrPermission):
		return faultPermission
	case strings.Contains(err.Error(), "escapes"): // os.Root has no error value for it
		return faultTraversal
	default:
		return faultOther
	}
}

// read returns a file's content. The file may have changed since look, so the opened file is checked again; O_NONBLOCK keeps a
// pipe in its place from blocking.
func (d *baseDir) read(name string) (content, fault string) {
	if _, fault := d.look(name); fault != "" {
		return "", fault
	}
	f, err := d.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", faultOf(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return "", faultNotText
	}
	data, err := io.ReadAll(io.LimitReader(f, int64(d.maxFileSize)+1))
	switch {
	case err != nil:
		return "", faultOf(err)
	case len(data) > d.maxFileSize:
		return "", faultTooLarge
	case strings.IndexByte(string(data[:min(len(data), 8000)]), 0) >= 0:
		return "", faultNotText
	}
	return strings.ToValidUTF8(string(data), "\uFFFD"), ""
}
