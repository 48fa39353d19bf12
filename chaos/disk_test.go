package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"remora/cache/redistest"
	"remora/cmd/proxy/proxytest"
)

const (
	boltDiskFull  = "disk full under bbolt"
	spoolDiskFull = "Redis killed, and disk full under the spool"
)

// ballast is the name of the file that fills a disk.
const ballast = "ballast"

// fill takes all room that is left in dir.
func fill(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, ballast))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// unfill gives the room back.
func unfill(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, ballast)); err != nil {
		t.Error(err)
	}
}

// TestDiskFull fills the disk that turns are written to. They go to the spool until there is room again, and where that
// has none either, stay in the process.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		disk := smallDisk(t, "4m")
		store := "bolt:" + filepath.Join(disk, "remora.db")
		p := proxytest.Start(t, t.TempDir(), config(newUpstream(t).URL, store))
		trouble{
			scenario: boltDiskFull, during: scale(20, 100),
			begin: func() { fill(t, disk) }, end: func() { unfill(t, disk) },
		}.play(t, p, store)
	})
	t.Run("spool", func(t *testing.T) {
		t.Parallel()
		disk := smallDisk(t, "1m")
		redis := redistest.Start(t, redistest.AppendOnly())
		p := proxytest.Start(t, t.TempDir(), configWith(newUpstream(t).URL,
			fmt.Sprintf("url: %q, spool: {dir: %q}", redis.URL(), filepath.Join(disk, "spool"))))
		trouble{
			scenario: spoolDiskFull, during: scale(20, 100), spool: filepath.Join(disk, "spool"),
			begin: func() { redis.Kill(); fill(t, disk) }, end: func() { unfill(t, disk); redis.Restart() },
		}.play(t, p, redis.URL())
	})
}
