package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"remora/cache"
	"remora/cache/bolt"
	"remora/memory"
)

// Only one process can open a bolt file. Commands that need its content therefore ask the running proxy, over a Unix socket next
// to the file that only the same user can open.

const (
	// archivePath is the path of the only endpoint. Its request body is an archiveCall, followed by the data to import.
	archivePath = "/v1/archive"
	// archiveFault is the trailer with the error of a call, if it failed.
	archiveFault = "X-Fault"
	// backupStall bounds a client's time to read the next piece of a backup: commits may wait for it.
	backupStall = 10 * time.Second
)

// socketOf returns the path of the socket of a bolt file.
func socketOf(boltPath string) string { return boltPath + ".sock" }

// openLocalSocket opens the socket of a bolt file for the commands of the same user. It only logs an error: not every file system
// supports sockets.
func openLocalSocket(boltPath string, log *slog.Logger) net.Listener {
	ln, err := listenPrivately(socketOf(boltPath))
	if err != nil {
		log.Info("there is no local socket; remora transcript, forget and store backup work only while the proxy is stopped", "error", err.Error())
		return nil
	}
	return ln
}

// serveLocalSocket serves commands. The returned function closes the socket, and waits until no command runs.
func serveLocalSocket(ln net.Listener, file *bolt.Store, m *memory.Memory, log *slog.Logger) (end func()) {
	mux := http.NewServeMux()
	var gate cache.Gate
	mux.HandleFunc("POST "+archivePath, func(w http.ResponseWriter, r *http.Request) {
		if gate.Enter() != nil {
			return // its connection was closed before it began
		}
		defer gate.Leave()
		serveArchive(w, r, m, file)
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: backupStall, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			log.Warn("the local socket is closed", "error", err.Error())
		}
	}()
	return func() {
		_ = srv.Close() // commands in progress fail
		<-served
		gate.Shut()
	}
}

// faultCodes returns the errors that a command distinguishes, by the code that stands for each.
func faultCodes() map[string]error {
	return map[string]error{"no_session": memory.ErrNoSession}
}

// serveArchive runs the call of a command. It reports an error in the trailer archiveFault: a code of faultCodes, or a JSON text.
func serveArchive(w http.ResponseWriter, r *http.Request, m *memory.Memory, file *bolt.Store) {
	dec := json.NewDecoder(r.Body)
	var call archiveCall
	if err := dec.Decode(&call); err != nil {
		http.Error(w, "want what to do, as JSON", http.StatusBadRequest)
		return
	}
	w.Header().Set("Trailer", archiveFault)
	a := archive{memory: m, file: file, archiveCall: call, in: io.MultiReader(dec.Buffered(), r.Body), out: w}
	if call.Do == doBackup {
		a.out = unstalled{w, http.NewResponseController(w)}
	}
	err := a.run(r.Context())
	if err == nil {
		return
	}
	fault, _ := json.Marshal(err.Error())
	for code, known := range faultCodes() {
		if errors.Is(err, known) {
			fault = []byte(code)
		}
	}
	w.Header().Set(archiveFault, string(fault))
}

// askArchive sends the call to the proxy that has the bolt file open. It returns errNoProxy if there is none.
func askArchive(ctx context.Context, boltPath string, a archive) error {
	head, err := json.Marshal(a.archiveCall)
	if err != nil {
		return err
	}
	body := io.Reader(bytes.NewReader(head))
	if a.Do == doImport {
		body = io.MultiReader(body, a.in)
	}
	res, err := callProxy(ctx, boltPath, body)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	if _, err := io.Copy(a.out, res.Body); err != nil {
		return err
	}
	fault := res.Trailer.Get(archiveFault)
	if fault == "" {
		return nil
	}
	if known, ok := faultCodes()[fault]; ok {
		return known
	}
	var text string
	if err := json.Unmarshal([]byte(fault), &text); err != nil {
		return fmt.Errorf("read the proxy's answer: %w", err)
	}
	return errors.New(text)
}

// listenPrivately creates a socket that only the user of this process can open. It replaces an old one: this process holds the
// lock of the bolt file, so the process that created it has ended. It changes the umask of the whole process for a moment, in which
// nothing else may create a file.
func listenPrivately(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	before := syscall.Umask(0o177)
	defer syscall.Umask(before)
	return net.Listen("unix", path)
}

// unstalled aborts an answer whose client stops reading.
type unstalled struct {
	w    io.Writer
	wire *http.ResponseController
}

func (u unstalled) Write(p []byte) (int, error) {
	if err := u.wire.SetWriteDeadline(time.Now().Add(backupStall)); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}

// errNoProxy: no proxy answers at a socket.
var errNoProxy = errors.New("no proxy answers")

// callProxy posts to the proxy at the socket of a bolt store's file. It returns errNoProxy if none listens there.
func callProxy(ctx context.Context, boltPath string, body io.Reader) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socketOf(boltPath))
		if err != nil {
			return nil, fmt.Errorf("%w at %s: %w", errNoProxy, socketOf(boltPath), err)
		}
		return conn, nil
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://remora"+archivePath, body)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		defer func() { _ = res.Body.Close() }() // it was read
		text, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
		return nil, fmt.Errorf("the proxy answers %s: %s", res.Status, strings.TrimSpace(string(text)))
	}
	return res, nil
}
