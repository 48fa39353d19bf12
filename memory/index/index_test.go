package index_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/memory/index"
)

func at(date string) time.Time {
	t, err := time.Parse(time.DateOnly, date)
	if err != nil {
		panic(err)
	}
	return t
}

// said makes an index of lines "session date speaker: text"; their ids are their numbers.
func said(lines ...string) *index.Index {
	ix := index.New()
	for i, l := range lines {
		head, text, _ := strings.Cut(l, ": ")
		f := strings.Fields(head)
		ix.Add(index.Turn{ID: fmt.Sprint(i), Session: f[0], Time: at(f[1]), Role: f[2], Speaker: f[2], Text: text})
	}
	return ix
}

func ids(hits []index.Hit) []string {
	out := make([]string, len(hits))
	for i, h := range hits {
		out[i] = h.ID
	}
	return out
}

// finds wants one turn for each question: the best.
func finds(t *testing.T, ix *index.Index, wants map[string]string) {
	t.Helper()
	for question, want := range wants {
		if hits := ix.Search(index.Question{Text: question}, 1, nil); !slices.Equal(ids(hits), []string{want}) {
			t.Errorf("%q: got %v, want %s", question, ids(hits), want)
		}
	}
}

// small is a pair of friends who talk of this and that.
var small = []string{
	"a 2023-05-08 Ann: Hi Bob! How was your weekend?",
	"a 2023-05-08 Bob: Great, I went hiking with Rex, my new dog.",
	"a 2023-05-08 Ann: A dog! What breed is he?",
	"a 2023-05-08 Bob: A beagle, eight months old. We got him from the shelter in Leeds.",
	"a 2023-05-08 Ann: Lovely. I have been painting sunsets again.",
	"b 2023-07-15 Ann: My sister got married yesterday, it was beautiful.",
	"b 2023-07-15 Bob: Congratulations! Did you give a speech?",
	"b 2023-07-15 Ann: I did, and I cried through half of it.",
	"b 2023-07-15 Bob: I would have cried too. Work keeps me busy, we ship a new release.",
	"c 2023-09-02 Bob: I bought a bike last week, a red one.",
	"c 2023-09-02 Ann: Nice! Is it for commuting?",
	"c 2023-09-02 Bob: Yes, 12 kilometres each way, because trains are always late.",
	"c 2023-09-02 Ann: I am reading \"The Remains of the Day\" by Kazuo Ishiguro.",
}

func TestFindsTheAnswer(t *testing.T) {
	ix := said(small...)
	for question, want := range map[string]string{
		"What breed is Bob's dog?":               "3", // the answer, which does not say dog, and not the question before it
		"When did Ann's sister marry?":           "5",
		"Where did Bob get Rex?":                 "3",
		"What book is Ann reading?":              "12",
		"How far does Bob commute?":              "11",
		"What did Bob buy in August 2023?":       "9", // said in September
		"What was Ann painting?":                 "4",
		"Who went hiking?":                       "1",
		"Why does Bob ride a bike to work daily": "9",
	} {
		hits := ix.Search(index.Question{Text: question}, 2, nil)
		if !slices.Contains(ids(hits), want) {
			t.Errorf("%q: got %v, want %s", question, ids(hits), want)
		}
	}
}

func TestFindsInScriptsAndLanguages(t *testing.T) {
	ix := said(
		"a 2024-01-01 user: 我的猫叫小白，今年三岁。",
		"a 2024-01-01 user: 我在上海的一家银行工作。",
		"b 2024-02-01 user: 私の犬の名前はポチです。",
		"b 2024-02-01 user: 来週、京都に旅行します。",
		"c 2024-03-01 user: แมวของฉันชื่อมะลิ",
		"c 2024-03-01 user: ฉันทำงานที่โรงพยาบาล",
		"d 2024-04-01 user: Meine Schwester heißt Frieda und wohnt in Köln.",
		"e 2024-04-01 user: Mon frère habite à Nîmes.",
		"f 2024-04-01 user: Моя кошка любит молоко.",
	)
	finds(t, ix, map[string]string{
		"我的猫叫什么名字？":                 "0",
		"我在哪里工作？":                   "1",
		"私の犬の名前は何ですか":               "2",
		"いつ京都に行きますか":                "3",
		"แมวของฉันชื่ออะไร":         "4",
		"ฉันทำงานที่ไหน":            "5",
		"Wo wohnt meine Schwester?": "6",
		"Où habite mon frère ?":     "7",
		"Что любит кошка?":          "8",
	})
}

