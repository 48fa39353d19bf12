// Package ownwords finds the text in users' messages that states something in their own name: without pasted or quoted text,
// role play, code, and blocks that programs insert.
package ownwords

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"remora/memory/layer"
)

// What of a user's message is not the user's own: mail and letters that were pasted, texts to work on, quotations, stories
// and parts that users play.
var (
	mailHead = newFinder("from:|to:|cc:|subject:|sent:|date:|von:|an:|betreff:|gesendet:|de:|à:|objet:|para:|asunto:",
		`(?im)^(from|to|cc|subject|sent|date|von|an|betreff|gesendet|de|à|objet|para|asunto):\s+\S`)
	mailStart = newFinder("original message|forwarded message|ursprüngliche nachricht|wrote:|schrieb|a écrit",
		`(?im)^(-{2,}\s*(original message|forwarded message|ursprüngliche nachricht)|begin forwarded message|on .{5,80} wrote:|am .{5,80} schrieb|le .{5,80} a écrit)`)
	greeting = layer.Lazily(`(?i)^(dear|hi|hello|hey|sehr geehrte|liebe|hallo|bonjour|cher|chère|estimad[oa]|hola)\b[^.!?]{0,60},\s*$`)
	formal   = layer.Lazily(`(?i)^(dear|sehr geehrte|cher|chère|estimad[oa]|to whom it may concern)\b[^.!?]{0,60}[,:]\s*$`)
	signOff  = layer.Lazily(`(?i)^(best|kind|warm)?\s*(regards|wishes)|^(sincerely|best|cheers|yours|thanks|thank you|mit freundlichen|viele grüße|cordialement|saludos)\b[^.!?]{0,30},?\s*$`)
	material = newFinder("翻译|翻譯|翻訳|translate|summari|proofread|rewrite|rephrase|shorten|edit|improve|correct|polish|analy|review|reply to|respond to|answer this|"+
		"übersetze|korrigiere|fasse|traduis|résume|corrige|traduce|resume|here's|here is|here are|this is|these are",
		`(?i)\b(translate|summari[sz]e|proofread|rewrite|rephrase|shorten|edit|improve|correct|polish|analy[sz]e|review|reply to|respond to|answer this|`+
			`übersetze|korrigiere|fasse|traduis|résume|corrige|traduce|resume)\b[^\n:]{0,80}:|(翻译|翻譯|翻訳)[^\n:：]{0,40}[:：]|\b(here('s| is| are)|this is|these are)\b[^\n:]{0,80}:\s*(\n|$|["“„«])`)
	fiction = newFinder(roleplays+"|pretend|imagine|act as|play the|you are |you play |in character|once upon a time|"+
		"story|tale|poem|novel|scene|dialogue|script|song|joke|chapter|letter|email|mail|essay|speech|"+
		"geschichte|märchen|gedicht|roman|szene|dialog|lied|witz|kapitel|brief|rede|"+
		"histoire|conte|poème|scène|chanson|blague|chapitre|lettre|discours|historia|cuento|poema|novela|escena|diálogo|canción|chiste|capítulo|carta|correo|discurso",
		`(?i)(`+roleplays+`)|(^|\P{L})(`+
			`(schreibe?|erzähle?|erfinde)( mir| uns)? (noch )?(eine?n?) (\p{L}+ ){0,3}(geschichte|märchen|gedicht|roman|szene|dialog|lied|witz|kapitel|brief|e-?mail|rede)|`+
			`(écris|raconte|invente)(-moi|-nous)? (une?) (\p{L}+ ){0,3}(histoire|conte|poème|roman|scène|dialogue|chanson|blague|chapitre|lettre|e-?mail|discours)|`+
			`(escribe|escríbeme|cuenta|cuéntame|inventa)(nos)? (una?|otr[oa]) (\p{L}+ ){0,3}(historia|cuento|poema|novela|escena|diálogo|canción|chiste|capítulo|carta|correo|discurso))|`+
			`\b(pretend|imagine (that )?(i|you|we)|act as|play the (role|part)|you (are|play) (a|an|the|my) |in character|once upon a time|`+
			`(write|tell|continue|invent|make up)( me)?( us)? (a|an|the|another) ([a-z-]+ ){0,3}(story|tale|poem|novel|scene|dialogue|script|song|joke|chapter|letter|email|mail|essay|speech|cover letter))\b`)
	begins = layer.Lazily(`(?i)(` + roleplays + `)|\b(pretend (that )?i|let'?s play|play the (role|part)|in character|i('ll| will) (be|play) (a|an|the) )`)
	stops  = layer.Lazily(`(?i)\b(stop|end|enough|quit|no more|done with)\b.{0,40}\b(role.?play|play(ing)?|game|story|pretend(ing)?|scene|character|act(ing)?)\b|` +
		`^\W*(ok(ay)?\W+)?(stop|enough|quit|end)( (it|this|that|now|here|please|of (it|this|that)))*\W*$|\b(out of character|ooc|back to (reality|normal|business))\b|` +
		`\b(schluss|stopp|hör auf|hören wir auf|beende|beenden wir|ende|genug|arrête|arrêtons|fin|assez|basta|para|paremos|termina|terminemos)\b.{0,40}(` + roleplays + `|\b(spiel|jeu|juego)\b)|` +
		`^\W*(stopp|schluss|genug|arrête|arrêtons|ça suffit|basta|paremos)( jetzt| damit| bitte| maintenant| ya)*\W*$|` +
		`(停|结束|結束|不玩|终止|終止).{0,10}(扮演|游戏|遊戲)|(ロールプレイ|ごっこ).{0,10}(終|おわ|やめ|止)`)
	quotes   = layer.Lazily(`[` + openQuotes + `][^"“”„«»\n]{12,}["”“»]`)
	stagings = layer.Lazily(`^\*[^*]+\*`)
)

