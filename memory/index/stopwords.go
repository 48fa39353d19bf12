package index

import (
	"strings"
	"sync"
)

// stopWords say nothing about what a text is about: articles, pronouns, auxiliaries, contractions as the scanner writes
// them (without apostrophes), greetings and what people say to be polite. Those after the first block are of other languages.
var stopWords = sync.OnceValue(func() map[string]bool {
	return set(`
		a about after again all also am an and any anything are arent around as at
		be because been before being but by bye
		can cant could couldnt cool
		did didnt do does doesnt doing dont done
		each either else ever every for from
		get gets getting glad go going gonna gosh got gotta great
		had hadnt has hasnt have havent having he hed hell her here hers hes hey hello hi him his how hows
		i id if ill im in into is isnt it its itll ive
		just know let lets like lol lot lots
		many me might more most much must my myself
		no nope not now of off oh ok okay on one ones only or other our out over own
		please pretty quite really right
		said same say says she shed shes should shouldnt so some something soon still such sure
		than thank thanks that thats the their them then there theres these they theyd theyll theyre theyve thing things
		think this those though through till to too
		up upon us very via
		wanna want was wasnt way we well welcome wed were werent weve what whatever whats when whens where wheres which while
		who whod whom whos whose why will with wont wow would wouldnt
		yeah yep yes yet you youd youll your youre yours yourself youve

		der die das den dem des ein eine einen einem einer und oder aber ist sind war nicht kein keine mit für von zu zum zur
		im auf ich du er sie es wir ihr mein meine meinen meinem meiner dein deine sein hat haben habe wie wo wer wann was
		warum welche welcher welches auch noch nur sehr bitte danke hallo heisst heißt
		le la les un une et ou est sont dans pour pas que qui avec sur mon ma mes ton ta tes je tu il elle nous vous quel
		quelle quels quelles où quand comment pourquoi bonjour merci ce cette au aux du de en
		el los las y es son no por con para mi mis tu tus su sus yo qué que cuál cual cuándo cuando dónde donde quién quien
		cómo como hola gracias del al lo se`)
})

// particles are pieces of Chinese, Japanese and Thai that say nothing about what a text is about: pronouns, endings, question
// words, and greetings.
var particles = sync.OnceValue(func() map[string]bool {
	return set(`的 了 是 我 你 您 他 她 它 们 在 有 和 就 不 也 都 吗 呢 吧 啊 什 么 哪 谁 怎 这 那 个 很 会 要 说 去
		什么 怎么 哪里 哪儿 我的 你的 我们 你们 他们 这个 那个 是什 叫什 是谁 你好 谢谢 多少 几 何
		です ます した ない から まで ので ため こと もの これ それ あれ どこ だれ なに いつ どう です はい いい いえ ました ませ
		ครับ ค่ะ อะไร ที่ไ ไหน`)
})

// set returns the words of a list, which spaces separate.
func set(list string) map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		all[w] = true
	}
	return all
}
