package storetest

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
)

// childEnv is the path that a child writes to. The child is the re-executed test binary.
const childEnv = "REMORA_CACHE_TEST_CHILD"

// childLimit bounds the lifetime of a child.
const childLimit = 4 * time.Minute

// RunChild is for TestMain. In the child of a [Writer] it opens the store or spool, writes numbered records from several
// goroutines and prints each number once the record is acknowledged, until the process is killed. It returns false in every
// other process.
func RunChild(open func(path string) (write func(n int) error, err error)) bool {
	path, ok := os.LookupEnv(childEnv)
	if !ok {
		return false
	}
	write, err := open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
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

// Record returns the content of a child's record. It is long enough for an incomplete write.
func Record(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%d ", n), 200)) }

// Writer runs a child that writes to path until it has acknowledged atLeast records, kills it, and returns the acknowledged
// numbers. look, if not nil, is called at each acknowledgement before the last.
func Writer(t *testing.T, path string, atLeast int, look func(p *os.Process, acked []int)) []int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	guard := time.AfterFunc(childLimit, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()

	var acked []int
	lines := bufio.NewScanner(out)
	for lines.Scan() { // until the pipe of the killed child is empty
		n, err := strconv.Atoi(lines.Text())
		if err != nil {
			break // the last line is incomplete
		}
		acked = append(acked, n)
		if len(acked) == atLeast {
			_ = cmd.Process.Kill()
		} else if len(acked) < atLeast && look != nil {
			look(cmd.Process, acked)
		}
	}
	_ = cmd.Wait() // killed
	if len(acked) < atLeast {
		t.Fatalf("the child acknowledged %d records, want %d", len(acked), atLeast)
	}
	return acked
}
