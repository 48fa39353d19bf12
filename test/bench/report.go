package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is the result of a run.
type report struct {
	plan     plan
	variants []variant
	begun    time.Time

	results  results
	flatness []flatness
	problems []string
}

// target is a target of the project, and the measured value.
type target struct {
	name  string
	value float64
	aim   string
	met   bool
}

func atLeast(limit float64, name string, value float64) target {
	return target{name, value, fmt.Sprintf("at least %g", limit), value >= limit}
}

func atMost(limit float64, unit, name string, value float64) target {
	return target{name, value, strings.TrimSpace(fmt.Sprintf("at most %g %s", limit, unit)), value <= limit}
}

// targets returns the targets for which the run has figures.
func (r *report) targets() []target {
	median := r.results.median
	over := func(v string, m measure) float64 { return r.results.compared(v, bare, m, difference) }
	share := func(v string) float64 { return r.results.compared(v, bare, throughput, ratio) }
	all := []target{
		atLeast(0.85, "no session: throughput of the bare proxy's", share(none)),
		atMost(0.05, "ms", "no session: p50 over the bare proxy's", over(none, p50)),
		atLeast(0.35, "session on Redis: throughput of the bare proxy's", share(onRedis)),
		atMost(0.3, "ms", "session on Redis: p50 over the bare proxy's", over(onRedis, p50)),
		atMost(1.5, "ms", "session on Redis: p99 over the bare proxy's", over(onRedis, p99)),
		atMost(0.15, "s", "session on Redis: CPU of 1,000 requests", median(onRedis, requestCPU)),
		atMost(2, "ms", "256 KB with a session: CPU of a request", worst(r.sessions(), median, bigCPU)),
	}
	for _, f := range r.flatness {
		name := fmt.Sprintf("%s, %s: cost with %d items stored, of that with %d", f.variant, f.habit, f.many.items, f.few.items)
		all = append(all, atMost(1.3, "times", name, f.worst()))
	}
	all = append(all,
		atMost(0.1, "ms", "chunk of a stream: p50 over the bare proxy's", worst(r.remora(), over, chunkP50)),
		atMost(60, "MB", "memory when idle", worst(r.remora(), median, idleMemory)),
		atMost(100, "ms", "start to first answer", worst(r.remora(), median, startup)),
	)
	return slices.DeleteFunc(all, func(t target) bool { return math.IsNaN(t.value) })
}

// remora returns Remora's variants; sessions those with a session and only a window, for which there are targets.
func (r *report) remora() (names []string) {
	for _, v := range r.variants {
		if v.named || v.name == none {
			names = append(names, v.name)
		}
	}
	return names
}

func (r *report) sessions() []string {
	return slices.DeleteFunc(r.remora(), func(name string) bool { return name == none || name == shipped || name == withLayers })
}

// worst returns the largest value among variants. It is NaN if one of them has none: an unmeasured variant meets no target.
func worst(variants []string, value func(string, measure) float64, m measure) float64 {
	if len(variants) == 0 {
		return math.NaN()
	}
	var all []float64
	for _, v := range variants {
		all = append(all, value(v, m))
	}
	return slices.Max(all)
}

// row is a line of the table: one measure, or two with a mark between them.
type row struct {
	label string
	verb  string // format of a value
	mark  string
	value func(v string) []float64
}

func (r *report) rows() []row {
	med := func(ms ...measure) func(string) []float64 {
		return func(v string) (out []float64) {
			for _, m := range ms {
				out = append(out, r.results.median(v, m))
			}
			return out
		}
	}
	added := func(v string) []float64 {
		if v == direct {
			return nil
		}
		return []float64{r.results.compared(v, direct, p50, difference), r.results.compared(v, direct, p99, difference)}
	}
	firstByte := fmt.Sprintf("%d paced streams: first byte p50 / p99, ms (upstream waits %d)", streamConns, streamSpacing.Milliseconds())
	return []row{
		{fmt.Sprintf("requests/s, %d connections", loadConns), "%.0f", "", med(throughput)},
		{"...CPU s per 1,000 requests + Redis", "%.3f", "+", med(saturatedCPU, saturatedStoreCPU)},
		{fmt.Sprintf("p50 / p99 at %d/s, ms", loadRate), "%.2f", "/", med(p50, p99)},
		{"...added over direct, ms", "%.2f", "/", added},
		{"...CPU s per 1,000 requests + Redis", "%.3f", "+", med(requestCPU, storeCPU)},
		{firstByte, "%.2f", "/", med(firstByteP50, firstByteP99)},
		{"...delay of a chunk p50 / p99, ms", "%.2f", "/", med(chunkP50, chunkP99)},
		{fmt.Sprintf("...CPU s per 1,000 streams of %d chunks", r.plan.streamChunks), "%.2f", "", med(streamCPU)},
		{fmt.Sprintf("back-to-back streams/s (%d chunks, %d at once)", burstChunks, burstConns), "%.0f", "", med(streamsPerSec)},
		{"...CPU s per 1,000 streams", "%.3f", "", med(burstCPU)},
		{fmt.Sprintf("256 KB, %d messages: p50 / p99 at %d/s, ms", bigMessages, bigRate), "%.2f", "/", med(bigP50, bigP99)},
		{"...CPU ms a request + Redis", "%.2f", "+", med(bigCPU, bigStoreCPU)},
		{"memory idle / peak, MB", "%.0f", "/", med(idleMemory, peakMemory)},
		{"start to first answer, ms", "%.0f", "", med(startup)},
	}
}