// TestSpellings: accents that were left out, Unicode's other spellings of a character, and letters of other keyboards find
// what was said.
func TestSpellings(t *testing.T) {
	ix := said(
		"a 2024-01-01 user: Mon école préférée était à Orléans.",
		"b 2024-01-02 user: Ο σκύλος μου λέγεται Μάξ.",
		"c 2024-01-03 user: Mein Büro in Zürich ist in der Seefeldstraße.",
		"d 2024-01-04 user: Ｔｈｅ ｋａｙａｋ is yellow.",
		"e 2024-01-05 user: اِسْمُ قِطَّتِي لُولُو",
		"f 2024-01-06 user: The cafe\u0301 closes at nine.",
		"g 2024-01-07 user: Isparta'da bir bahçemiz var, Łódź'da da.",
		"h 2024-01-08 user: Моё озеро зовётся Ёлкино.",
		"i 2024-01-09 user: コーヒー\u306F\u304B\u3099好き", // ga of two code points
	)
	finds(t, ix, map[string]string{
		"Ou etait mon ecole preferee?":  "0",
		"ΠΩΣ ΛΕΓΕΤΑΙ Ο ΣΚΥΛΟΣ ΜΟΥ;":     "1",
		"Where is my office in Zurich":  "2",
		"Was ist in der Seefeldstrasse": "2",
		"What colour is the kayak?":     "3",
		"ما اسم قطتي؟":                  "4",
		"When does the café close?":     "5",
		"ısparta'da ne var?":            "6",
		"lodz'da ne var":                "6",
		"Как зовется мое озеро?":        "7",
		"何が好き":                          "8",
	})
}

func TestDatesAreWorkedOut(t *testing.T) {
	ix := said(
		"a 2023-05-08 user: Yesterday I fixed the roof.",
		"b 2023-06-20 user: I fixed the door two days ago.",
		"c 2023-08-10 user: We fixed the fence last month.",
		"d 2023-11-03 user: I fixed the sink on 2023-10-30.",
	)
	finds(t, ix, map[string]string{
		"What was fixed on 7 May 2023?":      "0",
		"What was fixed on June 18?":         "1",
		"What was fixed in July 2023?":       "2",
		"What was fixed on 30 October 2023?": "3",
	})
	hits := ix.Search(index.Question{Text: "What did I fix last month?", Now: at("2023-07-05")}, 1, nil)
	if !slices.Equal(ids(hits), []string{"1"}) {
		t.Errorf("last month, asked in July: got %v, want 1", ids(hits))
	}
}

// TestQuestionsForADay: a question that names a day and nothing else finds what was said on it, and what was said of it.
func TestQuestionsForADay(t *testing.T) {
	ix := said(
		"a 2026-11-16 user: I started with a new physiotherapist, Kjell.",
		"b 2026-11-22 user: I ran ten kilometres along the river.",
		"c 2026-11-10 user: The dentist is on 2026-12-02 at nine.",
		"d 2026-11-23 user: I had porridge.",
		"e 2026-03-10 user: The plumber comes on 2026-04-02.",
		"f 2026-11-17 user: The choir sings on Friday.",
	)
	askOnMonday(t, ix, map[string][]string{
		"What did I do yesterday?":               {"1"},
		"what did I tell you a week ago?":        {"0", "5"},
		"What did we talk about last week?":      {"0", "1", "5"},
		"Was habe ich gestern gemacht?":          {"1"},
		"What do I have on December 2?":          {"2"},
		"what's on my calendar for 2 December":   {"2"},
		"Remind me what happened on Nov 16 2026": {"0"},
		"What did I do on Sunday?":               {"1"}, // it is Monday
		"What do I have on Friday?":              {"5"},
		"What did I have on April 2?":            {"4"}, // the next one is nearer, and nothing was said of it
		"What did I do today?":                   nil,   // it is in view, or the session that says it is still open
		"How was your yesterday?":                nil,
		"What day is it today?":                  nil,
	})
}

