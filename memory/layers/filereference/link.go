package filereference

import (
	"regexp"
	"strings"

	"remora/memory/layer"
)

// reference matches a #path with an extension at the beginning of a word, but not "#123", "#tag", "#v1.2" or a path that is
// already a link.
var reference = layer.Lazily(`(^|[\s("'{,;:])#((?:[\p{L}\p{N}_.-]*/)*[\p{L}\p{N}_.-]*[\p{L}\p{N}_-]\.[A-Za-z][A-Za-z0-9]*)`)

// link turns each reference in a text into a link, and returns the paths. Fenced code is not changed.
func link(text string, found func(ref string)) string {
	if !strings.Contains(text, "#") {
		return text
	}
	var b strings.Builder
	fenced := false
	for l := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(l), "```") {
			fenced = !fenced
		}
		if fenced {
			b.WriteString(l)
			continue
		}
		done := 0
		for _, m := range reference().FindAllStringSubmatchIndex(l, -1) {
			ref := l[m[4]:m[5]]
			if len(ref) > maxPath {
				continue
			}
			found(ref)
			b.WriteString(l[done:m[3]] + "[#" + ref + "](#" + slug(ref) + ")")
			done = m[5]
		}
		b.WriteString(l[done:])
	}
	return b.String()
}

var notSlug = regexp.MustCompile(`[^a-zA-Z0-9-]`)

// slug is the anchor of a path.
func slug(ref string) string { return strings.ToLower(notSlug.ReplaceAllString(ref, "-")) }
