package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"remora/cache"
	"remora/memory/layer"
	"remora/memory/lru"
	"remora/memory/past"
	"remora/memory/session"
)

// Deletions removes sessions and resources with the data that layers derived from them, and the remains of expired sessions.
type Deletions struct {
	m     *Memory
	swept lru.Cache[sweepKey, time.Time] // the latest sweeps for expired sessions
}

// Delete disposes the layers of a session, removes all its data, and removes from shared states the data that came only from
// it. Its turns in a spool are dropped there.
func (d *Deletions) Delete(ctx context.Context, s Scope) error {
	// Before anything is looked for: all of the session may be in a spool.
	tombstone, _ := tombstonesOf(s)
	if err := d.m.tombstones.write(ctx, tombstone); err != nil {
		return err
	}
	resources, responses, err := d.tracesOf(ctx, s)
	if errors.Is(err, ErrNoSession) {
		return errors.Join(err, d.m.store.Delete(ctx, s.Group())) // an import that broke off leaves values, and no session
	}
	if err != nil {
		return err
	}
	if s.Resource == "" && len(resources) > 0 {
		s.Resource = resources[len(resources)-1]
	}
	r, err := visitSession(ctx, d.m, s)
	if errors.Is(err, session.ErrCorrupt) {
		r, err = visitScope(ctx, d.m, s) // what cannot be read is deleted, too
	}
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
		if err := d.forgetSessions(ctx, s, resource, gone); err != nil {
			return err
		}
	}
	r.run.Dispose(ctx)
	// Again: nothing is kept either of turns that have begun since.
	if err := d.m.tombstones.write(ctx, tombstone); err != nil {
		return err
	}
	groups := []cache.Group{past.VectorsGroup(s.Tenant, s.Session)}
	for _, id := range responses {
		groups = append(groups, session.ResponseGroup(s.Tenant, id))
	}
	for _, resource := range resources {
		if err := d.m.log.Index.Remove(ctx, s.Tenant, resource, s.Session); err != nil {
			return fmt.Errorf("delete session: %w", err)
		}
	}
	// The session is deleted last, since it names the other groups: a deletion that has failed can be repeated.
	for _, g := range append(groups, s.Group()) {
		if err := d.m.store.Delete(ctx, g); err != nil {
			return fmt.Errorf("delete session: %w", err)
		}
	}
	// Again: a turn that ended meanwhile may have taught layers. One that ends from now on finds its session deleted.
	if r.run.Forgets() {
		for _, resource := range slices.Concat(resources, []string{""}) {
			if err := d.forgetSessions(ctx, s, resource, gone); err != nil {
				return err
			}
		}
	}
	d.m.past.Forget(s)
	for _, resource := range resources {
		d.m.past.Forget(Scope{Tenant: s.Tenant, Session: s.Session, Resource: resource})
	}
	return nil
}

