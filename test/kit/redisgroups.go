package kit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ClusterServers are the masters of a cluster, in the order of their slots, and their replicas, if any.
type ClusterServers struct {
	Nodes, Replicas []*Redis
}

// StartCluster starts three masters that share the slots, and waits until each knows all.
func StartCluster(tb testing.TB, more ...string) *ClusterServers {
	tb.Helper()
	const masters, slots = 3, 16384
	c := &ClusterServers{}
	for i := range masters {
		node := startNode(tb, more)
		c.Nodes = append(c.Nodes, node)
		from, to := slots*i/masters, slots*(i+1)/masters-1
		must(tb, node, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(from), fmt.Sprint(to))
		must(tb, node, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	for _, node := range c.Nodes[1:] {
		c.Nodes[0].meet(node)
	}
	for _, node := range c.Nodes {
		node.says("CLUSTER INFO", "cluster_state:ok", "cluster_slots_ok:16384", "cluster_size:3")
	}
	return c
}

// startNode starts a server in cluster mode that has not joined a cluster.
func startNode(tb testing.TB, more []string) *Redis {
	tb.Helper()
	return start(tb, func(s *Redis) []string {
		s.busPort = FreePort(tb)
		return append(s.arguments(
			// With a short timeout, nodes would take a slow machine for a lost node, and refuse all commands for a while.
			"--cluster-enabled", "yes", "--cluster-node-timeout", "60000",
			// As docs/redis.md asks for: the others continue even if a test runs for longer than that timeout without one of them.
			"--cluster-require-full-coverage", "no",
			// The default port of the bus is 10000 higher, which may be invalid or used.
			"--cluster-port", fmt.Sprint(s.busPort),
		), more...)
	})
}

// StartClusterWithReplicas starts three masters with a replica each, and waits until a failover is possible: every replica is
// synchronised, and every node knows all others.
func StartClusterWithReplicas(tb testing.TB) *ClusterServers {
	tb.Helper()
	// Replicas may lose their master for long, since tests share few cores, and must still be eligible for a failover.
	more := []string{"--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0"}
	c := StartCluster(tb, more...)
	for _, master := range c.Nodes {
		replica := startNode(tb, more)
		c.Replicas = append(c.Replicas, replica)
		id := must(tb, master, "CLUSTER", "MYID")
		replica.meet(master)
		Eventually(tb, func() error { // fails until it knows the master
			_, err := replica.Do("CLUSTER", "REPLICATE", id)
			return err
		})
	}
	for _, replica := range c.Replicas {
		replica.says("INFO replication", "master_link_status:up")
	}
	for _, node := range slices.Concat(c.Nodes, c.Replicas) {
		Eventually(tb, func() error {
			all, err := node.Do("CLUSTER", "NODES")
			if err == nil && (strings.Count(all, "slave ") != len(c.Replicas) || strings.Contains(all, "fail")) {
				err = errors.New(all)
			}
			return err
		})
	}
	// Not earlier: nodes that are slow while they meet must not be taken for lost.
	for _, node := range slices.Concat(c.Nodes, c.Replicas) {
		must(tb, node, "CONFIG", "SET", "cluster-node-timeout", "2000")
	}
	return c
}

// meet makes two nodes of a cluster known to each other.
func (s *Redis) meet(other *Redis) {
	s.tb.Helper()
	must(s.tb, s, "CLUSTER", "MEET", "127.0.0.1", fmt.Sprint(other.Port()), fmt.Sprint(other.busPort))
}

// says waits until the reply to a command contains all signs.
func (s *Redis) says(command string, signs ...string) {
	s.tb.Helper()
	Eventually(s.tb, func() error {
		reply, err := s.Do(strings.Fields(command)...)
		for _, sign := range signs {
			if err == nil && !strings.Contains(reply, sign) {
				err = fmt.Errorf("no %q in the reply to %s:\n%s", sign, command, reply)
			}
		}
		return err
	})
}

// IsMaster reports whether the server is a master, or a promoted replica.
func (s *Redis) IsMaster() bool {
	info, err := s.Do("INFO", "replication")
	return err == nil && strings.Contains(info, "role:master")
}

// URL returns the value for store.url.
func (c *ClusterServers) URL() string { return "redis+cluster://" + addrs(c.Nodes) }

func addrs(servers []*Redis) string {
	var all []string
	for _, s := range servers {
		all = append(all, s.Addr())
	}
	return strings.Join(all, ",")
}

// MoveSlotOf moves the slot of key with all its keys to the next node, as resharding does. It returns the slot and the index of
// the node that had it.
func (c *ClusterServers) MoveSlotOf(tb testing.TB, key string) (slot, from int) {
	tb.Helper()
	text := must(tb, c.Nodes[0], "CLUSTER", "KEYSLOT", key)
	slot, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("slot of %q: %v", key, err)
	}
	for from = 0; from < len(c.Nodes); from++ {
		// The node with the slot answers without a redirection.
		if _, err := c.Nodes[from].Do("EXISTS", key); err == nil {
			break
		}
	}
	if from == len(c.Nodes) {
		tb.Fatalf("slot %d has no node", slot)
	}
	// A target that does not know the source's newest epoch would take the slot with an older one, and lose it again.
	Eventually(tb, c.agree)
	source, target := c.Nodes[from], c.Nodes[(from+1)%len(c.Nodes)]
	sourceID, targetID := must(tb, source, "CLUSTER", "MYID"), must(tb, target, "CLUSTER", "MYID")
	must(tb, target, "CLUSTER", "SETSLOT", text, "IMPORTING", sourceID)
	must(tb, source, "CLUSTER", "SETSLOT", text, "MIGRATING", targetID)
	must(tb, source, "MIGRATE", "127.0.0.1", fmt.Sprint(target.Port()), key, "0", fmt.Sprint(answersWithin.Milliseconds()))
	for _, n := range []*Redis{target, source} {
		must(tb, n, "CLUSTER", "SETSLOT", text, "NODE", targetID)
	}
	return slot, from
}

// agree returns nil if all nodes know the same epochs and slots.
func (c *ClusterServers) agree() error {
	first := ""
	for i, node := range c.Nodes {
		all, err := node.Do("CLUSTER", "NODES")
		if err != nil {
			return err
		}
		var known []string
		for line := range strings.Lines(all) {
			// id, address, flags, master, ping, pong, epoch, link, slots
			if f := strings.Fields(line); len(f) > 7 {
				known = append(known, fmt.Sprint(f[0], f[6], f[8:]))
			}
		}
		slices.Sort(known)
		if told := strings.Join(known, "\n"); i == 0 {
			first = told
		} else if told != first {
			return fmt.Errorf("one node knows\n%s\nand another\n%s", first, told)
		}
	}
	return nil
}

// SentinelServers are a master with one replica, watched by three Sentinels that need two votes.
type SentinelServers struct {
	Master, Replica *Redis
	Sentinels       []*Redis
}

// StartSentinel starts the servers, and waits until every Sentinel knows the replica and the other Sentinels, so that a
// failover is possible.
func StartSentinel(tb testing.TB) *SentinelServers {
	tb.Helper()
	s := &SentinelServers{Master: StartRedis(tb, "--repl-diskless-sync-delay", "0")}
	s.Replica = StartRedis(tb, "--replicaof", "127.0.0.1", fmt.Sprint(s.Master.Port()))
	s.Replica.says("INFO replication", "master_link_status:up")
	for range 3 {
		s.Sentinels = append(s.Sentinels, startSentinel(tb, s.Master.Port()))
	}
	for _, one := range s.Sentinels {
		one.says("INFO sentinel", "status=ok,address="+s.Master.Addr()+",slaves=1,sentinels=3")
	}
	return s
}

// URL returns the value for store.url.
func (s *SentinelServers) URL() string {
	return "redis+sentinel://" + addrs(s.Sentinels) + "/mymaster/0"
}

// downAfter is the time after which a silent master counts as down. It is longer than the two seconds after which a Sentinel
// assumes that it was paused itself, and then promotes no replica for a while (tilt mode).
const downAfter = 3 * time.Second

// tilt is the duration of the tilt mode. The default of half a minute is too long on a slow machine. It can be set from Redis 7
// on.
const tilt = time.Second

// startSentinel starts a Sentinel. It needs a writable configuration file.
func startSentinel(tb testing.TB, master int) *Redis {
	tb.Helper()
	s := start(tb, func(s *Redis) []string {
		file := filepath.Join(s.dir, "sentinel.conf")
		conf := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nlogfile %s\n"+
			"sentinel monitor mymaster 127.0.0.1 %d 2\n"+
			"sentinel down-after-milliseconds mymaster %d\nsentinel failover-timeout mymaster 3000\n",
			s.port, s.dir, s.logFile(), master, downAfter.Milliseconds())
		if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
			tb.Fatalf("write sentinel.conf: %v", err)
		}
		return []string{file, "--sentinel"}
	})
	_, _ = s.Do("SENTINEL", "DEBUG", "tilt-period", fmt.Sprint(tilt.Milliseconds())) // older ones keep the default
	return s
}

func must(tb testing.TB, s *Redis, args ...string) string {
	tb.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		tb.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return reply
}
