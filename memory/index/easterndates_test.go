package index

import (
	"testing"
	"time"
)

// Chinese and Japanese dates, as of Thursday, 5 March 2026.
func TestEasternDates(t *testing.T) {
	const day = time.DateOnly
	today := dayAt(2026, time.March, 5)
	read := func(text string) (all []span) {
		var s scanner
		s.scan(text)
		return dateReader{&s, today}.all(nil)
	}
	f := func(text, from, to string) {
		t.Helper()
		have := read(text)
		if from == "" {
			if len(have) > 0 {
				t.Errorf("%s: have %v, want no date", text, have)
			}
			return
		}
		at := func(date string) int32 {
			parsed, err := time.Parse(day, date)
			if err != nil {
				t.Fatal(err)
			}
			return dayOf(parsed)
		}
		if len(have) != 1 || have[0].from != at(from) || have[0].to != at(to) {
			got := ""
			for _, d := range have {
				got += time.Unix(int64(d.from)*secondsOfDay, 0).UTC().Format(day) + ".." + time.Unix(int64(d.to)*secondsOfDay, 0).UTC().Format(day) + " "
			}
			t.Errorf("%s: have %s, want %s..%s", text, got, from, to)
		}
	}

	f("我昨天修了屋顶", "2026-03-04", "2026-03-04")
	f("前天", "2026-03-03", "2026-03-03")
	f("大前天下雨了", "2026-03-02", "2026-03-02")
	f("後天開會", "2026-03-07", "2026-03-07")
	f("昨晚吃了什么", "2026-03-04", "2026-03-04")
	f("上周三开会", "2026-02-25", "2026-02-25")
	f("上个星期天去了海边", "2026-03-01", "2026-03-01")
	f("上上周", "2026-02-16", "2026-02-22")
	f("下禮拜五", "2026-03-13", "2026-03-13")
	f("这周末", "2026-03-07", "2026-03-08")
	f("上个月我买了车", "2026-02-01", "2026-02-28")
	f("下个月3号", "2026-04-03", "2026-04-03")
	f("去年三月", "2025-03-01", "2025-03-31")
	f("去年", "2025-01-01", "2025-12-31")
	f("明年5月8日", "2027-05-08", "2027-05-08")
	f("三天前", "2026-03-02", "2026-03-02")
	f("两个月之前", "2026-01-01", "2026-01-31")
	f("2周以前", "2026-02-16", "2026-02-22")
	f("3月5日", "2026-03-05", "2026-03-05")
	f("三月十二号", "2026-03-12", "2026-03-12")
	f("2023年5月8日", "2023-05-08", "2023-05-08")
	f("二〇二三年十二月", "2023-12-01", "2023-12-31")
	f("2023年", "2023-01-01", "2023-12-31")
	f("１２月２４日", "2025-12-24", "2025-12-24")

	f("昨日屋根を直した", "2026-03-04", "2026-03-04")
	f("一昨日", "2026-03-03", "2026-03-03")
	f("明後日", "2026-03-07", "2026-03-07")
	f("先週何をしましたか", "2026-02-23", "2026-03-01")
	f("先週の金曜日", "2026-02-27", "2026-02-27")
	f("今週末", "2026-03-07", "2026-03-08")
	f("再来週", "2026-03-16", "2026-03-22")
	f("先々月", "2026-01-01", "2026-01-31")
	f("来月の5日", "2026-04-05", "2026-04-05")
	f("昨年の十月", "2025-10-01", "2025-10-31")
	f("3日前に", "2026-03-02", "2026-03-02")
	f("二週間前", "2026-02-16", "2026-02-22")
	f("半年前", "2025-09-01", "2025-09-30")
	f("3か月後", "2026-06-01", "2026-06-30")

	for _, none := range []string{"上海", "先生", "一周一次", "三个月", "3日間", "日本の本", "周先生", "火星", "天上", "今度", "五十人", "13月", "水曜日", "下面"} {
		f(none, "", "")
	}
	if have := read("昨天和3月1日"); len(have) != 2 {
		t.Errorf("have %v, want two dates", have)
	}
	var s scanner
	s.scan("昨天")
	if have := (dateReader{&s, 0}).all(nil); have != nil {
		t.Errorf("without a today: have %v", have)
	}
}

func FuzzEasternDates(f *testing.F) {
	f.Add("上个月3号和二〇二三年十二月, 先週の金曜日", int32(20_000))
	f.Fuzz(func(t *testing.T, text string, today int32) {
		done := 0
		for d := range (eastern{text, today % 100_000}).find {
			if d.from < done || d.to <= d.from || d.to > len(text) || d.span.from > d.span.to {
				t.Fatalf("%q: %+v", text, d)
			}
			done = d.to
		}
		onlyEastern(text)
	})
}