// TestQuestionsForADayInOtherLanguages is the same in German, French and Spanish.
func TestQuestionsForADayInOtherLanguages(t *testing.T) {
	ix := said(
		"a 2026-11-16 user: Kjell hat mir eine Übung gezeigt.",
		"b 2026-11-22 user: J'ai couru dix kilomètres.",
		"c 2026-11-10 user: Compré una bicicleta.",
		"d 2026-10-13 user: Nous avons mangé chez Ana.",
		"e 2026-06-10 user: Luna estuvo enferma.",
	)
	askOnMonday(t, ix, map[string][]string{
		"Was habe ich letzte Woche gemacht?":         {"0", "1"},
		"Was habe ich am Sonntag gemacht?":           {"1"},
		"Was habe ich letzten Sonntag gemacht?":      {"1"},
		"Qu'est-ce que j'ai fait dimanche ?":         {"1"},
		"Qu'est-ce que j'ai fait dimanche dernier ?": {"1"},
		"¿Qué hice la semana pasada?":                {"0", "1"},
		"¿Qué hice el mes pasado?":                   {"3"},
		"¿Qué hice en junio?":                        {"4"},
		"Qu'est-ce que j'ai fait en juin ?":          {"4"},
		"what did i do in june?":                     {"4"},
	})
}

// askOnMonday asks each question on 2026-11-23 and wants these turns, in any order.
func askOnMonday(t *testing.T, ix *index.Index, wants map[string][]string) {
	t.Helper()
	for question, want := range wants {
		var got []string
		if _, worth := index.WorthAsking(question); worth {
			got = ids(ix.Search(index.Question{Text: question, Now: at("2026-11-23")}, 5, nil))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", question, got, want)
		}
	}
}

// TestEasternQuestionsForADay is the same in Chinese and Japanese.
func TestEasternQuestionsForADay(t *testing.T) {
	ix := said(
		"a 2026-11-16 user: 我开始看一位新的理疗师。",
		"b 2026-11-22 user: 我沿着河跑了十公里。",
		"c 2026-11-10 user: 牙医约在12月2日九点。",
		"d 2026-11-20 user: 屋根を直した。",
		"e 2026-10-13 user: 我买了一辆自行车。",
		"f 2026-10-20 user: 我卖了一辆自行车。",
	)
	askOnMonday(t, ix, map[string][]string{
		"昨天我做了什么？":     {"1"},
		"我上周一做了什么？":    {"0"},
		"我12月2日有什么安排？": {"2"},
		"十二月二号有什么事":    {"2"},
		"上周我们聊了什么？":    {"0", "1", "3"},
		"周五我做了什么？":     {"3"},
		"3日前に何をしましたか？": {"3"},
		"先週の金曜日に何をした？": {"3"},
	})
	hits := ix.Search(index.Question{Text: "上个月13号我买了什么自行车？", Now: at("2026-11-23")}, 1, nil)
	if !slices.Equal(ids(hits), []string{"4"}) {
		t.Errorf("a question with a date among its words: got %v, want 4", ids(hits))
	}
}

