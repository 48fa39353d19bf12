package observational

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// cue is a meaning that words of a sentence can signal.
type cue uint8

const (
	asked cue = iota
	standing
	subject
	supposed
	filler
	leading // those above stand only where a sentence begins
)

const (
	remember = leading + iota
	own
	me
	passing
	decided
	named
	copula
	verb
	exact
	soon
	cues // how many there are
)

// bit is a cue's place in a set of them.
func (c cue) bit() uint16 { return 1 << c }

// spelled are the words of the cues. Every alternative begins with a word spelled out, and with an edge or another
// sign after it, so that an expression is tried only where one of these words stands: tried everywhere, as
// `(?i)\b(...)`, they took a third of the processor. The long s and the Kelvin sign are no letters of such a word.
var spelled = [cues]string{ //nolint:gosec // G101: words that people say, no credentials
	asked:    `(so |and |but |ok,? |hey,? |hi,? )?(what|who|whom|whose|which|how|why|can (you|i|we)|could (you|i|we)|would (you|it)|will you|shall|should (i|we)|do (you|i|we)|does|did (you|i|we)|is (there|it|this|that)|are (there|you|we)|tell me|show me|give me|explain|write|list|summari[sz]e|translate|help|fix|find|create|make|generate|implement|add|remove|delete|update|run|check|look|please (write|fix|show|give|tell|explain|list|make|create|add|help|run|check|find|update))\b`,
	standing: `((please )?(always|never|from now on|going forward|in (the )?future|don'?t|do not|avoid|prefer|stick (to|with)|keep (your|it|the)|call me|answer|reply|respond|speak|address me)|(if|when|whenever) i (ask|say|write|send|mention))\b`,
	// subject begins a sentence that is about something in particular.
	subject:  `(i|we|the|this|that|these|those|every|each|all) \S+ `,
	supposed: `(if|suppose|imagine|assuming|say|pretend|when|since) `,
	// filler begins what assistants say to be polite.
	filler: `(sure|certainly|of course|ok(ay)?\b|great|thanks|thank you|you'?re welcome|i'?m (sorry|happy|glad|here|an?\b|just|unable|not able)|i (can|could|would|don'?t|do not|hope|understand|see|think|apologi[sz]e)\b|i'?d be|i'?ll (remember|keep|make|do|help|be)|let me|here(?:'s|\b)|hello|hi\b|hey|nice|got it|noted|feel free|would you|do you|if you|as an ai|sounds|happy|absolutely|glad|please|to \w+|you (can|could|should|may|might|mentioned|said|told)|first|next|then|finally|step|note|however|for example|in summary|overall|additionally|remember)\b`,

	remember: `(remember|remind (me|us)|don'?t forget|note that|keep in mind|for the record|did you know|fyi|be aware|make a note)\b`,

	own: `(my|our|mine|ours)\b.*(\b(is|are|was|were|isn'?t|aren'?t|has|have|had|live|lives|work|works|called|named|will|starts?|ends?|costs?|expires?|goes|comes|likes?|loves?|hates?|prefers?|speaks?|studies|leaves?|arrives?|runs?|uses?|needs?|moved|born|died|got|became|bought|turned|turns)\b|'s\b|:)|(is|are|was|were|named|called|it'?s|that'?s) (my|our)\b`,

	me: `(i'?m|i am|we'?re|we are|i was|we were|i'?ve|i have|i had|we have|we had|i'?ll|i will|we'?ll|we will|call me|i go by|i grew up|i'?d (like|love|prefer|rather|hate)|i would (like|love|prefer|rather|hate)|allerg(y|ic)|favou?rite)\b|(reach|contact|call|text|e-?mail) (me|us) (at|on|under|by)\b|(i|we) ((really|always|usually|often|never|no longer|also|still|only|mostly|both|now|just|recently|currently|do not|don'?t|can'?t|cannot|can|didn'?t|did not) )*(like|love|hate|prefer|enjoy|dislike|want|need|eat|drink|drive|play|use|used|live|lived|work|worked|own|know|believe|wear|take|run|keep|plan|hope|bought|sold|got|met|started|finished|quit|stopped|left|joined|moved|study|studied|teach|speak|practi[sc]e|collect|support|follow|hold|share|rent|read|write|cook|manage|lead|report|built|build|fly|travel|visited|visit|married|celebrate|stand|tolerate|go|went|pay|paid|spend|earn|weigh|retired|graduated)\b`,

	passing: `(i'?m|i am|we'?re|we are) (so |just |very |really )?(sorry|not sure|unsure|confused|trying|wondering|asking|looking (for|at|to)|done|back|ready|fine|good|ok|okay|getting|seeing|stuck|having (trouble|an? (issue|problem)))\b|(i|we)('?d like| would like| want| need) (you|help|to (know|see|understand|ask|write|create|build|make)|an? (list|example|summary|function|script|poem|story))\b|i (have|'ve got|had) (a|another|one|some) (quick )?(questions?|request|problem|issue)\b`,

	decided: `(decided|decisions?|agreed|let'?s (use|go|keep|stick|call|name|make it|do|meet)|going with|go with|chose|choose|chosen|settled on|switch(ed|ing)? to|instead of|we('ll| will) (use|be|move|switch|start|ship|launch|meet|keep)|will use|plan(ned)? to|deadline|due (on|by|at)|must (not|be|never|always|use)|scheduled|postponed|cancell?ed|approved|rejected|concluded|booked|confirmed|saved|renamed|assigned)\b`,
	named:   `(called|named|known as|nicknamed|titled|goes by|stands for)\b`,
	copula:  `(is|are|was|were|will be|has|have|had|equals?|costs?|lives?|works?|owns?|runs?|uses?|starts?|started|ends?|ended|expires?|opens?|closes?|born|means|belongs|contains|weighs|measures|lasts|takes?|needs|requires?|arrives?|departs?|leaves?|meets?|moved|became|joined|married|likes?|loves?|hates?|prefers?|speaks?|listens|released|founded|set|found|recorded|returned)\b`,
	// verb follows the name that a sentence begins with.
	verb: `(?-i:is|are|was|were|has|have|lives|works|likes|loves|hates|prefers|owns|speaks|uses)\b`,
	// exact goes along with digits.
	exact: `(january|february|march|april|june|july|august|september|october|november|december|monday|tuesday|wednesday|thursday|friday|saturday|sunday)s?\b|(noon|midnight|dozen|hundred|thousand|million)\b`,
	// soon is a time that means something only today.
	soon: `(today|tomorrow|yesterday|tonight|this (morning|afternoon|evening|week|weekend|month|year)|(next|last|coming) (week|weekend|month|year|night|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|(in|within) \S+ (days?|weeks?|months?|hours?))\b`,
}

