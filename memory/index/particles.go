package index

import (
	"strings"
	"sync"
)

// particles are pieces of Chinese, Japanese and Thai that say nothing about what a text is about: pronouns, endings, question
// words, and greetings.
var particles = sync.OnceValue(func() map[string]bool {
	all := map[string]bool{}
	for w := range strings.FieldsSeq(`的 了 是 我 你 您 他 她 它 们 在 有 和 就 不 也 都 吗 呢 吧 啊 什 么 哪 谁 怎 这 那 个 很 会 要 说 去
		什么 怎么 哪里 哪儿 我的 你的 我们 你们 他们 这个 那个 是什 叫什 是谁 你好 谢谢 多少 几 何
		です ます した ない から まで ので ため こと もの これ それ あれ どこ だれ なに いつ どう です はい いい いえ ました ませ
		ครับ ค่ะ อะไร ที่ไ ไหน`) {
		all[w] = true
	}
	return all
})
