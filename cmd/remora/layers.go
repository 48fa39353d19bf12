package main

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"remora/memory/layer"
	"remora/memory/layers"
	"remora/memory/layers/semanticrecall"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/memory/wordvectors"
	"remora/providers"
)

// layerConfig is memory.layers, decoded.
type layerConfig struct {
	window *view.Window // nil for none
	list   []configuredLayer
}

// configuredLayer is one layer without its model: providers are not open while the file is read.
type configuredLayer struct {
	pipeline.Layer
	path       string
	model      modelOptions
	embeddings semanticrecall.Embeddings // zero for kinds without embeddings
}

// layerOptions are common to all kinds of layers.
type layerOptions struct {
	ID          string         `mapstructure:"id"`
	Name        string         `mapstructure:"name"`
	Slot        int            `mapstructure:"slot"`
	Scope       string         `mapstructure:"scope"`
	Budget      any            `mapstructure:"budget"`
	Timeouts    layer.Timeouts `mapstructure:"timeouts"`
	OnInitError string         `mapstructure:"on_init_error"`
	RecallMode  string         `mapstructure:"recall_mode"`
	Placement   string         `mapstructure:"placement"`
	Model       modelOptions   `mapstructure:"model"`
}

// maxLayerName bounds a layer's display name, in bytes.
const maxLayerName = 128

// modelOptions name the model that a layer calls.
type modelOptions struct {
	Provider string `mapstructure:"provider"` // empty: the first provider that serves the model
	Model    string `mapstructure:"model"`    // empty: no model
}

// check returns the problems of the options, prefixed with their path in the configuration.
func (o modelOptions) check(path string, upstreams []providers.Options) error {
	known := func(p providers.Options) bool { return p.NameOrKind() == o.Provider }
	switch {
	case o.Provider == "" && o.Model == "":
		return nil
	case o.Provider == "":
		set, err := providers.NewSet(upstreams)
		if err == nil && set.Pick(o.Model) == nil { // problems of providers are reported elsewhere
			return fmt.Errorf("%s.provider: want the name of one of providers, since none takes the model %q by itself", path, o.Model)
		}
		return nil
	case o.Model == "":
		return fmt.Errorf("%s.model: want the name of a model", path)
	case !slices.ContainsFunc(upstreams, known):
		return fmt.Errorf("%s.provider: want the name of one of providers", path)
	}
	return nil
}

// schemaOfLayer returns the schema of one entry of memory.layers, nil for an unknown kind. It finds the entry's keys in any
// case: the schema is there to report a wrong case.
func schemaOfLayer(entry map[string]any) *node {
	var kind string
	budget := &node{}
	for key, v := range entry {
		switch strings.ToLower(key) {
		case "kind":
			kind, _ = v.(string)
		case "budget":
			if _, words := v.(map[string]any); words { // else it is a word or a number
				budget.fields = map[string]*node{"min": {}, "max": {}}
			}
		}
	}

	n := &node{fields: map[string]*node{"kind": {}}}
	if kind == historyWindow {
		n.addFields(reflect.TypeFor[view.Window]())
		return n
	}
	k, known := layers.Find(kind)
	if !known {
		return nil
	}
	n.addFields(reflect.TypeFor[layerOptions]())
	n.addFields(reflect.TypeOf(k.Options()).Elem())
	n.fields["budget"] = budget
	return n
}

// decodeLayers decodes every entry by its kind, and adds its problems to found.
func decodeLayers(entries []openEntry, found *problems) layerConfig {
	var l layerConfig
	names := layerKindNames()
	for i, entry := range entries {
		path := fmt.Sprintf("memory.layers[%d]", i)
		if len(entry) == 0 && found.covers(path) {
			continue // not a mapping, which has been reported
		}
		name, _ := entry["kind"].(string)
		options := maps.Clone(entry)
		delete(options, "kind")
		k, known := layers.Find(name)
		switch {
		case name == historyWindow:
			*found = append(*found, decodeWindow(path, options, &l)...)
		case known:
			*found = append(*found, decodeLayer(path, k, options, &l)...)
		default:
			found.add(path+".kind", "want one of %s, have %q%s", strings.Join(names, ", "), name, didYouMean(name, names))
		}
	}
	return l
}

// layerKindNames returns the allowed values of "kind", sorted.
func layerKindNames() []string {
	names := []string{historyWindow}
	for _, k := range layers.Kinds() {
		names = append(names, k.Name)
	}
	slices.Sort(names)
	return names
}

