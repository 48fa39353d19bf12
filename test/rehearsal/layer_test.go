package rehearsal_test

import "testing"

// TestLayer: a kind of layer is a folder and two lines of the table.
func TestLayer(t *testing.T) {
	x := copyTree(t)
	x.add("memory/layers/motto/motto.go", `// Package motto tells the model a motto.
package motto

import (
	"context"

	"remora/memory/layer"
)

// Options configures the layer.
type Options struct {
	// Text is the motto.
	Text string `+"`mapstructure:\"text\"`"+`
}

// Defaults are the layer's place and limits.
func Defaults(Options) layer.Defaults {
	return layer.Defaults{ID: "motto", Slot: 60, Scope: layer.Global, Budget: layer.Between(0, 50)}
}

// Layer is the layer.
type Layer struct{ text string }

// New makes a layer.
func New(o Options) (*Layer, error) { return &Layer{o.Text}, nil }

// Recall tells the motto.
func (l *Layer) Recall(context.Context, *layer.Turn, layer.State, int) (layer.Recalled, error) {
	return layer.Recalled{Messages: []string{l.text}}, nil
}
`)
	x.add("memory/layers/motto/README.md", `# motto

Slot 60, scope global, budget 0 to 50 tokens, anchored.

| option | default | meaning |
|---|---|---|
| `+"`text`"+` | none | the motto |

`+"```yaml"+`
- kind: motto
  text: Be kind.
`+"```"+`
`)
	x.add("memory/layers/motto/sample.yaml", "  # Tells the model a motto.\n#- kind: motto\n  #text: Be kind.\n")
	x.edit("memory/layers/layers.go", `"remora/memory/layers/historymanager"`, "\t\"remora/memory/layers/motto\"")
	x.edit("memory/layers/layers.go", `kind("reminder"`, "\t\tkind(\"motto\", motto.Defaults, motto.New),")

	x.run("make", "generate")
	x.run("go", "test", "-trimpath", ".")
	x.run("go", "test", "-trimpath", "-run=^(TestPages|TestListsOfKinds)$", "./memory/layers")
	x.add("motto.yaml", "memory: {layers: [{kind: motto, text: Be kind.}]}\n")
	x.run("go", "run", "-trimpath", "./cmd/remora", "--check", "--config", "motto.yaml")
	x.wantEdits(1)
}
