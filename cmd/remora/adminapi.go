package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"remora/admin"
	"remora/cache"
	"remora/cache/encrypted"
	"remora/memory"
	"remora/proxy"
	"remora/telemetry"
)

// adminAPI serves health, metrics and the admin API of a running proxy.
type adminAPI struct {
	server   *admin.Server // nil without an address
	served   chan struct{}
	stopping atomic.Bool
	stale    atomic.Bool // the configuration could not be reloaded
	storage  *storage
	spool    spoolOptions
	closed   bool                          // memory.on_store_error
	memory   atomic.Pointer[memory.Memory] // nil until it is open
	session  proxy.SessionOptions
	log      *slog.Logger
}

// openAdminAPI serves on ln. If ln is nil, it serves nothing.
func openAdminAPI(ln net.Listener, c Config, st *storage, t *telemetry.Telemetry, log *slog.Logger) *adminAPI {
	o := &adminAPI{
		storage: st, spool: c.Store.Spool, closed: c.Memory.OnStoreError == memory.OnStoreErrorClosed,
		served: make(chan struct{}), session: c.Session, log: log,
	}
	if ln == nil {
		close(o.served)
		return o
	}
	routes := []admin.Route{admin.Profile(), {
		Pattern: "POST /admin/v1/sessions/{id}/complete", Handler: http.HandlerFunc(o.complete), MaxBody: maxCompleteBody,
	}}
	if c.Telemetry.Metrics.Prometheus {
		routes = append(routes, admin.Route{Pattern: "GET /metrics", Handler: t.Handler()})
	}

	options := c.admin(o.ready, log)
	options.Note = o.note
	o.server = admin.New(options, routes...)
	go func() {
		defer close(o.served)
		if err := o.server.Serve(ln); err != nil {
			log.Error("the operators' address is closed", "error", err.Error())
		}
	}()
	return o
}

const (
	// maxCompleteBody is the largest body of a request that completes a session, in bytes.
	maxCompleteBody = 64 << 10
	// completeWait bounds the layers' hooks of such a request.
	completeWait = 2 * time.Minute
)

// completeRequest is the body of a request that completes a session. Key or Tenant select its owner, as the flags of `remora
// transcript` do: the credentials that its clients use, or the tenant as it is stored; without either it is a session of
// clients without a credential. An empty key or tenant is an error, as on the command line. A key is never part of the path,
// because paths are logged.
type completeRequest struct {
	Key     keys     `json:"key"`
	Tenant  nonEmpty `json:"tenant"`
	Success *bool    `json:"success"` // whether the session achieved its goal; nil is true
}

// owner returns the tenant that r selects.
func (r completeRequest) owner(o *proxy.SessionOptions) (string, error) {
	switch {
	case r.Tenant == "":
		return tenantOf(o, r.Key)
	case len(r.Key) > 0:
		return "", errors.New("want a key or a tenant")
	}
	return string(r.Tenant), nil
}

// nonEmpty is a string in JSON that has a value. null and "" usually come from a variable that is not set.
type nonEmpty string

func (s *nonEmpty) UnmarshalJSON(data []byte) error {
	if err := json.Unmarshal(data, (*string)(s)); err != nil {
		return err
	}
	if *s == "" {
		return errors.New("want a value, have an empty one")
	}
	return nil
}

// keys are the credentials of a request: a string or a list of strings in JSON.
type keys [][]byte

func (k *keys) UnmarshalJSON(data []byte) error {
	var one nonEmpty
	var several []nonEmpty
	if json.Unmarshal(data, &one) == nil {
		several = []nonEmpty{one}
	} else if err := json.Unmarshal(data, &several); err != nil {
		return err
	}
	if len(several) == 0 {
		return errors.New("want at least one key")
	}
	for _, key := range several {
		*k = append(*k, []byte(key))
	}
	return nil
}

