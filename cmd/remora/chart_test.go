package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the keys of the configuration into the chart")

// TestChartsSchema: the schema of the chart's value `config` has the keys of the configuration and no others, and the kinds of
// layers and providers. With -update, as in `make generate`, it writes them; what the schema says of other values is written by
// hand, and stays.
func TestChartsSchema(t *testing.T) {
	t.Parallel()
	const file = "../../helm/remora/values.schema.json"
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Properties struct {
			Config json.RawMessage `json:"config"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(have, &values); err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(values.Properties.Config, &config); err != nil {
		t.Fatal(err)
	}
	putKeys(config, schemaOf(reflect.TypeFor[Config]()))
	putKinds(config, layerKindNames(), "memory", "layers")
	putKinds(config, providerKinds(), "providers")
	keys, err := json.MarshalIndent(config, "    ", "  ")
	if err != nil {
		t.Fatal(err)
	}

	want := bytes.Replace(have, values.Properties.Config, keys, 1)
	switch {
	case bytes.Equal(want, have):
	case *update:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s has other keys than the configuration: make generate", file)
	}
}

// TestChartsVariables: the chart knows the variables of the configuration's keys. With -update it gets the list.
func TestChartsVariables(t *testing.T) {
	t.Parallel()
	const file = "../../helm/remora/files/variables.txt"
	var names []string
	for path := range schemaOf(reflect.TypeFor[Config]()).leaves() {
		names = append(names, envName(path))
	}
	slices.Sort(names)
	want := strings.Join(names, "\n") + "\n"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != want {
		t.Errorf("%s has other variables than the configuration, %v: make generate", file, err)
	}
}

// putKinds makes names the values of "kind" in the entries of the list at a path, beside references.
func putKinds(config map[string]any, names []string, path ...string) {
	at := config
	for _, key := range path {
		at = at["properties"].(map[string]any)[key].(map[string]any)
	}
	entry := at["items"].(map[string]any)["properties"].(map[string]any)
	entry["kind"] = map[string]any{"anyOf": []any{map[string]any{"$ref": "#/definitions/reference"}, map[string]any{"enum": names}}}
}

// putKeys makes the keys of n those that a JSON schema allows. The options of layers depend on their kind, so any are allowed.
func putKeys(schema map[string]any, n *node) {
	child := func(of any) map[string]any {
		if s, ok := of.(map[string]any); ok {
			return s
		}
		return map[string]any{}
	}
	kind := func(name string) {
		if schema["type"] == nil {
			schema["type"] = []any{name, "null"}
		}
	}
	switch {
	case n.fields != nil:
		kind("object")
		old, keys := child(schema["properties"]), map[string]any{}
		for name, of := range n.fields {
			s := child(old[name])
			putKeys(s, of)
			keys[name] = s
			if name == "on" {
				keys["true"] = s // how Helm reads `on:` without quotes; remora.config writes "on" again
			}
		}
		schema["properties"], schema["additionalProperties"] = keys, false
	case n.entry != nil && !n.entry.open:
		kind("array")
		items := child(schema["items"])
		putKeys(items, n.entry)
		schema["items"] = items
	}
}
