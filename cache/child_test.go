package cache_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/cache"
)

// childEnv tells a re-executed test binary what to write to: "bolt PATH" or "spool DIR".
const childEnv = "REMORA_CACHE_TEST_CHILD"

// runChild writes numbered records from several goroutines and prints each number once it has been acknowledged,
// until the process is killed. It returns false in the parent.
func runChild() bool {
	kind, path, ok := strings.Cut(os.Getenv(childEnv), " ")
	if !ok {
		return false
	}
	var write func(n int) error
	switch kind {
	case "bolt":
		s, err := cache.Open("bolt:"+path, cache.Options{})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		write = func(n int) error {
			return s.Commit(ctx(), []cache.Batch{{
				Group: cache.Group{Owner: "o", Name: strconv.Itoa(n)}, Puts: []cache.Put{{Name: "n", Data: record(n)}},
			}})[0].Err
		}
	case "spool":
		s, err := cache.OpenSpool(path, 1<<30)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		write = func(n int) error { return s.Append(record(n)) }
	}
	var mu sync.Mutex
	next := 0
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if err := write(n); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(n)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return true
}

// record is long enough to be torn.
func record(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%d ", n), 200)) }

// killedWriter runs a child until it has acknowledged so many records, kills it, and returns what it acknowledged.
func killedWriter(t *testing.T, what string, atLeast int) []int {
	t.Helper()
	return writer(t, what, atLeast, func(*os.Process, []int) {})
}

// writer is killedWriter with a look at the child at each acknowledgement before the last.
func writer(t *testing.T, what string, atLeast int, look func(p *os.Process, acked []int)) []int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+what)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	guard := time.AfterFunc(2*patience, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	var acked []int
	lines := bufio.NewScanner(out)
	for lines.Scan() { // until the pipe of the killed child is empty
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // the last line was cut off
		}
		acked = append(acked, n)
		if len(acked) < atLeast {
			look(cmd.Process, acked)
		} else if len(acked) == atLeast {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait() // killed
	if len(acked) < atLeast {
		t.Fatalf("the child acknowledged %d records, want %d", len(acked), atLeast)
	}
	return acked
}
