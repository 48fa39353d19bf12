package index

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// pleasantries are words of small talk: alone they do not ask for earlier statements.
var pleasantries = sync.OnceValue(func() WordSet {
	return Words(`amazing awesome bad bed best better bit bored boring break breakfast bye chat cheers chill chilling cloudy coffee cold congrats
		congratulations cool crazy cute cuppa day days delicious dinner enjoy enjoyed evening excellent exciting fantastic feel feeling fine friday full
		fun funny glad gonna good gorgeous gotta great guess guys haha happy hard hate hear heard hello help helpful hey hi hmm holiday hope hot hug
		hungry hurray interesting joke kidding kind later laugh lazy lol long lot love lovely luck lucky lunch meal meh mind monday moment mood morning
		music nap neat never nice night noon oh ok okay omg oops ouch perfect phew play please pleasure pretty rain raining rainy ready relax relaxed
		relaxing rest right robot sad saturday say see sense silly sleep sleepy slept slow smile snow snowing sorry soon sound sounds story
		stressed stuff summer sun sunday sunny super sure sweet talk tea tell terrible thank thanks thing think thirsty thought thursday tired today
		tomorrow tonight tuesday ugh understand wait wake wakeup warm weather wednesday weekend weird welcome well wind windy winter wish wonderful work
		worked working worries worry wow yay yeah yep yes yesterday yum yummy last another one ask bet bless blast busy catch check course doing done else
		entertain everything exactly fair fingers crossed forget getting goes gone guy head hang home idea keep life maybe mean much nope nothing
		passed person quick quiet real really same seriously shall show something soon start still stop take though time times true try turn way week
		whatever wonder word world year

		guten morgen tag abend nacht wie gehts geht danke dankeschön bitte schön tschüss hallo servus moin müde wetter heute gut super prima alles klar
		bis bald später schlaf schönes wochenende ja nein genau stimmt
		bonjour salut bonsoir bonne nuit journée soirée merci ça va bien très super temps aujourd hui fatigué oui non bientôt revoir
		hola buenos buenas días tardes noches gracias qué tal cómo estás muy bien hasta luego hoy cansado sí vale adiós genial

		你好 您好 早上好 早安 下午好 晚上好 晚安 谢谢你 非常谢谢 再见 明天见 好的 没事 没关系 不错 哈哈 周末愉快 辛苦了 我很累 我好累 好开心 你吃饭了吗 你好吗 最近怎么样 今天怎么样
		今天天气很好 今天天气不错 天气真好
		おはようございます こんにちは こんばんは ありがとうございます おやすみなさい お元気ですか 今日はいい天気ですね 疲れました お疲れ様です またね
		สวัสดีครับ สวัสดีค่ะ ขอบคุณครับ ขอบคุณค่ะ สบายดีไหม
	`)
})

var (
	aboutModel = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(you|your|yourself|du|dein|dir|dich|tu|te|toi|tú|ti)\b`)
	})
	aboutPast = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(i|my|mine|me|we|our|us|ich|mein\w*|mir|mich|wir|unser\w*|je|mon|ma|mes|moi|nous|notre|yo|mi|mis|nosotros|nuestr\w+|` +
			`remember|remind|told|said|mention\w*|suggest\w*|recommend\w*|advise\w*|earlier|last|before|previous\w*|again|erinner\w*|gesagt|souviens|rappel\w*|recuerda\w*|dije)\b`)
	})
	beginsQuestion = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)^\W*(who|whose|whom|what|when|where|which|why|how|is|are|was|were|do|does|did|has|have|had|can|could|would|will|should|tell|remind|` +
			`remember|recall|list|find|name|show|give|summari[sz]e|wer|wen|wem|was|wann|wo|wohin|woher|welche\w*|warum|wie|qui|que|quoi|quand|où|comment|pourquoi|quel\w*|quién|qué|cuándo|` +
			`dónde|cómo|cuál\w*)\b`)
	})
)

// asking are signs and words that make a text a question wherever they stand.
var asking = [...]string{
	"?", "？", "什么", "哪", "谁", "几", "多少", "怎么", "吗", "何", "誰", "いつ", "どこ", "だれ", "ですか", "ますか",
	"อะไร", "ไหน", "ใคร", "เมื่อ",
}

// Minimum share of a message's words in a statement (Hit.Match) for a result. It is higher for a message that asks nothing.
const (
	needOfQuestion  = 0.1
	needOfStatement = 0.45
)

// Asks reports whether a text asks something.
func Asks(text string) bool {
	asks := slices.ContainsFunc(asking[:], func(sign string) bool { return strings.Contains(text, sign) })
	return asks || beginsQuestion().MatchString(text)
}

// aboutUs are words of questions about what users did or said.
var aboutUs = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(?i)\b(i|my|me|we|our|us|told|said|mention\w*|ich|mir|wir|je|nous|yo|hice|hicimos|dije)\b`)
})

// asksOfDate reports whether a question of the user is for a day and nothing else: "What did we talk about last week?"
func asksOfDate(text string) bool {
	if !aboutUs().MatchString(text) {
		return false
	}
	s := scratches.Get().(*scratch) //nolint:forcetypeassert // of New
	defer scratches.Put(s)
	s.scan.scan(text)
	const someDay = 20_000 // which one does not matter
	_, only := s.scan.onlyDates(someDay, dateReader{&s.scan, someDay}.all(nil))
	return only
}

// WorthAsking reports whether earlier statements may matter for a user message, and the minimum share of its words in a
// statement.
func WorthAsking(text string) (need float32, worth bool) {
	words := Words(text)
	informative := len(words) - words.In(pleasantries())
	switch {
	case len(strings.Fields(text)) == 0:
		return 0, false
	case !Asks(text):
		return needOfStatement, informative > 1
	case aboutPast().MatchString(text) && (informative > 0 || asksOfDate(text)):
		return needOfQuestion, true
	case aboutModel().MatchString(text):
		return needOfQuestion, informative > 2
	default:
		return needOfQuestion, informative > 0
	}
}
