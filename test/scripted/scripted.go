// Package scripted is a whole OpenAI-compatible upstream that runs inside the process: for tests, for demos, and for
// anyone who wants to see what reaches a model without paying for one.
//
// It is strict where the real APIs are: a faulty history (an orphan tool result, a reasoning item without its
// follower, an unknown item_reference ...) gets the status and the text that the vendor would give, and is kept for
// [Server.Faults]. It is deterministic: answers and ids follow from the request, so the same calls against two fresh
// servers give the same bytes. It stands on net/http, on purpose another HTTP stack than the proxy's.
//
// # Scripts
//
// The last user message says what to answer. A question about what the user has told, such as "What is my name?" after "My
// name is Ada.", is answered from the request's own texts: "Your name is Ada.", or "I do not know your name." where the
// request does not hold it. Another message that is no script is answered with "You said: ...". A script is a list of steps
// with ";;" between them:
//
//	SAY text                       what the answer says
//	REASON text                    reasoning before what follows
//	REFUSE text                    a refusal
//	SEE                            text: one line for each message or item that the server was sent
//	CALL name {json} | name {json} one or several parallel tool calls; ends the answer
//	LOOP n name {json}             n answers of one call each; what stands before it is said in each of them
//
// In the JSON of a call and in the texts before it, {{i}} stands for the round of its LOOP, from 1. Arguments are
// sent exactly as written. When the script is used up, the answer names the number of tool results since the user
// message and the last of them.
//
// The server keeps no place in the script: it counts the model's turns after the user message, or reads the turn
// from its own call ids where they are visible. So histories can be resent, cut before the user message, branched
// and repeated.
//
// # Kinds
//
// [Options].Kind makes the server as strict as another one in addition: it refuses what that server refuses, in its words
// and in its envelope. These refusals are listed by [Server.Faults] too.
//
// # Faults
//
// A request header X-Script, or [Server.Inject], makes one request go wrong. Its value is a list separated by commas:
//
//	status=500            answer with this status; status=429;retry-after=2 adds the header
//	html                  answer 502 with an HTML page, as edges do
//	stall-before[=DUR]    wait before the response header: DUR, or until the client leaves or [Server.Release]
//	stall-after=N         stop after N events until the client leaves or Release
//	cut-after=N           close the connection after N events, in the middle of the body
//	reset-after=N         the same with a TCP reset
//	delay=DUR             wait before each event
//	error-in-stream       after two events an error instead of the rest
//	no-done               leave out the terminal piece: [DONE] or response.completed
//	comments              comment lines between events, as OpenRouter's keep-alives
//	chunk=N               write the body in pieces of N bytes, each flushed
//	gzip, zstd            Content-Encoding, whatever the client accepts
//	length                Content-Length on a body that is not streamed
//	close                 Connection: close
//	big=N                 N KiB of text appended to what is said
//	piece=N               text deltas of N bytes instead of a few words
//	kind=NAME             refuse this request as that kind of server does
//
// An event is one server-sent event; a body that is not streamed counts as two, its halves, or as its pieces under
// chunk=N.
package scripted

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"remora/test/scripted/script"
)

// Flavor is the vendor whose behaviour the server copies.
type Flavor uint8

// Flavors.
const (
	// OpenAI is api.openai.com: error envelopes, header names, obfuscation.
	OpenAI Flavor = iota
	// OpenRouter adds provider and native_finish_reason, sends keep-alive comments and wraps errors.
	OpenRouter
)

// Options configure a Server. The zero value is a strict OpenAI on a free port.
type Options struct {
	// Listen is the address to listen on, 127.0.0.1:0 if empty.
	Listen string
	// Flavor is the vendor to resemble.
	Flavor Flavor
	// Organization is the account that the server belongs to. Members of an answer that only its vendor can read or
	// find (encrypted content, signatures, ids of files, containers and sounds) are refused by the servers of other
	// organizations.
	Organization string
	// Kind is the server whose refusals to copy, KindOpenAI if empty.
	Kind Kind
	// KindOf, if set, chooses the kind by the model that is asked for. It runs concurrently.
	KindOf func(model string) Kind
	// Respond, if set, is asked first; false leaves the answer to the script. It runs concurrently.
	Respond func(Prompt) (Answer, bool)
	// Meanings maps words, in lower case, to what they mean in embeddings: words of one meaning have one vector, those that
	// mean "" have none.
	Meanings map[string]string
	// Echo answers requests that are for none of the endpoints with the request as it arrived, in JSON, where a real API
	// says 404: for tests of what a proxy passes through.
	Echo bool
	// KeepRequests and KeepBytes bound what Requests returns, by number and by bytes of headers and bodies; the
	// oldest ended requests are forgotten first. Zero means 4096 and 64 MiB.
	KeepRequests, KeepBytes int
	// MaxBody is the largest request body in bytes, decoded or not; zero means 128 MiB.
	MaxBody int64
	// Now is the clock for Recorded.Ended, time.Now if nil. No answer depends on it.
	Now func() time.Time
}

