// Command schemas makes the JSON schemas that kubeconform checks the chart with, so that the check needs no network:
//
//	go run ./schemas SWAGGER CRD,... FOLDER KIND.GROUP.VERSION...
//
// SWAGGER is api/openapi-spec/swagger.json of k8s.io/kubernetes, CRD a CustomResourceDefinition as YAML. Schemas are
// strict: an unknown member is an error. Descriptions are left out, they are nine tenths of the size.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

type object = map[string]any

func run(args []string) error {
	if len(args) < 4 {
		return errors.New("usage: schemas SWAGGER CRD,... FOLDER KIND.GROUP.VERSION...")
	}
	folder := args[2]
	var swagger struct{ Definitions map[string]object }
	if err := read(args[0], &swagger); err != nil {
		return err
	}
	used := map[string]object{}
	for _, kind := range args[3:] {
		part := strings.Split(kind, ".")
		if len(part) != 3 {
			return fmt.Errorf("%s: want KIND.GROUP.VERSION", kind)
		}
		group := part[1]
		name := fmt.Sprintf("io.k8s.api.%s.%s.%s", group, part[2], part[0])
		if err := collect(swagger.Definitions, name, used); err != nil {
			return err
		}
		suffix := "-" + group + "-" + part[2]
		if group == "core" {
			suffix = "-" + part[2]
		}
		file := strings.ToLower(part[0]) + suffix + ".json"
		if err := write(filepath.Join(folder, file), object{
			"$schema": "https://json-schema.org/draft/2020-12/schema", // else $ref hides what stands beside it
			"$ref":    "definitions.json#/definitions/" + name, "required": []string{"apiVersion", "kind", "metadata"},
		}); err != nil {
			return err
		}
	}
	if err := write(filepath.Join(folder, "definitions.json"), object{"definitions": used}); err != nil {
		return err
	}
	for file := range strings.SplitSeq(args[1], ",") {
		if err := custom(file, folder); err != nil {
			return err
		}
	}
	return nil
}

// custom writes the schema of the stored version of a CustomResourceDefinition.
func custom(file, folder string) error {
	var crd struct {
		Spec struct {
			Group    string
			Names    struct{ Kind string }
			Versions []struct {
				Name    string
				Storage bool
				Schema  struct {
					OpenAPIV3Schema object `json:"openAPIV3Schema"`
				}
			}
		}
	}
	if err := read(file, &crd); err != nil {
		return err
	}
	group, _, _ := strings.Cut(crd.Spec.Group, ".")
	for _, v := range crd.Spec.Versions {
		if !v.Storage {
			continue
		}
		s := strict(v.Schema.OpenAPIV3Schema)
		s.(object)["properties"].(object)["metadata"] = object{"type": "object"}
		name := fmt.Sprintf("%s-%s-%s.json", strings.ToLower(crd.Spec.Names.Kind), group, v.Name)
		if err := write(filepath.Join(folder, name), s); err != nil {
			return err
		}
	}
	return nil
}

// collect takes a definition and all that it refers to.
func collect(all map[string]object, name string, used map[string]object) error {
	if _, done := used[name]; done {
		return nil
	}
	definition, ok := all[name]
	if !ok {
		return fmt.Errorf("no definition %s", name)
	}
	used[name] = strict(definition).(object)
	if strings.HasSuffix(name, ".resource.Quantity") {
		used[name] = object{"anyOf": []any{object{"type": "string"}, object{"type": "number"}}}
	}
	var err error
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case object:
			if ref, ok := v["$ref"].(string); ok && err == nil {
				err = collect(all, strings.TrimPrefix(ref, "#/definitions/"), used)
			}
			for _, sub := range v {
				walk(sub)
			}
		case []any:
			for _, sub := range v {
				walk(sub)
			}
		}
	}
	walk(definition)
	return err
}

// strict is a copy of a schema without prose that allows no unknown members.
func strict(v any) any {
	in, ok := v.(object)
	if !ok {
		if list, isList := v.([]any); isList {
			out := make([]any, len(list))
			for i := range list {
				out[i] = strict(list[i])
			}
			return out
		}
		return v
	}
	out := object{}
	for key, sub := range in {
		if _, prose := sub.(string); prose && key == "description" || strings.HasPrefix(key, "x-kubernetes-") {
			continue
		}
		out[key] = strict(sub)
	}
	if properties, has := out["properties"].(object); has {
		// Named members, each a schema: "description" or "format" may be one of their names.
		for name := range in["properties"].(object) {
			properties[name] = strict(in["properties"].(object)[name])
		}
		if _, open := out["additionalProperties"]; !open {
			out["additionalProperties"] = false
		}
	}
	if out["format"] == "int-or-string" || in["x-kubernetes-int-or-string"] == true {
		out = object{"anyOf": []any{object{"type": "string"}, object{"type": "integer"}}}
	}
	// Go's patterns differ from JSON schema's, and the API server checks sizes.
	delete(out, "pattern")
	if gvk, has := in["x-kubernetes-group-version-kind"].([]any); has && len(gvk) == 1 {
		g := gvk[0].(object)
		version := g["version"].(string)
		if group := g["group"].(string); group != "" {
			version = group + "/" + version
		}
		p := out["properties"].(object)
		// Not required here: in a volumeClaimTemplate they may be left out.
		p["kind"], p["apiVersion"] = object{"const": g["kind"]}, object{"const": version}
	}
	return out
}

func read(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(data, into)
}

func write(file string, v any) error {
	data, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
