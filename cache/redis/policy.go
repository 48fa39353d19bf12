package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"remora/cache"
)

// NoEviction is the maxmemory-policy with which Redis evicts nothing.
const NoEviction = "noeviction"

// EvictionPolicies returns the maxmemory-policies of the store's servers with which they may evict groups: all but
// [NoEviction], each once. It queries the servers. Stores other than Redis have no policy.
func EvictionPolicies(ctx context.Context, s cache.Store) ([]string, error) {
	r, ok := s.(*Store)
	if !ok {
		return nil, nil
	}
	if err := r.gate.Enter(); err != nil {
		return nil, err
	}
	defer r.gate.Leave()
	var mu sync.Mutex
	var found []string
	ask := func(ctx context.Context, c redis.Cmdable) error {
		policy, err := policyOf(ctx, c)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && policy != NoEviction && !slices.Contains(found, policy) {
			found = append(found, policy)
		}
		return err
	}
	var err error
	if r.lanes.cluster != nil {
		err = r.lanes.cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c) })
	} else {
		err = ask(ctx, r.client)
	}
	slices.Sort(found)
	return found, err
}

// policyOf queries one server. Managed services often allow INFO but not CONFIG.
func policyOf(ctx context.Context, c redis.Cmdable) (string, error) {
	got, err := c.ConfigGet(ctx, "maxmemory-policy").Result()
	if policy := got["maxmemory-policy"]; err == nil && policy != "" {
		return policy, nil
	}
	info, err := c.Info(ctx, "memory").Result()
	for line := range strings.Lines(info) {
		if policy, ok := strings.CutPrefix(strings.TrimSpace(line), "maxmemory_policy:"); ok && policy != "" {
			return policy, nil
		}
	}
	if err == nil {
		return "", errors.New("neither CONFIG GET nor INFO tells maxmemory-policy")
	}
	return "", fmt.Errorf("ask for maxmemory-policy: %w", cleanError(err))
}
