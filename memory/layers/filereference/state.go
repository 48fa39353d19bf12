package filereference

import (
	"path"
	"slices"
	"strings"

	"remora/memory/layer"
)

// state holds the files that the session refers to, the latest last, without their content.
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

// read decodes a stored state. An unreadable one is empty.
func read(s layer.State) state {
	odd := func(f file) bool { return len(f.Path) > maxPath || strings.ContainsAny(f.Path, "<\n\r") }
	return layer.Decode(s, func(st *state) bool { return len(st.Files) <= limitFiles && !slices.ContainsFunc(st.Files, odd) })
}

// refer adds files, each once, and drops the oldest beyond the limit.
func (st *state) refer(refs []string, limit int) {
	for _, ref := range refs {
		if p := path.Clean(ref); !strings.HasPrefix(p, "..") && !path.IsAbs(p) {
			ref = p
		}
		if !slices.ContainsFunc(st.Files, func(f file) bool { return f.Path == ref }) {
			st.Files = append(st.Files, file{Path: ref})
		}
	}
	st.Files = layer.Last(st.Files, limit)
}