// cell formats the values of a row that exist.
func (r row) cell(values []float64) string {
	var parts []string
	for _, v := range values {
		if math.IsNaN(v) || (v == 0 && r.mark == "+") {
			continue // not measured, or no such process
		}
		parts = append(parts, fmt.Sprintf(r.verb, v))
	}
	return cmp.Or(strings.Join(parts, " "+r.mark+" "), "-")
}

// markdown returns the report in Markdown.
func (r *report) markdown() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s\n\n|", r.machine())
	for _, v := range r.variants {
		fmt.Fprintf(&out, " | %s", v.name)
	}
	out.WriteString(" |\n|---" + strings.Repeat("|---", len(r.variants)) + "|\n")
	for _, line := range r.rows() {
		fmt.Fprintf(&out, "| %s |", line.label)
		for _, v := range r.variants {
			fmt.Fprintf(&out, " %s |", line.cell(line.value(v.name)))
		}
		out.WriteByte('\n')
	}
	r.writeFlatness(&out)
	out.WriteString("\n| target | measured | aim | |\n|---|---|---|---|\n")
	for _, t := range r.targets() {
		verdict := "met"
		if !t.met {
			verdict = "**missed**"
		}
		fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", t.name, significant(t.value), t.aim, verdict)
	}
	for _, p := range r.problems {
		fmt.Fprintf(&out, "\nPROBLEM: %s\n", p)
	}
	return out.String()
}

func (r *report) writeFlatness(out *strings.Builder) {
	if len(r.flatness) == 0 {
		return
	}
	out.WriteString("\n| cost of a turn, by stored items | few | CPU ms | p50 ms | many | CPU ms | p50 ms |\n|---|---|---|---|---|---|---|\n")
	for _, f := range r.flatness {
		fmt.Fprintf(out, "| %s, %s | %d | %.3f | %.2f | %d | %.3f | %.2f |\n",
			f.variant, f.habit, f.few.items, median(f.few.cpu), median(f.few.p50), f.many.items, median(f.many.cpu), median(f.many.p50))
	}
}

// significant formats a value with three digits.
func significant(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return fmt.Sprintf("%.0f", v)
	case abs >= 10:
		return fmt.Sprintf("%.1f", v)
	case abs >= 1:
		return fmt.Sprintf("%.2f", v)
	default:
		return fmt.Sprintf("%.3f", v)
	}
}

// machine describes the machine of the figures.
func (r *report) machine() string {
	say := func(program string, args ...string) string {
		out, err := exec.Command(program, args...).CombinedOutput()
		if err != nil {
			return ""
		}
		line, _, _ := strings.Cut(string(out), "\n")
		return ", " + line
	}
	redis := say("redis-server", "--version")
	if words := strings.Fields(redis); len(words) > 4 {
		redis = ", Redis " + strings.TrimPrefix(words[3], "v=") + " (appendonly everysec, and none)"
	}
	return fmt.Sprintf("Medians of %d interleaved rounds, %s; load, upstream, proxy and store share %d cores; %s/%s, %s%s%s.",
		r.plan.rounds, r.begun.Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(),
		say("nginx", "-v"), redis)
}

// loadAverage returns the machine's load average of the last minute, 0 if it is unknown.
func loadAverage() float64 {
	text, _ := os.ReadFile("/proc/loadavg") // only on Linux
	first, _, _ := strings.Cut(string(text), " ")
	load, _ := strconv.ParseFloat(first, 64) // 0 for none
	return load
}
