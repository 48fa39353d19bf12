package proxy

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"hash"
	"slices"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/secret"
)

// key is a credential of a request.
type key struct {
	header string // the name of the header that it came in, in lower case; "" for the query
	query  string // the query parameter that it came in, else ""
	value  []byte // points into the request
	named  bool   // it names the tenant
}

// gatewayKeys are the headers of gateways on the way to a provider. A provider with a key of its own does not get them either.
func gatewayKeys() []string {
	return []string{"x-litellm-api-key", "x-portkey-api-key", "x-bf-vk", "cf-aig-authorization", "helicone-auth"}
}

// queryKeys are the query parameters that hold a key: Azure and Google accept them.
func queryKeys() []string { return []string{"api-key", "api_key", "key"} }

// noteQuery reads the keys in the query of a request target.
func (id *identity) noteQuery(target []byte) {
	_, query, found := bytes.Cut(target, []byte("?"))
	if !found {
		return
	}
	var args fasthttp.Args
	args.ParseBytes(query)
	for _, name := range queryKeys() {
		for _, value := range args.PeekMulti(name) {
			id.keys = append(id.keys, key{query: name, value: value, named: true})
		}
	}
}

// doubtful reports whether there are two different keys in one place: the tenant follows from both, and upstream checks one.
func (id *identity) doubtful() bool {
	for i, k := range id.keys {
		first := slices.IndexFunc(id.keys, func(other key) bool { return other.header == k.header && other.query == k.query })
		if first != i && !bytes.Equal(id.keys[first].value, k.value) {
			return true
		}
	}
	return false
}

// credentials returns the values that together name the tenant.
func (id *identity) credentials(dst [][]byte) [][]byte {
	for _, k := range id.keys {
		if k.named && len(withoutScheme(k.value)) > 0 {
			dst = append(dst, k.value)
		}
	}
	if len(dst) == 0 {
		dst = append(dst, id.cookie)
	}
	return dst
}

// forModels returns the credential with which layers call models. It is a copy, as they may do so after the request has ended.
func (id *identity) forModels(provider string) memory.Credential {
	for _, name := range providers.CredentialHeaders() {
		for _, k := range id.keys {
			if k.header == name && len(k.value) > 0 {
				return memory.Credential{Header: name, Value: secret.String(k.value), Provider: provider}
			}
		}
	}
	return memory.Credential{}
}

// Tenant names the owner of the credentials of a request: its keys in the headers of CredentialHeaders and in the query
// parameters api-key, api_key and key, or else its Cookie. All of them count, in any order: who has only one of two keys is
// another owner. A key is the same owner wherever it stands, with or without "Bearer"; without any the owner is "anonymous".
// The name is a hash, keyed with session.key if one is set: then a reader of the store cannot test guessed credentials.
func (o *SessionOptions) Tenant(credentials ...[]byte) string {
	if o.Tenancy == TenancySingle {
		return TenancySingle
	}
	return o.hashed(joined(nil, credentials))
}

// hashed is the tenant of credentials that joined has returned.
func (o *SessionOptions) hashed(credentials []byte) string {
	if len(credentials) == 0 {
		return "anonymous"
	}
	mac := o.newMAC()
	mac.Write(credentials)
	var sum [sha256.Size]byte
	return hex.EncodeToString(mac.Sum(sum[:0])[:16])
}

// joined returns the different ones of the credentials, without their scheme and in order, in the memory of dst. It sorts
// credentials.
func joined(dst []byte, credentials [][]byte) []byte {
	for i, c := range credentials {
		credentials[i] = withoutScheme(c)
	}
	slices.SortFunc(credentials, bytes.Compare)
	for i, c := range credentials {
		if len(c) == 0 || i > 0 && bytes.Equal(c, credentials[i-1]) {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, 0) // no header can have it; a key in a query that does is known to who sends it
		}
		dst = append(dst, c...)
	}
	return dst
}

