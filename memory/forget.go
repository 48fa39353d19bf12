package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/session"
)

// Delete removes all that is stored of a session, after its layers have been told, and takes out of the states that it
// shared with other sessions what came from it alone. A turn of it that still waits in a spool is dropped there.
func (m *Memory) Delete(ctx context.Context, s Scope) error {
	resources, responses, err := m.pastOf(ctx, s)
	if err != nil {
		return err
	}
	if s.Resource == "" && len(resources) > 0 {
		s.Resource = resources[len(resources)-1]
	}
	r, err := m.visit(ctx, s)
	if err != nil {
		return err
	}
	own := layer.Digest(s.Session)
	gone := func(digest string) bool { return digest == own }
	r.run.Forget(ctx, gone)
	if !r.flush(ctx) {
		return ErrStatesNotWritten
	}
	for _, resource := range resources {
		if resource == r.call.Scope.Resource {
			continue
		}
		if err := m.forgetSessions(ctx, s, resource, gone); err != nil {
			return err
		}
	}
	r.run.Dispose(ctx)
	grave, _ := graves(s)
	if err := m.bury(ctx, grave); err != nil {
		return err
	}
	if err := m.store.Delete(ctx, s.Group()); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	if err := m.store.Delete(ctx, vectorsGroup(s.Tenant, s.Session)); err != nil {
		return fmt.Errorf("delete session: %w", err)
	}
	m.past.forget(s)
	for _, resource := range resources {
		m.past.forget(Scope{Tenant: s.Tenant, Session: s.Session, Resource: resource})
		if err := m.log.Unlist(ctx, s.Tenant, resource, s.Session); err != nil {
			return fmt.Errorf("delete session: %w", err)
		}
	}
	for _, id := range responses {
		if err := m.store.Delete(ctx, session.ResponseGroup(s.Tenant, id)); err != nil {
			return fmt.Errorf("delete session: %w", err)
		}
	}
	return nil
}

// pastOf is of which resources a session was, the latest last, and which responses were given in it.
func (m *Memory) pastOf(ctx context.Context, s Scope) (resources, responses []string, err error) {
	err = m.log.Walk(ctx, s, func(l Line) error {
		var turn struct {
			Resource string `json:"resource"`
			Response string `json:"response_id"`
		}
		if l.Turn != nil {
			_ = json.Unmarshal(l.Turn, &turn) // what cannot be read is deleted all the same
		}
		if turn.Response != "" {
			responses = append(responses, turn.Response)
		}
		if turn.Resource != "" && turn.Resource != s.Session {
			resources = slices.DeleteFunc(resources, func(r string) bool { return r == turn.Resource })
			resources = append(resources, turn.Resource)
		}
		return nil
	})
	if errors.Is(err, session.ErrCorrupt) {
		return resources, responses, nil
	}
	return resources, responses, err
}

// forgetSessions removes from the states of a resource and of the tenant everything that came only from certain
// sessions. s names one of them.
func (m *Memory) forgetSessions(ctx context.Context, s Scope, resource string, gone func(digest string) bool) error {
	s.Resource = resource
	t := m.infoWithoutRequest(ctx, s)
	lt := t.layerTurn()
	st := newStates(t, s, &lt, "")
	if st == nil {
		return nil
	}
	r, err := beginLayers(ctx, t, &lt, st)
	if err != nil {
		return err
	}
	r.run.Forget(ctx, gone)
	if !r.flush(ctx) {
		return ErrStatesNotWritten
	}
	return nil
}

// Forget deletes all sessions of a resource and all its layer states, and returns the number of sessions.
func (m *Memory) Forget(ctx context.Context, tenant, resource string) (sessions int, err error) {
	_, grave := graves(Scope{Tenant: tenant, Resource: resource})
	if err := m.bury(ctx, grave); err != nil {
		return 0, err
	}
	var names []string
	for after, more := "", true; more; more = after != "" {
		page, next, err := m.log.SessionsOf(ctx, tenant, resource, after, sweepPage)
		if err != nil {
			return 0, fmt.Errorf("list sessions: %w", err)
		}
		names, after = append(names, page...), next
	}
	if !slices.Contains(names, resource) {
		names = append(names, resource) // a session that named no resource is its own
	}

	for _, name := range names {
		err := m.Delete(ctx, Scope{Tenant: tenant, Session: name, Resource: resource})
		switch {
		case err == nil:
			sessions++
		case !errors.Is(err, ErrNoSession): // that has expired, or waits in a spool
			return sessions, err
		}
		if err := m.log.Unlist(ctx, tenant, resource, name); err != nil {
			return sessions, fmt.Errorf("forget resource: %w", err)
		}
	}
	if err := m.store.Delete(ctx, cache.Group{Owner: tenant, Name: resourcePrefix + resource}); err != nil {
		return sessions, fmt.Errorf("forget resource: %w", err)
	}
	return sessions, m.log.Unlist(ctx, tenant, resource, "")
}

// Names of what says that a session was deleted, and how long it does.
const (
	graveGroup = "d:"
	graveName  = "at"
	graveTTL   = 30 * 24 * time.Hour
)

// graves are where it says that a session, and that a resource, was deleted.
func graves(s Scope) (session, resource cache.Group) {
	return cache.Group{Owner: s.Tenant, Name: graveGroup + "s:" + layer.Digest(s.Session)},
		cache.Group{Owner: s.Tenant, Name: graveGroup + "r:" + layer.Digest(s.Resource)}
}

