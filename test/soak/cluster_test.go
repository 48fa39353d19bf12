package soak

import (
	"flag"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"remora/test/kit"
)

var (
	clusterFor    = flag.Duration("cluster-time", time.Second, "how long TestCluster loads each store in a round")
	clusterRounds = flag.Int("cluster-rounds", 1, "how many rounds, in which the stores take turns")
)

// pair is two proxies on one store. Clients alternate between them with every connection.
type pair struct {
	name    string
	servers []*kit.Redis
	proxies []*proxy
	clients crew

	requests int
	took     time.Duration
	cpu, red time.Duration // of the proxies and of Redis
}

func newPair(t *testing.T, name, url, upstream string, servers []*kit.Redis) *pair {
	t.Helper()
	p := &pair{name: name, servers: servers}
	for range 2 {
		p.proxies = append(p.proxies, start(t, patient(url), provider(upstream)))
	}
	var next atomic.Int64
	p.clients = newCrew(32, false, func() string { return p.proxies[int(next.Add(1))%2].addr() })
	return p
}

// round loads the proxies. Clients sometimes reconnect, so that sessions move between the proxies.
func (p *pair) round(t *testing.T, d time.Duration) {
	t.Helper()
	cpu, red := p.used(t)
	const parts = 4
	for range parts {
		got, took := p.clients.closedLoop(d / parts)
		got.judge(t)
		if got.degraded > 0 || got.forgotten > 0 {
			t.Errorf("%s: of %d answers %d were without memory and %d with another history", p.name, got.answered, got.degraded, got.forgotten)
		}
		p.requests, p.took = p.requests+got.answered, p.took+took
		p.clients.hangUp()
	}
	afterCPU, afterRed := p.used(t)
	p.cpu, p.red = p.cpu+afterCPU-cpu, p.red+afterRed-red
}

// used returns the processor time so far, of the proxies and of Redis.
func (p *pair) used(t *testing.T) (proxies, redis time.Duration) {
	t.Helper()
	for _, one := range p.proxies {
		s := one.look(t)
		proxies += s.cpu
		if s.errors > 0 {
			t.Errorf("%s: %.0f operations of the store have failed", p.name, s.errors)
		}
	}
	for _, server := range p.servers {
		info, err := server.Do("INFO", "cpu")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(info, "\r\n") {
			name, value, _ := strings.Cut(line, ":")
			if name == "used_cpu_user" || name == "used_cpu_sys" {
				seconds, err := strconv.ParseFloat(value, 64)
				if err != nil {
					t.Fatal(err)
				}
				redis += time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return proxies, redis
}

// enoughKeys is a number of keys of which each master gets a fifth or more with near certainty.
const enoughKeys = 200

// keys returns the number of keys of each server, and their sum.
func (p *pair) keys(t *testing.T) (each []int, total int) {
	t.Helper()
	for _, server := range p.servers {
		size, err := server.Do("DBSIZE")
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.Atoi(size)
		if err != nil {
			t.Fatal(err)
		}
		each, total = append(each, n), total+n
	}
	return each, total
}

func (p *pair) report(t *testing.T) {
	t.Helper()
	each := 1000 / float64(p.requests)
	keys, _ := p.keys(t)
	t.Logf("%-28s %s requests, %.0f/s; CPU s per 1,000: proxies %.2f, Redis %.2f; keys %v", p.name+":",
		count(p.requests), float64(p.requests)/p.took.Seconds(), p.cpu.Seconds()*each, p.red.Seconds()*each, keys)
}

// TestCluster runs two proxies on a cluster, and two others on a single server for comparison. Every session must be on one
// master, sessions must be on all masters, and no request may fail.
func TestCluster(t *testing.T) {
	cluster, single := kit.StartCluster(t), kit.StartRedis(t)
	upstream := newUpstream(t)
	pairs := []*pair{
		newPair(t, "one Redis, two proxies", single.URL(), upstream, []*kit.Redis{single}),
		newPair(t, "three masters, two proxies", cluster.URL(), upstream, cluster.Nodes),
	}
	for n := range *clusterRounds {
		for i := range pairs {
			pairs[(n+i)%len(pairs)].round(t, *clusterFor)
		}
	}
	spread, total := pairs[1].keys(t)
	for tries := 0; total < enoughKeys && tries < 100 && !t.Failed(); tries++ { // the machine is slow
		pairs[1].round(t, *clusterFor)
		spread, total = pairs[1].keys(t)
	}
	for _, p := range pairs {
		p.report(t)
	}
	for i, n := range spread {
		if total < enoughKeys || n < total/5 {
			t.Errorf("master %d holds %d of %d keys", i, n, total)
		}
	}
	for _, p := range pairs {
		for i, one := range p.proxies {
			one.Stop()
			if log := one.Log(); strings.Contains(log, "CROSSSLOT") || strings.Contains(log, "MOVED") {
				t.Errorf("%s: proxy %d speaks of slots: %.400s", p.name, i, log)
			}
		}
	}
}
