package observe

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// weight says how much a statement matters; 0 is not worth keeping.
type weight int

const (
	fact     weight = 1 + iota // something is so: a name, a number, a date
	decision                   // something was settled
	personal                   // somebody says something about themselves, or how they want things to be
)

// The rules. They are English first; of other languages they know how people speak of themselves.
var (
	asked    = regexp.MustCompile(`(?i)^(so |and |but |ok,? |hey,? |hi,? )?(what|who|whom|whose|which|how|why|can (you|i|we)|could (you|i|we)|would (you|it)|will you|shall|should (i|we)|do (you|i|we)|does|did (you|i|we)|is (there|it|this|that)|are (there|you|we)|tell me|show me|give me|explain|write|list|summari[sz]e|translate|help|fix|find|create|make|generate|implement|add|remove|delete|update|run|check|look|please (write|fix|show|give|tell|explain|list|make|create|add|help|run|check|find|update))\b`)
	remember = regexp.MustCompile(`(?i)\b(remember|don'?t forget|note that|keep in mind|for the record|did you know|fyi|be aware|make a note)\b`)
	standing = regexp.MustCompile(`(?i)^((please )?(always|never|from now on|going forward|in (the )?future|don'?t|do not|avoid|prefer|stick (to|with)|use|call me|answer|reply|respond|speak|address me)|(if|when|whenever) i (ask|say|write|send|mention))\b`)

	own     = regexp.MustCompile(`(?i)\b(my|our|mine|ours)\b.*(\b(is|are|was|were|isn'?t|aren'?t|has|have|had|live|lives|work|works|called|named|will|starts?|ends?|costs?|expires?|goes|comes|likes?|loves?|hates?|prefers?|speaks?|studies|leaves?|arrives?|runs?|uses?|needs?|moved|born|died|got|became|bought|turned|turns)\b|'s\b|:)|\b(is|are|was|were|named|called|it'?s|that'?s) (my|our)\b`)
	me      = regexp.MustCompile(`(?i)(\b(i'?m|i am|we'?re|we are|i was|we were|i'?ve|i have|i had|we have|we had|i'?ll|i will|we'?ll|we will|call me|i go by|i grew up|i'?d (like|love|prefer|rather|hate)|i would (like|love|prefer|rather|hate)|allerg(y|ic)|favou?rite)\b|\b(i|we) ((really|always|usually|often|never|also|still|only|mostly|both|now|just|recently|currently|do not|don'?t|can'?t|cannot|can|didn'?t|did not) )*(like|love|hate|prefer|enjoy|dislike|want|need|eat|drink|drive|play|use|used|live|lived|work|worked|own|know|believe|wear|take|run|keep|plan|hope|bought|sold|got|met|started|finished|quit|left|joined|moved|study|studied|teach|speak|practi[sc]e|collect|support|follow|hold|share|rent|read|write|cook|manage|lead|report|built|build|fly|travel|visited|visit|married|celebrate|stand|tolerate|go|went|pay|paid|spend|earn|weigh|retired|graduated)\b)`)
	passing = regexp.MustCompile(`(?i)\b(i'?m|i am|we'?re|we are) (so |just |very |really )?(sorry|not sure|unsure|confused|trying|wondering|asking|looking (for|at|to)|done|back|ready|fine|good|ok|okay|getting|seeing|stuck|having (trouble|an? (issue|problem)))\b|\b(i|we)('?d like| would like| want| need) (you|help|to (know|see|understand|ask|write|create|build|make)|an? (list|example|summary|function|script|poem|story))\b|\bi (have|'ve got|had) (a|another|one|some) (quick )?(questions?|request|problem|issue)\b`)

	decided = regexp.MustCompile(`(?i)\b(decided|decisions?|agreed|let'?s (use|go|keep|stick|call|name|make it|do|meet)|going with|go with|chose|choose|chosen|settled on|switch(ed|ing)? to|instead of|we('ll| will) (use|be|move|switch|start|ship|launch|meet|keep)|will use|plan(ned)? to|deadline|due (on|by|at)|must (not|be|never|always|use)|scheduled|postponed|cancell?ed|approved|rejected|concluded|booked|confirmed|saved|renamed|assigned)\b`)
	named   = regexp.MustCompile(`(?i)\b(called|named|known as|nicknamed|titled|goes by|stands for)\b`)
	copula  = regexp.MustCompile(`(?i)\b(is|are|was|were|will be|has|have|had|equals?|costs?|lives?|works?|owns?|runs?|uses?|starts?|started|ends?|ended|expires?|opens?|closes?|born|means|belongs|contains|weighs|measures|lasts|takes?|needs|requires?|arrives?|departs?|leaves?|meets?|moved|became|joined|married|likes?|loves?|hates?|prefers?|speaks?|listens|released|founded|set|found|recorded|returned)\b|^[\p{L}][\p{L}\d _'’-]{1,40}[:=]\s*\S`)
	thing   = regexp.MustCompile(`^(The|This|That|His|Her|Their|Its|Your|\p{Lu}[\p{L}\d'’-]*\.?)\s.*\b(is|are|was|were|has|have|lives|works|likes|loves|hates|prefers|owns|speaks|uses)\b`)
	exact   = regexp.MustCompile(`\d|(?i:\b(january|february|march|april|june|july|august|september|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b|\b(noon|midnight|dozen|hundred|thousand|million)\b)`)
	proper  = regexp.MustCompile(`[\p{L}\d,;:.]\s+["'(]?\p{Lu}[\p{L}\d'’-]+`)

	// subject begins a sentence that is about something in particular.
	subject = regexp.MustCompile(`(?i)^(i|we|the|this|that|these|those|every|each|all) \S+ `)
	// turned is where a statement goes over into a question: "I am Ann, what is your name?"
	turned   = regexp.MustCompile(`(?i)\s*[,;:–—-]\s+(and |so |but |now )?(what|what's|whats|who|who's|how|how's|where|where's|when|why|which|can|could|would|will|do|does|did|is|are|should)\b`)
	supposed = regexp.MustCompile(`(?i)^(if|suppose|imagine|assuming|say|pretend|when|since) `)

	relativeTime = regexp.MustCompile(`(?i)\b(today|tomorrow|yesterday|tonight|this (morning|afternoon|evening|week|weekend|month|year)|(next|last|coming) (week|weekend|month|year|night|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|(in|within) \S+ (days?|weeks?|months?|hours?)|\S+ (days?|weeks?|months?) ago)\b`)

	filler = regexp.MustCompile(`(?i)^(sure|certainly|of course|ok(ay)?\b|great|thanks|thank you|you'?re welcome|i'?m (sorry|happy|glad|here|an?\b|just|unable|not able)|i (can|could|would|don'?t|do not|hope|understand|see|think|apologi[sz]e)\b|i'?d be|i'?ll (remember|keep|make|do|help|be)|let me|here(?:'s|\b)|hello|hi\b|hey|nice|got it|noted|feel free|would you|do you|if you|as an ai|sounds|happy|absolutely|glad|please|to \w+|you (can|could|should|may|might|mentioned|said|told)|first|next|then|finally|step|note|however|for example|in summary|overall|additionally|remember)\b`)
	// elsewhere is how people speak of themselves in other languages.
	elsewhere = regexp.MustCompile(`(?i)(^|[^\p{L}])(ich|wir|mein|meine|meinen|meiner|unser|unsere|je|nous|mon|notre|nos|j['’]\p{L}+|m['’]appelle|me llamo|yo|soy|somos|vivo|tengo|mi|mis|nuestr[oa]|prefiero|eu|meu|minha|nosso|nossa|moro|prefiro|mi chiamo|mio|mia|preferisco|abito|ik|mijn|onze|jag|mitt|jeg|benim|adım|я|мой|моя|моё|мои|меня|мне|мы|наш|наша|зовут|mam|mój|moja|jestem)($|[^\p{L}])|私|僕|俺|わたし|我|나는|저는|제 |내 `)
)

