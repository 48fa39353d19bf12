// Package staticcontent implements the layer static_content: a text of the operator, from the configuration or from files,
// that the model gets with every request. It keeps no state. Files are read when the layer is made, so a reload of
// the configuration reads them again.
package staticcontent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"remora/memory/layer"
)

// maxContent bounds the content, in bytes: all files of a glob together.
const maxContent = 1 << 20

// Options are the layer's own keys. Exactly one of Text, File and Glob is set.
type Options struct {
	// Text is the content itself.
	Text string `mapstructure:"text"`
	// File is the path of a file that holds the content. Line ends at the end of a file are left out.
	File string `mapstructure:"file"`
	// Glob is a pattern as of filepath.Glob: the files that match are put together in the order of their paths, with
	// an empty line between them.
	Glob string `mapstructure:"glob"`
	// Tag wraps the content, "instructions" by default.
	Tag string `mapstructure:"tag"`
}

// Defaults returns the layer's slot, scope and budget.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "static-content", Slot: 105, Scope: layer.Resource, Budget: layer.Budget{}}
}

// Layer is the layer. It is safe for concurrent use.
type Layer struct {
	// head and tail are the block around the place where it may be cut; head is empty where there is no content.
	head, tail string
	tag        string
}

var tagName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// New reads the content. Errors name the key that they are about; a file that cannot be read is one of them.
func New(o Options) (*Layer, error) {
	o.Tag = cmp.Or(o.Tag, "instructions")
	var errs []error
	if !tagName.MatchString(o.Tag) {
		errs = append(errs, errors.New("tag: want a letter or _, then at most 63 letters, digits, _ or -"))
	}
	content, err := o.content()
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	if content == "" {
		return &Layer{}, nil
	}
	tail := "\n</" + o.Tag + ">"
	return &Layer{head: strings.TrimSuffix(layer.OwnBlock(o.Tag, content), tail), tail: tail, tag: o.Tag}, nil
}

func (o Options) content() (string, error) {
	set := 0
	for _, v := range []string{o.Text, o.File, o.Glob} {
		if v != "" {
			set++
		}
	}
	switch {
	case set != 1:
		return "", fmt.Errorf("text: want exactly one of text, file and glob, have %d", set)
	case o.Text != "":
		return o.Text, checkText("text", o.Text)
	case o.File != "":
		return readAll("file", []string{o.File})
	}
	paths, err := filepath.Glob(o.Glob)
	if err != nil {
		return "", errors.New("glob: want a pattern with *, ? and [...] as of filepath.Match")
	}
	files := paths[:0]
	for _, p := range paths {
		if info, err := os.Stat(p); err != nil || !info.IsDir() {
			files = append(files, p) // one that is gone by now is an error when it is read
		}
	}
	if len(files) == 0 {
		return "", errors.New("glob: want a pattern that matches a file, this one matches none")
	}
	return readAll("glob", files)
}

// readAll is the text of files, with an empty line between two.
func readAll(key string, paths []string) (string, error) {
	var parts []string
	left := maxContent
	for _, p := range paths {
		text, err := readFile(p, left)
		if err != nil {
			return "", fmt.Errorf("%s: %w", key, err)
		}
		left -= len(text)
		if text = strings.TrimRight(text, "\n"); text != "" {
			parts = append(parts, text)
		}
	}
	content := strings.Join(parts, "\n\n")
	return content, checkText(key, content)
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s: want a regular file", path) // a pipe would hang the start
	}
	f, err := os.Open(path) //nolint:gosec // the operator names it
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)+1))
	if err != nil {
		return "", err
	}
	if len(data) > limit {
		return "", fmt.Errorf("%s: want at most %d bytes in all", path, maxContent)
	}
	return string(data), nil
}

func checkText(key, text string) error {
	switch {
	case len(text) > maxContent:
		return fmt.Errorf("%s: want at most %d bytes, have %d", key, maxContent, len(text))
	case !utf8.ValidString(text):
		return fmt.Errorf("%s: want UTF-8 text", key)
	default:
		return nil
	}
}

// Stateless returns true: the layer has no state (layer.Stateless).
func (*Layer) Stateless() bool { return true }

// Recall returns the block. Over the budget it is cut, but keeps its closing tag; a budget of 0 cuts nothing, so that an
// operator's rules are not lost silently.
func (l *Layer) Recall(_ context.Context, t *layer.Turn, _ layer.State, budget int) (layer.Recalled, error) {
	if l.head == "" {
		return layer.Recalled{}, nil
	}
	text := l.head
	if budget > 0 {
		if text = text[:layer.Cut(t.Count, text, l.tail, budget)]; len(text) <= len("<"+l.tag+">\n") {
			return layer.Recalled{NoRoom: true}, nil
		}
	}
	return layer.OneBlock(text + l.tail), nil
}