// decodeLayer decodes the kind's own options and the common ones.
func decodeLayer(path string, k layers.Kind, entry openEntry, l *layerConfig) problems {
	common, own := openEntry{}, openEntry{}
	shared := schemaOf(reflect.TypeFor[layerOptions]()).fields
	for key, v := range entry {
		if _, ok := shared[key]; ok {
			common[key] = v
		} else {
			own[key] = v
		}
	}

	options := k.Options()
	found := decodeEntry(path, own, options)
	d := k.Defaults(options)
	o := layerOptions{
		ID: d.ID, Slot: d.Slot, Scope: scopeNames[d.Scope-1], OnInitError: "throw", RecallMode: "atomic", Placement: "auto",
		Timeouts: d.Timeouts,
	}

	found = append(found, decodeEntry(path, common, &o)...)
	out := configuredLayer{path: path, model: o.Model, Layer: pipeline.Layer{
		ID: o.ID, Name: o.Name, Kind: k.Name, Slot: o.Slot, Scope: d.Scope, Budget: d.Budget, Timeouts: o.Timeouts,
	}}
	if len(o.Name) > maxLayerName || !utf8.ValidString(o.Name) {
		found.add(joinPath(path, "name"), "want text of at most %d bytes", maxLayerName)
	}
	if o.Budget != nil {
		var err error
		out.Budget, err = layer.ParseBudget(o.Budget)
		found.addErrors(path, err)
	}
	o.choose(path, d, &out, &found)
	if out.Eventual && d.Placement.Live() && k.Name != "http" {
		found.add(joinPath(path, "recall_mode"), "want atomic: %s shows other text for another message or at another time, not only when its state changes", k.Name)
	}
	decoded := len(found) == 0
	hasModel := o.Model.Model != "" || found.covers(joinPath(path, "model"))
	impl, err := k.New(options, hasModel, out.Scope) // also after problems: it may have others
	found.addErrors(path, err)
	if !decoded {
		return found
	}
	if recall, ok := options.(*semanticrecall.Options); ok {
		out.embeddings = recall.Embeddings
	}
	out.Impl = impl
	l.list = append(l.list, out)
	return found
}

// choose decodes the options with a fixed set of values.
func (o *layerOptions) choose(path string, d layer.Defaults, out *configuredLayer, found *problems) {
	for _, choice := range []struct {
		key, have string
		words     []string
		apply     func(i int)
	}{
		{"scope", o.Scope, scopeNames, func(i int) { out.Scope = layer.Scope(i + 1) }}, //nolint:gosec // one of four
		{"on_init_error", o.OnInitError, []string{"throw", "disable"}, func(i int) { out.InitMayFail = i == 1 }},
		{"recall_mode", o.RecallMode, []string{"atomic", "eventual"}, func(i int) { out.Eventual = i == 1 }},
		{"placement", o.Placement, []string{"auto", "anchor", "live"}, func(i int) {
			out.Placement, out.Fresh = []layer.Placement{d.Placement, layer.Anchored, layer.Live}[i], d.Fresh
		}},
	} {
		i := slices.Index(choice.words, choice.have)
		if i < 0 {
			found.add(joinPath(path, choice.key), "want one of %s, have %q", strings.Join(choice.words, ", "), choice.have)
			continue
		}
		choice.apply(i)
	}
}

// check returns the problems between layers, and between layers and providers.
func (l layerConfig) check(upstreams []providers.Options) error {
	var list []pipeline.Layer
	var errs []error
	embeds := ""
	for _, c := range l.list {
		list = append(list, c.Layer)
		errs = append(errs, c.model.check(joinPath(c.path, "model"), upstreams))
		if !c.embeddings.On() {
			continue
		}
		errs = append(errs, c.checkEmbeddings(upstreams))
		if embeds != "" {
			errs = append(errs, fmt.Errorf("%s.embeddings: %s has embeddings already, and all layers search by the same", c.path, embeds))
		}
		embeds = c.path
	}
	_, err := pipeline.New(list, pipeline.Options{})
	for _, e := range flatten(err) {
		// The pipeline does not count the window: replace its index of the layer by that in the file.
		text := e.Error()
		for i, c := range l.list {
			if rest, ok := strings.CutPrefix(text, fmt.Sprintf("layers[%d]", i)); ok {
				text = c.path + rest
				break
			}
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// checkSummaries refuses a policy that summarises beside a layer that does: the model would get two summaries of the same messages.
func (l layerConfig) checkSummaries(overflow string) error {
	for _, c := range l.list {
		manager, ok := c.Impl.(layer.Selective)
		if overflow == view.OverflowSummarize && c.Kind == "history_manager" && ok && manager.Has(layer.HookEvicted) {
			return fmt.Errorf("memory.policy.overflow: want another one than %s, since %s summarises what views leave out", overflow, c.path)
		}
	}
	return nil
}

// checkEmbeddings checks the embedding model of a layer.
func (c *configuredLayer) checkEmbeddings(upstreams []providers.Options) error {
	path := joinPath(c.path, "embeddings")
	e := c.embeddings.WithDefaults()
	errs := []error{modelOptions{Provider: e.Provider, Model: e.Model}.check(path, upstreams)}
	if e.File != "" {
		if err := wordvectors.Check(e.File); err != nil {
			errs = append(errs, fmt.Errorf("%s.file: %w", path, err))
		}
	}
	if limit := c.Timeouts.Recall; limit > 0 && e.Timeout >= limit {
		errs = append(errs, fmt.Errorf("%s.timeout: want less than the layer's timeouts.recall, %s, have %s", path, limit, e.Timeout))
	}
	return errors.Join(errs...)
}

// scopeNames are the values of layer.Scope, from the first.
var scopeNames = []string{"execution", "thread", "resource", "global"}

const historyWindow = "history_window"

func decodeWindow(path string, entry openEntry, l *layerConfig) problems {
	if l.window != nil {
		return problems{{path: path, text: "history_window is there already, one is all that a session can have"}}
	}
	var w view.Window
	found := decodeEntry(path, entry, &w)
	w.Defaults(func(key string) bool { _, given := entry[key]; return given })
	found.addErrors(path, w.Validate()...)
	l.window = &w
	return found
}
