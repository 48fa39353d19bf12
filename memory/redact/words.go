package redact

import (
	_ "embed"
	"strings"
)

//go:embed words.txt
var wordsFile string

// lists are the words of words.txt, by the name of their list.
var lists = func() map[string][]string {
	all := make(map[string][]string)
	name := ""
	for line := range strings.Lines(wordsFile) {
		line = strings.TrimRight(line, "\n,")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == ' ':
			all[name] = append(all[name], strings.Split(strings.TrimSpace(line), ", ")...)
		default:
			name = strings.TrimSuffix(line, ":")
		}
	}
	return all
}()

// words returns the words of a list.
func words(list string) []string {
	if len(lists[list]) == 0 {
		panic("BUG: words.txt has no list " + list)
	}
	return lists[list]
}

// set returns the words of a list as a set.
func set(list string) map[string]bool {
	all := make(map[string]bool)
	for _, w := range words(list) {
		all[w] = true
	}
	return all
}
