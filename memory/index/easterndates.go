package index

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// easternDate is a date in Chinese or Japanese, in a text without spaces between words.
type easternDate struct {
	from, to int // bytes of the text
	span     span
	// relative says that it is as of today, "last week"; weekday, that it is a day of the week without a week: span.from is which
	// one, from Sunday.
	relative, weekday bool
}

// eastern reads Chinese and Japanese dates. today is as in dateReader.
type eastern struct {
	text  string
	today int32
}

// find calls yield with the dates of the text, in order. Relative ones are left out where there is no today.
func (e eastern) find(yield func(d easternDate) bool) {
	for i := 0; i < len(e.text); {
		r, size := utf8.DecodeRuneInString(e.text[i:])
		if r >= utf8.RuneSelf && !strings.ContainsRune(easternBeginnings, r) || r < utf8.RuneSelf && (r < '0' || r > '9') {
			i += size
			continue
		}
		d, ok := e.at(i)
		if !ok {
			if _, digits := number(e.text[i:]); digits > size { // the rest of a number begins no other
				size = digits
			}
			i += size
			continue
		}
		if d.from = i; (e.today != 0 || !d.relative) && !yield(d) {
			return
		}
		i = d.to
	}
}

// easternBeginnings are the characters that a date can begin with, beside digits.
const easternBeginnings = "〇零一二三四五六七八九十两兩几幾数半大前昨今明后後翌上下这這本先来來再去周週星礼禮日月火水木金土お"

// at reads the date that begins at i.
func (e eastern) at(i int) (d easternDate, ok bool) {
	for _, read := range [...]func(text string) (easternDate, int){e.day, e.week, e.month, e.year, e.ago, e.absolute, e.dayOfWeek} {
		if d, n := read(e.text[i:]); n > 0 {
			d.to = i + n
			return d, true
		}
	}
	return easternDate{}, false
}

// easternWord is a word with what it counts: days, weeks and the like from today, or a unit.
type easternWord struct {
	word  string
	value int8
}

// easternWords are the words of some lists, longer ones first, since they may begin with shorter ones. Those of the first list have
// the value first, those of each further list one more.
func easternWords(first int8, lists ...string) []easternWord {
	var all []easternWord
	for _, list := range lists {
		for w := range strings.FieldsSeq(list) {
			all = append(all, easternWord{w, first})
		}
		first++
	}
	slices.SortStableFunc(all, func(a, b easternWord) int { return len(b.word) - len(a.word) })
	return all
}

var (
	easternDays = easternWords(-3, "大前天", "一昨日 おととい 前天", "昨天 昨日 昨晚 昨晩 昨夜", "今天 今日 今早 今晚 今晩 今朝 今夜 本日",
		"明天 明日 明晚 明晩 明早", "明後日 后天 後天", "大后天 大後天")
	easternYears  = easternWords(-2, "一昨年", "去年 昨年", "今年 本年", "明年 来年 來年", "后年 後年")
	chineseSteps  = easternWords(-2, "上上", "上", "这 這 本", "下", "下下")
	japaneseSteps = easternWords(-2, "先々", "先", "今", "来 來", "再来")
	easternUnits  = easternWords(unitDay, "日間 天 日", "个星期 個星期 个礼拜 個禮拜 星期 週間 周 週", "", "个月 個月 か月 ヶ月 カ月 ヵ月 箇月", "年間 年")
	easternWeeks  = []string{"周", "週", "星期", "礼拜", "禮拜"}
)

// easternWeekdays name the days of the week from Monday on, the last two both Sunday.
const easternWeekdays = "一二三四五六日天"

// beginsWith returns the word that a text begins with, and the text after it.
func beginsWith(text string, words []easternWord) (value int8, rest string, ok bool) {
	for _, w := range words {
		if rest, ok := strings.CutPrefix(text, w.word); ok {
			return w.value, rest, true
		}
	}
	return 0, text, false
}

// trimmed removes each of some words once, in this order.
func trimmed(text string, words ...string) string {
	for _, w := range words {
		text = strings.TrimPrefix(text, w)
	}
	return text
}

// day reads 昨天, 明日.
func (e eastern) day(text string) (easternDate, int) {
	days, rest, ok := beginsWith(text, easternDays)
	if !ok {
		return easternDate{}, 0
	}
	return easternDate{span: oneDay(e.today + int32(days)), relative: true}, len(text) - len(rest)
}

// stepped reads a word such as "last" with a unit after it: "上个周", "先月". It returns how many bytes both have. A step that is no
// Chinese one with this unit may be a Japanese one.
func stepped(text string, units ...string) (by int8, n int) {
	for i, steps := range [...][]easternWord{chineseSteps, japaneseSteps} {
		by, rest, ok := beginsWith(text, steps)
		if !ok {
			continue
		}
		if i == 0 {
			rest = trimmed(rest, "个", "個")
		}
		for _, u := range units {
			if strings.HasPrefix(rest, u) {
				return by, len(text) - len(rest) + len(u)
			}
		}
	}
	return 0, 0
}

