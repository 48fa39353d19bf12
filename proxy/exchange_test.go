package proxy

import (
	"reflect"
	"slices"
	"testing"
	"unsafe"
)

// TestExchangeForgets: an exchange that is used again has nothing of the request before, which may be another tenant's.
func TestExchangeForgets(t *testing.T) {
	t.Parallel()
	x := newExchange(start(t, rigOptions{upstream: "127.0.0.1:1"}).Server)
	keeps := []string{
		"watch",                                                                                              // the watcher clears it
		"sent", "request.s", "request.trace.telemetry", "attempt.req", "attempt.portable", "attempt.out.req", // the exchange's own parts
		"answer.req", "answer.attempt", "rounds.answer", "stream.answer", "stream.rounds", "stream.close",
		"request.head.lines", "request.head.id.keys", // buffers
		"attempt.prepared", "attempt.upstream",
		"request.tenants", // spares the next request of the same tenant the hash; it compares credentials
	}
	parts := make(map[string]reflect.Value)
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch {
		case slices.Contains(keeps, path):
		case v.Kind() != reflect.Struct:
			parts[path] = v
		default:
			for i := range v.NumField() {
				f := v.Field(i)
				name := v.Type().Field(i).Name
				if path != "" {
					name = path + "." + name
				}
				walk(name, reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem())
			}
		}
	}
	walk("", reflect.ValueOf(x).Elem())
	if len(parts) < 50 {
		t.Errorf("only %d fields are looked at", len(parts))
	}

	for path, v := range parts {
		switch v.Kind() {
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		case reflect.Map:
			v.Set(reflect.MakeMap(v.Type()))
		case reflect.String:
			v.SetString("x")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Func:
			v.Set(reflect.MakeFunc(v.Type(), func([]reflect.Value) []reflect.Value { panic("called") }))
		case reflect.Interface, reflect.Array:
		default:
			if !v.CanConvert(reflect.TypeFor[int]()) {
				t.Fatalf("%s: a field of this kind cannot be filled", path)
			}
			v.Set(reflect.ValueOf(1).Convert(v.Type()))
		}
	}
	x.answer.head = &answerHead{pool: &x.s.answerHeads}
	x.head.lines = append(x.head.lines, line{key: []byte("x")})
	x.head.id.keys = append(x.head.id.keys, key{})

	x.reset()
	for path, v := range parts {
		if !v.IsZero() {
			t.Errorf("%s stays: keep it above with the reason, or forget it", path)
		}
	}
	for _, l := range x.head.lines[:cap(x.head.lines)] {
		if l.key != nil {
			t.Error("a header stays in the memory of the next ones")
		}
	}
	if len(x.head.lines)+len(x.head.id.keys) > 0 {
		t.Error("headers stay")
	}
}
