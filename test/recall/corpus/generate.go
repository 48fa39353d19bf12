package corpus

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// plan has the number of conversations by language, quotas the maximum number of questions of a conversation by category, in
// about LoCoMo's proportions.
var (
	plan = []struct { //nolint:gochecknoglobals // a table
		code  string
		count int
	}{{"en", 14}, {"de", 5}, {"zh", 5}}
	quotas = map[Category]int{SingleHop: 42, Adversarial: 20, Temporal: 17, MultiHop: 14, Open: 7} //nolint:gochecknoglobals // a table
)

// Seed is the seed of the corpus of the published figures.
const Seed = 1

// Numbers of sessions of a conversation, and of days between two.
const (
	minSessions, maxMoreSessions = 20, 9
	minGap, maxMoreGap           = 4, 10
)

// Generate returns 24 conversations of 20 to 28 sessions: 14 in English, 5 in German, 5 in Chinese. They are deterministic for
// a seed, and all persons are invented. The topics are journeys, moves, work, pets, illness and the like; some facts change
// later. The rest is small talk, and remarks that use the same words about other people.
func Generate(seed uint64) ([]*Conversation, error) {
	var all []*Conversation
	for i, p := range plan {
		l, err := readLanguage(p.code)
		if err != nil {
			return nil, err
		}
		for n := range p.count {
			a := &author{language: l, Rand: rand.New(rand.NewPCG(seed, uint64(1000*i+n))), used: map[string]bool{}}
			all = append(all, a.write(fmt.Sprintf("%s-%02d", p.code, n+1)))
		}
	}
	return all, nil
}

// author writes one conversation.
type author struct {
	*language
	*rand.Rand
	c     *Conversation
	days  []time.Time // of the sessions
	keeps [2]map[string]string
	used  map[string]bool // used values of scenes, by scene, slot and value
	told  []*telling
}

// telling is a scene with the values and sessions of this conversation.
type telling struct {
	scene    *scene
	teller   int
	sessions []int             // of each part
	values   map[string]string // of pools
	parts    []map[string]string
	lines    []*spoken // its evidence
}

// spoken is a line of a telling that is evidence.
type spoken struct {
	label string
	part  int
	slots []string // of its variant
	id    string
}

func (a *author) write(name string) *Conversation {
	names := slices.Clone(a.names)
	a.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	a.c = &Conversation{Name: name, Language: a.code, Speakers: [2]string{names[0], names[1]}}
	a.keeps = [2]map[string]string{{}, {}}
	day := time.Date(2023+a.IntN(3), time.Month(1+a.IntN(12)), 1+a.IntN(28), 0, 0, 0, 0, time.UTC)
	for range minSessions + a.IntN(maxMoreSessions) {
		a.days = append(a.days, day.Add(time.Duration(8*60+a.IntN(13*60))*time.Minute))
		day = day.AddDate(0, 0, minGap+a.IntN(maxMoreGap))
	}

	bySession := make([][]func(*Session), len(a.days))
	for _, t := range a.cast() {
		for part, n := range t.sessions {
			bySession[n] = append(bySession[n], func(s *Session) { a.tell(s, t, part) })
		}
	}
	for i, at := range a.days {
		s := Session{Name: fmt.Sprintf("session_%d", i+1), At: at}
		first := a.IntN(2)
		a.frame(&s, a.hello, first)
		a.Shuffle(len(bySession[i]), func(x, y int) { bySession[i][x], bySession[i][y] = bySession[i][y], bySession[i][x] })
		for _, tell := range bySession[i] {
			tell(&s)
		}
		a.frame(&s, a.bye, first)
		a.c.Sessions = append(a.c.Sessions, s)
	}
	a.ask()
	return a.c
}

// cast chooses the teller and the sessions of each scene.
func (a *author) cast() []*telling {
	var all []*telling
	for _, s := range a.scenes {
		for teller := range 2 {
			times := 0
			switch {
			case s.kind == "chat":
				times = len(a.days) / 3
			case s.kind == "noise":
				times = 2 + a.IntN(3)
			case s.kind == "series":
				times = 2 + a.IntN(3)
			case a.IntN(100) < 75:
				times = 1
			}
			for range times {
				if t := a.place(s, teller); t != nil {
					all = append(all, t)
				}
			}
		}
	}
	return all
}

// place puts the parts of a scene into sessions and chooses its values. It returns nil if all values are used.
func (a *author) place(s *scene, teller int) *telling {
	t := &telling{scene: s, teller: teller, values: map[string]string{}}
	if !a.draw(t) {
		return nil
	}
	room := len(s.parts) - 1
	at := a.IntN(max(1, (len(a.days)-4*room)*2/(room+2)))
	if room == 0 {
		at = a.IntN(len(a.days))
	}
	for part := range s.parts {
		if part > 0 {
			previous := t.parts[part-1]
			at++
			for at < len(a.days) && !s.before[part] && previous["until"] != "" && a.days[at].Format(time.DateOnly) <= previous["until"] {
				at++
			}
			if !s.before[part] {
				at += a.IntN(3)
			}
		}
		if at >= len(a.days) {
			break // leave out the other parts
		}
		t.sessions = append(t.sessions, at)
		t.parts = append(t.parts, a.dates(t, part, a.days[at]))
	}
	return t
}

