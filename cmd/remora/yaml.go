package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"

	"remora/memory/layer"
)

// parseYAML parses one mapping, and returns the lines of its keys too. Viper's own reader would ignore keys without a value,
// which may be misspelled, and all documents but the first.
func parseYAML(data []byte) (map[string]any, keyLines, error) {
	root, err := readDocument(data)
	if err != nil && bytes.Contains(append([]byte{'\n'}, data...), []byte("\n\t")) {
		return nil, nil, fmt.Errorf("parse YAML: %w; indent by spaces, YAML takes no tabs there", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("parse YAML: %w", err)
	}
	m := map[string]any{}
	if root == nil {
		return m, nil, nil
	}
	if root.Kind != yaml.MappingNode {
		var v any
		_ = root.Decode(&v) // for its type
		return nil, nil, fmt.Errorf("want a mapping, such as \"server: {listen: ADDRESS}\", have %s (line %d)", layer.Describe(v), root.Line)
	}
	if err := root.Decode(&m); err != nil {
		return nil, nil, fmt.Errorf("parse YAML: %w", err)
	}
	lines := keyLines{}
	lines.add("", root)
	return m, lines, nil
}

// readDocument returns the content of the only document that is not empty, nil if there is none.
func readDocument(data []byte) (*yaml.Node, error) {
	var root *yaml.Node
	n := 0
	for d := yaml.NewDecoder(bytes.NewReader(data)); ; {
		var doc yaml.Node
		err := d.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if content := doc.Content[0]; content.Tag != "!!null" {
			root = content
			n++
		}
	}
	if n > 1 {
		return nil, fmt.Errorf("want one document, have %d", n)
	}
	return root, nil
}

// keyLines holds the line of every key and list entry of a file, by its path in lower case. The content of an alias has no lines.
type keyLines map[string]int

func (l keyLines) add(path string, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			at := joinPath(path, strings.ToLower(n.Content[i].Value))
			l[at] = n.Content[i].Line
			l.add(at, n.Content[i+1])
		}
	case yaml.SequenceNode:
		for i, e := range n.Content {
			at := fmt.Sprintf("%s[%d]", path, i)
			l[at] = e.Line
			l.add(at, e)
		}
	default:
	}
}

// find returns the line of a path. For a key that a list entry lacks, it returns the line of the entry.
func (l keyLines) find(path string) (int, bool) {
	path = strings.ToLower(path)
	line, ok := l[path]
	for !ok {
		entry := strings.LastIndexByte(path, ']')
		if entry < 0 {
			return 0, false
		}
		path = path[:entry+1]
		if line, ok = l[path]; !ok {
			path = path[:entry]
		}
	}
	return line, ok
}
