package proxy

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"remora/providers"
	"remora/wire"
	"remora/wire/dialects"
)

// route is an endpoint with memory, and judged by rules.
type route struct {
	dialect wire.Dialect
	name    string // the usual path, for people
	// path follows one of bases, the base paths of providers, or, with deployments, the name of one.
	path        string
	bases       []string
	deployments bool
	// answers precedes, in the place of path, the id of an answer that upstream keeps; actions are the operations on it. posts: a
	// POST can change it as well.
	answers string
	actions []string
	posts   bool
	// socket: some clients ask for it over WebSocket.
	socket bool
}

// dialectRoutes is where a request's dialect is chosen.
var dialectRoutes = [...]route{ //nolint:gochecknoglobals // a constant table
	{
		dialect: dialects.Chat, name: "/v1/chat/completions", path: "/chat/completions", deployments: true,
		bases:   []string{"/v1", "/api/v1", "", "/openai/v1", "/v1beta/openai"},
		answers: "/chat/completions/", actions: []string{"messages"}, posts: true,
	},
	{
		dialect: dialects.Responses, name: "/v1/responses", path: "/responses",
		bases:   []string{"/v1", "/api/v1", "", "/openai/v1", "/openai"},
		answers: "/responses/", actions: []string{"cancel", "input_items"}, socket: true,
	},
}

// routeOf is the route of a dialect, nil for none.
func routeOf(d wire.Dialect) *route {
	i := slices.IndexFunc(dialectRoutes[:], func(r route) bool { return r.dialect == d })
	if i < 0 {
		return nil
	}
	return &dialectRoutes[i]
}

// String returns the usual path of the endpoint, "" for a nil route.
func (r *route) String() string {
	if r == nil {
		return ""
	}
	return r.name
}

// dialectOf finds the endpoints whose conversations are remembered and judged, by their path alone. Everything else,
// sub-paths of these included, is passed through. unclear: it is a path that one server takes for the one endpoint and
// another for the other, or that leads to one of them at a place that is not known, such as /v2/responses, whose answers
// may have another form.
func dialectOf(target []byte) (d wire.Dialect, unclear bool) {
	target, ok := providers.OriginForm(target)
	if !ok {
		return wire.Dialect{}, false
	}
	path, _, _ := bytes.Cut(target, []byte("?"))
	if d = endpoint(path); d.Known() {
		return d, false
	}
	return respelled(path)
}

// endpoint knows the paths in their plain spelling: those below /v1, and those at which providers have the same endpoints.
func endpoint(path []byte) wire.Dialect {
	for i := range dialectRoutes {
		r := &dialectRoutes[i]
		base, ok := bytes.CutSuffix(path, []byte(r.path))
		if !ok {
			continue
		}
		if slices.Contains(r.bases, string(base)) {
			return r.dialect
		}
		if name, ok := bytes.CutPrefix(base, []byte(deployments)); ok && r.deployments && isDeployment(name) {
			return r.dialect
		}
	}
	return wire.Dialect{}
}

// deployments is where Azure has one endpoint for each model, by a name that the operator chose.
const deployments = "/openai/deployments/"

// isDeployment reports whether a name is one that Azure allows, which no lenient server could read as a path.
func isDeployment(name []byte) bool {
	odd := bytes.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
	return !odd && len(bytes.Trim(name, ".")) > 0
}

// deploymentOf returns the deployment that a request target names, which stands for the model, "" if it names none.
func deploymentOf(target []byte) string {
	path, ok := providers.OriginForm(target)
	if !ok || len(path) < len(deployments) || !bytes.EqualFold(path[:len(deployments)], []byte(deployments)) {
		return ""
	}
	name, _, _ := bytes.Cut(path[len(deployments):], []byte("/"))
	if !isDeployment(name) {
		return ""
	}
	return string(name)
}

// respelled is dialectOf for every other spelling. The bytes go upstream as they came, and what serves them there, behind
// proxies of its own perhaps, may undo one spelling or the other: a spelling that only upstream understands must be no way
// around memory and rules. So a path is read as the most lenient server would: escapes are decoded, those of escapes too; an
// escaped slash and a backslash separate segments; letters are the same in either case; slashes that are repeated or at the
// end, and segments "." do not count; and ".." takes away the segment before it.
//
// There the readings may part: by whether ".." is seen before or after something is decoded, whether it takes away an
// empty segment, and what is above the path that the provider puts in place of /v1. So they do at what cuts a path short
// or is cut out of it: ";" and its parameters, "?" and "#" (escaped, or out of place), blanks, controls, and what is not
// ASCII. Such a path is the endpoint whose segments it has in their order, whatever else it has: one that is none by any
// reading is so taken for it, and upstream still gets it as it came. Spellings that no RFC knows, such as %u0063, are not read.
func respelled(path []byte) (d wire.Dialect, unclear bool) {
	var room [512]byte
	plain, odd, cut := unescaped(room[:0], path)
	var saw routeMatcher
	up, clean := false, plain[:0] // it never catches up with what is read
	_, rest, more := bytes.Cut(plain, []byte("/"))
	for more {
		var segment []byte
		segment, rest, more = bytes.Cut(rest, []byte("/"))
		saw.see(segment)
		switch string(segment) {
		case "":
			odd = true
		case ".":
		case "..":
			up = true
			clean = clean[:max(bytes.LastIndexByte(clean, '/'), 0)]
			cut = cut || len(clean) == 0 || string(clean) == "/api"
		default:
			clean = append(append(clean, '/'), segment...)
		}
	}
	if cut || up && odd {
		return saw.endpoint()
	}
	d = endpoint(clean)
	return d, !d.Known() && slices.ContainsFunc(dialectRoutes[:], func(r route) bool { return bytes.HasSuffix(clean, []byte(r.path)) })
}

