package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"remora/memory/layer/schema"
)

func TestSchema(t *testing.T) {
	for _, c := range []struct{ schema, good, bad string }{
		{`{}`, `{"any":[1]}`, `1`},
		{`{"properties":{"a":{"type":["integer","null"]}}}`, `{"a":3}`, `{"a":3.5}`},
		{`{"properties":{"a":{"type":"number","minimum":1,"exclusiveMaximum":2}}}`, `{"a":1}`, `{"a":2}`},
		{`{"properties":{"a":{"enum":["x",{"y":1}]}}}`, `{"a":{"y":1}}`, `{"a":{"y":2}}`},
		{`{"properties":{"a":{"const":"x"}}}`, `{"a":"x"}`, `{"a":"y"}`},
		{`{"properties":{"a":{"type":"array","items":{"type":"boolean"},"minItems":1,"maxItems":2}}}`, `{"a":[true]}`, `{"a":[true,1]}`},
		{`{"properties":{"a":{"maxItems":0}}}`, `{"a":[]}`, `{"a":[1]}`},
		{`{"properties":{"a":{"pattern":"^[a-z]+$"}}}`, `{"a":"abc"}`, `{"a":"aBc"}`},
		{`{"properties":{"a":{"minLength":2}}}`, `{"a":"äö"}`, `{"a":"ä"}`},
		{`{"additionalProperties":{"type":"string"}}`, `{"a":"x"}`, `{"a":1}`},
		{`{"properties":{"a":true,"b":false}}`, `{"a":1}`, `{"b":1}`},
		{`{"properties":{"a":{"anyOf":[{"type":"string"},{"type":"null"}]}}}`, `{"a":null}`, `{"a":1}`},
		{`{"properties":{"a":{"oneOf":[{"type":"integer"},{"type":"number"}]}}}`, `{"a":1.5}`, `{"a":1}`},
		{`{"allOf":[{"required":["a"]},{"required":["b"]}]}`, `{"a":1,"b":2}`, `{"a":1}`},
		{`{"properties":{"a":{"const":null}}}`, `{"a":null}`, `{"a":0}`},
		{`{"properties":{"a":{"type":"integer"}}}`, `{"a":1e300}`, `{"a":0.5}`},
		{`{"description":"d","properties":{"a":{"type":"string","format":"email"}}}`, `{"a":"x"}`, `{"a":"x","a":1}`},
		{`{}`, `{"a":1}`, `{"a":1,"a":2}`},
		{`{"$ref":"#/$defs/P","$defs":{"P":{"required":["a"]}}}`, `{"a":1}`, `{"b":1}`},
		{`{"properties":{"a":{"$ref":"#/$defs/x~1y~0z","minimum":1}},"$defs":{"x/y~z":{"type":"integer"}}}`, `{"a":1}`, `{"a":0}`},
		{`{"properties":{"a":{"$ref":"#/$defs/x~1y~0z","minimum":1}},"$defs":{"x/y~z":{"type":"integer"}}}`, `{"a":1}`, `{"a":1.5}`},
		{
			`{"properties":{"a":{"items":{"$ref":"#/$defs/L"}}},"$defs":{"L":{"properties":{"to":{"$ref":"#/$defs/P"}}},"P":{"type":"string"}}}`,
			`{"a":[{"to":"x"},{}]}`, `{"a":[{"to":"x"},{"to":1}]}`,
		},
		{`{"$defs":{"not used":{"type":"string"}}}`, `{"a":1}`, `"a"`},
		{`{}`, `{"a":1}`, `{"a":1e999}`},
	} {
		s, err := schema.ParseObject([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: %v", c.schema, err)
			continue
		}
		if err := s.Validate([]byte(c.good)); err != nil {
			t.Errorf("%s refuses %s: %v", c.schema, c.good, err)
		}
		if err := s.Validate([]byte(c.bad)); err == nil {
			t.Errorf("%s accepts %s", c.schema, c.bad)
		}
	}
	for _, bad := range []string{
		``, `null`, `true`, `{"type":"object"`, `{"type":["array"]}`, `{"properties":{"a":{"type":"text"}}}`,
		`{"properties":{"a":{"pattern":"("}}}`, `{"required":"a"}`,
		`{"$ref":"#/x"}`, `{"$ref":"#"}`, `{"$ref":"#/$defs/P"}`, `{"$ref":5}`, `{"$ref":"#/$defs/P/properties/a","$defs":{"P":{"properties":{"a":{}}}}}`,
		`{"$defs":{"P":null}}`, `{"$defs":{"P":{"type":"text"}}}`, `{"$defs":{"P":{"$ref":"#/$defs/P"}}}`,
		`{"$defs":{"P":{"items":{"$ref":"#/$defs/Q"}},"Q":{"anyOf":[{"$ref":"#/$defs/P"}]}}}`,
		`{"properties":{"a":{"$ref":"#/$defs/P","$defs":{"P":{}}}}}`, doubled(20), `{"properties":{"a":{"uniqueItems":true}}}`, `{"properties":{"a":null}}`, `{"anyOf":[null]}`, `{"oneOf":[]}`, strings.Repeat(`{"items":`, 40) + `{}` + strings.Repeat(`}`, 40),
		`{"x":"` + strings.Repeat("x", 64<<10) + `"}`,
	} {
		if _, err := schema.ParseObject([]byte(bad)); err == nil {
			t.Errorf("accepted: %.40s", bad)
		}
	}
}

// doubled returns a short schema that contains 2^n schemas, each definition twice the next.
func doubled(n int) string {
	defs := []string{`"0":{}`}
	for i := range n {
		defs = append(defs, fmt.Sprintf(`"%d":{"allOf":[{"$ref":"#/$defs/%d"},{"$ref":"#/$defs/%d"}]}`, i+1, i, i))
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/%d","$defs":{%s}}`, n, strings.Join(defs, ","))
}

// FuzzSchema: any schema and any value is accepted or refused, the same way each time.
func FuzzSchema(f *testing.F) {
	f.Add(`{"type":"object","properties":{"key":{"type":"string","maxLength":5}},"required":["key"]}`, `{"key":"v"}`)
	f.Add(`{"anyOf":[{"properties":{"a":{"oneOf":[{"const":null},{"enum":[1,"x"]}]}}},false]}`, `{"a":1}`)
	f.Add(`{"properties":{"a":{"$ref":"#/$defs/P"}},"$defs":{"P":{"items":{"$ref":"#/$defs/Q"}},"Q":{"type":"string"}}}`, `{"a":["x",1]}`)
	f.Add(doubled(3), `{}`)
	f.Add(`{"properties":{"a":null},"items":null,"allOf":[null]}`, `{"a":[1]}`)
	f.Fuzz(func(t *testing.T, raw, arguments string) {
		s, err := schema.ParseObject([]byte(raw))
		if err != nil {
			return
		}
		err = s.Validate([]byte(arguments))
		var object map[string]any
		if err == nil && (json.Unmarshal([]byte(arguments), &object) != nil || object == nil) {
			t.Errorf("%q is no object", arguments)
		}
		if again := s.Validate([]byte(arguments)); (err == nil) != (again == nil) || err != nil && err.Error() != again.Error() {
			t.Errorf("%v, then %v", err, again)
		}
	})
}

// TestComplaintsSayWhere: by names, which are cut, and never by values.
func TestComplaintsSayWhere(t *testing.T) {
	s, err := schema.Parse([]byte(`{"properties":{"a":{"items":{"type":["string","null"]}}},"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("n", 100)
	for text, want := range map[string]string{
		`{"a":["secret",1]}`:        "a[1]: want string or null",
		`{"` + long + `":"secret"}`: strings.Repeat("n", 64) + ": not allowed",
		`{"a":`:                     "want one JSON value, each member of an object once",
	} {
		if err := s.Validate([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
