package fileref

import (
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	"remora/memory/layer"
)

// reference is a #path with an extension, at the beginning of a word. "#123", "#tag" and "#v1.2" are none, nor is what
// was made a link before.
var reference = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|[\s("'{,;:])#((?:[\p{L}\p{N}_.-]*/)*[\p{L}\p{N}_.-]*[\p{L}\p{N}_-]\.[A-Za-z][A-Za-z0-9]*)`)
})

// link turns each reference of a text into a link, and hands the paths on. Code in fences is left as it is.
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

// state is what the layer keeps: which files the session refers to, the latest last. Their content is not in it.
type state struct {
	Files []file `json:"files"`
}

// file is one file, as it was when it was looked at.
type file struct {
	Path     string `json:"path"` // slashes, under the folder; cleaned unless it leads out of it
	Priority int    `json:"priority"`
	Stamp    string `json:"stamp,omitempty"` // changes with the content
	Fault    string `json:"fault,omitempty"`
}

func decode(s layer.State) (state, error) {
	var st state
	if len(s) == 0 {
		return st, nil
	}
	if json.Unmarshal(s, &st) != nil || len(st.Files) > limitFiles {
		return state{}, errors.New("state: want files")
	}
	for _, f := range st.Files {
		if len(f.Path) > maxPath || strings.ContainsAny(f.Path, "<\n\r") {
			return state{}, errors.New("state: want files")
		}
	}
	return st, nil
}

func (st *state) encode() (layer.State, error) {
	s, err := json.Marshal(st)
	if err != nil {
		return nil, errors.New("state: cannot be encoded")
	}
	return s, nil
}

// refer adds files, each once, and forgets those that were named longest ago.
func (st *state) refer(refs []string, limit int) {
	for _, ref := range refs {
		if p := path.Clean(ref); !strings.HasPrefix(p, "..") && !path.IsAbs(p) {
			ref = p
		}
		if !slices.ContainsFunc(st.Files, func(f file) bool { return f.Path == ref }) {
			st.Files = append(st.Files, file{Path: ref})
		}
	}
	st.Files = st.Files[max(0, len(st.Files)-limit):]
}
