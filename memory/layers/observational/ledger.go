package observational

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"remora/memory/layer"
)

// ledger holds the known statements, followed by the new ones. A statement without text was replaced.
type ledger struct {
	all   []observation
	first int // of what is learnt now
}

func newLedger(known []observation) *ledger {
	return &ledger{all: slices.Clone(known), first: len(known)}
}

func (l *ledger) known() []observation { return unreplaced(l.all[:l.first]) }

func (l *ledger) fresh() []observation { return unreplaced(l.all[l.first:]) }

// unreplaced are the statements that no other has replaced.
func unreplaced(all []observation) []observation {
	return slices.DeleteFunc(slices.Clone(all), func(o observation) bool { return o.Text == "" })
}

// take adds a statement, unless it is known or corrects another. topic is the user's previous subject.
func (l *ledger) take(o observation, topic string) {
	if l.merge(&o) {
		return
	}
	if o.By == layer.ByUser {
		if changed, ok := l.corrects(&o, topic); ok {
			if changed.Text != "" {
				l.all = append(l.all, changed)
			}
			return
		}
		if i := l.replaces(&o); i >= 0 {
			l.all[i].Text = ""
		}
	}
	l.all = append(l.all, o)
}

// merge adds the source of a statement that is known. It reports whether it is.
func (l *ledger) merge(o *observation) bool {
	i := l.repeats(o)
	if i < 0 {
		return false
	}
	l.all[i].From = l.all[i].From.With(o.From)
	return true
}

// repeats returns the statement with the same meaning, -1 for none. A user's statement is a repetition only if numbers and
// negations agree; text of others with the words of a statement echoes it.
func (l *ledger) repeats(o *observation) int {
	const alike = 0.8
	text := " " + normal(undated(o.Text)) + " "
	mine := significant(text)
	for i := range l.all {
		if l.all[i].Text == "" || o.By == layer.ByUser && l.all[i].By == layer.ByUser && l.all[i].Name != o.Name {
			continue
		}
		theirs := " " + normal(undated(l.all[i].Text)) + " "
		if theirs == text {
			return i
		}
		if o.By != layer.ByUser {
			if !slices.ContainsFunc(mine, func(word string) bool { return !strings.Contains(theirs, word) }) {
				return i
			}
			continue
		}
		if l.all[i].By == layer.ByUser && len(mine) > 2 && overlap(mine, significant(theirs)) >= alike && numbersOf(text) == numbersOf(theirs) && denies(text) == denies(theirs) {
			return i
		}
	}
	return -1
}

// overlap returns the share of common words of two statements.
func overlap(a, b []string) float64 {
	both := 0
	for _, w := range a {
		if slices.Contains(b, w) {
			both++
		}
	}
	all := len(a) + len(b) - both
	if all == 0 {
		return 0
	}
	return float64(both) / float64(all)
}

func numbersOf(text string) string {
	return strings.Join(value().FindAllString(text, -1), " ")
}

func denies(text string) bool {
	return slices.ContainsFunc([]string{" not ", " no ", " never ", " don t ", " doesn t ", " isn t ", " can t ", " won t ", " without "},
		func(w string) bool { return strings.Contains(text, w) })
}

