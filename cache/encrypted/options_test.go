package encrypted_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"remora/cache/encrypted"
	"remora/secret"
)

func TestOptions(t *testing.T) {
	const b64 = "+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/+/8="
	names := options().NamesKey
	var many []encrypted.Key
	for i := range 17 {
		many = append(many, key(fmt.Sprint(i), byte(i)))
	}
	for _, c := range []struct {
		name string
		o    encrypted.Options
		want []string // beginnings of the problems
	}{
		{"nothing", encrypted.Options{}, nil},
		{"base64", options(encrypted.Key{ID: "a", Secret: b64}), nil},
		{"base64 for URLs, without padding", options(encrypted.Key{ID: "a", Secret: secret.String(strings.NewReplacer("+", "-", "/", "_", "=", "").Replace(b64))}), nil},
		{"hexadecimal", options(encrypted.Key{ID: "2026-01_b.C", Secret: secret.String(strings.Repeat("aB", 32))}), nil},
		{"only names", options(), []string{"store.encryption.keys: want 1 to 16 keys, have 0"}},
		{"only plaintext", accepting(encrypted.Options{}), []string{"store.encryption.keys: ", "store.encryption.names_key: is missing"}},
		{"no names key", encrypted.Options{Keys: []encrypted.Key{key("a", 1)}}, []string{"store.encryption.names_key: is missing"}},
		{"too many", options(many...), []string{"store.encryption.keys: want 1 to 16 keys, have 17"}},
		{"empty", options(encrypted.Key{}), []string{"store.encryption.keys[0].id: want", "store.encryption.keys[0].secret: is missing"}},
		{"id too long", options(key(strings.Repeat("a", 33), 1)), []string{"store.encryption.keys[0].id: want"}},
		{"id with a space", options(key("a b", 1)), []string{"store.encryption.keys[0].id: want"}},
		{"ids twice", options(key("a", 1), key("a", 2)), []string{"store.encryption.keys[1].id: must not be the same as store.encryption.keys[0].id"}},
		{"secret twice", options(key("a", 1), key("b", 1)), []string{"store.encryption.keys[1].secret: must not be the same as store.encryption.keys[0].secret"}},
		{"names key is a key", encrypted.Options{Keys: []encrypted.Key{{ID: "a", Secret: names}}, NamesKey: names}, []string{"store.encryption.names_key: must not be the same as store.encryption.keys[0].secret"}},
		{"short", options(encrypted.Key{ID: "a", Secret: "c2VjcmV0"}), []string{"store.encryption.keys[0].secret: want 32 bytes, have 6"}},
		{"a password", options(encrypted.Key{ID: "a", Secret: "correct horse battery"}), []string{"store.encryption.keys[0].secret: want 32 bytes in base64 or hexadecimal, have 21 characters"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			if err := c.o.Validate(); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			if len(got) != len(c.want) {
				t.Fatalf("problems %q, want %q", got, c.want)
			}
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("problem %q, want %q", got[i], c.want[i])
				}
			}
			if s, err := encrypted.New(c.o); (err != nil) != (c.want != nil) || (s != nil) != (err == nil && c.o.Enabled()) {
				t.Errorf("New: %v, %v", s, err)
			}
		})
	}
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	o := options(key("a", 'x'), encrypted.Key{ID: "b", Secret: "correct horse battery"})
	j, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	s := sealer(t, options(key("a", 'x')))
	shown := fmt.Sprintf("%v %+v %#v %s %v %v", o, o, o, j, o.Validate(), o.Keys[0].Secret.LogValue())
	for _, secret := range []string{"eHh4eHh4", "7878787878", "eeeeeeee", "battery", "xxxxxxxx"} {
		if strings.Contains(shown, secret) {
			t.Errorf("%q is printed: %s", secret, shown)
		}
	}
	if shown := fmt.Sprintf("%v %+v %#v", s, s, s); strings.Contains(shown, "120 120 120") || strings.Contains(shown, "0x78, 0x78") {
		t.Error("a sealer prints its keys")
	}
}