// complete completes a session. It answers 204 when the hooks of its layers and those of its parent session have run, 404 if
// there is no such session, 503 if the store does not answer.
func (o *adminAPI) complete(w http.ResponseWriter, r *http.Request) {
	var req completeRequest
	dec := json.NewDecoder(r.Body)
	dec.DisallowUnknownFields()
	err := dec.Decode(&req)
	tenant, wrong := req.owner(&o.session)
	if err != nil && !errors.Is(err, io.EOF) || wrong != nil {
		http.Error(w, `want {"key": "...", "success": true}, or tenant in place of key`, http.StatusBadRequest)
		return
	}

	m := o.memory.Load()
	if m == nil || o.stopping.Load() {
		http.Error(w, "starting or stopping", http.StatusServiceUnavailable)
		return
	}

	s := memory.Scope{Tenant: tenant, Session: r.PathValue("id")}
	ctx, cancel := context.WithTimeout(r.Context(), completeWait)
	defer cancel()
	err = m.Complete(ctx, s, req.Success == nil || *req.Success)
	switch {
	case err == nil:
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, memory.ErrNoSession):
		http.Error(w, "no such session under this credential", http.StatusNotFound)
	default:
		http.Error(w, "the session could not be ended; the log says more", http.StatusServiceUnavailable)
		o.log.Warn("a session could not be ended", "error", err.Error())
	}
}

// readyWait bounds the store's answer to a readiness check.
const readyWait = 500 * time.Millisecond

// ready returns an error if this process should get no requests: it is stopping, it would refuse them, turns would be lost, or the
// store has refused store.url or the keys since the start. The last is a mistake and not an outage: with it a rollout stops, and the
// processes before it go on serving.
func (o *adminAPI) ready() error {
	if o.stopping.Load() {
		return errors.New("stopping")
	}

	ctx, cancel := context.WithTimeout(context.Background(), readyWait)
	defer cancel()
	err := o.storage.Ping(ctx)
	fault, _ := cache.FaultOf(err)
	if err == nil || fault == cache.FaultShard {
		o.storage.accepted.Store(true)
	}

	switch {
	case fault == cache.FaultShard: // sessions on the other servers are served, and no other replica can reach this one
		return nil
	case err == nil && !o.closed && o.spoolNearlyFull(): // a full Redis answers, and takes no turns
		return errors.New("the store answers, but turns wait for it, and the spool is nearly full")
	case err == nil:
		return nil
	case o.closed && errors.Is(err, cache.ErrDenied):
		return errors.New("the store refuses store.url, and memory.on_store_error is closed")
	case o.closed:
		return errors.New("the store does not answer, and memory.on_store_error is closed")
	}
	if !o.storage.accepted.Load() && (errors.Is(err, cache.ErrDenied) || errors.Is(err, encrypted.ErrMismatch)) {
		return fmt.Errorf("the store has refused this process since the start: %w", err)
	}
	if o.storage.queue == nil {
		return errors.New("the store does not answer, and there is no spool")
	}
	if trouble := o.spoolTrouble(); trouble != "" {
		return errors.New("the store does not answer, and " + trouble)
	}
	if o.spoolNearlyFull() {
		return errors.New("the store does not answer, and the spool is nearly full")
	}
	return nil
}

func (o *adminAPI) spoolNearlyFull() bool {
	if o.storage.queue == nil {
		return false
	}
	_, bytes := o.storage.queue.Len()
	return bytes > o.spool.MaxBytes/10*9
}

// note returns a warning for operators that applies even while the store answers, "" for none.
func (o *adminAPI) note() string {
	var notes []string
	if trouble := o.spoolTrouble(); trouble != "" {
		notes = append(notes, trouble)
	}
	if o.stale.Load() {
		notes = append(notes, "the configuration could not be reloaded, and the old one is in use: see the log")
	}
	return strings.Join(notes, "; ")
}

// spoolTrouble returns why turns cannot be spooled, "" if they can.
func (o *adminAPI) spoolTrouble() string {
	if m := o.memory.Load(); m != nil && m.SpoolTrouble() != "" {
		return "the directory of the spool (store.spool.dir) cannot be used: " + m.SpoolTrouble()
	}
	return ""
}

// close stops the server. It is one of the last parts to stop, so that operators can watch the others stop.
func (o *adminAPI) close() {
	if o.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = o.server.Shutdown(ctx) // requests that take longer are aborted
	<-o.served
}