// bury notes that a session or a resource was deleted, so that no turn of it that began before is written afterwards.
func (m *Memory) bury(ctx context.Context, grave cache.Group) error {
	at := strconv.FormatInt(m.o.Now().UnixMilli(), 10)
	out := m.store.Commit(ctx, []cache.Batch{{
		Group: grave, Expect: cache.AnyVersion, TTL: graveTTL, Puts: []cache.Put{{Name: graveName, Data: []byte(at)}},
	}})
	if err := out[0].Err; err != nil {
		return fmt.Errorf("note the deletion: %w", err)
	}
	return nil
}

// buried reports whether a session or its resource was deleted after a turn of it had begun.
func (m *Memory) buried(ctx context.Context, s Scope, turnID string) (bool, error) {
	began, ok := timeOfTurn(turnID)
	if !ok {
		return false, nil
	}
	session, resource := graves(s)
	results, err := m.store.Read(ctx, []cache.Query{{Group: session, Names: []string{graveName}}, {Group: resource, Names: []string{graveName}}})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(results, func(r cache.Result) bool {
		at, err := strconv.ParseInt(string(r.Values[0]), 10, 64)
		return err == nil && began.UnixMilli() <= at
	}), nil
}

// Expiry. The store removes an expired session by itself. What layers keep of it for its resource is taken out at the
// resource's next write, at most once an hour, and by a sweep each day.
const (
	sweepPage     = 500
	sweepEvery    = 24 * time.Hour
	sweepAgain    = time.Hour
	sweptLately   = 8192
	sweepDeadline = 10 * time.Minute
)

type sweepKey struct{ tenant, resource string }

// sweepSoon takes out what expired sessions have left in the states of a turn's resource, unless that was done lately.
func (m *Memory) sweepSoon(l *layered) {
	s := l.call.Scope
	if m.o.SessionTTL == 0 || s.Resource == "" || s.Resource == s.Session || !l.run.Forgets() {
		return
	}
	key, now := sweepKey{s.Tenant, s.Resource}, m.o.Now()
	if last, ok := m.swept.Find(key); ok && now.Sub(last) < min(sweepAgain, m.o.SessionTTL) {
		return
	}
	m.swept.Put(key, now, sweptLately)
	m.settling.begin(l.base, func(ctx context.Context) {
		if err := m.sweepResource(ctx, s.Tenant, s.Resource); err != nil {
			m.o.Log.Warn("what expired sessions have left behind is not removed yet", "error", err.Error())
		}
	})
}

// sweepResource tells layers of sessions of a resource that have expired.
func (m *Memory) sweepResource(ctx context.Context, tenant, resource string) error {
	alive := map[string]bool{layer.Digest(resource): true}
	var expired []string
	for after, more := "", true; more; more = after != "" {
		names, next, err := m.log.SessionsOf(ctx, tenant, resource, after, sweepPage)
		if err != nil {
			return err
		}
		lives, err := m.log.Alive(ctx, tenant, names)
		if err != nil {
			return err
		}
		for i, name := range names {
			if lives[i] {
				alive[layer.Digest(name)] = true
			} else {
				expired = append(expired, name)
			}
		}
		after = next
	}
	if len(expired) == 0 {
		return nil
	}

	gone := make(map[string]bool, len(expired))
	for _, name := range expired {
		gone[layer.Digest(name)] = true
	}
	s := Scope{Tenant: tenant, Session: expired[0]}
	if err := m.forgetSessions(ctx, s, resource, func(digest string) bool { return gone[digest] && !alive[digest] }); err != nil {
		return err
	}
	for _, name := range expired {
		m.disposeExpired(ctx, Scope{Tenant: tenant, Session: name, Resource: resource})
		if err := m.store.Delete(ctx, vectorsGroup(tenant, name)); err != nil {
			return err
		}
		if err := m.log.Unlist(ctx, tenant, resource, name); err != nil {
			return err
		}
	}
	return nil
}

// disposeExpired notifies layers of the end of a session whose states have expired in the store.
func (m *Memory) disposeExpired(ctx context.Context, s Scope) {
	t := m.infoWithoutRequest(ctx, s)
	run, err := t.shape.Layers.Begin(ctx, s.Tenant, t.layerTurn(), nil, t.credential)
	if err == nil {
		run.Dispose(ctx)
	}
}

// Sweep calls the dispose hooks of layers for all sessions that have expired.
func (m *Memory) Sweep(ctx context.Context) error {
	var errs []error
	for after, more := "", true; more; more = after != "" {
		names, next, err := m.log.Resources(ctx, after, sweepPage)
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		for _, name := range names {
			if tenant, resource, ok := strings.Cut(name, "\x00"); ok {
				errs = append(errs, m.sweepResource(ctx, tenant, resource))
			}
		}
		after = next
	}
	return errors.Join(errs...)
}

// sweeps runs Sweep each day until the memory is closed.
func (m *Memory) sweeps() {
	tick := time.NewTicker(sweepEvery) //nolint:forbidigo // wakes; no clock is read
	defer tick.Stop()
	for {
		select {
		case <-m.life.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(m.life, sweepDeadline)
		if err := m.Sweep(ctx); err != nil {
			m.o.Log.Warn("what expired sessions have left behind is not removed yet", "error", err.Error())
		}
		cancel()
	}
}