func TestTheSpeakerThatIsNamed(t *testing.T) {
	ix := said(
		"a 2024-01-01 Ann: I love jazz records.",
		"a 2024-01-01 Bob: I love jazz records.",
		"b 2024-01-01 Ann: Rain again.",
	)
	finds(t, ix, map[string]string{"Does Ann love jazz?": "0", "Does Bob love jazz?": "1"})
}

func TestNothingIsFoundByUnknownWords(t *testing.T) {
	ix := said(small...)
	for _, text := range []string{"", "  ", "hi, how are you?", "thanks!", "quantum chromodynamics", "???", "的"} {
		if hits := ix.Search(index.Question{Text: text}, 5, nil); len(hits) != 0 {
			t.Errorf("%q found %v", text, ids(hits))
		}
	}
	if hits := index.New().Search(index.Question{Text: "dog"}, 5, nil); len(hits) != 0 {
		t.Errorf("an empty index found %v", ids(hits))
	}
}

func TestTiesGoToTheNewest(t *testing.T) {
	ix := said(
		"b 2024-02-01 user: the code word is heron",
		"a 2024-01-01 user: the code word is heron",
	)
	if hits := ix.Search(index.Question{Text: "code word"}, 2, nil); !slices.Equal(ids(hits), []string{"0", "1"}) {
		t.Errorf("got %v", ids(hits))
	}
}

func TestSkippedTurnsAreLeftOut(t *testing.T) {
	ix := said(small...)
	q := index.Question{Text: "What breed is Bob's dog?"}
	all := ix.Search(q, 5, nil)
	rest := ix.Search(q, 4, func(turn *index.Turn) bool { return turn.ID == all[0].ID })
	if !slices.Equal(ids(rest), ids(all[1:])) {
		t.Errorf("got %v, want %v", ids(rest), ids(all[1:]))
	}
}

