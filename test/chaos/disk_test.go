package chaos

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"remora/test/kit"
)

const (
	boltDiskFull  = "disk full under bbolt"
	spoolDiskFull = "Redis killed, and disk full under the spool"
)

// ballast is the name of the file that fills a disk.
const ballast = "ballast"

// fill uses all free space of dir.
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

// unfill frees the space again.
func unfill(t *testing.T, dir string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, ballast)); err != nil {
		t.Error(err)
	}
}

// TestDiskFull fills the disk of the store. Turns go to the spool until there is space again; if the spool's disk is full too,
// they stay in memory.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("bolt", func(t *testing.T) {
		t.Parallel()
		disk := smallDisk(t, "16m")
		store := "bolt:" + filepath.Join(disk, "remora.db")
		f := newFleet(t, 1, config(newUpstream(t, unevenly).URL, store))
		trouble{
			scenario: boltDiskFull, during: scale(20, 100),
			begin: func() { fill(t, disk) }, end: func() { unfill(t, disk) },
		}.play(f, store)
	})
	t.Run("spool", func(t *testing.T) {
		t.Parallel()
		disk := smallDisk(t, "1m")
		redis := kit.StartRedis(t, kit.AppendOnly()...)
		f := newFleet(t, 1, configWith(newUpstream(t, unevenly).URL,
			fmt.Sprintf("url: %q, spool: {dir: %q}", redis.URL(), filepath.Join(disk, "spool"))))
		f.spool = filepath.Join(disk, "spool")
		trouble{
			scenario: spoolDiskFull, during: scale(20, 100),
			begin: func() { redis.Kill(); fill(t, disk) }, end: func() { unfill(t, disk); redis.Restart() },
		}.play(f, redis.URL())
	})
}
