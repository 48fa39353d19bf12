package index

import (
	_ "embed"
	"sync"
)

//go:embed synonyms.txt
var synonymLines string

// synonyms are words that people put in each other's place when they ask for what was said: a question asks for a child where a
// daughter was spoken of. By stem, the stems of the others.
var synonyms = sync.OnceValue(func() map[string][]string {
	all := map[string][]string{}
	for words := range wordLines(synonymLines) {
		for i := range words {
			words[i] = string(stem([]byte(words[i])))
		}
		for i, w := range words {
			for j, o := range words {
				if min(i, j) < 2 && i != j && w != o {
					all[w] = append(all[w], o)
				}
			}
		}
	}
	return all
})
