package observe

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of the splitting, so that it stays linear whatever it is given.
const (
	maxWord      = 64  // bytes of a word; longer ones are data
	maxJudged    = 600 // bytes of a sentence that are looked at; what is kept is shorter still
	maxSentences = 400 // of one text
	maxUnclosed  = 32  // tags that are searched for their end in vain
)

// sentences splits what somebody said, without code, quotations, tables, and blocks that a program put there.
func sentences(text string) []string {
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
		l = strings.TrimSpace(listMark.ReplaceAllString(l, ""))
		found = append(found, split(strings.NewReplacer("**", "", "__", "", "`", "").Replace(l))...)
		if len(found) >= maxSentences {
			return found[:maxSentences]
		}
	}
	return found
}

var (
	listMark = regexp.MustCompile(`^([-*+•]|\(?\d{1,3}[.)])\s+`)
	codeLine = regexp.MustCompile(`^([$>|#@]|//|/\*|\+\+\+|---|diff |import |from \S+ import|def |func |class |const |return\b|Traceback|at \S+\(|` +
		`\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d|\[(INFO|WARN|DEBUG|ERROR)|(INFO|WARN|DEBUG|ERROR)\b)|[{};]$|=>|\(\)|&&|\|\|`)
)

// spoken tells that a line is prose: not code, not a log, not a table, no word too long to be one.
func spoken(l string) bool {
	if codeLine.MatchString(l) || !plain(l) {
		return false
	}
	for w := range strings.FieldsSeq(l) {
		if len(w) > maxWord && w[0] < utf8.RuneSelf {
			return false
		}
	}
	return true
}

// split cuts a line into sentences, behind a mark that ends one.
func split(l string) []string {
	var found []string
	start := 0
	runes := []rune(l)
	for i, r := range runes {
		if !ends(runes, i, r) {
			continue
		}
		found = append(found, string(runes[start:i+1]))
		start = i + 1
	}
	found = append(found, string(runes[start:]))
	kept := found[:0]
	for _, s := range found {
		if s = strings.TrimSpace(s); s != "" {
			kept = append(kept, head(s, maxJudged))
		}
	}
	return kept
}

// ends tells that a sentence ends with the rune at i.
func ends(runes []rune, i int, r rune) bool {
	switch r {
	case '。', '！', '？', '؟', '।':
		return true
	case '!', '?':
		return i+1 < len(runes) && unicode.IsSpace(runes[i+1])
	case '.':
		return i+1 < len(runes) && unicode.IsSpace(runes[i+1]) && !abbreviated(runes[:i])
	default:
		return false
	}
}

// abbreviated tells that a full stop behind these runes belongs to its word: "Dr.", "e.g.", an initial.
func abbreviated(before []rune) bool {
	i := len(before)
	for i > 0 && !unicode.IsSpace(before[i-1]) && len(before)-i < 6 {
		i--
	}
	switch w := strings.ToLower(string(before[i:])); w {
	case "dr", "mr", "mrs", "ms", "prof", "st", "vs", "e.g", "i.e", "etc", "no", "nr", "approx", "inc", "ltd", "z.b":
		return true
	default:
		return utf8.RuneCountInString(w) == 1 && unicode.IsUpper(before[i])
	}
}

var openTag = regexp.MustCompile(`<([A-Za-z][A-Za-z0-9_-]{1,40})(\s[^<>]{0,200})?>`)

// programs are the tags of blocks that programs put into messages, beside all that are spelled with _ or -.
var programs = map[string]bool{
	"observations": true, "instructions": true, "summary": true, "context": true, "system": true, "reminder": true,
	"transcript": true, "known": true, "plan": true, "env": true, "file": true, "files": true, "document": true,
	"documents": true, "memory": true, "memories": true, "code": true, "pre": true, "script": true, "style": true,
}

// withoutBlocks leaves out blocks in tags: those of recalled memory, which would be learnt again, and those by which
// agents describe their surroundings. One that is not closed ends with the text if it is known to be a program's.
func withoutBlocks(text string) string {
	var b strings.Builder
	for unclosed := 0; unclosed < maxUnclosed; {
		at := openTag.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			break
		}
		name, rest := text[at[2]:at[3]], text[at[1]:]
		b.WriteString(text[:at[0]])
		b.WriteByte('\n')
		text = rest
		known := programs[strings.ToLower(name)]
		if !known && !strings.ContainsAny(name, "_-") {
			continue
		}
		if end := strings.Index(rest, "</"+name+">"); end >= 0 {
			text = rest[end+len("</"+name+">"):]
		} else if unclosed++; known {
			break
		}
	}
	return b.String()
}