// tracesOf returns the resources of a session, the latest last, and its responses.
func (d *Deletions) tracesOf(ctx context.Context, s Scope) (resources, responses []string, err error) {
	err = d.m.log.Walk(ctx, s, func(l ExportLine) error {
		var turn struct {
			Resource string `json:"resource"`
			Response string `json:"response_id"`
		}
		if l.Turn != nil {
			_ = json.Unmarshal(l.Turn, &turn) // an unreadable record is deleted, too
		}
		if turn.Response != "" {
			responses = append(responses, turn.Response)
		}
		if turn.Resource != "" {
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
func (d *Deletions) forgetSessions(ctx context.Context, s Scope, resource string, gone func(digest string) bool) error {
	s.Resource = resource
	r, err := visitScope(ctx, d.m, s)
	if err != nil {
		return err
	}
	r.run.Forget(ctx, gone)
	if !r.flush(ctx) {
		return ErrStatesNotWritten
	}
	return nil
}

// forgetTurn removes what a turn has written to shared states before it found its session deleted: each group of a commit is written
// by itself.
func (d *Deletions) forgetTurn(ctx context.Context, s Scope) {
	if s.Resource == "" {
		return
	}
	own := layer.Digest(s.Session)
	if err := d.forgetSessions(ctx, s, s.Resource, func(digest string) bool { return digest == own }); err != nil {
		d.m.o.Log.Warn("what layers learned of a deleted session is not removed", "error", err.Error())
	}
}

// Forget deletes all sessions of a resource and all its layer states, and returns the number of sessions. A session without a
// resource is its own; one of this name that belongs to another resource stays.
func (d *Deletions) Forget(ctx context.Context, tenant, resource string) (sessions int, err error) {
	_, tombstone := tombstonesOf(Scope{Tenant: tenant, Resource: resource})
	if err := d.m.tombstones.write(ctx, tombstone); err != nil {
		return 0, err
	}
	var names []string
	for page, err := range d.m.log.Index.Sessions(ctx, tenant, resource) {
		if err != nil {
			return 0, fmt.Errorf("list sessions: %w", err)
		}
		names = append(names, page...)
	}
	scopes := make([]Scope, 0, len(names)+1)
	for _, name := range names {
		scopes = append(scopes, Scope{Tenant: tenant, Session: name, Resource: resource})
	}
	own := Scope{Tenant: tenant, Session: resource}
	if of, _, err := d.tracesOf(ctx, own); err == nil && len(of) == 0 {
		scopes = append(scopes, own)
	} else if err != nil && !errors.Is(err, ErrNoSession) {
		return 0, err
	}

	for _, s := range scopes {
		err := d.Delete(ctx, s)
		switch {
		case err == nil:
			sessions++
		case !errors.Is(err, ErrNoSession): // expired, or in a spool
			return sessions, err
		}
		if err := d.m.log.Index.Remove(ctx, tenant, resource, s.Session); err != nil {
			return sessions, fmt.Errorf("forget resource: %w", err)
		}
	}
	if err := d.m.store.Delete(ctx, cache.Group{Owner: tenant, Name: resourcePrefix + resource}); err != nil {
		return sessions, fmt.Errorf("forget resource: %w", err)
	}
	return sessions, d.m.log.Index.Remove(ctx, tenant, resource, "")
}

// Expiry. The store removes an expired session by itself. Data that layers derived from it for its resource is removed at the
// resource's next write, at most once an hour, and by a sweep some minutes after the start, and daily from then on. The first comes
// at a random time, so that replicas that start together do not sweep at once.
const (
	firstSweep    = 5 * time.Minute
	firstSpread   = 10 * time.Minute
	sweepEvery    = 24 * time.Hour
	sweepAgain    = time.Hour
	sweptLately   = 8192
	sweepDeadline = 10 * time.Minute
)

type sweepKey struct{ tenant, resource string }

// sweepSoon removes the data of expired sessions from the states of a turn's resource, unless that was done recently.
func (d *Deletions) sweepSoon(l *turnLayers) {
	s := l.call.Scope
	if d.m.o.SessionTTL == 0 || s.Resource == "" || !l.run.Forgets() {
		return
	}
	key, now := sweepKey{s.Tenant, s.Resource}, d.m.o.Now()
	if last, ok := d.swept.Find(key); ok && now.Sub(last) < min(sweepAgain, d.m.o.SessionTTL) {
		return
	}
	d.swept.Put(key, now, sweptLately)
	d.m.settling.begin(l.base, func(ctx context.Context) {
		if err := d.sweepResource(ctx, s.Tenant, s.Resource); err != nil {
			d.m.o.Log.Warn("what expired sessions have left behind is not removed yet", "error", err.Error())
		}
	})
}

// sweepResource makes layers forget the expired sessions of a resource.
func (d *Deletions) sweepResource(ctx context.Context, tenant, resource string) error {
	alive := map[string]bool{layer.Digest(resource): true}
	var expired []string
	for names, err := range d.m.log.Index.Sessions(ctx, tenant, resource) {
		if err != nil {
			return err
		}
		versions, err := d.m.log.Versions(ctx, tenant, names)
		if err != nil {
			return err
		}
		for i, name := range names {
			if versions[i] > 0 {
				alive[layer.Digest(name)] = true
			} else {
				expired = append(expired, name)
			}
		}
	}
	if len(expired) == 0 {
		return nil
	}

	gone := make(map[string]bool, len(expired))
	for _, name := range expired {
		gone[layer.Digest(name)] = true
	}
	s := Scope{Tenant: tenant, Session: expired[0]}
	if err := d.forgetSessions(ctx, s, resource, func(digest string) bool { return gone[digest] && !alive[digest] }); err != nil {
		return err
	}
	for _, name := range expired {
		d.disposeExpired(ctx, Scope{Tenant: tenant, Session: name, Resource: resource})
		if err := d.m.store.Delete(ctx, past.VectorsGroup(tenant, name)); err != nil {
			return err
		}
		if err := d.m.log.Index.Remove(ctx, tenant, resource, name); err != nil {
			return err
		}
	}
	return nil
}

// disposeExpired notifies layers of the end of a session whose states have expired in the store.
func (d *Deletions) disposeExpired(ctx context.Context, s Scope) {
	t := visit(ctx, d.m, s)
	run, err := t.shape.Layers.Begin(ctx, s.Tenant, t.layerTurn(), nil, t.call.Credential)
	if err == nil {
		run.Dispose(ctx)
	}
}

// Sweep calls the dispose hooks of layers for all sessions that have expired.
func (d *Deletions) Sweep(ctx context.Context) error {
	var errs []error
	for names, err := range d.m.log.Index.Resources(ctx) {
		errs = append(errs, err)
		for _, name := range names {
			if tenant, resource, ok := strings.Cut(name, "\x00"); ok {
				errs = append(errs, d.sweepResource(ctx, tenant, resource))
			}
		}
	}
	return errors.Join(errs...)
}

// sweeps runs Sweep soon after the start and then each day, until the memory is closed.
func (d *Deletions) sweeps() {
	tick := time.NewTicker(firstSweep + rand.N(firstSpread)) //nolint:forbidigo,gosec // wakes, no clock is read; no secret
	defer tick.Stop()
	for {
		select {
		case <-d.m.life.Done():
			return
		case <-tick.C:
			tick.Reset(sweepEvery)
		}
		ctx, cancel := context.WithTimeout(d.m.life, sweepDeadline)
		if err := d.Sweep(ctx); err != nil {
			d.m.o.Log.Warn("what expired sessions have left behind is not removed yet", "error", err.Error())
		}
		cancel()
	}
}