// lexicon is the index of the cues' expressions.
type lexicon struct {
	begins map[string]uint16    // by word, the cues that may begin with it
	whence [cues]*regexp.Regexp // matches where a cue's first word begins
}

// vocabulary is made when the first sentence is weighed: it takes some milliseconds, which a start need not wait for.
var vocabulary = sync.OnceValue(func() *lexicon {
	l := &lexicon{begins: map[string]uint16{}}
	for c := range cues {
		expr := "(?i)^(?:" + spelled[c] + ")"
		l.whence[c] = regexp.MustCompile(expr)
		parsed, err := syntax.Parse(expr, syntax.Perl)
		if err != nil {
			panic(err) // MustCompile has taken the same expression
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			panic(err)
		}
		l.learn(c, program, program.Start, "")
	}
	return l
})

// learn follows the program of an expression from an instruction on, and adds the words that its matches may begin with. word is what
// it has read of the first one.
func (l *lexicon) learn(c cue, p *syntax.Prog, at int, word string) {
	switch in := &p.Inst[at]; in.Op {
	case syntax.InstAlt:
		l.learn(c, p, int(in.Out), word)
		l.learn(c, p, int(in.Arg), word)
	case syntax.InstCapture, syntax.InstNop:
		l.learn(c, p, int(in.Out), word)
	case syntax.InstEmptyWidth:
		if word == "" {
			l.learn(c, p, int(in.Out), word)
		} else {
			l.begins[word] |= c.bit()
		}
	case syntax.InstRune1, syntax.InstRune:
		for r := range rune(unicode.MaxASCII) {
			switch {
			case !in.MatchRune(r) || unicode.IsUpper(r):
			case inWord(byte(r)):
				l.learn(c, p, int(in.Out), word+string(r))
			default:
				l.begins[word] |= c.bit()
			}
		}
	default:
		panic("BUG: a cue does not begin with a word: " + word)
	}
}

// signs are the cues of one sentence.
type signs struct {
	text   string
	digit  bool
	places []place
}

// place is a word that may begin cues.
type place struct {
	at     int
	begins uint16
}

// signsOf finds the words of a text that may begin cues.
func signsOf(text string) signs {
	s := signs{text: text}
	begins := vocabulary().begins
	from := 0
	for i := 0; i <= len(text); i++ {
		if i < len(text) && inWord(text[i]) {
			s.digit = s.digit || '0' <= text[i] && text[i] <= '9'
			continue
		}
		found := begins[strings.ToLower(text[from:i])]
		if from > 0 {
			found &^= leading.bit() - 1
		}
		if found != 0 {
			s.places = append(s.places, place{from, found})
		}
		from = i + 1
	}
	return s
}

// inWord reports whether a byte belongs to a word by the rules of `\b`.
func inWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// has reports whether the sentence says c somewhere.
func (s *signs) has(c cue) bool { return s.begins(c, 0) }

// begins reports whether c stands at or after from.
func (s *signs) begins(c cue, from int) bool {
	return slices.ContainsFunc(s.places, func(p place) bool {
		return p.begins&c.bit() != 0 && p.at >= from && vocabulary().whence[c].MatchString(s.text[p.at:])
	})
}
