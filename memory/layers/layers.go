// Package layers is the table of the kinds of memory layers, each of which has a folder here: its code, its tests, its page
// (README.md) and its part of the sample configuration (sample.yaml). Start at [Kinds].
package layers

import (
	"path"
	"reflect"

	"remora/memory/layer"
	"remora/memory/layers/entity"
	"remora/memory/layers/episodic"
	"remora/memory/layers/filereference"
	"remora/memory/layers/historymanager"
	"remora/memory/layers/http"
	"remora/memory/layers/observational"
	"remora/memory/layers/plan"
	"remora/memory/layers/procedural"
	"remora/memory/layers/rag"
	"remora/memory/layers/reminder"
	"remora/memory/layers/semanticrecall"
	"remora/memory/layers/staticcontent"
	"remora/memory/layers/steering"
	"remora/memory/layers/taskstate"
	"remora/memory/layers/temporal"
	"remora/memory/layers/toolmemory"
	"remora/memory/layers/working"
)

// Kinds returns every kind, in the order in which the sample configuration and the docs list them. A new kind is a folder
// and a row here; `make generate` then writes it into the files that list kinds.
func Kinds() []Kind {
	return []Kind{
		kind("working_memory", working.Defaults, working.New),
		kind("observational_memory", observational.Defaults, observational.New),
		kind("entity_memory", entity.Defaults, entity.New),
		kind("semantic_recall", semanticrecall.Defaults, semanticrecall.New),
		kind("episodic_memory", episodic.Defaults, episodic.New),
		kind("rag", rag.Defaults, rag.New),
		kind("procedural_memory", procedural.Defaults, procedural.New),
		kind("temporal_memory", temporal.Defaults, temporal.New),
		kind("static_content", staticcontent.Defaults, staticcontent.New),
		kind("steering", steering.Defaults, steering.New),
		kind("task_state", taskstate.Defaults, taskstate.New),
		kind("plan_memory", plan.Defaults, plan.New),
		kind("tool_memory", toolmemory.Defaults, toolmemory.New),
		kind("history_manager", historymanager.Defaults, historymanager.New),
		kind("reminder", reminder.Defaults, reminder.New),
		kind("file_reference", filereference.Defaults, filereference.New),
		kind("http", http.Defaults, http.New),
	}
}

// Kind is one value of the key `kind` in memory.layers.
type Kind struct {
	// Name is the value.
	Name string
	// Folder is where its package is, below memory/layers.
	Folder string
	// Options returns a pointer to new options of the kind, for the configuration to decode into.
	Options func() any
	// Defaults returns the layer's place and limits under these options, a pointer as Options returns it.
	Defaults func(options any) layer.Defaults
	// New makes the layer, which asks a model (hasModel) or not, for states of this scope. Its errors begin with the option
	// that they are about.
	New func(options any, hasModel bool, scope layer.Scope) (any, error)
}

// Find returns the kind of that name.
func Find(name string) (Kind, bool) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// dependent is implemented by options that embed layer.Setup.
type dependent interface {
	SetUp(hasModel bool, scope layer.Scope)
}

// kind makes a row of two functions of the kind's package.
func kind[O, L any](name string, defaults func(O) layer.Defaults, open func(O) (L, error)) Kind {
	return Kind{
		Name:     name,
		Folder:   path.Base(reflect.TypeFor[O]().PkgPath()),
		Options:  func() any { return new(O) },
		Defaults: func(o any) layer.Defaults { return defaults(*o.(*O)) }, //nolint:forcetypeassert // of Options
		New: func(o any, hasModel bool, scope layer.Scope) (any, error) {
			if d, ok := o.(dependent); ok {
				d.SetUp(hasModel, scope)
			}
			l, err := open(*o.(*O)) //nolint:forcetypeassert // of Options
			if err != nil {
				return nil, err // and not a nil pointer, which would be taken for a layer
			}
			return l, nil
		},
	}
}
