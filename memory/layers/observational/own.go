package observational

import (
	"strings"

	"remora/memory/layer"
)

// What passes: states of this minute, errors, plans for the next step. A day or date makes a plan one to keep.
var (
	interjections = layer.Lazily(`(?i)^((ok(ay)?|yes|yeah|yep|no|nope|well|also|btw|by the way|oh|ah|hmm+|right|so|and|but|actually|hey|hi|hello|sure|thanks|thank you|great|cool|perfect|sorry|please)\b[\s,.!:;-]*)+`)
	troubles      = layer.Lazily(`(?i)\b(fail(s|ed|ing)?|errors?|panic(s|ked)?|exception|crash(es|ed)?|(does|did|do)(n'?t| not) work|not working|undefined|stack ?trace|time[sd]? ?out|data race|segfault|broken|red again|complains?)\b`)
	momentary     = layer.Lazily(`(?i)^(i|we)( |'|’)((already |just |still )?(know|see|guess|understand|agree|get|got|forgot|tried|ran|run the|run it|checked|saw|found|clicked|opened|restarted|updated it)\b|` +
		`have (no idea|to\b|a look|tried|already|seen|done)|already have|` +
		`(don'?t|do not|didn'?t) (know|understand|see|get|remember)|(need|want|would like|'d like|d like) (to|a|an|the|some|it|that|this|more|help|you)\b|(want|need) \S+[.!]?$|` +
		`(ll|will|m going to|am going to|re going to) (try|think|talk|check|see|look|do|let|get|ask|test|read|take|send|call|go with|come|have)\b|` +
		`(m|am|re|are) (off|here|back|done|ready|sure|afraid|late|tired|hungry|busy|bored|confused|lost|stuck|at|in a|on it|on my)\b|was (thinking|wondering|just))`)
	atOnce = layer.Lazily(`(?i)(\b(right now|at the moment|just now|for now)\b|\bnow[.!]?$|^now\b)`)
	// lasts matches a state that has begun, whatever else the sentence sounds like: "I live in Bergen now", "I got divorced".
	lasts = layer.Lazily(`(?i)\b(i|we)( only| mostly| always| both| also)? ((live|work|study|teach|drive|use|own|rent|prefer|like|love|hate|eat|drink|speak)|have (two|three|four|five|six|\d+)|` +
		`got (married|divorced|engaged|separated|promoted|fired|hired|a (new )?(job|dog|cat|puppy|kitten|car|house|flat|baby)))\b|` +
		`\b(i am|i'm|i’m|we are|we're|we’re) (married|divorced|single|engaged|pregnant|retired|vegan|vegetarian|allergic|diabetic|\p{L}+[ -]intolerant|gluten[ -]free|(an?|the) [\p{L} -]+ now)\b`)
	daily  = layer.Lazily(`(?i)\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(january|february|march|april|may|june|july|august|september|october|november|december)\b|\b\d{4}-\d\d-\d\d\b`)
	labels = layer.Lazily(`(?i)^(budget|deadline|name|address|time ?zone|language|city|country|team|stack|goal|version|email|e-mail|phone|birthday|diet|allerg(y|ies)|size|role|job|company|preferences?|pet|car|note)s?\s*[:=]`)
	diets  = layer.Lazily(`(?i)^(i'?m )?(vegan|vegetarian|pescatarian|gluten.free|lactose.intolerant|halal|kosher|diabetic|celiac|coeliac)\b`)
	counts = layer.Lazily(`(?i)^(no|nope|yes|yeah|yep)[, ]+(just |only )?\d+ \w+`)
	hers   = layer.Lazily(`(?i)^((and|but|also|oh|yes),? )*(she|he)('s| is| has| loves?| likes| hates| prefers| lives| works| can'?t| doesn'?t| needs| wears| plays| goes| turns)\b`)
	kin    = layer.Lazily(`(?i)\b(my|our) ((older|younger|little|big|eldest|youngest) )?(wife|daughter|mother|mom|mum|sister|girlfriend|aunt|grandmother|niece|husband|son|father|dad|brother|boyfriend|uncle|grandfather|nephew|partner|boss|colleague|friend|dog|cat|baby)([- ]in[- ]law)?\b( \p{Lu}\p{L}+)?`)
)

