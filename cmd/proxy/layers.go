package main

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"remora/memory/budget"
	"remora/memory/layer"
	"remora/memory/layer/fileref"
	"remora/memory/layer/history"
	"remora/memory/layer/observe"
	"remora/memory/layer/plan"
	"remora/memory/layer/reminder"
	"remora/memory/layer/static"
	"remora/memory/layer/steering"
	"remora/memory/layer/taskstate"
	"remora/memory/layer/temporal"
	"remora/memory/layer/toolmemory"
	"remora/memory/layer/webhook"
	"remora/memory/layer/working"
	"remora/memory/pipeline"
	"remora/memory/view"
	"remora/providers"
)

// layers is what the entries of memory.layers come out as.
type layers struct {
	window *view.Window // nil for none
	list   []configuredLayer
}

// configuredLayer is one layer, less the model that it asks: providers are not open while the file is read.
type configuredLayer struct {
	pipeline.Layer
	path  string
	model modelOptions
}

// layerOptions are what every kind of layer has.
type layerOptions struct {
	ID          string         `mapstructure:"id"`
	Slot        int            `mapstructure:"slot"`
	Scope       string         `mapstructure:"scope"`
	Budget      any            `mapstructure:"budget"`
	Timeouts    layer.Timeouts `mapstructure:"timeouts"`
	OnInitError string         `mapstructure:"on_init_error"`
	RecallMode  string         `mapstructure:"recall_mode"`
	Placement   string         `mapstructure:"placement"`
	Model       modelOptions   `mapstructure:"model"`
}

// modelOptions name the model that a layer thinks with.
type modelOptions struct {
	Provider string `mapstructure:"provider"` // empty: the first that serves the model
	Model    string `mapstructure:"model"`    // empty: the layer has none
}

// check tells what cannot be used, with the path of the options before it.
func (o modelOptions) check(path string, upstreams []providers.Options) error {
	known := func(p providers.Options) bool { return p.Name == o.Provider || p.Kind == o.Provider }
	switch {
	case o.Provider == "":
		return nil
	case o.Model == "":
		return fmt.Errorf("%s.model: want the name of a model", path)
	case !slices.ContainsFunc(upstreams, known):
		return fmt.Errorf("%s.provider: want the name of one of providers", path)
	}
	return nil
}

// layerKind is one value of "kind".
type layerKind struct {
	// options returns a pointer to the kind's own options.
	options func() any
	// defaults are the layer's place and limits, with these options.
	defaults func(options any) layer.Defaults
	// open makes the layer. Its errors name the options.
	open func(options any, thinks bool, scope layer.Scope) (any, error)
}

// kindOf describes a layer by functions of its package. tell lets options know what the configuration says elsewhere: whether
// the layer has a model, and its scope. It may be nil.
func kindOf[O, L any](defaults func(O) layer.Defaults, open func(O) (L, error), tell func(o *O, thinks bool, s layer.Scope)) layerKind {
	return layerKind{
		options:  func() any { return new(O) },
		defaults: func(o any) layer.Defaults { return defaults(*o.(*O)) }, //nolint:forcetypeassert // of options
		open: func(o any, thinks bool, s layer.Scope) (any, error) {
			own := o.(*O) //nolint:forcetypeassert // of options
			if tell != nil {
				tell(own, thinks, s)
			}
			l, err := open(*own)
			if err != nil {
				return nil, err // and not a nil pointer, which would be taken for a layer
			}
			return l, nil
		},
	}
}

// always are defaults that no option changes.
func always[O any](d layer.Defaults) func(O) layer.Defaults {
	return func(O) layer.Defaults { return d }
}

// layerKinds lists what "kind" may be beside history_window. A new kind is a row here and a block in config.yaml.
func layerKinds() map[string]layerKind {
	return map[string]layerKind{
		"working_memory": kindOf(always[working.Options](working.Defaults()), working.New,
			func(o *working.Options, _ bool, s layer.Scope) { o.Scope = s }),
		"observational_memory": kindOf(always[observe.Options](observe.Defaults()), observe.New,
			func(o *observe.Options, thinks bool, _ layer.Scope) { o.HasModel = thinks }),
		"temporal_memory": kindOf(temporal.DefaultsFor, temporal.New,
			func(o *temporal.Options, thinks bool, _ layer.Scope) { o.HasModel = thinks }),
		"steering": kindOf(steering.DefaultsFor, steering.New,
			func(o *steering.Options, thinks bool, _ layer.Scope) { o.HasModel = thinks }),
		"plan_memory": kindOf(always[plan.Options](plan.Defaults()), plan.New, nil),
		"file_reference": kindOf(always[fileref.Options](fileref.Defaults()), fileref.New,
			func(o *fileref.Options, thinks bool, _ layer.Scope) { o.HasModel = thinks }),
		"static_content":  kindOf(always[static.Options](static.Defaults()), static.New, nil),
		"task_state":      kindOf(always[taskstate.Options](taskstate.Defaults()), taskstate.New, nil),
		"tool_memory":     kindOf(always[toolmemory.Options](toolmemory.Defaults()), toolmemory.New, nil),
		"history_manager": kindOf(history.DefaultsFor, history.New, nil),
		"reminder":        kindOf(always[reminder.Options](reminder.Defaults()), reminder.New, nil),
		"http":            kindOf(always[webhook.Options](webhook.Defaults()), webhook.New, nil),
	}
}

