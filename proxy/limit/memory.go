package limit

import (
	"bufio"
	"bytes"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
)

// memoryShare: bodies and answers may take 1/memoryShare of the memory, and indexes as much. Parsed items and garbage take about as
// much again as bodies.
const memoryShare = 4

// MemoryShare returns the part of the memory that the process may use for one purpose, a quarter, in bytes; 0 where that memory is
// not known. goLimit is GOMEMLIMIT in bytes, 0 for none.
func MemoryShare(goLimit int64) int64 { return availableMemory("/", goLimit) / memoryShare }

// availableMemory is the least of GOMEMLIMIT, the limits of the process's cgroups and the memory of the machine, 0 if none
// is known. root is where the system's files are.
func availableMemory(root string, goLimit int64) int64 {
	least := int64(math.MaxInt64)
	note := func(n int64) {
		if n > 0 {
			least = min(least, n)
		}
	}

	note(goLimit)
	note(meminfo(path.Join(root, "proc/meminfo")))
	for _, version := range []struct{ controller, folder, file string }{
		{"memory", "sys/fs/cgroup/memory", "memory.limit_in_bytes"}, // 1
		{"", "sys/fs/cgroup", "memory.max"},                         // 2
	} {
		for group := ownGroup(path.Join(root, "proc/self/cgroup"), version.controller); ; group = path.Dir(group) {
			note(bytesIn(path.Join(root, version.folder, group, version.file)))
			if group == "/" {
				break
			}
		}
	}
	if least == math.MaxInt64 {
		return 0
	}
	return least
}

// ownGroup returns the process's cgroup of a controller of version 1, or of version 2, which names none; "/" where there is none.
func ownGroup(file, controller string) string {
	b, err := os.ReadFile(file) //nolint:gosec // of the system
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(b)) { // number:controllers:path
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
			return path.Clean("/" + f[2])
		}
	}
	return "/"
}

// bytesIn returns the number in a file, 0 if it holds none, such as "max".
func bytesIn(file string) int64 {
	b, err := os.ReadFile(file) //nolint:gosec // of the system
	if err != nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// meminfo returns the memory of the machine in bytes.
func meminfo(file string) int64 {
	f, err := os.Open(file) //nolint:gosec // of the system
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				return 0
			}
			return kb << 10
		}
	}
	return 0
}
