package view

import (
	"reflect"
	"testing"
)

// Prefixes that differ in one value are not equal, whichever field of a line has it. A new field fails here until equal compares it.
func TestEqualComparesEveryField(t *testing.T) {
	t.Parallel()
	fresh := func() *line {
		l := &line{}
		fill(reflect.ValueOf(l).Elem())
		return l
	}
	leaves := 0
	eachLeaf(reflect.ValueOf(fresh()).Elem(), "line", func(string, reflect.Value) { leaves++ })
	for n := range leaves {
		changed, i := fresh(), 0
		eachLeaf(reflect.ValueOf(changed).Elem(), "line", func(name string, v reflect.Value) {
			if i == n {
				v.SetZero()
				if changed.equal(*fresh()) {
					t.Errorf("%s is not compared", name)
				}
			}
			i++
		})
	}
	if !fresh().equal(*fresh()) || leaves < 40 {
		t.Errorf("%d values, or lines with the same are not equal", leaves)
	}
}

// fill gives each list one element and each other value one that is not zero.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			fill(field)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Uint8:
		v.SetUint(1)
	default:
		v.SetInt(1)
	}
}

// eachLeaf calls f with all values that fill has set, lists included.
func eachLeaf(v reflect.Value, name string, f func(name string, v reflect.Value)) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachLeaf(v.Field(i), name+"."+v.Type().Field(i).Name, f)
		}
	case reflect.Slice:
		eachLeaf(v.Index(0), name+"[0]", f)
		f(name, v)
	default:
		f(name, v)
	}
}