// decodeLayers reads every entry by its kind and adds to found what is wrong with it.
func decodeLayers(entries []openEntry, found *problems) layers {
	var l layers
	kinds := layerKinds()
	names := slices.Sorted(maps.Keys(kinds))
	names = append(names, historyWindow)
	slices.Sort(names)
	for i, entry := range entries {
		path := fmt.Sprintf("memory.layers[%d]", i)
		if len(entry) == 0 && found.covers(path) {
			continue // not even a mapping
		}
		name, _ := entry["kind"].(string)
		options := maps.Clone(entry)
		delete(options, "kind")
		k, known := kinds[name]
		switch {
		case name == historyWindow:
			*found = append(*found, decodeWindow(path, options, &l)...)
		case known:
			*found = append(*found, decodeLayer(path, name, k, options, &l)...)
		default:
			found.add(path+".kind", "want one of %s, have %q%s", strings.Join(names, ", "), name, didYouMean(name, names))
		}
	}
	return l
}

// decodeLayer reads the kind's own options, and those that every layer has.
func decodeLayer(path, name string, k layerKind, entry openEntry, l *layers) problems {
	common, own := openEntry{}, openEntry{}
	shared := schemaOf(reflect.TypeFor[layerOptions]()).fields
	for key, v := range entry {
		if _, ok := shared[key]; ok {
			common[key] = v
		} else {
			own[key] = v
		}
	}
	options := k.options()
	found := decodeStrictly(path, own, options)
	d := k.defaults(options)
	o := layerOptions{
		ID: d.ID, Slot: d.Slot, Scope: scopeNames[d.Scope-1], OnInitError: "throw", RecallMode: "atomic", Placement: "auto",
		Timeouts: d.Timeouts,
	}
	found = append(found, decodeStrictly(path, common, &o)...)
	out := configuredLayer{path: path, model: o.Model, Layer: pipeline.Layer{
		ID: o.ID, Kind: name, Slot: o.Slot, Budget: d.Budget, Timeouts: o.Timeouts,
	}}
	if o.Budget != nil {
		var err error
		out.Budget, err = budget.Parse(o.Budget)
		found.addKeyed(path, err)
	}
	o.choose(path, d, &out, &found)
	if len(found) > 0 {
		return found
	}
	impl, err := k.open(options, o.Model.Model != "", out.Scope)
	found.addKeyed(path, err)
	out.Impl = impl
	l.list = append(l.list, out)
	return found
}

// choose reads the options that are one of several words.
func (o *layerOptions) choose(path string, d layer.Defaults, out *configuredLayer, found *problems) {
	for _, choice := range []struct {
		key, have string
		words     []string
		apply     func(i int)
	}{
		{"scope", o.Scope, scopeNames, func(i int) { out.Scope = layer.Scope(i + 1) }},                                           //nolint:gosec // one of four
		{"on_init_error", o.OnInitError, []string{"throw", "disable"}, func(i int) { out.OnInitError = pipeline.InitPolicy(i) }}, //nolint:gosec // one of two
		{"recall_mode", o.RecallMode, []string{"atomic", "eventual"}, func(i int) { out.Eventual = i == 1 }},
		{"placement", o.Placement, []string{"auto", "anchor", "live"}, func(i int) {
			out.Live, out.Placed, out.Fresh = i == 2 || i == 0 && d.Live, i != 0, d.Fresh
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

// check finds what only shows where all layers, and all providers, are seen together.
func (l layers) check(upstreams []providers.Options) error {
	var list []pipeline.Layer
	var errs []error
	for _, c := range l.list {
		list = append(list, c.Layer)
		errs = append(errs, c.model.check(joinPath(c.path, "model"), upstreams))
	}
	_, err := pipeline.New(list, pipeline.Options{})
	for _, e := range flatten(err) {
		// The pipeline counts layers by themselves, without those that are none, such as the window.
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

// scopeNames are the values of layer.Scope, from the first.
var scopeNames = []string{"execution", "thread", "resource", "global"}

// addKeyed takes over errors that begin with the key that they are about: "budget.min: want ...". Each is told once, and
// none whose key was reported before.
func (p *problems) addKeyed(path string, err error) {
	known := slices.Clone(*p)
	for _, e := range flatten(err) {
		key, text, _ := strings.Cut(e.Error(), ": ")
		one := problem{joinPath(path, key), text}
		if !known.covers(one.path) && !slices.Contains(*p, one) {
			*p = append(*p, one)
		}
	}
}

const historyWindow = "history_window"

func decodeWindow(path string, entry openEntry, l *layers) problems {
	if l.window != nil {
		return problems{{path, "history_window is there already, one is all that a session can have"}}
	}
	var w view.Window
	found := decodeStrictly(path, entry, &w)
	w.Defaults(func(key string) bool { _, given := entry[key]; return given })
	for _, err := range w.Validate() {
		found.addKeyed(path, err)
	}
	l.window = &w
	return found
}

// decodeStrictly fills into from entry and reports, besides what cannot be decoded, the keys that it does not have.
func decodeStrictly(path string, entry openEntry, into any) problems {
	c := &cleaner{} // references were resolved when the file was read
	c.mapping(path, schemaOf(reflect.TypeOf(into)), entry)
	return append(c.found, decodeEntry(path, entry, into)...)
}
