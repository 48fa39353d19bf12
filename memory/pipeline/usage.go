package pipeline

import (
	"slices"
	"strings"

	"remora/wire"
)

// Usage is the cost of a view by part, in tokens. It is cheap: it uses what Fit has counted, and estimates the rest.
type Usage struct {
	Layers                        []LayerUsage // of every layer, and of every other block in the view; in order of id
	System, Tools, History, Total int
	// Estimated: System and History are a quarter of their bytes, since the view fitted without counting. Tools are
	// always estimated so, layers never.
	Estimated bool
}

// LayerUsage is one layer's part of a view.
type LayerUsage struct {
	ID            string
	Tokens, Items int
}

// usage returns the account of a view as it is sent: layers are the ids of all layers, system its system items, tools the bytes
// of all definitions of tools, f the rest.
func (f *Fitted) usage(layers []string, system []wire.Item, tools int) Usage {
	u := Usage{System: f.SystemTokens, History: f.HistoryTokens, Tools: quarter(tools)}
	if u.System+u.History == 0 {
		u.System, u.History, u.Estimated = estimate(system), estimate(f.History), true
	}
	u.Total = u.System + u.Tools + u.History
	if len(layers)+len(f.Blocks) == 0 {
		return u
	}

	u.Layers = make([]LayerUsage, 0, len(layers)+1)
	for _, id := range layers {
		u.Layers = append(u.Layers, LayerUsage{ID: id})
	}
	for i := range f.Blocks {
		b := &f.Blocks[i]
		at := slices.IndexFunc(u.Layers, func(l LayerUsage) bool { return l.ID == b.Layer })
		if at < 0 {
			at = len(u.Layers)
			u.Layers = append(u.Layers, LayerUsage{ID: b.Layer})
		}
		u.Layers[at].Tokens += b.Tokens
		u.Layers[at].Items += len(b.Texts)
		u.Total += b.Tokens
	}
	slices.SortFunc(u.Layers, func(a, b LayerUsage) int { return strings.Compare(a.ID, b.ID) })
	return u
}

func estimate(items []wire.Item) int {
	n := 0
	for _, it := range items {
		n += len(it.Raw)
	}
	return quarter(n)
}

// quarter estimates the tokens of a number of bytes of JSON.
func quarter(bytes int) int {
	const bytesOfToken = 4
	return (bytes + bytesOfToken - 1) / bytesOfToken
}