// withoutScheme returns the key in a credential, which may have the scheme Bearer before it: nothing, if it has that alone, as of a
// client whose variable with the key is empty.
func withoutScheme(credential []byte) []byte {
	const scheme = "Bearer"
	if len(credential) < len(scheme) || !bytes.EqualFold(credential[:len(scheme)], []byte(scheme)) {
		return credential
	}
	rest := credential[len(scheme):]
	if len(rest) > 0 && rest[0] != ' ' {
		return credential
	}
	return bytes.TrimLeft(rest, " ")
}

// newMAC returns the hash for names of tenants and prompt caches, keyed with session.key.
func (o *SessionOptions) newMAC() hash.Hash { return hmac.New(sha256.New, []byte(o.Key.Reveal())) }

// knownTenant is the tenant of the last request: most have the credentials of the one before.
type knownTenant struct {
	last, next []byte // the credentials of that request, and memory for those of the next one
	tenant     string
}

// maxKnown is the maximum length in bytes of credentials that are kept: cookies can be long.
const maxKnown = 1 << 10

// of is SessionOptions.Tenant. It compares credentials in constant time.
func (k *knownTenant) of(o *SessionOptions, id *identity) string {
	if o.Tenancy == TenancySingle {
		return TenancySingle
	}
	var values [4][]byte
	now := joined(k.next[:0], id.credentials(values[:0]))
	if k.tenant != "" && subtle.ConstantTimeCompare(k.last, now) == 1 {
		return k.tenant
	}
	tenant := o.hashed(now)
	if len(now) <= maxKnown {
		k.last, k.next, k.tenant = now, k.last, tenant
	}
	return tenant
}

// namesCredential reports whether the name of a header or of a query parameter says that it holds a credential, for one of the
// gateways and clouds that have a name of their own for it, such as X-LiteLLM-API-Key or access_token.
func namesCredential(name []byte) bool {
	var buf [maxName]byte
	opens := false // the word before says what a key is for
	for word := range bytes.FieldsFuncSeq(name, func(c rune) bool { return c == '-' || c == '_' || c == '.' }) {
		if len(word) > len(buf) {
			opens = false
			continue
		}
		for i, c := range word {
			if c >= 'A' && c <= 'Z' {
				c |= 0x20
			}
			buf[i] = c
		}
		switch string(buf[:len(word)]) {
		case "auth", "oauth", "oidc", "authorization", "authentication", "token", "accesstoken", "bearer", "jwt", "credential",
			"signature", "sig", "secret", "password", "apikey":
			return true
		case "api", "access", "virtual", "subscription", "functions":
			opens = true
		case "key":
			if opens {
				return true
			}
		default:
			opens = false
		}
	}
	return false
}

// withoutCredentials removes the keys from the query of a request target. All other bytes stay.
func withoutCredentials(target []byte) []byte {
	path, query, found := bytes.Cut(target, []byte("?"))
	if !found {
		return target
	}
	kept := make([][]byte, 0, 8)
	for member := range bytes.SplitSeq(query, []byte("&")) {
		var args fasthttp.Args
		args.ParseBytes(member)
		held := slices.ContainsFunc(queryKeys(), args.Has)
		for name := range args.All() {
			held = held || namesCredential(name)
		}
		if !held {
			kept = append(kept, member)
		}
	}
	if len(kept) == 0 {
		return path
	}
	return slices.Concat(path, []byte("?"), bytes.Join(kept, []byte("&")))
}

// withoutKeys removes from the protocols of a WebSocket those with which clients that can set no headers send a key and its account,
// such as openai-insecure-api-key.KEY. All other bytes stay.
func withoutKeys(protocols []byte) []byte {
	kept := make([][]byte, 0, 4)
	for protocol := range bytes.SplitSeq(protocols, []byte(",")) {
		name, _, valued := bytes.Cut(bytes.ToLower(bytes.TrimSpace(protocol)), []byte("."))
		if valued && (namesCredential(name) || string(name) == "openai-organization" || string(name) == "openai-project") {
			continue
		}
		kept = append(kept, protocol)
	}
	return bytes.TrimSpace(bytes.Join(kept, []byte(",")))
}
