package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// hookTimes are the durations of recall by layer, from the proxy's metrics.
type hookTimes map[string]*hookTime

type hookTime struct {
	count, seconds float64
	buckets        []bucket
}

// bucket is the number of calls that took at most a number of seconds.
type bucket struct{ most, count float64 }

// recallMetric matches the hook's histogram on the metrics page, metricLabel one of its labels.
var (
	recallMetric = regexp.MustCompile(`^remora_layer_hook_duration_seconds_(bucket|sum|count)\{(.*)\} (\S+)$`)
	metricLabel  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

func readHooks(ctx context.Context, client *http.Client, url string) (hookTimes, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()

	times := hookTimes{}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		m := recallMetric.FindStringSubmatch(in.Text())
		if m == nil {
			continue
		}
		labels := map[string]string{}
		for _, l := range metricLabel.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = l[2]
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if labels["hook"] != "recall" || err != nil {
			continue
		}

		t := times[labels["layer"]]
		if t == nil {
			t = &hookTime{}
			times[labels["layer"]] = t
		}
		switch m[1] {
		case "sum":
			t.seconds = value
		case "count":
			t.count = value
		default:
			if most, err := strconv.ParseFloat(labels["le"], 64); err == nil {
				t.buckets = append(t.buckets, bucket{most, value})
			}
		}
	}
	return times, in.Err()
}

func (t *hookTime) mean() time.Duration {
	return time.Duration(t.seconds / max(1, t.count) * float64(time.Second))
}

// quantile estimates a quantile of the durations, by linear interpolation within a bucket.
func (t *hookTime) quantile(q float64) time.Duration {
	slices.SortFunc(t.buckets, func(a, b bucket) int { return int(a.count - b.count) })
	from, before := 0.0, 0.0
	for _, b := range t.buckets {
		if b.count >= q*t.count {
			return time.Duration((from + (b.most-from)*(q*t.count-before)/max(1, b.count-before)) * float64(time.Second))
		}
		from, before = b.most, b.count
	}
	return time.Duration(from * float64(time.Second))
}
