package view

import (
	"slices"
	"strings"
)

// updateKind is the effect of an update on the layer's earlier block.
type updateKind string

const (
	add     updateKind = "add"     // there was nothing
	replace updateKind = "replace" // it was something else
	retract updateKind = "retract" // there is nothing any more
)

func (k updateKind) valid() bool { return k == add || k == replace || k == retract }

// maxOf bounds what an earlier block is called, in bytes.
const maxOf = 256

const updateTag = "memory_update"

// text returns the update as the model reads it. What the layer said stands in it as it is: layers escape the text of others
// (layer.Block). Only the end of the update itself is guarded.
func (u *update) text() string {
	var b strings.Builder
	b.WriteString("<" + updateTag + ">\n")
	switch u.Kind {
	case retract:
		b.WriteString("The earlier " + u.Of + " no longer holds. Nothing takes its place.")
	case replace:
		b.WriteString("This replaces all of the earlier " + u.Of + ", which no longer holds:")
	default:
		b.WriteString("This is new:")
	}
	for _, text := range u.Texts {
		b.WriteString("\n" + strings.ReplaceAll(text, "</"+updateTag, `<\/`+updateTag))
	}
	b.WriteString("\n</" + updateTag + ">")
	return b.String()
}

// called returns what the model knows a block by: the tags that its messages begin with, as layers write them, or the name of
// the layer.
func called(b Block) string {
	var tags []string
	size := 0
	for _, text := range b.Texts {
		tag := openingTag(text)
		if tag == "" {
			return `memory "` + b.Layer + `"`
		}
		if size += len(tag) + len(", "); !slices.Contains(tags, tag) && size <= maxOf {
			tags = append(tags, tag)
		}
	}
	return strings.Join(tags, ", ")
}

// openingTag returns the tag that a text begins with, without attributes; empty if it begins with none.
func openingTag(text string) string {
	const longest = 64
	rest, ok := strings.CutPrefix(text, "<")
	if !ok {
		return ""
	}
	end := strings.IndexFunc(rest, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	if end < 1 || end > longest || rest[end] != '>' && rest[end] != ' ' {
		return ""
	}
	return "<" + rest[:end] + ">"
}
