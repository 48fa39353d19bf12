package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/providers"
	"remora/wire"
)

// identity is taken from a request: its session, its resource and its credential.
type identity struct {
	session, resource string
	source            string // the header or field that named the session
	execution, parent string
	keys              []key  // all of the request
	cookie            []byte // a credential where there is no key; points into the request
	side              string
	retry             bool // an SDK sends the request again: it has not got the answer
	history           string
	off, unclear      bool // X-Memory is "off", or has an unknown value
	sessionRank       int  // rank of the header that named the session, 1 is the strongest; 0 for none
	resourceRank      int
}

// role is the meaning of a request header to the proxy.
type role uint8

const (
	roleNone         role = iota
	roleHop               // hop-by-hop: not forwarded
	roleConnection        // lists more hop-by-hop headers
	roleHost              // replaced
	roleLength            // rewritten in place
	roleTransfer          // frames a body in chunks; one that is held is sent with a length
	roleEncoding          // Content-Encoding: dropped when a body is sent decoded
	roleAccept            // Accept-Encoding: identity on remembered requests
	roleCredential        // replaced where the provider has its own
	roleKey               // a key of a gateway on the way to the provider
	roleCookie            // a credential where there is no other
	roleAccount           // the account that a credential is used for: treated as the credential is
	roleOrigin            // the request comes from a web page
	roleAsked             // the headers that a web page wants to send
	roleSession           // names the session
	roleResource          // names the resource
	roleExecution         // names the execution
	roleParent            // names the parent session
	roleMemory            // X-Memory: a control, not forwarded
	roleHistory           // X-History: a control, not forwarded
	roleUpgrade           // forwarded only with a tunnel
	roleProtocol          // the protocols of a WebSocket, among which browsers send a key
	roleCodexTurn         // may mark a side request
	roleCodexSubtask      // marks a side request
	roleRetryCount        // how often an SDK has sent the request before
)

// meaning is an entry of the table of header names.
type meaning struct {
	role role
	rank int    // order within a role, the strongest first, from 1; of a key, whether it names the tenant
	name string // in lower case
}

// headerTable finds the meaning of header names. Most other headers have a length that no name with their first letter has, and
// are not hashed.
type headerTable struct {
	names   map[string]meaning
	lengths [256]uint64 // by first character | 0x20, a bit for each length
}

// fixedHeaders are the headers that are never ids. Which of the credentials among them name the tenant is an option.
func fixedHeaders() []meaning {
	fixed := []meaning{
		{roleHop, 0, "keep-alive"},
		{roleHop, 0, "proxy-connection"},
		{roleHop, 0, "proxy-authorization"},
		{roleHop, 0, "te"},
		{roleHop, 0, "trailer"},
		{roleHop, 0, "expect"}, // answered already
		{roleConnection, 0, "connection"},
		{roleUpgrade, 0, "upgrade"},
		{roleProtocol, 0, "sec-websocket-protocol"},
		{roleHost, 0, "host"},
		{roleLength, 0, "content-length"},
		{roleTransfer, 0, "transfer-encoding"},
		{roleEncoding, 0, "content-encoding"},
		{roleAccept, 0, "accept-encoding"},
		{roleCookie, 0, "cookie"},
		{roleAccount, 0, "openai-organization"},
		{roleAccount, 0, "openai-project"},
		{roleOrigin, 0, "origin"},
		{roleAsked, 0, "access-control-request-headers"},
		{roleExecution, 0, "x-execution-id"},
		{roleParent, 0, "x-parent-session-id"},
		{roleMemory, 0, "x-memory"},
		{roleHistory, 0, "x-history"},
		{roleCodexTurn, 0, "x-codex-turn-metadata"},
		{roleCodexSubtask, 0, "x-openai-subagent"},
		{roleRetryCount, 0, "x-stainless-retry-count"},
	}
	for _, name := range providers.CredentialHeaders() {
		fixed = append(fixed, meaning{roleCredential, 0, name})
	}
	for _, name := range gatewayKeys() {
		fixed = append(fixed, meaning{roleKey, 0, name})
	}
	return fixed
}

func reservedHeader(name string) bool {
	return slices.ContainsFunc(fixedHeaders(), func(m meaning) bool { return strings.EqualFold(m.name, name) })
}

func newHeaderTable(o *SessionOptions) *headerTable {
	t := &headerTable{names: make(map[string]meaning)}
	add := func(m meaning) {
		if _, taken := t.names[m.name]; !taken {
			t.names[m.name] = m
			t.lengths[m.name[0]|0x20] |= 1 << uint(len(m.name))
		}
	}
	for _, m := range fixedHeaders() {
		add(m)
	}
	for _, name := range o.CredentialHeaders {
		name = strings.ToLower(name)
		add(meaning{roleKey, 0, name})
		m := t.names[name]
		m.rank = 1
		t.names[name] = m
	}
	for i, name := range o.Headers {
		add(meaning{roleSession, i + 1, strings.ToLower(name)})
	}
	for i, name := range o.ResourceHeaders {
		add(meaning{roleResource, i + 1, strings.ToLower(name)})
	}
	return t
}

// lookup finds the meaning of a header name in any spelling.
func (t *headerTable) lookup(name []byte) meaning {
	if len(name) == 0 || len(name) > maxName || t.lengths[name[0]|0x20]&(1<<uint(len(name))) == 0 {
		return meaning{}
	}
	var lower [maxName]byte
	for i, c := range name {
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		lower[i] = c
	}
	return t.names[string(lower[:len(name)])]
}