// corrects returns the statement that o changes, in its new form: "I moved it to Friday at 9am". If that is ambiguous, nothing
// changes and o, which means nothing by itself, is dropped: ok, without text.
func (l *ledger) corrects(o *observation, topic string) (changed observation, ok bool) {
	var subject, next string
	if m := moves().FindStringSubmatch(o.Text); m != nil {
		subject, next = m[5], m[7]
	} else if m := meant().FindStringSubmatch(o.Text); m != nil {
		subject, next = "it", m[2]
	} else {
		return observation{}, false
	}
	kind := when()
	if !kind.MatchString(next) {
		if kind = value(); !kind.MatchString(next) {
			return observation{}, false
		}
	}
	named := !slices.Contains([]string{"it", "that", "this"}, strings.ToLower(subject))
	if named {
		topic = normal(subject)
	}

	var candidates []int
	for i := range l.all {
		c := &l.all[i]
		if c.Text != "" && c.By == layer.ByUser && c.Name == o.Name && slices.ContainsFunc(c.From, func(s layer.Source) bool { return s.Session == o.From[0].Session }) && len(kind.FindAllString(c.Text, 3)) > 0 {
			candidates = append(candidates, i)
		}
	}
	about := slices.DeleteFunc(slices.Clone(candidates), func(i int) bool {
		theirs := " " + normal(l.all[i].Text) + " "
		return !slices.ContainsFunc(significant(" "+topic+" "), func(w string) bool { return strings.Contains(theirs, w) })
	})
	switch {
	case len(about) > 0:
		candidates = about
	case named || len(candidates) != 1:
		return observation{}, !named
	}

	i := candidates[len(candidates)-1]
	places := kind.FindAllStringIndex(l.all[i].Text, -1)
	to := strings.TrimSpace(next)
	if strings.HasPrefix(strings.ToLower(l.all[i].Text[places[0][0]:]), "on ") && !strings.HasPrefix(strings.ToLower(to), "on ") {
		to = "on " + to
	}
	changed = l.all[i]
	changed.Text = l.all[i].Text[:places[0][0]] + to + l.all[i].Text[places[len(places)-1][1]:]
	changed.From, changed.Said = o.From, o.Said
	l.all[i].Text = ""
	return changed, true
}

// replaces returns the outdated statement about the same subject, -1 for none: "My budget is 300" after "My budget is 200".
// Both must have a number or a day, or the subject must be unique, or the user says that it is a correction: "No, my dog is
// called Rex" after "My dog is called Max".
func (l *ledger) replaces(o *observation) int {
	key := subjectOf(o.Text)
	if key == "" {
		return -1
	}
	revised := revises().MatchString(o.Text)
	for i := range l.all {
		c := &l.all[i]
		if c.Text == "" || c.By != layer.ByUser || c.Name != o.Name {
			continue
		}
		theirs := subjectOf(c.Text)
		if theirs != key && (!revised || !strings.HasSuffix(theirs, " "+strings.TrimPrefix(key, "my "))) {
			continue
		}
		one := only().MatchString(key) || key == "live" || revised && names().MatchString(c.Text) && names().MatchString(o.Text)
		if one || value().MatchString(c.Text) && value().MatchString(o.Text) || when().MatchString(c.Text) && when().MatchString(o.Text) {
			return i
		}
	}
	return -1
}

// subjectOf returns the subject of a statement, "" if that is not clear.
func subjectOf(text string) string {
	if lives().MatchString(text) {
		return "live"
	}
	if m := about().FindStringSubmatch(text); m != nil {
		return strings.TrimPrefix(normal(m[1]), "our ")
	}
	return ""
}

// withDates adds the date to each day of the week, for a text from the time now.
func withDates(text string, now time.Time) string {
	past := pastVerbs().MatchString(text)
	from := now
	places := weekday().FindAllStringSubmatchIndex(text, -1)
	var b strings.Builder
	done := 0
	for _, p := range places {
		before := ""
		if p[4] >= 0 {
			before = strings.ToLower(strings.TrimSpace(text[p[4]:p[5]]))
		}
		if p[8] >= 0 || before == "every" || before == "each" || before == "next" {
			continue // recurring or ambiguous
		}
		want := slices.IndexFunc([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, func(d string) bool {
			return strings.HasPrefix(strings.ToLower(text[p[6]:p[7]]), d)
		})
		days := (want - int(from.Weekday()) + 7) % 7
		day := from.AddDate(0, 0, cmp.Or(days, 7))
		ahead := p[2] >= 0 // "moved to Friday": the day was to come
		if ahead && past && done > 0 {
			continue // "from Monday to Friday": it may be over
		}
		if before == "last" || past && before != "this" && !ahead {
			day = from.AddDate(0, 0, days-7)
		} else {
			from = day
		}
		b.WriteString(text[done:p[7]])
		b.WriteString(" (" + day.Format(time.DateOnly) + ")")
		done = p[7]
	}
	b.WriteString(text[done:])
	return b.String()
}

// undated is a text without the dates that withDates has put into it.
func undated(text string) string {
	if !strings.Contains(text, " (20") {
		return text
	}
	return addedDate().ReplaceAllString(text, "")
}