// week reads 上周, 下星期三, 先週の金曜日, 今週末.
func (e eastern) week(text string) (easternDate, int) {
	by, n := stepped(text, easternWeeks...)
	if n == 0 {
		return easternDate{}, 0
	}
	monday := mondayOf(e.today) + 7*int32(by)
	if strings.HasPrefix(text[n:], "末") {
		return easternDate{span: span{from: monday + 5, to: monday + 6}, relative: true}, n + len("末")
	}
	day, m := weekdayOf(text[n:], easternWeekdays)
	if m == 0 {
		rest := strings.TrimPrefix(text[n:], "の")
		if day, m = japaneseWeekday(rest); m > 0 {
			m += len(text[n:]) - len(rest)
		}
	}
	if m == 0 {
		return easternDate{span: span{from: monday, to: monday + 6}, relative: true}, n
	}
	return easternDate{span: oneDay(monday + day), relative: true}, n + m
}

// weekdayOf reads a day of the week, which the characters name from Monday on, the last two both Sunday.
func weekdayOf(text, days string) (fromMonday int32, n int) {
	r, size := utf8.DecodeRuneInString(text)
	for _, d := range days {
		if d == r {
			return min(fromMonday, 6), size
		}
		fromMonday++
	}
	return 0, 0
}

func japaneseWeekday(text string) (fromMonday int32, n int) {
	day, n := weekdayOf(text, "月火水木金土日")
	if n == 0 || !strings.HasPrefix(text[n:], "曜") {
		return 0, 0
	}
	n += len("曜")
	return day, n + len(text[n:]) - len(strings.TrimPrefix(text[n:], "日"))
}

// month reads 上个月, 先月の5日.
func (e eastern) month(text string) (easternDate, int) {
	by, n := stepped(text, "月")
	if n == 0 || strings.HasPrefix(text[n:], "曜") {
		return easternDate{}, 0
	}
	year, month, _ := dateOf(e.today)
	d := easternDate{span: monthAt(year, month+time.Month(by)), relative: true}
	if date, m := dateInMonth(text[n:]); m > 0 {
		d.span = oneDay(d.span.from + date - 1)
		n += m
	}
	return d, n
}

// dateInMonth reads 的5号, の五日.
func dateInMonth(text string) (date int32, n int) {
	rest := trimmed(text, "的", "の")
	date, m := number(rest)
	if m == 0 || !isDate(date) {
		return 0, 0
	}
	for _, u := range [...]string{"日", "号", "號"} {
		if strings.HasPrefix(rest[m:], u) && !followsDuration(rest[m+len(u):]) {
			return date, len(text) - len(rest) + m + len(u)
		}
	}
	return 0, 0
}

// year reads 去年, 去年三月, 来年の3月5日.
func (e eastern) year(text string) (easternDate, int) {
	years, rest, ok := beginsWith(text, easternYears)
	if !ok {
		return easternDate{}, 0
	}
	y, _, _ := dateOf(e.today)
	sp, n := inYear(rest, y+int(years))
	return easternDate{span: sp, relative: true}, len(text) - len(rest) + n
}

// inYear reads a month, or a month and a date, of a year, or nothing: the year as a whole.
func inYear(text string, year int) (d span, n int) {
	whole := yearAt(year)
	rest := trimmed(text, "的", "の")
	month, m := monthOf(rest)
	if m == 0 {
		return whole, 0
	}
	n = len(text) - len(rest) + m
	if date, k := dateInMonth(rest[m:]); k > 0 {
		return oneDay(dayAt(year, time.Month(month), int(date))), n + k
	}
	return monthAt(year, time.Month(month)), n
}

// monthOf reads 3月, 十二月份.
func monthOf(text string) (month int32, n int) {
	month, n = number(text)
	if n == 0 || month < 1 || month > 12 || !strings.HasPrefix(text[n:], "月") {
		return 0, 0
	}
	n += len("月")
	return month, n + len(text[n:]) - len(strings.TrimPrefix(text[n:], "份"))
}

// absolute reads 2023年5月8日, 2023年, 5月8日, 五月.
func (e eastern) absolute(text string) (easternDate, int) {
	if year, n := number(text); n > 0 && isYear(year) && strings.HasPrefix(text[n:], "年") {
		n += len("年")
		sp, m := inYear(text[n:], int(year))
		return easternDate{span: sp}, n + m
	}
	month, n := monthOf(text)
	if n == 0 || followsDuration(text[n:]) {
		return easternDate{}, 0
	}
	if date, m := dateInMonth(text[n:]); m > 0 {
		return easternDate{span: nearestDate(time.Month(month), int(date), e.today)}, n + m
	}
	d := nearestMonth(time.Month(month), e.today)
	d.yearless = true
	return easternDate{span: d}, n
}