// draw chooses the values of a scene's pool slots. Except for noise, each value is used once in a conversation.
func (a *author) draw(t *telling) bool {
	for _, name := range slots(t.scene.parts) {
		if pool, kept := strings.CutPrefix(name, "="); kept {
			t.values[name] = a.keep(t.teller, pool)
			continue
		}
		pool, ok := a.pools[strings.TrimSuffix(name, "2")]
		if !ok {
			continue
		}
		free := slices.DeleteFunc(slices.Clone(pool), func(v string) bool {
			return t.scene.kind != "noise" && t.scene.kind != "chat" && a.used[t.scene.name+"/"+strings.TrimSuffix(name, "2")+"/"+v]
		})
		if len(free) == 0 {
			return false
		}
		t.values[name] = free[a.IntN(len(free))]
		a.used[t.scene.name+"/"+strings.TrimSuffix(name, "2")+"/"+t.values[name]] = true
	}
	return true
}

// keep returns a speaker's constant value of a pool, such as the name of a cousin. The other speaker has another one.
func (a *author) keep(who int, pool string) string {
	if a.keeps[who][pool] == "" {
		free := slices.DeleteFunc(slices.Clone(a.pools[pool]), func(v string) bool { return v == a.keeps[1-who][pool] })
		a.keeps[who][pool] = free[a.IntN(len(free))]
	}
	return a.keeps[who][pool]
}

// slots returns the slots of some parts of a scene, in order and without duplicates.
func slots(parts [][]line) []string {
	var all []string
	for _, p := range parts {
		for _, line := range p {
			for _, v := range line.variants {
				for _, m := range slot.FindAllStringSubmatch(v, -1) {
					if !slices.Contains(all, m[1]) {
						all = append(all, m[1])
					}
				}
			}
		}
	}
	return all
}

// dates returns the days in a part of a scene, worded for the date of its session. A date that the next part changes is late
// enough for that.
func (a *author) dates(t *telling, part int, session time.Time) map[string]string {
	v := map[string]string{}
	ago := a.ago[a.IntN(len(a.ago))]
	day := session.AddDate(0, 0, -ago.days)
	v["ago"] = strings.ReplaceAll(ago.text, "{weekday}", a.weekdays[day.Weekday()])
	v["date"], v["monthyear"] = a.format(a.date, day), a.format(a.monthyear, day)
	v["weekday"] = a.weekdays[a.IntN(7)]
	far := part+1 < len(t.scene.parts) && t.scene.before[part+1]
	for _, name := range []string{"soon", "soon2"} {
		list := a.soon
		if far && name == "soon" {
			list = list[len(list)-1:]
		}
		soon := list[a.IntN(len(list))]
		if name == "soon2" {
			soon = list[len(list)-1-a.IntN(2)]
		}
		day := session.AddDate(0, 0, soon.days)
		v[name] = strings.ReplaceAll(soon.text, "{weekday}", a.weekdays[day.Weekday()])
		v[name+"date"] = a.format(a.date, day)
		if slices.Contains(slots(t.scene.parts[part:part+1]), name) {
			v["until"] = max(v["until"], day.Format(time.DateOnly))
		}
	}
	return v
}

func (a *author) format(form string, day time.Time) string {
	return strings.NewReplacer("{day}", strconv.Itoa(day.Day()), "{month}", a.months[day.Month()-1],
		"{monthnumber}", strconv.Itoa(int(day.Month())), "{year}", strconv.Itoa(day.Year())).Replace(form)
}

// frame adds a greeting or a farewell of both speakers.
func (a *author) frame(s *Session, lines [][]string, first int) {
	for i, variants := range lines {
		text := strings.NewReplacer("{A}", a.c.Speakers[first], "{B}", a.c.Speakers[1-first]).Replace(variants[a.IntN(len(variants))])
		a.say(s, first^(i&1), text)
	}
}

// say adds a turn and returns its id.
func (a *author) say(s *Session, who int, text string) string {
	id := fmt.Sprintf("D%d:%d", len(a.c.Sessions)+1, len(s.Turns)+1)
	s.Turns = append(s.Turns, Turn{ID: id, Speaker: a.c.Speakers[who], Text: a.spell(text)})
	return id
}

