package limit

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestAvailableMemory(t *testing.T) {
	const giB = 1 << 30
	machine := map[string]string{"proc/meminfo": "MemFree: 1 kB\nMemTotal:        8388608 kB\n"}
	f := func(name string, want, goLimit int64, files map[string]string) {
		t.Helper()
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, all := range []map[string]string{machine, files} {
				for name, content := range all {
					file := filepath.Join(root, name)
					if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			if got := availableMemory(root, goLimit); got != want {
				t.Errorf("%d, want %d", got, want)
			}
		})
	}
	f("the machine", 8*giB, math.MaxInt64, nil)
	f("GOMEMLIMIT", 2*giB, 2*giB, nil)
	f("a container", giB, math.MaxInt64, map[string]string{"sys/fs/cgroup/memory.max": "1073741824\n", "proc/self/cgroup": "0::/\n"})
	f("a container without a limit", 8*giB, math.MaxInt64, map[string]string{"sys/fs/cgroup/memory.max": "max\n", "proc/self/cgroup": "0::/\n"})
	f("a slice above", giB, math.MaxInt64, map[string]string{
		"proc/self/cgroup": "0::/system.slice/remora.service\n", "sys/fs/cgroup/system.slice/memory.max": "1073741824\n",
		"sys/fs/cgroup/system.slice/remora.service/memory.max": "2147483648\n",
	})
	f("version 1", giB, math.MaxInt64, map[string]string{"sys/fs/cgroup/memory/memory.limit_in_bytes": "1073741824\n", "proc/self/cgroup": "4:memory:/x\n"})
	f("version 1, a service", giB, math.MaxInt64, map[string]string{
		"sys/fs/cgroup/memory/memory.limit_in_bytes":                             "9223372036854771712\n",
		"sys/fs/cgroup/memory/system.slice/remora.service/memory.limit_in_bytes": "1073741824\n",
		"proc/self/cgroup": "5:cpu,cpuacct:/\n4:memory:/system.slice/remora.service\n0::/\n",
	})
	f("nothing known", 0, math.MaxInt64, map[string]string{"proc/meminfo": ""})
}
