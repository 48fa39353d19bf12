package proxy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"remora/memory"
	"remora/wire"
)

// identity is what a request says about whose memory it uses.
type identity struct {
	session, resource  string
	source             string // the header or field that named the session
	execution, parent  string
	credential         []byte // points into the request
	credentialName     string // the header that it came in, as an upstream reads it; empty for others
	side               string
	history            string
	off, unclear       bool // X-Memory is "off", or something that means nothing
	sessionRank        int  // how early in the options the header stands that named session; 0 is none
	resourceRank       int
	credentialStrength int
}

// role is what a header of a request means to the proxy.
type role uint8

const (
	roleNone         role = iota
	roleHop               // concerns one connection: not forwarded
	roleConnection        // lists more of those
	roleHost              // replaced
	roleLength            // rewritten in place
	roleEncoding          // Content-Encoding: dropped when a body is sent decoded
	roleAccept            // Accept-Encoding: identity on remembered requests
	roleCredential        // replaced where the provider has its own
	roleCookie            // a credential where there is no other
	roleSession           // names the session
	roleResource          // names the resource
	roleExecution         // names the execution
	roleParent            // names the parent session
	roleMemory            // X-Memory: a control, not forwarded
	roleHistory           // X-History: a control, not forwarded
	roleUpgrade           // forwarded only with a tunnel
	roleCodexTurn         // may tell that this is a side request
	roleCodexSubtask      // tells that this is a side request
)

// meaning is an entry of the table of header names.
type meaning struct {
	role role
	rank int    // order within a role, the strongest first, from 1
	name string // in lower case
}

// headerTable knows the header names that matter. Most headers of a request have a length that no such name has, and
// are passed over without being hashed.
type headerTable struct {
	names   map[string]meaning
	lengths uint64
}

// Credentials of a request, the strongest first: the headers in the order of fixedHeaders, these members of the query in
// the order of noteQuery, and a cookie last.
const (
	queryStrength  = 6
	cookieStrength = 7
)

// fixedHeaders are the meanings that no option can change.
func fixedHeaders() []meaning {
	return []meaning{
		{roleHop, 0, "keep-alive"},
		{roleHop, 0, "proxy-connection"},
		{roleHop, 0, "proxy-authorization"},
		{roleHop, 0, "te"},
		{roleHop, 0, "trailer"},
		{roleHop, 0, "transfer-encoding"},
		{roleHop, 0, "expect"}, // answered already
		{roleConnection, 0, "connection"},
		{roleUpgrade, 0, "upgrade"},
		{roleHost, 0, "host"},
		{roleLength, 0, "content-length"},
		{roleEncoding, 0, "content-encoding"},
		{roleAccept, 0, "accept-encoding"},
		{roleCredential, 1, "authorization"},
		{roleCredential, 2, "x-api-key"},
		{roleCredential, 3, "api-key"},
		{roleCredential, 4, "x-goog-api-key"},
		{roleCredential, 5, "ocp-apim-subscription-key"},
		{roleCookie, cookieStrength, "cookie"},
		{roleExecution, 0, "x-execution-id"},
		{roleParent, 0, "x-parent-session-id"},
		{roleMemory, 0, "x-memory"},
		{roleHistory, 0, "x-history"},
		{roleCodexTurn, 0, "x-codex-turn-metadata"},
		{roleCodexSubtask, 0, "x-openai-subagent"},
	}
}

func reservedHeader(name string) bool {
	for _, m := range fixedHeaders() {
		if strings.EqualFold(m.name, name) {
			return true
		}
	}
	return false
}