// weighOwn is weigh for a user's own words, without interjections. whose is the person that "she" or "he" means, or "".
func weighOwn(text, whose string) (weight, string) {
	bare := strings.TrimSpace(interjections().ReplaceAllString(text, ""))
	switch {
	case question(text):
		return weigh(text, layer.ByUser), text
	case moves().MatchString(text), meant().MatchString(text):
		return personal, text
	case diets().MatchString(bare), counts().MatchString(text):
		return personal, text
	case hers().MatchString(text):
		if whose == "" {
			return 0, text
		}
		return personal, "(" + whose + ") " + text
	}
	w := weigh(text, layer.ByUser)
	if w == 0 || bare == "" {
		return 0, text
	}
	s := signsOf(text)
	dated := daily().MatchString(text)
	switch {
	case s.has(remember), s.has(standing):
		return w, text
	case troubles().MatchString(text):
		return 0, text
	case (momentary().MatchString(bare) && !dated || atOnce().MatchString(bare) && !s.has(own)) && !lasts().MatchString(bare):
		return 0, text
	case s.has(soon) && !dated && !when().MatchString(text) && !s.has(own) && !s.has(me) && !s.has(decided):
		return 0, text
	case label().MatchString(text) && !labels().MatchString(text) && !strings.ContainsFunc(text, func(r rune) bool { return '0' <= r && r <= '9' }) && !s.has(own) && !s.has(me):
		return 0, text
	default:
		return w, text
	}
}

// instructs matches sentences that instruct a model or a user. Such sentences of tools and models are not kept.
var instructs = layer.Lazily(`(?i)\b(must|should|shall|always|never|from now on|ignore|instructions?|assistant|polic(y|ies)|obey|remember|the user|please|(make|be) sure|` +
	`you (now |also |still )?(need|have|ought|are (required|asked|told|expected|supposed|instructed)) to)\b|` +
	`^(then |now |next,? |first,? )?(add|answer|buy|call|click|confirm|copy|delete|disregard|do not|don'?t|download|email|execute|export|fetch|forget|forward|give|` +
	`include|install|mail|open|pay|post|print|read|remove|reply|respond|reveal|run|say|send|set|share|stop|tell|transfer|type|upload|use|visit|write)\b`)

// frames matches the lines that tools put around their output.
var frames = layer.Lazily(`(?i)^(chunk id|wall time|exit code|process (exited|finished)|original token count|output|stdout|stderr|status|result|total|done|ok|success|warning|duration|elapsed|found \d|showing|\w+ ?[:=])`)

// week days by name.
var weekday = layer.Lazily(`(?i)\b((?:to|for|until|till|by) (?:the )?)?(every |each |next |last |this )?(monday|tuesday|wednesday|thursday|friday|saturday|sunday)(s)?\b`)

var addedDate = layer.Lazily(` \(20\d\d-\d\d-\d\d\)`)

var pastVerbs = layer.Lazily(`(?i)\b(was|were|had|met|went|did|came|saw|visited|got|bought|ate|arrived|left|happened|called|said|told)\b`)

// Corrections of what was said before.
var (
	moves = layer.Lazily(`(?i)^(i|we)('ve|’ve| have| had)?( just)? (moved|rescheduled|shifted|pushed|postponed|changed) (it|that|this|(?:the|my|our) [\p{L} -]{2,40}?)( from .{2,40}?)? to (.{2,60}?)[.!]?$`)
	meant = layer.Lazily(`(?i)^((?:oh |no |sorry |wait )*(?:actually|sorry|no|wait|correction|i meant?)[,:]? (?:it'?s|it is|that'?s|they'?re|i meant?)) (?:actually |now )?(.{1,60}?)[.!]?$`)
	// revises matches how a correction begins, and names a statement that ends with the name of its subject.
	revises = layer.Lazily(`(?i)^(no|nope|actually|sorry|wait|correction|i meant?)\b`)
	names   = layer.Lazily(`\b(is|are|was) ((now )?(called|named) )?(now )?\p{Lu}[\p{L}\d'’-]*[.!]?$`)
	when    = layer.Lazily(`(?i)(?:on )?\b(?:mon|tues|wednes|thurs|fri|satur|sun)day(?: \(\d{4}-\d\d-\d\d\))?(?: (?:at|around|by) \d{1,2}(?:[:.]\d\d)? ?(?:am|pm)?)?\b|(?:at )\d{1,2}(?:[:.]\d\d)? ?(?:am|pm)\b`)
	value   = layer.Lazily(`\d+(?:[.,:]\d+)*`)
	about   = layer.Lazily(`(?i)^(?:(?:ok|well|actually|oh|no|nope|sorry|wait|correction|i meant?|btw|also|and|but)[,:]? )*((?:my|our|the) [\p{L}' -]{1,40}?) (?:is|are|was|were|isn'?t)\b`)
	lives   = layer.Lazily(`(?i)\bi (?:now |just )?(?:live in|moved to)\b`)
	only    = layer.Lazily(`(?i)\b(name|favou?rite [\p{L}]+|budget|address|email|e-mail|phone|birthday|job|city|size|age|deadline|plate|time ?zone|version)$`)
)