// tell adds the lines of one part of a scene.
func (a *author) tell(s *Session, t *telling, part int) {
	if part == 0 {
		a.told = append(a.told, t)
	}
	for _, line := range t.scene.parts[part] {
		text := line.variants[a.IntN(len(line.variants))]
		var slots []string
		for _, m := range slot.FindAllStringSubmatch(text, -1) {
			slots = append(slots, m[1])
			if m[1] == "n" {
				t.parts[part]["n"] = a.number(m[2], m[3])
			}
		}
		filled := a.fill(t, part, text)
		if line.teller && a.IntN(100) < 18 {
			if remark := a.aside[a.IntN(len(a.aside))]; a.IntN(2) == 0 {
				filled = a.join(remark, filled)
			} else {
				filled = a.join(filled, remark)
			}
		}
		who := t.teller
		if !line.teller {
			who = 1 - who
		}
		id := a.say(s, who, filled)
		if line.evidence {
			t.lines = append(t.lines, &spoken{line.label, part, slots, id})
		}
	}
}

func (a *author) join(x, y string) string {
	if a.code == "zh" {
		return x + y
	}
	return x + " " + y
}

// number returns a random number of a range.
func (a *author) number(low, high string) string {
	from, err1 := strconv.Atoi(low)
	to, err2 := strconv.Atoi(high)
	if err1 != nil || err2 != nil || to < from {
		panic("BUG: a number without a range")
	}
	return strconv.Itoa(from + a.IntN(to-from+1))
}

// fill replaces the slots of a text by their values.
func (a *author) fill(t *telling, part int, text string) string {
	return slot.ReplaceAllStringFunc(text, func(found string) string {
		name := slot.FindStringSubmatch(found)[1]
		switch name {
		case "A":
			return a.c.Speakers[t.teller]
		case "B":
			return a.c.Speakers[1-t.teller]
		}
		return cmp.Or(t.values[name], t.parts[part][name])
	})
}

// article matches "a" before a word with the sound of a vowel.
var article = regexp.MustCompile(`\b([Aa]) ([aeioAEIO]|up)`)

// spell capitalises the beginnings of sentences, and corrects English articles.
func (a *author) spell(text string) string {
	if a.code == "en" {
		text = article.ReplaceAllString(text, "${1}n $2")
	}
	runes := []rune(text)
	begins := true
	for i, r := range runes {
		switch {
		case begins && unicode.IsLetter(r):
			runes[i], begins = unicode.ToUpper(r), false
		case unicode.IsDigit(r):
			begins = false
		case r == ' ' && i > 1 && strings.ContainsRune(".!?", runes[i-1]) && !unicode.IsDigit(runes[i-2]):
			begins = true
		}
	}
	return string(runes)
}

// ask adds the questions, up to the quota of each category.
func (a *author) ask() {
	byCategory := map[Category][]Question{}
	seen := map[string]bool{}
	for _, t := range a.told {
		for _, q := range t.scene.asks {
			if made, ok := a.question(t, &q); ok && !seen[made.Text] {
				seen[made.Text] = true
				byCategory[made.Category] = append(byCategory[made.Category], made)
			}
		}
	}
	for _, c := range Categories() {
		list := byCategory[c]
		a.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		a.c.Questions = append(a.c.Questions, list[:min(len(list), quotas[c])]...)
	}
}

// question returns a question about a telling, false if its evidence was left out.
func (a *author) question(t *telling, q *ask) (Question, bool) {
	made := Question{Category: q.category}
	v := q.variants[a.IntN(len(q.variants))]
	if q.every {
		return a.overall(t, made, v)
	}

	part, said := 0, []string{}
	for i, label := range q.labels {
		of := t
		if q.join != "" && i == len(q.labels)-1 {
			if of = a.other(t, q.join); of == nil {
				return made, false
			}
		}
		line := of.line(label)
		if line == nil {
			return made, false
		}
		made.Evidence = append(made.Evidence, line.id)
		if of == t {
			part, said = line.part, append(said, line.slots...)
		}
	}
	for _, m := range slot.FindAllStringSubmatch(v.answer, -1) {
		if name := strings.TrimSuffix(m[1], "date"); !slices.Contains(said, cmp.Or(name, "ago")) {
			return made, false // not in the chosen variant
		}
	}
	made.Text = a.spell(a.fill(t, part, v.text))
	made.Answer = a.fill(t, part, v.answer)
	return made, true
}

// overall returns a question about all scenes with a name.
func (a *author) overall(t *telling, made Question, v variant) (Question, bool) {
	var answers []string
	for _, other := range a.told {
		if other.scene != t.scene || other.teller != t.teller {
			continue
		}
		line := other.line("")
		if line == nil {
			return made, false
		}
		made.Evidence = append(made.Evidence, line.id)
		answers = append(answers, a.fill(other, 0, v.answer))
	}
	made.Text, made.Answer = a.spell(a.fill(t, 0, v.text)), strings.Join(answers, ", ")
	return made, len(made.Evidence) > 1
}

// other returns the scene with a name that the same speaker tells.
func (a *author) other(t *telling, name string) *telling {
	for _, o := range a.told {
		if o.scene.name == name && o.teller == t.teller {
			return o
		}
	}
	return nil
}

func (t *telling) line(label string) *spoken {
	for _, l := range t.lines {
		if l.label == label {
			return l
		}
	}
	return nil
}