func newHeaderTable(o *SessionOptions) *headerTable {
	t := &headerTable{names: make(map[string]meaning)}
	add := func(m meaning) {
		if _, taken := t.names[m.name]; !taken {
			t.names[m.name] = m
			t.lengths |= 1 << uint(len(m.name))
		}
	}
	for _, m := range fixedHeaders() {
		add(m)
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
	if len(name) > maxName || t.lengths&(1<<uint(len(name))) == 0 {
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

// note takes what one header says about identity. Values are copied: headers do not outlive the handler.
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
	case roleCredential, roleCookie:
		if len(value) > 0 && (id.credentialStrength == 0 || m.rank < id.credentialStrength) {
			id.credential, id.credentialStrength, id.credentialName = value, m.rank, ""
			if m.role == roleCredential {
				id.credentialName = m.name
			}
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

// noteQuery takes a key from the query of a request target where no header has one. Gateways of Azure and Google accept
// keys there, and without it their callers would all be one.
func (id *identity) noteQuery(target []byte) {
	_, query, found := bytes.Cut(target, []byte("?"))
	if !found || id.credentialStrength != 0 && id.credentialStrength < queryStrength {
		return
	}
	var args fasthttp.Args
	args.ParseBytes(query)
	for _, name := range [...]string{"api-key", "api_key", "key"} {
		if v := args.Peek(name); len(v) > 0 {
			id.credential, id.credentialStrength = v, queryStrength
			return
		}
	}
}

// named returns an id, empty where the client only says that it has none.
func named(value []byte) string {
	v := bytes.TrimSpace(value)
	if len(v) == 0 || bytes.EqualFold(v, []byte("null")) || bytes.EqualFold(v, []byte("undefined")) {
		return ""
	}
	return string(v)
}

// codexSide reads Codex's description of a turn, which tells its compaction and warm-up requests from the turns of the
// conversation whose session id they carry.
func codexSide(value []byte) string {
	var turn struct {
		Kind string `json:"request_kind"`
	}
	if json.Unmarshal(value, &turn) != nil || turn.Kind == "turn" {
		return ""
	}
	return turn.Kind
}

// prefer lets a member of the body replace what a header said.
func (id *identity) prefer(field string, r *wire.Request) {
	if v := named([]byte(r.Text(field))); v != "" {
		id.session, id.source = v, field
	}
}

// readFields completes the identity from members of the body.
func (id *identity) readFields(o *SessionOptions, r *wire.Request) {
	if id.session == "" {
		id.session, id.source = firstField(o.Fields, r)
	}
	if id.session != "" && id.resource == "" {
		id.resource, _ = firstField(o.ResourceFields, r)
	}
}

// previousResponse is the member that may be all that tells a request's session, sessionField the one that upstreams of
// their own sessions read.
const (
	previousResponse = "previous_response_id"
	sessionField     = "session_id"
)

// hints finds the members of which every body that names a session has at least one: of a member of an object the
// longer of both names, since it is the rarer.
func (o *SessionOptions) hints() *wire.Names {
	names := []string{previousResponse, sessionField}
	for _, f := range o.Fields {
		name, nested, _ := strings.Cut(f, ".")
		if len(nested) > len(name) {
			name = nested
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return wire.NewNames(names...)
}

func firstField(fields []string, r *wire.Request) (value, field string) {
	for _, field := range fields {
		if v := named([]byte(r.Text(field))); v != "" {
			return v, field
		}
	}
	return "", ""
}

// forModels is the credential that layers may ask models with. It is copied: they may ask after the request has ended.
func (id *identity) forModels(provider string) memory.Credential {
	if id.credentialName == "" {
		return memory.Credential{}
	}
	return memory.Credential{Header: id.credentialName, Value: string(id.credential), Provider: provider}
}

// scope turns the identity of a tenant's request into the scope of memory.
func (id *identity) scope(tenant string) memory.Scope {
	sc := memory.Scope{
		Tenant:    tenant,
		Session:   id.session,
		Resource:  id.resource,
		Execution: id.execution,
		Parent:    id.parent,
	}
	if sc.Resource == "" {
		sc.Resource = sc.Session
	}
	return sc
}

// guarded tells that the answer has to be judged, whether or not it is remembered.
func (x *exchange) guarded() bool { return x.dialect != 0 && x.s.guarded() }

// guarded tells that there are rules, which have to judge all answers.
func (s *Server) guarded() bool { return s.guards != nil && s.guards() }

// guard opens the turn of a request that is not remembered, where layers judge all answers: nobody gets around them by
// naming no session, or by a body that only upstream can read.
func (x *exchange) guard() (err error) {
	if !x.guarded() || len(x.body) == 0 {
		return nil
	}
	if x.request == nil {
		return x.errUnjudged()
	}
	id := &x.head.id
	x.turn, err = x.s.begin(x.call.Context(), memory.Call{
		Unkept: true, Request: x.request, Credential: id.forModels(x.provider.Name()),
		Scope: memory.Scope{Tenant: x.owner.of(&x.s.o.Session, id.credential), Session: id.session, Resource: id.resource},
	})
	return err
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

// historyOf is the request's own choice, else the operator's. Controls that mean nothing are refused: who misspells the
// one that keeps a request out of memory must not find it there.
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

// safeValue makes any id fit for a response header: at most 256 bytes, no control characters, nothing but ASCII.
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
