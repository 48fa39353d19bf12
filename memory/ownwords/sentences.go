package ownwords

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"remora/memory/layer"
)

// MaxSentence is how many bytes of a sentence are kept.
const MaxSentence = 600

// Limits that keep splitting linear in the length of the text.
const (
	maxWord      = 64  // bytes of a word; longer ones are data
	maxSentences = 400 // of one text
)

// Sentences splits what somebody said, without code, quotations, tables, and blocks that a program put there.
func Sentences(text string) []string {
	var found []string
	fenced := false
	for l := range strings.Lines(withoutBlocks(text)) {
		l = strings.TrimSpace(l)
		if strings.HasPrefix(l, "```") || strings.HasPrefix(l, "~~~") {
			fenced = !fenced
			continue
		}
		if fenced || l == "" || !spoken(l) {
			continue
		}
		if l = withoutMark(l); strings.ContainsAny(l, "*_`") {
			l = emphasis.Replace(l)
		}
		found = append(found, split(l)...)
		if len(found) >= maxSentences {
			return found[:maxSentences]
		}
	}
	return found
}

// emphasis is taken out of a line.
var emphasis = strings.NewReplacer("**", "", "__", "", "`", "")

var (
	listMark = layer.Lazily(`^([-*+•]|\(?\d{1,3}[.)])\s+`)
	codeLine = layer.Lazily(`^([$>|#@]|//|/\*|\+\+\+|---|diff |import |from \S+ import|def |func |class |const |return\b|Traceback|at \S+\(|` +
		`\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[(INFO|WARN|DEBUG|ERROR)|(INFO|WARN|DEBUG|ERROR)\b)`)
	// outputLine matches the lines that agents put around the output of a command, which users paste with it.
	outputLine = layer.Lazily(`(?i)^((chunk id|wall time|(original )?token count|exit (code|status)|stdout|stderr)( ?[:=]| \d)|process (exited|finished) (with|in|after)\b)`)
)

// withoutMark is a line without the mark that makes it part of a list.
func withoutMark(l string) string {
	if at := listMark().FindStringIndex(l); at != nil {
		l = strings.TrimSpace(l[at[1]:])
	}
	return l
}

// code reports whether a line is of a program, a log or a table.
func code(l string) bool {
	if l != "" && strings.IndexByte("{};", l[len(l)-1]) >= 0 {
		return true
	}
	return slices.ContainsFunc(codeSigns, func(s string) bool { return strings.Contains(l, s) }) || codeLine().MatchString(l) || outputLine().MatchString(l)
}

// codeSigns are of code wherever they stand.
var codeSigns = []string{"=>", "()", "&&", "||"}

// spoken reports whether a line is prose: not code, not a log, not a table, no word too long to be one.
func spoken(l string) bool {
	if code(l) || !Prose(l) {
		return false
	}
	for w := range strings.FieldsSeq(l) {
		if len(w) > maxWord && w[0] < utf8.RuneSelf {
			return false
		}
	}
	return true
}

// split cuts a line into sentences, after a mark that ends one.
func split(l string) []string {
	l = strings.ToValidUTF8(l, "\uFFFD")
	var found []string
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" {
			found = append(found, layer.Head(s, MaxSentence))
		}
	}
	start := 0
	for i, r := range l {
		if after := i + utf8.RuneLen(r); ends(r, l[:i], l[after:]) {
			add(l[start:after])
			start = after
		}
	}
	add(l[start:])
	return found
}

// ends reports whether r ends a sentence, given the text before and after it.
func ends(r rune, before, after string) bool {
	switch r {
	case '。', '！', '？', '؟', '।':
		return true
	case '!', '?', '.':
		next, _ := utf8.DecodeRuneInString(after)
		return unicode.IsSpace(next) && (r != '.' || !abbreviated(before) && !dayOfMonth(before, after))
	default:
		return false
	}
}

// abbreviated reports whether a full stop after this text belongs to its word: "Dr.", "e.g.", an initial.
func abbreviated(before string) bool {
	const longest = 6 // characters
	i := len(before)
	var first rune
	for range longest {
		r, size := utf8.DecodeLastRuneInString(before[:i])
		if size == 0 || unicode.IsSpace(r) {
			break
		}
		first, i = r, i-size
	}
	w := before[i:]
	switch strings.ToLower(w) {
	case "dr", "mr", "mrs", "ms", "prof", "st", "vs", "e.g", "i.e", "etc", "no", "nr", "approx", "inc", "ltd", "z.b":
		return true
	default:
		return utf8.RuneCountInString(w) == 1 && unicode.IsUpper(first)
	}
}

var (
	day   = layer.Lazily(`(^|\D)\d\d?$`)
	month = layer.Lazily(`^\s(jan|jän|feb|mär|apr|mai|juni|juli|aug|sep|okt|nov|dez)`)
)

// dayOfMonth reports whether a full stop between two texts belongs to a German date: "14. Mai".
func dayOfMonth(before, after string) bool {
	const longest = 8 // bytes of a space and the beginning of a month
	return day().MatchString(before[max(0, len(before)-3):]) && month().MatchString(strings.ToLower(after[:min(longest, len(after))]))
}

var (
	openTag  = layer.Lazily(`<([A-Za-z][A-Za-z0-9_-]{1,40})(\s[^<>]{0,200})?>`)
	closeTag = layer.Lazily(`</([A-Za-z][A-Za-z0-9_-]{1,40})>`)
)

// programs are the tags of blocks that programs put into messages, beside all that are spelled with _ or -.
var programs = map[string]bool{
	"observations": true, "instructions": true, "summary": true, "context": true, "system": true, "reminder": true,
	"transcript": true, "known": true, "plan": true, "env": true, "file": true, "files": true, "document": true,
	"documents": true, "memory": true, "memories": true, "code": true, "pre": true, "script": true, "style": true,
}

// withoutBlocks removes blocks in tags: recalled memory, which would be learnt again, and the blocks in which agents
// describe their environment. An unclosed block of a known program reaches to the end of the text.
func withoutBlocks(text string) string {
	closed := make(map[string]int) // the last place where a block of each name ends
	for _, at := range closeTag().FindAllStringSubmatchIndex(text, -1) {
		closed[text[at[2]:at[3]]] = at[1]
	}

	var b strings.Builder
	for from := 0; ; {
		at := openTag().FindStringSubmatchIndex(text[from:])
		if at == nil {
			b.WriteString(text[from:])
			return b.String()
		}
		name := text[from+at[2] : from+at[3]]
		b.WriteString(text[from : from+at[0]])
		b.WriteByte('\n')
		from += at[1]

		known := programs[strings.ToLower(name)]
		switch end := "</" + name + ">"; {
		case !known && !strings.ContainsAny(name, "_-"):
		case closed[name] > from:
			from += strings.Index(text[from:], end) + len(end)
		case known:
			return b.String()
		}
	}
}
