package view

import (
	"slices"
	"strings"
)

// updateKind is the effect of an update on the layer's earlier block.
type updateKind string

const (
	add     updateKind = "add"     // there was no block
	replace updateKind = "replace" // there was another block
	retract updateKind = "retract" // there is no block any more
)

func (k updateKind) valid() bool { return k == add || k == replace || k == retract }

// maxOf bounds the name of an earlier block, in bytes.
const maxOf = 256

const updateTag = "memory_update"

// text returns the update for the model. It contains the layer's text unchanged: layers escape the text of others
// (layer.Block). Only the closing tag of the update is escaped.
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

// called returns the model's name of a block: the opening tags of its messages, or the name of the layer.
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