// Server is a running upstream. Its methods may be called from any goroutine.
type Server struct {
	o    Options
	ln   net.Listener
	http *http.Server
	rec  *recorder

	closing   chan struct{} // closed by Close: ends every wait
	served    chan struct{} // closed when the accept loop has returned
	closeOnce sync.Once
	handlers  sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	release  chan struct{} // closed and replaced by Release
	injected []fault
	hijacked map[net.Conn]struct{} // WebSockets, which http.Server.Close leaves alone

	organization organization
	ids          identities
	memory       *memory
	chats        chatStore
}

// Start starts a server. It listens when Start returns; Close ends it.
func Start(o Options) (*Server, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.KeepRequests <= 0 {
		o.KeepRequests = 4096
	}
	if o.KeepBytes <= 0 {
		o.KeepBytes = 64 << 20
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 128 << 20
	}
	if o.Now == nil {
		o.Now = time.Now //nolint:forbidigo // the default of the injected clock
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("start scripted upstream: %w", err)
	}
	s := &Server{
		o:        o,
		ln:       ln,
		rec:      newRecorder(o.KeepRequests, o.KeepBytes, o.Now),
		closing:  make(chan struct{}),
		served:   make(chan struct{}),
		release:  make(chan struct{}),
		hijacked: make(map[net.Conn]struct{}),

		organization: organization(o.Organization),
		ids:          identities{organization: organization(o.Organization), seen: make(map[[16]byte]int)},
		memory:       newMemory(),
		chats:        chatStore{known: make(map[string]storedChat)},
	}
	s.http = &http.Server{
		Handler:           http.HandlerFunc(s.serve),
		ReadHeaderTimeout: time.Minute,
		MaxHeaderBytes:    1 << 20,
		ErrorLog:          log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(teeListener{ln})
	}()
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

// connKey finds the connection of a request in its context.
type connKey struct{}

// URL is the server's origin, "http://127.0.0.1:port". SDKs want URL()+"/v1"; /api/v1 is the same.
func (s *Server) URL() string { return "http://" + s.ln.Addr().String() }

// Close drops every connection and returns when no handler runs any more.
func (s *Server) Close() error {
	var err error
	s.closeOnce.Do(func() {
		s.mu.Lock()
		s.closed = true
		open := make([]net.Conn, 0, len(s.hijacked))
		for c := range s.hijacked {
			open = append(open, c)
		}
		s.mu.Unlock()
		close(s.closing)
		err = s.http.Close()
		for _, c := range open {
			_ = c.Close()
		}
		s.handlers.Wait()
		<-s.served
	})
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close scripted upstream: %w", err)
	}
	return nil
}

// Requests returns copies of the requests so far, oldest first, running ones included.
func (s *Server) Requests() []Recorded { return s.rec.list() }

// Faults returns a line for every faulty history met: the endpoint and the text of the error. At most 1000 are kept.
func (s *Server) Faults() []string { return s.rec.faultList() }

// Await returns the first recorded request that match accepts, as soon as there is one. It looks again whenever a
// request arrives, sends an event or ends. Its error is the context's.
func (s *Server) Await(ctx context.Context, match func(Recorded) bool) (Recorded, error) {
	return s.rec.await(ctx, match)
}

// FileID is the id of a file that was uploaded with this organization's account.
func (s *Server) FileID(name string) string { return s.organization.fileID(name) }

// Inject makes the next times requests go wrong as spec says (the syntax of X-Script), in the order of the calls. A
// request with an X-Script header of its own uses none up.
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

// Release ends the stalls of every request that has arrived, also the stalls that a request has not reached yet.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.release)
	s.release = make(chan struct{})
}

// Reset clears the server's state: recorded requests that have ended, faults, stored responses and conversations,
// injected faults, and the count of each request. After it, the server answers like a fresh one.
func (s *Server) Reset() {
	s.mu.Lock()
	s.injected = nil
	s.mu.Unlock()
	s.rec.reset()
	s.ids.reset()
	s.memory.reset()
	s.chats.reset()
}

// enter counts a handler in; false once Close has begun.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.handlers.Add(1)
	return true
}

// adopt takes a connection over from net/http, so that Close closes it. It reports false once Close has begun. forget is to be
// called when the connection has ended.
func (s *Server) adopt(c net.Conn) (forget func(), open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hijacked[c] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.hijacked, c)
	}, !s.closed
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
