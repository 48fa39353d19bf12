package corpus

import (
	"bufio"
	"embed"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

//go:embed en.txt de.txt zh.txt
var sceneFiles embed.FS

// language is the material for conversations in one language. Its file has one entry per line, with variants separated by bars:
//
//	months, weekdays, names    lists; a week begins on Sunday
//	date, monthyear            the format of a date, with {day}, {month}, {monthnumber}, {year}
//	ago N, soon N              phrases for N days before or after a session, in which {weekday} is the day's
//	pool X                     values of the slot {X}, before the lines with it
//	hello, bye                 the first and last lines of a session, of both speakers
//	aside                      sentences to put before or after others
//	scene NAME [series|chat|noise]
//
// A scene is told once. A series is told several times, with other values; chat and noise have no questions, and noise uses the
// same words as other scenes. The lines of a scene:
//
//	A: B:                      a line of the teller, and of the other
//	A*: A*label:               the same, as evidence; at most one line has no label
//	later, meanwhile           the next lines are told in a later session: after the date of {soon}, or before it
//	ask CATEGORY LABEL...:     a question and its answer, with its evidence; 0 or none is the line without a label
//	every CATEGORY:            a question about all scenes with this name that one speaker tells
//	join SCENE MINE THEIRS:    a multi-hop question, from this scene to one before it of the same teller
//
// Slots are {A} the teller, {B} the other, {ago} {date} {monthyear} a day in the past, {soon} {soondate} {soon2}
// {soon2date} one in the future, {weekday}, {n:2-9} a number, {X} and {X2} two values of a pool, {=X} one that the
// teller keeps.
type language struct {
	code             string
	months, weekdays []string
	date, monthyear  string
	names            []string
	ago, soon        []phrase
	pools            map[string][]string
	hello, bye       [][]string
	aside            []string
	scenes           []*scene
}

// phrase is the wording of a day by its distance.
type phrase struct {
	days int
	text string
}

type scene struct {
	name   string
	kind   string // "", series, chat or noise
	parts  [][]line
	before []bool // whether the part is told before the date in the previous one
	asks   []ask
}

type line struct {
	teller   bool
	evidence bool
	label    string
	variants []string
}

type ask struct {
	category Category
	labels   []string // "" for the line without a label
	every    bool
	join     string // another scene, which has the last of labels
	variants []variant
}

// variant is a question and its answer.
type variant struct{ text, answer string }

// slot matches a placeholder. Its first group is the name, its second and third the range of a number.
var slot = regexp.MustCompile(`\{(=?[A-Za-z]+2?(?:date)?)(?::(\d+)-(\d+))?\}`)

func readLanguage(code string) (*language, error) {
	file, err := sceneFiles.Open(code + ".txt")
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	l := &language{code: code, pools: map[string][]string{}}
	in := bufio.NewScanner(file)
	for n := 1; in.Scan(); n++ {
		text := strings.TrimSpace(in.Text())
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if err := l.line(text); err != nil {
			return nil, fmt.Errorf("%s.txt, line %d: %w", code, n, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *language) line(text string) error {
	head, rest, told := strings.Cut(text, ":")
	words := strings.Fields(head)
	values := variants(rest)
	switch word := words[0]; {
	case word == "scene":
		s := &scene{name: words[1], parts: make([][]line, 1), before: make([]bool, 1)}
		if len(words) > 2 {
			s.kind = words[2]
		}
		l.scenes = append(l.scenes, s)
	case word == "later", word == "meanwhile":
		s := l.scenes[len(l.scenes)-1]
		s.parts, s.before = append(s.parts, nil), append(s.before, word == "meanwhile")
	case !told:
		return fmt.Errorf("want a colon behind %q", word)
	case word == "months":
		l.months = values
	case word == "weekdays":
		l.weekdays = values
	case word == "names":
		l.names = values
	case word == "date":
		l.date = values[0]
	case word == "monthyear":
		l.monthyear = values[0]
	case word == "hello":
		l.hello = append(l.hello, values)
	case word == "bye":
		l.bye = append(l.bye, values)
	case word == "aside":
		l.aside = values
	case word == "pool":
		l.pools[words[1]] = values
	case word == "ago", word == "soon":
		days, err := strconv.Atoi(words[1])
		if err != nil {
			return err
		}
		list := map[string]*[]phrase{"ago": &l.ago, "soon": &l.soon}[word]
		for _, v := range values {
			*list = append(*list, phrase{days, v})
		}
	case word == "ask", word == "every", word == "join":
		return l.ask(words, values)
	case word[0] == 'A' || word[0] == 'B':
		s := l.scenes[len(l.scenes)-1]
		label, evidence := strings.CutPrefix(word[1:], "*")
		last := len(s.parts) - 1
		s.parts[last] = append(s.parts[last], line{teller: word[0] == 'A', evidence: evidence, label: label, variants: values})
		return l.checkSlots(values)
	default:
		return fmt.Errorf("unknown word %q", word)
	}
	return nil
}

func (l *language) ask(words, values []string) error {
	s := l.scenes[len(l.scenes)-1]
	a := ask{every: words[0] == "every"}
	labels := words[2:]
	if words[0] == "join" {
		a.category, a.join = MultiHop, words[1]
	} else {
		categories := map[string]Category{"single": SingleHop, "multi": MultiHop, "temporal": Temporal, "open": Open, "adversarial": Adversarial}
		if a.category = categories[words[1]]; a.category == "" {
			return fmt.Errorf("unknown category %q", words[1])
		}
	}
	if len(labels) == 0 {
		labels = []string{"0"}
	}
	for i, label := range labels {
		label = strings.TrimPrefix(label, "0")
		of := s
		if a.join != "" && i == len(labels)-1 {
			of = l.scene(a.join)
		}
		if of == nil || !of.has(label) {
			return fmt.Errorf("no evidence line %q", label)
		}
		a.labels = append(a.labels, label)
	}
	for _, v := range values {
		text, answer, ok := strings.Cut(v, " = ")
		if !ok {
			return fmt.Errorf("want an answer behind =")
		}
		a.variants = append(a.variants, variant{strings.TrimSpace(text), strings.TrimSpace(answer)})
	}
	s.asks = append(s.asks, a)
	return l.checkSlots(values)
}

// scene returns the scene with a name, nil if there is none so far.
func (l *language) scene(name string) *scene {
	for _, s := range l.scenes {
		if s.name == name {
			return s
		}
	}
	return nil
}

func variants(text string) []string {
	var all []string
	for v := range strings.SplitSeq(text, " | ") {
		all = append(all, strings.TrimSpace(v))
	}
	return all
}

// checkSlots returns an error for an unknown slot.
func (l *language) checkSlots(texts []string) error {
	known := []string{"A", "B", "ago", "date", "monthyear", "soon", "soondate", "soon2", "soon2date", "weekday", "n"}
	for _, text := range texts {
		for _, m := range slot.FindAllStringSubmatch(text, -1) {
			name := strings.TrimPrefix(m[1], "=")
			if _, pool := l.pools[strings.TrimSuffix(name, "2")]; !pool && !slices.Contains(known, name) {
				return fmt.Errorf("unknown slot in %q", text)
			}
		}
	}
	return nil
}

func (s *scene) has(label string) bool {
	for _, p := range s.parts {
		for _, line := range p {
			if line.evidence && line.label == label {
				return true
			}
		}
	}
	return false
}