// followsDuration reports whether what comes next makes a number of days or months of what looked like a date: 3日間, 3日前.
func followsDuration(text string) bool {
	return strings.HasPrefix(text, "間") || strings.HasPrefix(text, "间") || strings.HasPrefix(text, "前") || strings.HasPrefix(text, "以前")
}

// ago reads 三天前, 2週間前, 半年前, 几个月之前, and the same with 后 of what is to come.
func (e eastern) ago(text string) (easternDate, int) {
	count, unit := int32(6), unitMonth
	rest, half := strings.CutPrefix(text, "半年")
	if !half {
		var n int
		if count, n = number(text); n == 0 {
			if some, size := utf8.DecodeRuneInString(text); strings.ContainsRune("几幾数", some) {
				count, n = 3, size
			}
		}
		var counted bool
		if unit, rest, counted = beginsWith(text[n:], easternUnits); !counted || n == 0 {
			return easternDate{}, 0
		}
	}

	const most = 1000
	if count < 1 || count > most {
		return easternDate{}, 0
	}
	rest = trimmed(rest, "之", "以")
	switch {
	case strings.HasPrefix(rest, "前"):
		count = -count
	case !strings.HasPrefix(rest, "后") && !strings.HasPrefix(rest, "後"):
		return easternDate{}, 0
	}
	return easternDate{span: away(e.today, unit, count), relative: true}, len(text) - len(rest) + len("前")
}

// dayOfWeek reads 周三, 星期天, 水曜日.
func (eastern) dayOfWeek(text string) (easternDate, int) {
	day, n := japaneseWeekday(text)
	for _, week := range easternWeeks {
		if rest, ok := strings.CutPrefix(text, week); ok && n == 0 {
			if day, n = weekdayOf(rest, easternWeekdays); n > 0 {
				n += len(week)
			}
		}
	}
	return easternDate{span: oneDay((day + 1) % 7), relative: true, weekday: true}, n
}

// number reads a number in digits or in Chinese characters: 12, 十二, 二十三, 二〇二三, 两.
func number(text string) (value int32, n int) {
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		value = min(value, 1<<27)*10 + int32(text[n]-'0')
		n++
	}
	if n > 0 {
		return value, n
	}
	digit, tens := int32(-1), false
	for n < len(text) {
		r, size := utf8.DecodeRuneInString(text[n:])
		switch d := hanDigit(r); {
		case r == '十' && !tens:
			value, digit, tens = max(digit, 1)*10, -1, true
		case d < 0:
			return value + max(digit, 0), n
		case tens && digit < 0, digit < 0:
			digit = d
		case tens:
			return value + digit, n
		default: // 二〇二三
			digit = min(digit, 1<<27)*10 + d
		}
		n += size
	}
	return value + max(digit, 0), n
}

// hanDigit is the value of a character for a digit, -1 for none.
func hanDigit(r rune) int32 {
	switch r {
	case '〇', '零':
		return 0
	case '两', '兩':
		return 2
	}
	value := int32(1)
	for _, d := range "一二三四五六七八九" {
		if d == r {
			return value
		}
		value++
	}
	return -1
}

// asksOfEasternDay are what questions for a day as a whole are made of beside the day: who asks, and words for talking, doing and
// happening. Longer ones go first.
const asksOfEasternDay = `什么 什麼 哪些 我们 我們 咱们 发生 發生 事情 安排 计划 計劃 日程 聊天 告诉 告訴 提到 予定 約束 出来事 何を 何が 何か 私たち 話し 言い 言っ 教え
	私 僕 俺 何 話 言 起き 我 你 做 干 幹 聊 谈 談 说 說 讲 講 过 過 了 吗 嗎 呢 的 在 有 是 啥 跟 和 都 得 事 些 天 么 啊 呀 しましたか しました した して しま
	ました ましたか あったか あった あり ある です ます か は を が に の と で も た っけ`

var easternAsking = sync.OnceValue(func() *strings.Replacer {
	var pairs []string
	for w := range strings.FieldsSeq(asksOfEasternDay) {
		pairs = append(pairs, w, "")
	}
	return strings.NewReplacer(pairs...)
})

// onlyEastern reports whether a question is for its dates and nothing else: "昨天我做了什么？"
func onlyEastern(text string) bool {
	var rest strings.Builder
	done, found := 0, false
	for d := range (eastern{text, 1}).find {
		rest.WriteString(text[done:d.from])
		done, found = d.to, true
	}
	rest.WriteString(text[done:])
	asks := strings.ContainsAny(text, "什何啥哪")
	left := easternAsking().Replace(rest.String())
	return found && asks && !strings.ContainsFunc(left, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) })
}
