package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"remora/cache/stores"
	"remora/providers"
	"remora/providers/retry"
	"remora/proxy/limit"
)

func newCheckCommand(p console) *cobra.Command {
	s := &serveFlags{console: p, checks: true}
	return s.command("check", "Print all problems of the configuration, and serve nothing")
}

// check prints the problems and warnings of a configuration; err is the error of loading it.
func (p console) check(c Config, err error) error {
	found, ok := errors.AsType[problems](err)
	if err != nil && !ok {
		return err
	}
	expiry, err := c.Server.LoadCertificate()
	found.addErrors("", err, c.Store.checkFiles())
	if expiresSoon(expiry) {
		_, _ = fmt.Fprintf(p.stderr, "warning: server.tls_cert: the certificate expires, or has expired, at %s: clients refuse it then\n", expiry.Format(time.RFC3339))
	}
	if set, err := providers.NewSet(c.upstreams()); err == nil { // else it is reported already
		found.addErrors("", checkLoops(set, c.Server.Listen, c.Server.AdminListen))
	}
	for _, w := range c.warnings() {
		if !found.covers(w.path) { // else a consequence of the problem
			_, _ = fmt.Fprintln(p.stderr, "warning: "+w.line())
		}
	}
	if err := found.err(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, "config ok")
	return err
}

// checkLoops returns an error for each provider that is this proxy itself, with the addresses that it listens on: a request to one
// would come back until nothing is left to open another connection with.
func checkLoops(set *providers.Set, listen, adminListen string) error {
	var found problems
	for i, p := range set.All() {
		switch to := p.Address().Addr; {
		case meets(listen, to):
			found.add(fmt.Sprintf("providers[%d].base_url", i), "is this proxy itself, which listens on %s: "+
				"want the address of another server, or another port here (--listen, server.listen)", listen)
		case meets(adminListen, to):
			found.add(fmt.Sprintf("providers[%d].base_url", i), "is this proxy itself, whose operators' address is %s: "+
				"want the address of another server, or another server.admin_listen", adminListen)
		}
	}
	return found.err()
}

// meets reports whether a connection to an address is known to reach the listener on another. Names are not looked up, except that
// localhost is this machine.
func meets(listen, to string) bool {
	host, port, err := net.SplitHostPort(listen)
	toHost, toPort, toErr := net.SplitHostPort(to)
	if err != nil || toErr != nil || port != toPort || port == "0" {
		return false
	}
	if strings.EqualFold(host, toHost) {
		return true
	}
	ip, toIP := localIP(host), localIP(toHost)
	if !ip.IsValid() || !toIP.IsValid() {
		return false
	}
	anyName := strings.EqualFold(host, localhost) || strings.EqualFold(toHost, localhost) // of which the family is not known
	return ip == toIP || ip.IsUnspecified() || toIP.IsUnspecified() || anyName && firstLoopback(ip) && firstLoopback(toIP)
}

const localhost = "localhost"

// localIP returns the IP address of this machine that a host is, the unspecified one for "", and none for any other host.
func localIP(host string) netip.Addr {
	switch {
	case host == "":
		return netip.IPv6Unspecified()
	case strings.EqualFold(host, localhost):
		return netip.IPv6Loopback()
	}
	ip, _ := netip.ParseAddr(host)
	if ip = ip.Unmap(); ip.IsLoopback() || ip.IsUnspecified() {
		return ip
	}
	return netip.Addr{}
}

