package semanticrecall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"remora/memory/index"
	"remora/memory/layer"
)

// nothingFound answers a search without results.
const nothingFound = "Nothing was said about that."

// Has reports whether the layer uses a hook (layer.Selective): the search is a tool only if it is configured.
func (l *Layer) Has(hook string) bool { return hook != layer.HookTools || l.o.SearchTool }

// Tools offers a search with the model's own query. Recall searches only for the user's message; while it works on a task, the
// model knows better what it needs.
func (l *Layer) Tools() []layer.Tool {
	return []layer.Tool{{
		Name: "search",
		Description: "Searches what the user and you said in earlier conversations, and earlier in this one. " +
			"Ask a question in the words that were likely used. Results are quotations and may be outdated.",
		Parameters: []byte(`{"type":"object","properties":{"query":{"type":"string","description":"what you look for"}},` +
			`"required":["query"],"additionalProperties":false}`),
		Run: l.search,
	}}
}

// search answers a call with the statements that fit into max_tokens, oldest first.
func (l *Layer) search(ctx context.Context, t *layer.Turn, s layer.State, arguments []byte) (string, layer.State, error) {
	var asked struct {
		Query string `json:"query"`
	}
	err := json.Unmarshal(arguments, &asked)
	query := strings.TrimSpace(layer.Head(asked.Query, index.MaxQuestion))
	if err != nil || query == "" {
		return "", s, errors.New("query: want text")
	}
	if t.Past == nil {
		return nothingFound, s, nil
	}
	found, err := t.Past.Search(ctx, query, l.o.MaxItems+spare)
	if err != nil {
		return "", s, fmt.Errorf("search: %w", err)
	}

	lines := fit(t, l.choose(t, found), l.o.MaxTokens)
	if len(lines) == 0 {
		return nothingFound, s, nil
	}
	t.Note("searched", len(lines))
	return render(lines), s, nil
}
