package soak

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"remora/test/kit"
)

// proxy is a running proxy and its admin address.
type proxy struct {
	*kit.Proxy
	admin string
}

// sample is the resource usage of a process.
type sample struct {
	resident   float64 // MiB
	heap       float64 // MiB, the part used by Go's heap
	goroutines float64
	sockets    int
	files      int // open files, including sockets
	streams    float64
	spool      float64 // bytes
	errors     float64 // of the store
	cpu        time.Duration
}

func (s sample) String() string {
	return fmt.Sprintf("%6.1f MiB resident, %6.1f MiB heap, %4.0f goroutines, %4d sockets, %4d files, %4.0f streams, %.0f B spooled",
		s.resident, s.heap, s.goroutines, s.sockets, s.files, s.streams, s.spool)
}

// look reads /proc and the proxy's own metrics.
func (p *proxy) look(tb testing.TB) sample {
	tb.Helper()
	m, err := metrics(p.admin)
	if err != nil {
		tb.Fatal(err)
	}
	s := sample{
		heap: m["go_memstats_heap_inuse_bytes"] / (1 << 20), goroutines: m["go_goroutines"],
		streams: m["remora_streams_open"], spool: m["remora_spool_size_bytes"], errors: m["remora_store_operation_errors_total"],
		cpu: time.Duration(m["process_cpu_seconds_total"] * float64(time.Second)),
	}
	s.resident = p.memory(tb, "VmRSS")
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.PID()))
	if err != nil || len(links) == 0 {
		tb.Fatalf("count open files of the proxy: %d, %v", len(links), err)
	}
	for _, link := range links {
		to, err := os.Readlink(link)
		if err != nil {
			continue // closed meanwhile
		}
		s.files++
		if strings.HasPrefix(to, "socket:") {
			s.sockets++
		}
	}
	return s
}

// memory returns VmRSS (current) or VmHWM (peak), in MiB.
func (p *proxy) memory(tb testing.TB, field string) float64 {
	tb.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		tb.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		tb.Fatalf("no %s in /proc", field)
	}
	kb, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		tb.Fatal(err)
	}
	return kb / 1024
}

// metrics reads /metrics, and adds up the values of each name.
func metrics(addr string) (map[string]float64, error) {
	c := http.Client{Timeout: waitLimit, Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Get("http://" + addr + "/metrics")
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	all := map[string]float64{}
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if _, after, labelled := strings.Cut(lines.Text(), "} "); labelled {
			value = after
		}
		name, _, _ = strings.Cut(name, "{")
		value, _, _ = strings.Cut(value, " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] += n
		}
	}
	if all["go_goroutines"] == 0 {
		return nil, errors.New("read /metrics: go_goroutines is missing")
	}
	return all, nil
}

// settled waits until ok accepts a sample, and fails the test after waitLimit.
func (p *proxy) settled(tb testing.TB, ok func(sample) bool) sample {
	tb.Helper()
	deadline := time.Now().Add(waitLimit)
	for {
		s := p.look(tb)
		if ok(s) || time.Now().After(deadline) {
			return s
		}
		time.Sleep(250 * time.Millisecond) // connections close after a timeout
	}
}
