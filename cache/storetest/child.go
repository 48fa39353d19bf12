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

// childEnv tells a re-executed test binary which file or folder to write to.
const childEnv = "REMORA_CACHE_TEST_CHILD"

// childLimit is how long a child may live.
const childLimit = 4 * time.Minute

// RunChild is for TestMain. In the child of a [Writer] it opens what the test is about, writes numbered records from
// several goroutines and prints each number once the record is acknowledged, until the process is killed. It returns
// false in every other process.
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

// Record is the content of a child's record: long enough for a write of it to be cut off.
func Record(n int) []byte { return []byte(strings.Repeat(fmt.Sprintf("%d ", n), 200)) }

// Writer runs a child that writes to path until it has acknowledged so many records, kills it, and returns the numbers that
// it acknowledged. look is called at each acknowledgement before the last, unless it is nil.
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
			break // the last line was cut off
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
