package encrypted

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"remora/secret"
)

const (
	// path is the path of [Options] in the configuration, for errors.
	path = "store.encryption"

	keyBytes = 32
	maxKeys  = 16
	maxKeyID = 32
)

// Options configure the encryption of the store and the spool. Without keys nothing is encrypted.
type Options struct {
	// Keys encrypt stored values. The first is used for writing, the others only to read older values. At most 16.
	Keys []Key `mapstructure:"keys"`
	// NamesKey encrypts the names of sessions and values. It is 32 bytes, like the secret of a key. It cannot be rotated: with
	// another one no stored value can be found.
	NamesKey secret.String `mapstructure:"names_key"`
	// AcceptPlaintext also reads values that were stored before encryption was enabled, and encrypts each when it is next
	// written; the names of such a group and of its values stay readable. Without it, such values are errors. With it, an attacker
	// who can write to the store can forge values, and a commit takes a second round trip.
	AcceptPlaintext bool `mapstructure:"accept_plaintext"`
}

// Key is an encryption key.
type Key struct {
	// ID is stored in plaintext with each value that the key encrypts: 1 to 32 letters, digits, '.', '_' or '-'.
	ID string `mapstructure:"id"`
	// Secret is 32 random bytes, in base64 (openssl rand -base64 32) or hexadecimal (openssl rand -hex 32).
	Secret secret.String `mapstructure:"secret"`
}

// Enabled reports whether anything is configured, valid or not.
func (o Options) Enabled() bool {
	return len(o.Keys) > 0 || o.NamesKey != "" || o.AcceptPlaintext
}

// Validate returns all problems, joined, each with the full path of its configuration key. Secrets are not quoted.
func (o Options) Validate() error {
	if !o.Enabled() {
		return nil
	}
	_, _, err := o.decode()
	return err
}

// rawKey is a [Key] with its secret decoded.
type rawKey struct {
	id     string
	secret []byte
}

// decode decodes the secrets and validates all options.
func (o Options) decode() (keys []rawKey, names []byte, err error) {
	var errs []error
	if len(o.Keys) == 0 || len(o.Keys) > maxKeys {
		errs = append(errs, fmt.Errorf("%s.keys: want 1 to %d keys, have %d", path, maxKeys, len(o.Keys)))
	}
	ids, secrets := map[string]string{}, map[string]string{}
	unlike := func(at string, secret []byte) {
		if first, ok := secrets[string(secret)]; ok {
			errs = append(errs, fmt.Errorf("%s: must not be the same as %s", at, first))
		}
		secrets[string(secret)] = at
	}

	for i, k := range o.Keys {
		at := fmt.Sprintf("%s.keys[%d]", path, i)
		if !validID(k.ID) {
			errs = append(errs, fmt.Errorf("%s.id: want 1 to %d letters, digits, '.', '_' or '-'", at, maxKeyID))
		} else if first, ok := ids[k.ID]; ok {
			errs = append(errs, fmt.Errorf("%s.id: must not be the same as %s.id", at, first))
		}
		ids[k.ID] = at
		secret, err := decodeSecret(k.Secret)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s.secret: %w", at, err))
			continue
		}
		unlike(at+".secret", secret)
		keys = append(keys, rawKey{k.ID, secret})
	}

	if names, err = decodeSecret(o.NamesKey); err != nil {
		errs = append(errs, fmt.Errorf("%s.names_key: %w", path, err))
	} else {
		unlike(path+".names_key", names)
	}
	return keys, names, errors.Join(errs...)
}

// validID limits the id, which is stored with each value and repeated in errors.
func validID(id string) bool {
	const characters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."
	return 1 <= len(id) && len(id) <= maxKeyID && strings.Trim(id, characters) == ""
}

// decodeSecret decodes 32 bytes from hexadecimal or any common base64. Its error reveals only the length of the secret.
func decodeSecret(s secret.String) ([]byte, error) {
	text := string(s)
	if text == "" {
		return nil, errors.New("is missing: want 32 random bytes in base64, as from `openssl rand -base64 32`")
	}
	if len(text) == hex.EncodedLen(keyBytes) {
		if b, err := hex.DecodeString(text); err == nil {
			return b, nil
		}
	}
	text = strings.NewReplacer("-", "+", "_", "/").Replace(strings.TrimRight(text, "="))
	b, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("want 32 bytes in base64 or hexadecimal, have %d characters that are neither", len(s))
	}
	if len(b) != keyBytes {
		return nil, fmt.Errorf("want 32 bytes, have %d", len(b))
	}
	return b, nil
}