// firstLoopback reports whether an address is one that localhost stands for.
func firstLoopback(ip netip.Addr) bool {
	return ip == netip.IPv6Loopback() || ip == netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// warnings lists what may keep a proxy from doing all that it is configured to.
func (c *Config) warnings() problems {
	found := c.mistakes()
	if dir := c.Store.Spool.Dir; dir != "" {
		if err := writable(dir); err != nil {
			found.add("store.spool.dir", "a proxy could not write to %s here: %v", dir, err)
		}
	}
	return found
}

// ownFiles is about how many files a process has open besides the connections of its requests: listeners, store, spool, log.
const ownFiles = 40

// mistakes lists settings that work but are probably a mistake, such as base URLs without a path, where few servers serve their
// API, or with the path of an endpoint, bodies that leave little memory for anything else, more connections than the process may have,
// a collector's port for gRPC, or options of retries and breakers that are off.
func (c *Config) mistakes() (found problems) {
	found.addErrors("", c.admin(nil, nil).Validate())
	if share := limit.MemoryShare(c.goLimit); share > 0 && c.Limits.Global.BodyBytes == 0 && int64(c.Server.MaxBody) > share {
		found.add("server.max_body", "one body of %s may take more than a quarter of the memory that the process may use: "+
			"want %dMiB or less, or more memory", c.Server.MaxBody, share>>20)
	}
	var files syscall.Rlimit
	// The default of max_connections suits large hosts, so only a limit far below it is reported; a process that reaches one logs it.
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files)
	if may := int(min(files.Cur, math.MaxInt32)); err == nil && may < c.Server.MaxConnections/4 {
		found.add("server.max_connections", "the process may open %d files, and a request takes up to two, for its client and its provider: "+
			"want %d or less, or a higher limit (ulimit -n, LimitNOFILE of systemd)", may, max(1, (may-ownFiles)/2))
	}
	for _, to := range []struct{ path, endpoint string }{
		{"telemetry.traces.endpoint", c.Telemetry.Traces.Endpoint}, {"telemetry.metrics.endpoint", c.Telemetry.Metrics.Endpoint},
	} {
		if u, err := url.Parse(to.endpoint); err == nil && u.Port() == "4317" {
			found.add(to.path, "4317 is the port of collectors for OTLP over gRPC; OTLP over HTTP, which is sent here, goes to 4318")
		}
	}
	for i, p := range c.upstreams() {
		if p.BaseURL != "" && withVersion(p.BaseURL) != p.BaseURL {
			found.add(fmt.Sprintf("providers[%d].base_url", i), "has no path; most servers want %s", withVersion(p.BaseURL))
		}
		for _, endpoint := range []string{"/chat/completions", "/responses", "/completions", "/embeddings", "/models"} {
			if base, ok := strings.CutSuffix(strings.TrimRight(p.BaseURL, "/"), endpoint); ok {
				found.add(fmt.Sprintf("providers[%d].base_url", i), "is the URL of an endpoint; clients add its path to theirs, so want %s", base)
				break
			}
		}
	}
	for i := range c.Providers {
		o := &c.Providers[i].Resilience
		if r := o.Retry; r.Attempts == 0 && (r.BaseDelay != 0 || r.MaxDelay != 0) {
			found.add(fmt.Sprintf("providers[%d].retry", i), "is off without attempts, the number of calls in all")
		}
		if b := o.Breaker; b.Failures == 0 && b != (retry.Breaker{}) {
			found.add(fmt.Sprintf("providers[%d].breaker", i), "is off without failures, the share of failed calls that opens it")
		}
	}
	return found
}

// writable checks that this user can create files in a folder, or create the folder. It leaves nothing behind.
func writable(dir string) error {
	at := filepath.Clean(dir)
	info, err := os.Stat(at)
	for ; errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at); info, err = os.Stat(at) {
		at = filepath.Dir(at)
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is no folder", at)
	}
	const writeAndSearch = 2 | 1 // W_OK and X_OK of access(2)
	if err := syscall.Access(at, writeAndSearch); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if at == filepath.Clean(dir) {
		return nil // a running proxy may use the folder: leave it alone
	}
	probe, err := os.MkdirTemp(at, ".remora-check-*") // access(2) allows it on some file systems that refuse it, such as /proc
	if err != nil {
		return err
	}
	return os.Remove(probe)
}

// checkFiles checks that the folder of the store's file exists. It may not on another machine than the one that will serve.
func (o storeOptions) checkFiles() error {
	path := stores.File(o.URL.Reveal())
	if path == "" {
		return nil
	}
	dir := filepath.Dir(path)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fmt.Errorf("store.url: want a file in a folder that exists, %s does not", dir)
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fmt.Errorf("store.url: want a file, %s is a folder", path)
	}
	return nil
}
