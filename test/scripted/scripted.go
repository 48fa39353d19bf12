// Package scripted is an OpenAI-compatible upstream in the process, for tests and demos, and for anyone who wants to see the
// requests to a model without paying for one.
//
// It is as strict as the real APIs: an invalid history (an orphan tool result, a reasoning item without its follower, an
// unknown item_reference ...) gets the vendor's status and text, and is listed by [Server.Faults]. It is deterministic: answers
// and ids depend only on the request, so the same calls to two new servers give the same bytes. It uses net/http, deliberately
// not the proxy's HTTP stack.
//
// # Scripts
//
// The last user message determines the answer. A question about the user, such as "What is my name?" after "My name is Ada.",
// is answered from the request's texts: "Your name is Ada.", or "I do not know your name." if the request does not contain it.
// Other messages that are no script are answered with "You said: ...". A script is a list of steps separated by ";;":
//
//	SAY text                       the text of the answer
//	REASON text                    reasoning before the next step
//	REFUSE text                    a refusal
//	SEE                            text: one line for each message or item in the request
//	CALL name {json} | name {json} one or several parallel tool calls; ends the answer
//	LOOP n name {json}             n answers of one call each; the steps before it are part of each of them
//
// In the JSON of a call and in the texts before it, {{i}} is the round of its LOOP, from 1. Arguments are sent exactly as
// written. After the end of the script, the answer has the number of tool results since the user message and the last of them.
//
// The server has no state of the script: it counts the model's turns after the user message, or reads the turn from its own
// call ids if they are in the request. So histories can be resent, shortened before the user message, branched and repeated.
//
// # Kinds
//
// [Options].Kind makes the server as strict as another one in addition: it also refuses what the other server refuses, with
// its text and its error format. [Server.Faults] lists these refusals too.
//
// # Faults
//
// A request header X-Script, or [Server.Inject], causes a fault of one request. Its value is a list separated by commas:
//
//	status=500            answer with this status; status=429;retry-after=2 adds the header
//	html                  answer 502 with an HTML page, as load balancers do
//	stall-before          wait before the response header until the client leaves or [Server.Release]
//	stall-after=N         pause after N events until the client leaves or Release
//	cut-after=N           close the connection after N events, in the middle of the body
//	error-in-stream       after two events an error instead of the rest
//	no-done               leave out the terminal piece: [DONE] or response.completed
//	comments              comment lines between events, as OpenRouter's keep-alives
//	chunk=N               write the body in pieces of N bytes, each flushed
//	gzip                  Content-Encoding, whatever the client accepts
//	length                Content-Length on a body that is not streamed
//	close                 Connection: close
//	big=N                 append N KiB to the text
//	piece=N               text deltas of N bytes instead of a few words
//	kind=NAME             the kind of server for this request
//
// An event is one server-sent event. A body that is not streamed counts as two events, its halves, or as its pieces with chunk=N.
package scripted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"remora/test/scripted/script"
)

// Options configure a Server. The zero value is a strict OpenAI on a free port.
type Options struct {
	// Listen is the address to listen on, 127.0.0.1:0 if empty.
	Listen string
	// Organization is the account of the server. Servers of other organizations refuse members of its answers that only their
	// vendor can read or find: encrypted content, signatures, ids of files, containers and sounds.
	Organization string
	// Kind is the server whose refusals to copy, KindOpenAI if empty.
	Kind Kind
	// KindOf, if set, returns the kind for a model. It is called concurrently.
	KindOf func(model string) Kind
	// Respond, if set, returns the answer; if it returns false, the script does. It is called concurrently.
	Respond func(Prompt) (Answer, bool)
	// Meanings maps words, in lower case, to their meanings in embeddings: words with the same meaning have the same vector,
	// those with the meaning "" have none.
	Meanings map[string]string
	// Echo answers requests for unknown paths with the request as it arrived, in JSON, instead of 404: for tests of passing
	// through.
	Echo bool
	// KeepRequests bounds the result of Requests, which also has at most 64 MiB of headers and bodies. The oldest ended requests
	// are removed first. Zero means 4096.
	KeepRequests int
}

// maxBody is the largest request body, in bytes.
const maxBody = 128 << 20

// Server is a running upstream. It is safe for concurrent use.
type Server struct {
	*recorder

	o    Options
	ln   net.Listener
	http *http.Server

	stop    context.CancelFunc // ends the contexts of all requests
	running sync.WaitGroup     // the accept loop and the handlers

	mu       sync.Mutex
	closed   bool
	release  chan struct{} // closed and replaced by Release
	injected []fault

	organization organization
	ids          identities
	memory       atomic.Pointer[memory]
}

// Start starts a server, which listens when Start returns. The caller must call Close.
func Start(o Options) (*Server, error) {
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	if o.KeepRequests <= 0 {
		o.KeepRequests = 4096
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("start scripted upstream: %w", err)
	}
	s := &Server{
		recorder: newRecorder(o.KeepRequests),

		o:       o,
		ln:      ln,
		release: make(chan struct{}),

		organization: organization(o.Organization),
		ids:          identities{organization: organization(o.Organization), seen: make(map[[16]byte]int)},
	}
	s.memory.Store(new(memory))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          log.New(io.Discard, "", 0),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	s.running.Go(func() { _ = s.http.Serve(teeListener{ln}) })
	return s, nil
}

// Prompt, Answer and Call are used by Options.Respond.
type (
	// Prompt is the input of an answer.
	Prompt = script.Prompt
	// Answer is the model's answer.
	Answer = script.Answer
	// Call is one tool call.
	Call = script.Call
	// Usage is the cost of a prompt.
	Usage = script.Usage
)

// connKey is the context key of a request's connection.
type connKey struct{}

// URL returns the server's origin, "http://127.0.0.1:port". SDKs need URL()+"/v1"; /api/v1 is the same.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() }

// Close closes all connections, and waits until no handler runs.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	err := s.http.Close()
	s.running.Wait()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close scripted upstream: %w", err)
	}
	return nil
}

// FileID returns the id of a file uploaded to the server's organization.
func (s *Server) FileID(name string) string { return s.organization.fileID(name) }

// Inject causes a fault of the next requests, as many as times, with the syntax of X-Script. Several calls apply in order. A
// request with its own X-Script header does not count.
func (s *Server) Inject(spec string, times int) error {
	f, err := parseFault(spec)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for range times {
		s.injected = append(s.injected, f)
	}
	return nil
}

// Release ends the stalls of all requests that have arrived, including stalls that they have not reached yet.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.release)
	s.release = make(chan struct{})
}

// Reset clears the server's state: recorded requests, faults, stored responses and conversations, injected faults, and the counts
// of requests. After it, the server answers like a new one.
func (s *Server) Reset() {
	s.mu.Lock()
	s.injected = nil
	s.mu.Unlock()
	s.resetRecords()
	s.ids.reset()
	s.memory.Store(new(memory))
}

// enter counts a running handler. It returns false once Close has begun.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Add(1)
	return true
}

// released returns a channel that the next Release closes.
func (s *Server) released() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.release
}

// takeFault returns the fault for a request: its own header's, else the next injected one.
func (s *Server) takeFault(header string) (fault, error) {
	if header != "" {
		return parseFault(header)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.injected) == 0 {
		return noFault(), nil
	}
	f := s.injected[0]
	s.injected = s.injected[1:]
	return f, nil
}