// TestOrderOfSessionsDoesNotMatter: an index that is fed turn by turn, with sessions that go on at once, finds what one
// finds that is made of whole sessions.
func TestOrderOfSessionsDoesNotMatter(t *testing.T) {
	turns := chat(400)
	whole, mixed := index.New(), index.New()
	for _, turn := range turns {
		whole.Add(turn)
	}
	for i := range 20 {
		for s := range 20 {
			mixed.Add(turns[s*20+i])
		}
	}
	for _, text := range questions(turns) {
		q := index.Question{Text: text}
		a, b := whole.Search(q, 10, nil), mixed.Search(q, 10, nil)
		if !slices.Equal(ids(a), ids(b)) {
			t.Fatalf("%q: %v in whole sessions, %v turn by turn", text, ids(a), ids(b))
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	turns := chat(600)
	ix := index.New()
	var work sync.WaitGroup
	work.Go(func() {
		for _, turn := range turns {
			ix.Add(turn)
		}
	})
	for range 2 {
		work.Go(func() {
			for _, text := range questions(turns) {
				ix.Search(index.Question{Text: text}, 10, nil)
			}
		})
	}
	work.Wait()
	if ix.Len() != len(turns) {
		t.Errorf("%d turns of %d", ix.Len(), len(turns))
	}
}

// FuzzText adds what texts can be made of, and asks for it.
func FuzzText(f *testing.F) {
	for _, s := range []string{"", "It's Bob's 2nd dog, bought on 2023-05-08 for $3.50!", "我在上海 2 years ago", "\xff\xfe", "a' 's '' \"x", "แม", "last may", "1 may 9999999999"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, text, question string) {
		ix := index.New()
		ix.Add(index.Turn{ID: "1", Session: "s", Speaker: question, Time: at("2024-02-29"), Text: text})
		ix.Add(index.Turn{ID: "2", Session: "s", Speaker: "x", Text: question})
		for _, h := range ix.Search(index.Question{Text: question, Now: at("2024-03-01")}, 10, nil) {
			if h.Score != h.Score || h.Match < 0 || h.Match > 1.001 {
				t.Errorf("score %v, match %v", h.Score, h.Match)
			}
		}
	})
}

// TestRelatedWords: a word of the question that was said in another form, or by a word that means the same, finds it all the
// same.
func TestRelatedWords(t *testing.T) {
	ix := said(
		"a 2024-01-01 user: Wir haben die Hündin aus dem Tierheim geholt.",
		"b 2024-01-02 user: My daughter starts first grade.",
		"c 2024-01-03 user: We booked the restaurnt for nine.",
		"d 2024-01-04 user: The sea was calm.",
	)
	finds(t, ix, map[string]string{
		"Aus welchen Tierheimen?":         "0",
		"How old are my kids?":            "1",
		"Which restaurants did we choose": "2",
	})
}

// TestWords: a text is about the stems of its words, without accents and stop words; scripts without spaces give pairs of characters.
func TestWords(t *testing.T) {
	got := slices.Sorted(maps.Keys(index.Words("The Planned plans, planning: it's naïve 42 日本語xyz語 " + strings.Repeat("x", 100))))
	if want := []string{"42", "naiv", "plan", "xyz", "日本", "本語"}; !slices.Equal(got, want) {
		t.Errorf("have %q, want %q", got, want)
	}
	if !index.Words("語")["語"] {
		t.Error("a character alone is no word")
	}
	if n := index.Words("The planner planned").In(index.Words("plans of trains")); n != 1 {
		t.Errorf("%d words are in both, want 1", n)
	}
}

// TestQuestions: of a long message the paragraph that asks comes first, and then the message.
func TestQuestions(t *testing.T) {
	long := strings.Repeat("some words of a paste, ", 60)
	for message, want := range map[string][]string{
		" Where do I live? ":                        {"Where do I live?"},
		long + "\n\nWhere do I live?":               {"Where do I live?", "whole"},
		"Where do I live?\n\n" + long:               {"Where do I live?", "whole"},
		"See:\n```\n" + long + "\n```\nIs it mine?": {"Is it mine?", "whole"},
		"Is it mine?\n```\n" + long + "\n```":       {"Is it mine?", "whole"},
		long:                                        {"whole"},
		long + "\n\n" + long + "?":                  {"whole"},
	} {
		got := index.Questions(message)
		if last := got[len(got)-1]; len(message) > 600 && last == strings.TrimSpace(message) {
			got[len(got)-1] = "whole"
		}
		if !slices.Equal(got, want) {
			t.Errorf("%.60q: got %q", message, got)
		}
	}
}

// Newest leaves out the oldest turns, whenever they were added, and never a part of an item.
func TestNewest(t *testing.T) {
	ix := index.New()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i := range 200 {
		n := (i + 100) % 200 // the older half is added last
		for part := range 2 {
			ix.Add(index.Turn{
				ID: fmt.Sprint("item", n), Session: fmt.Sprint("session", n%7), Role: index.RoleUser, Speaker: index.RoleUser,
				Time: begin.Add(time.Duration(n) * time.Hour), Text: fmt.Sprintf("Parcel number%d part%d left for the harbour.", n, part),
			})
		}
	}
	half := ix.Newest(ix.Bytes() / 2)
	if b, all := half.Bytes(), ix.Bytes(); b < all*4/10 || b > all*6/10 {
		t.Errorf("%d bytes of %d", b, all)
	}
	if half.Len()%2 != 0 {
		t.Errorf("%d turns: half of an item", half.Len())
	}
	for n, want := range map[int]bool{0: false, 60: false, 140: true, 199: true} {
		hits := half.Search(index.Question{Text: fmt.Sprintf("Where is parcel number%d?", n)}, 5, nil)
		if found := slices.Contains(ids(hits), fmt.Sprint("item", n)); found != want {
			t.Errorf("item %d found: %v, want %v: %v", n, found, want, ids(hits))
		}
	}
	if one := ix.Newest(1); one.Len() != 2 {
		t.Errorf("kept %d turns, want the newest item", one.Len())
	}
}
