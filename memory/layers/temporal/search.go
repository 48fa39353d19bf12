package temporal

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"remora/memory/index"
)

const (
	maxFound   = 50      // facts in an answer to a query that matches some
	maxNearest = 5       // facts nearest to a date that has none
	maxQuery   = 4 << 10 // bytes of a query that are read
	day        = "2006-01-02"
)

// found is the answer to a query.
type found struct {
	Facts []string `json:"facts"`
	// Date is the day, or the first and the last day, that the query names.
	Date string `json:"date,omitempty"`
	// Fuzzy: there are no facts for that time; these are the nearest.
	Fuzzy bool `json:"fuzzy,omitempty"`
}

// search finds the facts of the time in a query, oldest first, and among these the ones with most of its words. all is sorted
// by time.
func search(all []dated, query string, now time.Time) found {
	out := found{Facts: []string{}}
	rest := query
	hits := all
	if named, words, ok := period(query, now); ok {
		rest = words
		first, last := named.from.Format(day), named.to.Format(day)
		if out.Date = first; last != first {
			out.Date += "/" + last
		}
		hits = slices.DeleteFunc(slices.Clone(all), func(f dated) bool { return f.day() < first || f.day() > last })
		if len(hits) == 0 && len(all) > 0 {
			hits, out.Fuzzy = nearest(all, named.from), true
		}
	}

	if matching := withWords(hits, rest); len(matching) > 0 {
		hits = matching[:min(len(matching), maxFound)]
	}
	for _, f := range hits {
		out.Facts = append(out.Facts, f.String())
	}
	return out
}

// day returns the day of a fact from its time.
func (d dated) day() string { return d.at[:min(len(d.at), len(day))] }

// nearest returns the facts around a day, oldest first.
func nearest(all []dated, at time.Time) []dated {
	i, _ := slices.BinarySearchFunc(all, at.Format(day), func(f dated, day string) int { return strings.Compare(f.day(), day) })
	first := max(0, min(i-maxNearest/2, len(all)-maxNearest))
	return all[first:min(first+maxNearest, len(all))]
}

// withWords returns the facts that have words of the query, those with most of them first, then the newest.
func withWords(facts []dated, query string) []dated {
	wanted := index.Words(query)
	byWords := make([][]dated, len(wanted)+1) // how many of them a fact has
	for _, f := range slices.Backward(facts) {
		n := wanted.In(index.Words(f.Text))
		byWords[n] = append(byWords[n], f)
	}
	slices.Reverse(byWords[1:])
	return slices.Concat(byWords[1:]...)
}

// timePattern matches words of a query that name a time.
type timePattern struct {
	words *regexp.Regexp
	// span returns the first and the last day, false for a day that does not exist.
	span func(m []string, today time.Time) (from, to time.Time, ok bool)
}

// patterns are tried in this order. The index has a reader of dates, too (index/dates.go), for what a text is about: to it, "2 weeks
// ago" is about then, and "on Monday" no date. A query means the calendar's week, and one day.
var patterns = sync.OnceValue(func() []timePattern {
	one := func(d time.Time) (time.Time, time.Time, bool) { return d, d, true }
	return []timePattern{
		{regexp.MustCompile(`\b(\d{4}-\d\d-\d\d)\b`), func(m []string, _ time.Time) (time.Time, time.Time, bool) {
			d, err := time.Parse(day, m[1])
			return d, d, err == nil
		}},
		{regexp.MustCompile(`\b(\d{4}-\d\d)\b`), func(m []string, _ time.Time) (time.Time, time.Time, bool) {
			d, err := time.Parse("2006-01", m[1])
			return d, d.AddDate(0, 1, -1), err == nil
		}},
		{regexp.MustCompile(`(?i)\bday before yesterday\b`), func(_ []string, today time.Time) (time.Time, time.Time, bool) {
			return one(today.AddDate(0, 0, -2))
		}},
		{regexp.MustCompile(`(?i)\b(yesterday|today|tomorrow)\b`), func(m []string, today time.Time) (time.Time, time.Time, bool) {
			return one(today.AddDate(0, 0, map[string]int{"yesterday": -1, "today": 0, "tomorrow": 1}[strings.ToLower(m[1])]))
		}},
		{regexp.MustCompile(`(?i)\b(\d{1,3}) (day|week|month|year)s? ago\b`), func(m []string, today time.Time) (time.Time, time.Time, bool) {
			n, _ := strconv.Atoi(m[1])
			return unitAround(strings.ToLower(m[2]), today, -n)
		}},
		{regexp.MustCompile(`(?i)\b(last|this|next) (week|month|year)\b`), func(m []string, today time.Time) (time.Time, time.Time, bool) {
			return unitAround(strings.ToLower(m[2]), today, map[string]int{"last": -1, "this": 0, "next": 1}[strings.ToLower(m[1])])
		}},
		{regexp.MustCompile(`(?i)\b(?:(last|next|on|this) )(monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b`), weekday},
	}
})

// unitAround returns the day, week, month or year at an offset from today.
func unitAround(unit string, today time.Time, n int) (from, to time.Time, ok bool) {
	switch unit {
	case "day":
		d := today.AddDate(0, 0, n)
		return d, d, true
	case "week":
		monday := today.AddDate(0, 0, 7*n-(int(today.Weekday())+6)%7)
		return monday, monday.AddDate(0, 0, 6), true
	case "month":
		first := time.Date(today.Year(), today.Month()+time.Month(n), 1, 0, 0, 0, 0, today.Location())
		return first, first.AddDate(0, 1, -1), true
	default:
		first := time.Date(today.Year()+n, 1, 1, 0, 0, 0, 0, today.Location())
		return first, first.AddDate(1, 0, -1), true
	}
}

// weekday returns the next day of that name, or the latest one.
func weekday(m []string, today time.Time) (from, to time.Time, ok bool) {
	names := []string{"sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"}
	wanted := slices.Index(names, strings.ToLower(m[2]))
	ahead := (wanted - int(today.Weekday()) + 7) % 7
	switch strings.ToLower(m[1]) {
	case "next":
		ahead = cmp.Or(ahead, 7)
	case "last":
		ahead -= 7
	default:
		if ahead > 0 {
			ahead -= 7
		}
	}
	d := today.AddDate(0, 0, ahead)
	return d, d, true
}

// days are a first and a last day.
type days struct{ from, to time.Time }

// period returns the time in a query, and the query without it.
func period(query string, now time.Time) (named days, rest string, ok bool) {
	for _, p := range patterns() {
		at := p.words.FindStringSubmatchIndex(query)
		if at == nil {
			continue
		}
		if from, to, ok := p.span(p.words.FindStringSubmatch(query), now); ok {
			return days{from, to}, query[:at[0]] + " " + query[at[1]:], true
		}
	}
	return days{}, query, false
}