// roleplays are the words for a role play, in the languages that have one of their own.
const roleplays = "role-play|role play|roleplay|rollenspiel|jeu de rôle|juego de rol|角色扮演|ロールプレイ"

// finder finds an expression in texts. Only one with a word of needed, in lower case, can match: few have one, and to look for words takes
// much less time than the expression.
type finder struct {
	needed   []string
	compiled func() *regexp.Regexp
}

// newFinder returns the finder of an expression; the words are separated by |.
func newFinder(needed, expr string) finder {
	return finder{strings.Split(needed, "|"), layer.Lazily(expr)}
}

// find returns the places of the expression in a text, at most n of them. lower is the text in lower case.
func (f finder) find(text, lower string, n int) [][]int {
	if !slices.ContainsFunc(f.needed, func(w string) bool { return strings.Contains(lower, w) }) {
		return nil
	}
	return f.compiled().FindAllStringIndex(text, n)
}

const openQuotes = `"“„«`

// Of returns the part of a message that the user says in their own name, and whether a role play is under way after it, as it
// was before it (playing) or begins with it.
func Of(text string, playing bool) (own string, plays bool) {
	if playing {
		return "", !stops().MatchString(text) // another person speaks
	}
	lower := strings.ToLower(text)
	if stagings().MatchString(text) || fiction.find(text, lower, 1) != nil {
		return "", begins().MatchString(text)
	}
	if at := mailStart.find(text, lower, 1); at != nil {
		text = text[:at[0][0]]
	}
	if heads := mailHead.find(text, lower, 3); len(heads) >= 2 {
		text = text[:heads[0][0]]
	}
	if at := material.find(text, lower, 1); at != nil {
		text = text[:at[0][0]]
	}
	own = withoutLetters(text)
	if strings.ContainsAny(own, openQuotes) {
		own = quotes().ReplaceAllString(own, " ")
	}
	return own, false
}

// Prose reports whether a text is made of words rather than of the signs of code and data.
func Prose(text string) bool {
	all, words := 0, 0
	for _, r := range text {
		all++
		if 'a' <= r && r <= 'z' || r == ' ' || unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) ||
			unicode.IsSpace(r) || strings.ContainsRune(".,'’!?。、", r) {
			words++
		}
	}
	return words*100 >= all*78
}

// withoutLetters removes letters: the lines between a greeting and a farewell, each on a line of its own. After a
// formal greeting the farewell may be missing.
func withoutLetters(text string) string {
	lines := strings.Split(text, "\n")
	begins := -1
	for i, l := range lines {
		l = strings.TrimSpace(l)
		switch {
		case begins < 0 && formal().MatchString(l):
			return strings.Join(lines[:i], "\n")
		case begins < 0 && greeting().MatchString(l):
			begins = i
		case begins >= 0 && i > begins+1 && signOff().MatchString(l):
			return strings.Join(lines[:begins], "\n")
		}
	}
	return text
}