// unescaped appends a path to dst as a lenient server reads it: in lower case, without escapes, and with a slash for
// all that separates. odd reports that something was undone which not every server undoes, cut that the path has
// something that some servers end it at.
func unescaped(dst, path []byte) (plain []byte, odd, cut bool) {
	for _, c := range path {
		dst = append(dst, c)
		for n := len(dst) - 3; n >= 0 && dst[n] == '%'; n = len(dst) - 3 {
			b, err := strconv.ParseUint(string(dst[n+1:]), 16, 8)
			if err != nil {
				break
			}
			dst, odd = append(dst[:n], byte(b)), true
		}
	}
	for i, c := range dst {
		switch {
		case c == '\\':
			dst[i], odd = '/', true
		case c <= ' ', c >= 0x7f, c == ';', c == '?', c == '#':
			dst[i], cut = '/', true
		case 'A' <= c && c <= 'Z':
			dst[i] |= 0x20
		}
	}
	return dst, odd, cut
}

// routeMatcher finds the endpoints whose path segments appear in a URL, in their order.
type routeMatcher struct {
	version bool
	found   [len(dialectRoutes)]found
}

// found is how many segments of a route have appeared: below a version, and anywhere.
type found struct{ below, any int }

func (m *routeMatcher) see(segment []byte) {
	m.version = m.version || string(segment) == "v1"
	for i, r := range dialectRoutes {
		f := &m.found[i]
		n := 0
		for name := range strings.SplitSeq(r.path[1:], "/") {
			if name == string(segment) {
				if f.below == n && m.version {
					f.below++
				}
				if f.any == n {
					f.any++
				}
				break
			}
			n++
		}
	}
}

// endpoint is the one endpoint that was found below a version. unclear: there are several, or one that stands elsewhere.
func (m *routeMatcher) endpoint() (d wire.Dialect, unclear bool) {
	for i, r := range dialectRoutes {
		n := strings.Count(r.path, "/")
		switch {
		case m.found[i].below < n:
			unclear = unclear || !d.Known() && m.found[i].any == n
		case d.Known():
			return wire.Dialect{}, true
		default:
			d, unclear = r.dialect, false
		}
	}
	return d, unclear
}

// answerPath is the target of a request for an answer that upstream keeps.
type answerPath struct {
	before  []byte
	id      string // unescaped
	after   []byte
	dialect wire.Dialect
	itself  bool // the answer is asked for: it is what comes back
}

// keptAnswer finds the id of an answer that upstream keeps in the target of a request: GET, DELETE, cancel and input_items of
// Responses, GET, POST, DELETE and messages of stored chat completions.
func keptAnswer(method, target []byte) (in answerPath, ok bool) {
	origin, ok := providers.OriginForm(target)
	if !ok {
		return answerPath{}, false
	}
	path, _, _ := bytes.Cut(origin, []byte("?"))
	for i := range dialectRoutes {
		r := &dialectRoutes[i]
		at := bytes.Index(path, []byte(r.answers))
		if at < 0 || endpoint(path[:at+len(r.path)]) != r.dialect {
			continue
		}

		from := at + len(r.answers)
		segment, action, acts := bytes.Cut(path[from:], []byte("/"))
		id, err := url.PathUnescape(string(segment))
		switch {
		case err != nil || !isAnswerID(id), acts && !slices.Contains(r.actions, string(action)):
			return answerPath{}, false
		case string(method) == "GET", string(method) == "DELETE" && !acts:
		case string(method) == "POST" && (acts || r.posts):
		default:
			return answerPath{}, false // such as responses/compact
		}
		start := len(target) - len(origin) + from
		itself := string(method) == "GET" && !acts || string(action) == "cancel"
		return answerPath{target[:start], id, target[start+len(segment):], r.dialect, itself}, true
	}
	return answerPath{}, false
}

// maxAnswerID is the longest id of an answer, in bytes, that is looked for in a path. Gateways make ids of some hundreds.
const maxAnswerID = 1024

// isAnswerID reports whether a path segment may be an id.
func isAnswerID(id string) bool {
	return id != "" && id != "." && id != ".." && len(id) <= maxAnswerID
}