// judge says how much a sentence matters, given who said it.
func judge(text, by string) weight {
	if !worded(text) {
		return 0
	}
	if by != byUser {
		return judgeReport(text)
	}
	notable := remember.MatchString(text)
	if !notable && (question(text) || asked.MatchString(text)) {
		return 0
	}
	told := own.MatchString(text)
	switch {
	case notable, standing.MatchString(text):
		return personal
	case !told && passing.MatchString(text):
		return 0
	case told, me.MatchString(text), elsewhere.MatchString(text):
		return personal
	case decided.MatchString(text):
		return decision
	case named.MatchString(text), thing.MatchString(text), subject.MatchString(text) && exact.MatchString(text):
		return fact
	default:
		return precise(text)
	}
}

// stated is the part of a sentence that states something: all of it, or what stands before a question.
func stated(text string) string {
	if !question(text) || remember.MatchString(text) || supposed.MatchString(text) {
		return text
	}
	if at := turned.FindStringIndex(text); at != nil {
		return text[:at[0]]
	}
	return text
}

// judgeReport is for what assistants and tools say: they talk much, so only what is settled or precise counts.
func judgeReport(text string) weight {
	switch {
	case question(text), filler.MatchString(text):
		return 0
	case decided.MatchString(text):
		return decision
	default:
		return precise(text)
	}
}

// precise is a fact if text says of something that it is so, with a name, a number or a date. Of a script that the rules
// cannot read, a number is enough.
func precise(text string) weight {
	switch {
	case copula.MatchString(text) && (exact.MatchString(text) || proper.MatchString(text)):
		return fact
	case !strings.ContainsFunc(text, latin) && strings.ContainsFunc(text, unicode.IsDigit):
		return fact
	default:
		return 0
	}
}

func question(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(strings.TrimRight(text, `"')* `))
	return r == '?' || r == '？' || r == '؟'
}

// worded tells that a sentence is long enough to say something: two words, or four signs of a script without spaces.
func worded(text string) bool {
	const few = 4
	if strings.ContainsFunc(text, latin) {
		return len(strings.Fields(text)) >= 2
	}
	return utf8.RuneCountInString(text) >= few
}

func latin(r rune) bool { return unicode.Is(unicode.Latin, r) }
