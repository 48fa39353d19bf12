package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

//go:embed layers/*.yaml
var shippedLayers embed.FS

// spokenMark is the first line of a configuration whose layers learn only from traffic.
const spokenMark = "# spoken\n"

// layers are a measured part of a configuration. In it ${tokens} and ${items} are budgets: a file with them is measured several
// times.
type layers struct {
	name   string
	config string
	spoken bool // it has spokenMark: conversations are sent through the proxy, not imported
}

// The budgets of runs with ${tokens} and ${items}. While one varies, the other is too large to matter.
var (
	tokenSteps = []int{500, 1000, 2000, 4000}
	itemSteps  = []int{1, 2, 3, 5, 10, 20, 50}
)

const (
	anyTokens = 30_000
	anyItems  = 500
)

// readLayers finds layers by their names in the folder layers, or by path.
func readLayers(names string) ([]layers, error) {
	var all []layers
	for name := range strings.SplitSeq(names, ",") {
		raw, err := shippedLayers.ReadFile("layers/" + name + ".yaml")
		if err != nil {
			if raw, err = os.ReadFile(name); err != nil {
				return nil, fmt.Errorf("-layers: %w", err)
			}
			name = strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
		}
		all = append(all, layers{name: name, config: string(raw), spoken: strings.HasPrefix(string(raw), spokenMark)})
	}
	return all, nil
}

// variesTokens and variesItems report whether the configuration has the budget.
func (l *layers) variesTokens() bool { return strings.Contains(l.config, "${tokens}") }
func (l *layers) variesItems() bool  { return strings.Contains(l.config, "${items}") }

// with returns the configuration with budgets.
func (l *layers) with(tokens, items int) string {
	return strings.NewReplacer("${tokens}", strconv.Itoa(tokens), "${items}", strconv.Itoa(items)).Replace(l.config)
}