// note reads one header. Ids are copied, as headers do not outlive the handler; keys point into the request.
func (id *identity) note(m meaning, value []byte) {
	switch m.role {
	case roleSession:
		if v := named(value); v != "" && (id.sessionRank == 0 || m.rank < id.sessionRank) {
			id.session, id.source, id.sessionRank = v, m.name, m.rank
		}
	case roleResource:
		if v := named(value); v != "" && (id.resourceRank == 0 || m.rank < id.resourceRank) {
			id.resource, id.resourceRank = v, m.rank
		}
	case roleCredential, roleKey:
		id.keys = append(id.keys, key{header: m.name, value: value, named: m.rank > 0})
	case roleCookie:
		if len(id.cookie) == 0 {
			id.cookie = value
		}
	case roleExecution:
		id.execution = named(value)
	case roleParent:
		id.parent = named(value)
	case roleMemory:
		id.noteMemory(bytes.TrimSpace(value))
	case roleHistory:
		id.history = string(value)
	case roleCodexTurn:
		id.side = codexSide(value)
	case roleCodexSubtask:
		if id.side == "" && len(value) > 0 {
			id.side = "subagent"
		}
	case roleRetryCount:
		id.retry = len(value) > 0 && string(value) != "0"
	default: // not about identity
	}
}

func (id *identity) noteMemory(value []byte) {
	if bytes.EqualFold(value, []byte("off")) {
		id.off = true
	} else if len(value) > 0 {
		id.unclear = true
	}
}

// openWebUIChat is the header with which Open WebUI names a chat. It resends the whole chat, and asks for other things under the
// same name: which tools to use, a title, search queries.
const openWebUIChat = "x-openwebui-chat-id"

// named returns an id, "" for values such as null, with which clients say that they have none.
func named(value []byte) string {
	v := bytes.TrimSpace(value)
	if len(v) == 0 || bytes.EqualFold(v, []byte("null")) || bytes.EqualFold(v, []byte("undefined")) {
		return ""
	}
	return string(v)
}

// codexSide reads Codex's metadata of a turn. It returns the kind of a request that is not a turn of the conversation, such as
// compaction or warm-up, and "" for turns.
func codexSide(value []byte) string {
	var turn struct {
		Kind string `json:"request_kind"`
	}
	if json.Unmarshal(value, &turn) != nil || turn.Kind == "turn" {
		return ""
	}
	return turn.Kind
}

// nameSession completes the identity from the body, and reports whether there is a session.
func (r *request) nameSession(p *providers.Provider) bool {
	id, o := &r.head.id, &r.s.o.Session
	if p.API().BodySessionWins {
		// This upstream routes and groups by the member, so memory has to follow it.
		id.prefer(sessionField, r.parsed)
	}
	id.readFields(o, r.parsed)
	if id.session != "" {
		return true
	}

	// A request may name nothing but the response that it follows.
	previous := r.parsed.Previous()
	if previous == "" {
		return false
	}
	if known := r.known(previous); known.Session != "" {
		id.session, id.source = known.Session, previousResponse
		id.readFields(o, r.parsed)
	}
	return id.session != ""
}

// prefer lets a field of the body replace the session that a header named.
func (id *identity) prefer(field string, r *wire.Request) {
	if v := named([]byte(r.Text(field))); v != "" {
		id.session, id.source = v, field
	}
}

// readFields completes the identity from fields of the body.
func (id *identity) readFields(o *SessionOptions, r *wire.Request) {
	if id.session == "" {
		id.session, id.source = firstField(o.Fields, r)
	}
	if id.session != "" && id.resource == "" {
		id.resource, _ = firstField(o.ResourceFields, r)
	}
}

// previousResponse may be the only field that names a session. sessionField is read by upstreams with sessions of their own.
const (
	previousResponse = "previous_response_id"
	sessionField     = "session_id"
)

func firstField(fields []string, r *wire.Request) (value, field string) {
	for _, field := range fields {
		if v := named([]byte(r.Text(field))); v != "" {
			return v, field
		}
	}
	return "", ""
}

// scope returns the memory scope of a tenant's request.
func (id *identity) scope(tenant string) memory.Scope {
	sc := memory.Scope{Tenant: tenant, Session: id.session, Resource: id.resource, Execution: id.execution}
	if id.parent != id.session { // a parent's states are read, and not written
		sc.Parent = id.parent
	}
	return sc
}

func parseHistory(v string) (memory.History, error) {
	switch v {
	case "auto":
		return memory.HistoryAuto, nil
	case "client":
		return memory.HistoryClient, nil
	case "server":
		return memory.HistoryServer, nil
	}
	return 0, fmt.Errorf(`must be "auto", "client" or "server", is %.32q`, v)
}

// historyOf returns the request's X-History, else the operator's default. Unknown values of X-Memory and X-History are
// refused: a misspelt "off" must not have the request stored.
func (id *identity) historyOf(o *SessionOptions) (memory.History, error) {
	if id.unclear {
		return 0, &Error{Status: fasthttp.StatusBadRequest, Code: codeBadRequest, Message: `X-Memory must be "off", or left out`}
	}
	if id.history == "" {
		return parseHistory(o.History)
	}
	h, err := parseHistory(strings.ToLower(strings.TrimSpace(id.history)))
	if err != nil {
		return 0, &Error{
			Status: fasthttp.StatusBadRequest, Code: codeBadRequest,
			Message: `X-History must be "auto", "client" or "server"`,
		}
	}
	return h, nil
}

// safeValue makes any id fit for a response header: at most 256 bytes of printable ASCII.
func safeValue(id string) string {
	const limit = 256
	clean := len(id) <= limit
	for i := 0; clean && i < len(id); i++ {
		clean = id[i] > ' ' && id[i] < 0x7f || id[i] == ' ' && i > 0
	}
	if clean {
		return id
	}
	var b strings.Builder
	for i := 0; i < len(id) && b.Len() < limit-2; i++ {
		if c := id[i]; c > ' ' && c < 0x7f && c != '%' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
