package index

import (
	"strings"
	"sync"
	"time"
)

// dateWord is a word's role in dates.
type dateWord struct {
	kind  dateKind
	value int8
}

type dateKind uint8

const (
	monthName  dateKind = iota + 1 // value 1 to 12
	weekday                        // value 0 to 6, from Sunday
	unit                           // value is one of the units below
	dayWord                        // value is days from today
	lastWord                       // last, past, previous
	nextWord                       // next, coming
	thisWord                       // this
	agoWord                        // ago, earlier
	seasonName                     // value is the month that it begins in
	countWord                      // value is a small number in words
	timeOfDay                      // morning, tonight
	spanWord                       // since, until, recently: of time, without a date
	behindWord                     // last or next after its noun, as in "la semaine dernière": value -1 or 1
)

// Units of time, as dateWord.value.
const (
	unitDay int8 = iota
	unitWeek
	unitWeekend
	unitMonth
	unitYear
	unitDecade
	unitHour // or a minute
)

var dateWords = sync.OnceValue(func() map[string]dateWord {
	all := map[string]dateWord{}
	list := func(kind dateKind, first int8, words string) {
		for w := range strings.FieldsSeq(words) {
			for form := range strings.SplitSeq(w, "/") {
				all[form] = dateWord{kind, first}
			}
			first++
		}
	}
	list(monthName, 1, "january/jan february/feb march april/apr may june july august/aug september/sept/sep october/oct november/nov december/dec")
	list(weekday, 0, "sunday/sundays monday/mondays tuesday/tuesdays wednesday/wednesdays thursday/thursdays friday/fridays saturday/saturdays")
	list(unit, 0, "day/days week/weeks weekend/weekends month/months year/years decade/decades hour/hours/minute/minutes")
	list(dayWord, -1, "yesterday today tomorrow")
	list(lastWord, 0, "last/past/previous")
	list(nextWord, 0, "next/coming/upcoming")
	list(thisWord, 0, "this")
	list(agoWord, 0, "ago/earlier")
	list(seasonName, 3, "spring")
	list(seasonName, 6, "summer")
	list(seasonName, 9, "autumn/fall")
	list(seasonName, 12, "winter")
	list(countWord, 1, "a/an two three four five six seven eight nine ten")
	list(countWord, 1, "one")
	list(countWord, 2, "couple few/several")
	list(timeOfDay, 0, "morning/evening/afternoon/night/tonight/noon/midnight")
	list(spanWord, 0, "since/until/recently/recent/lately/already/yearly/monthly/weekly/daily/annual/anniversary/birthday")

	// German, French and Spanish, as far as their words mean nothing else in English.
	list(monthName, 1, "januar/janvier/enero februar/février/febrero märz/mars/marzo avril/abril mai/mayo juni/juin/junio juli/juillet/julio août/agosto "+
		"septembre/septiembre oktober/octobre/octubre novembre/noviembre dezember/décembre/diciembre")
	list(dayWord, -2, "vorgestern/anteayer gestern/hier/ayer heute/hoy morgen/demain/mañana übermorgen")
	list(weekday, 0, "sonntag/dimanche/domingo montag/lundi/lunes dienstag/mardi/martes mittwoch/mercredi/miércoles donnerstag/jeudi/jueves "+
		"freitag/vendredi/viernes samstag/samedi/sábado")
	list(unit, 0, "tag/tage/tagen/jour/jours/día/días woche/wochen/semaine/semaines/semana/semanas wochenende "+
		"monat/monate/monaten/mois/mes/meses jahr/jahre/jahren/année/années/año/años")
	list(lastWord, 0, "letzte/letzten/letztes/vorige/vorigen/voriges/vergangene/vergangenen")
	list(nextWord, 0, "nächste/nächsten/nächstes/próximo/próxima")
	list(thisWord, 0, "diese/diesen/dieses/cette/esta/este")
	list(behindWord, -1, "dernier/dernière/passé/passée/pasado/pasada")
	list(behindWord, 1, "prochain/prochaine")

	// Chinese and Japanese, two characters at a time: that a time is named. Which one, eastern reads.
	list(spanWord, 0, "前天/昨天/昨日/昨晚/昨夜/今天/今日/今晚/明天/明日/后天/後天/周末/週末/曜日/礼拜/個月/个月/星期/周前/天前/年前/月前/上周/下周/去年/今年/明年/先週/来週/先月/来月/来年")
	return all
})

// span is a stretch of days, both ends in it, counted from 1970. yearless says that the year was not said: it was taken
// for the one nearest to when the text was.
type span struct {
	from, to int32
	yearless bool
}

func (d span) days() int32 { return d.to - d.from + 1 }

const secondsOfDay = 24 * 60 * 60

// dayOf is the day of a time in its own zone, counted from 1970; 0 for the zero time.
func dayOf(t time.Time) int32 {
	if t.IsZero() {
		return 0
	}
	_, offset := t.Zone()
	const farthest = 1 << 24 // days, 46,000 years
	return int32(min(max((t.Unix()+int64(offset))/secondsOfDay, -farthest), farthest))
}

// weekdayAt is the day of the week that a day is, from Sunday.
func weekdayAt(day int32) int32 { return int32(time.Unix(int64(day)*secondsOfDay, 0).UTC().Weekday()) } //nolint:gosec // 0 to 6

// mondayOf is the Monday of a day's week.
func mondayOf(day int32) int32 { return day - (weekdayAt(day)+6)%7 }

// lastWeekday is the last day before today that is a weekday, counted from Sunday.
func lastWeekday(weekday, today int32) span {
	return oneDay(today - 1 - (weekdayAt(today-1)-weekday+7)%7)
}

func dateOf(day int32) (year int, month time.Month, date int) {
	return time.Unix(int64(day)*secondsOfDay, 0).UTC().Date()
}

func dayAt(year int, month time.Month, date int) int32 {
	return dayOf(time.Date(year, month, date, 0, 0, 0, 0, time.UTC))
}

func oneDay(day int32) span { return span{from: day, to: day} }

func yearAt(year int) span { return span{from: dayAt(year, 1, 1), to: dayAt(year+1, 1, 1) - 1} }

func monthAt(year int, month time.Month) span {
	return span{from: dayAt(year, month, 1), to: dayAt(year, month+1, 1) - 1}
}

// maxDates is how many dates of a text count.
const maxDates = 4

// dateReader finds the dates that a scanned text names. Relative ones such as "last week" are as of today, a day; 0 knows no
// today, and leaves them out.
type dateReader struct {
	*scanner
	today int32
}

// all appends the dates. The words of relative ones become stop words: a turn that has them as well means another week.
func (r dateReader) all(found []span) []span {
	if !r.dated {
		return found
	}
	before := len(found)
	if r.eastern != "" {
		found = r.allEastern(found)
	}
	for i := 0; i < len(r.tokens) && len(found)-before < maxDates; i++ {
		if r.tokens[i].inDate {
			continue
		}
		if d, n, ok := r.dateAt(i); ok {
			found = append(found, d)
			for j := i; j < i+n && j < len(r.tokens); j++ {
				r.tokens[j].inDate = true
			}
			if r.kindAt(i).kind != monthName && r.kindAt(i+n-1).kind != monthName && !isYear(r.numberAt(i)) {
				for j := i; j < i+n; j++ {
					r.tokens[j].stop = true
				}
			}
			i += n - 1
		}
	}
	return found
}

// allEastern is all for dates in Chinese and Japanese.
func (r dateReader) allEastern(found []span) []span {
	before := len(found)
	for d := range (eastern{r.scanner.eastern, r.today}).find {
		if d.weekday {
			continue // a day of no week in particular
		}
		found = append(found, d.span)
		for i := range r.tokens {
			if t := &r.tokens[i]; int(t.at) < d.to && int(t.at+t.to-t.from) > d.from {
				t.inDate = true
				t.stop = t.stop || d.relative
			}
		}
		if len(found)-before == maxDates {
			break
		}
	}
	return found
}

// kindAt returns what token i has to do with dates, nothing where there is none.
func (r dateReader) kindAt(i int) dateWord {
	if i < 0 || i >= len(r.tokens) {
		return dateWord{}
	}
	return r.tokens[i].date
}

func (r dateReader) numberAt(i int) int32 {
	if i < 0 || i >= len(r.tokens) {
		return -1
	}
	return r.tokens[i].number
}

func isYear(n int32) bool { return n >= 1900 && n < 2100 }
func isDate(n int32) bool { return n >= 1 && n <= 31 }

// dateAt reads the date that begins at token i, and returns of how many tokens it is.
func (r dateReader) dateAt(i int) (d span, n int, ok bool) {
	t := &r.tokens[i]
	switch t.date.kind {
	case monthName:
		return r.monthDate(i)
	case dayWord:
		if r.today == 0 {
			return d, 0, false
		}
		return oneDay(r.today + int32(t.date.value)), 1, true
	case lastWord:
		return r.relative(-1, r.kindAt(i+1))
	case thisWord:
		return r.relative(0, r.kindAt(i+1))
	case nextWord:
		return r.relative(1, r.kindAt(i+1))
	case unit, weekday:
		if behind := r.kindAt(i + 1); behind.kind == behindWord {
			return r.relative(int32(behind.value), t.date)
		}
		return d, 0, false
	case countWord:
		return r.counted(i, int32(t.date.value))
	case 0:
	default:
		return d, 0, false
	}

	switch num := t.number; {
	case num < 0:
		return d, 0, false
	case isYear(num):
		month, date := r.numberAt(i+1), r.numberAt(i+2)
		if month >= 1 && month <= 12 && isDate(date) && r.adjacent(i) && r.adjacent(i+1) {
			return oneDay(dayAt(int(num), time.Month(month), int(date))), 3, true
		}
		return yearAt(int(num)), 1, true
	case isDate(num) && r.kindAt(i+1).kind == monthName:
		return r.dayFirst(i, i+1, 2)
	case isDate(num) && i+2 < len(r.tokens) && string(r.text(&r.tokens[i+1])) == "of" && r.kindAt(i+2).kind == monthName:
		return r.dayFirst(i, i+2, 3)
	default:
		return r.counted(i, num)
	}
}

// adjacent reports whether one character alone stands between token i and the next, as in 2023-05-08.
func (r dateReader) adjacent(i int) bool {
	a, b := &r.tokens[i], &r.tokens[i+1]
	return b.at == a.at+(a.to-a.from)+1
}

// monthDate reads what begins with the name of a month: May, May 2023, May 8, May 8 2023.
func (r dateReader) monthDate(i int) (d span, n int, ok bool) {
	month := time.Month(r.tokens[i].date.value)
	date, year := r.numberAt(i+1), r.numberAt(i+2)
	switch {
	case isYear(date):
		return monthAt(int(date), month), 2, true
	case isDate(date) && isYear(year):
		return oneDay(dayAt(int(year), month, int(date))), 3, true
	case isDate(date):
		return nearestDate(month, int(date), r.today), 2, true
	case r.isVerb(i) && (!r.tokens[i].upper || r.tokens[i].opens):
		return d, 0, false
	}
	d = nearestMonth(month, r.today)
	d.yearless = true
	return d, 1, true
}

// isVerb reports whether the name of a month is a verb as well: may, march.
func (r dateReader) isVerb(i int) bool {
	w := string(r.text(&r.tokens[i]))
	return w == "may" || w == "march"
}

// dayFirst reads a date with the day before the month.
func (r dateReader) dayFirst(date, month, n int) (d span, tokens int, ok bool) {
	m, day := time.Month(r.tokens[month].date.value), int(r.tokens[date].number)
	if year := r.numberAt(month + 1); isYear(year) {
		return oneDay(dayAt(int(year), m, day)), n + 1, true
	}
	return nearestDate(m, day, r.today), n, true
}

// nearest is the day of a month and date that is nearest to today; without a today in 1970, of which only the day and
// the month count.
func nearest(month time.Month, date int, today int32) int32 {
	if today == 0 {
		return dayAt(1970, month, date)
	}
	year, _, _ := dateOf(today)
	best := dayAt(year, month, date)
	for _, y := range []int{year - 1, year + 1} {
		if d := dayAt(y, month, date); distance(d, today) < distance(best, today) {
			best = d
		}
	}
	return best
}

// nearestDate is nearest as a date without a year.
func nearestDate(month time.Month, date int, today int32) span {
	at := nearest(month, date, today)
	return span{at, at, true}
}

// nearestMonth is the month of that name that is nearest to today.
func nearestMonth(month time.Month, today int32) span {
	y, m, _ := dateOf(nearest(month, 15, today))
	return monthAt(y, m)
}

func distance(a, b int32) int32 { return max(a-b, b-a) }

// relative reads "last week", "next month", "this Friday", "last summer" and the like, of two tokens; step is -1 for last and 1 for
// next.
func (r dateReader) relative(step int32, next dateWord) (d span, n int, ok bool) {
	if r.today == 0 {
		return d, 0, false
	}
	year, month, _ := dateOf(r.today)
	monday := mondayOf(r.today)
	switch next.kind {
	case unit:
		switch next.value {
		case unitWeek:
			return span{from: monday + 7*step, to: monday + 7*step + 6}, 2, true
		case unitWeekend:
			at := monday + 5 + 7*step
			if step < 0 && r.today >= monday+5 {
				at = monday + 5 - 7
			}
			return span{from: at, to: at + 1}, 2, true
		case unitMonth:
			return monthAt(year, month+time.Month(step)), 2, true
		case unitYear:
			return yearAt(year + int(step)), 2, true
		}
	case weekday:
		at := monday + (int32(next.value)+6)%7
		switch {
		case step < 0 && at >= r.today:
			at -= 7
		case step > 0 && at <= r.today:
			at += 7
		}
		return oneDay(at), 2, true
	case timeOfDay:
		if step <= 0 {
			return oneDay(r.today + step), 2, true
		}
	case monthName:
		return nearestMonth(time.Month(next.value), r.today+step*182), 2, true
	case seasonName:
		at := nearest(time.Month(next.value)+1, 15, r.today+step*182)
		return span{from: at - 45, to: at + 46}, 2, true
	default:
	}
	return d, 0, false
}

// counted reads "3 days ago", "two weeks ago", "a year ago".
func (r dateReader) counted(i int, count int32) (d span, n int, ok bool) {
	of := i + 1
	if of < len(r.tokens) && r.kindAt(of).kind == countWord { // a couple, a few
		count = int32(r.kindAt(of).value)
		of++
	}
	if of < len(r.tokens) && string(r.text(&r.tokens[of])) == "of" {
		of++
	}
	u := r.kindAt(of)
	if r.today == 0 || u.kind != unit || r.kindAt(of+1).kind != agoWord || count > 1000 {
		return d, 0, false
	}
	if daysOf(u.value) == 0 {
		return oneDay(r.today), of + 2 - i, true // hours
	}
	return away(r.today, u.value, -count), of + 2 - i, true
}

// away is the time that is this number of units from today: the day, the week around it, the month or the year.
func away(today int32, unit int8, count int32) span {
	length := daysOf(unit)
	at := today + count*length
	year, month, _ := dateOf(at)
	switch unit {
	case unitMonth:
		return monthAt(year, month)
	case unitYear, unitDecade:
		return yearAt(year)
	}
	return span{from: at - (length-1)/2, to: at + (length-1)/2}
}

// daysOf is about how many days a unit has, 0 for hours.
func daysOf(unit int8) int32 {
	return [...]int32{unitDay: 1, unitWeek: 7, unitWeekend: 7, unitMonth: 30, unitYear: 365, unitDecade: 3650, unitHour: 0}[unit]
}

// timed reports whether a text names a time at all, a date or not: yesterday, on Friday, for ten years, at night.
func (r dateReader) timed() bool {
	if !r.dated {
		return false
	}
	for i := range r.tokens {
		switch t := &r.tokens[i]; t.date.kind {
		case monthName:
			if _, _, ok := r.monthDate(i); ok {
				return true
			}
		case weekday, unit, dayWord, agoWord, seasonName, timeOfDay, spanWord:
			return true
		default:
			if isYear(t.number) {
				return true
			}
		}
	}
	return false
}

// near scores how well a day fits a date of a question: 1 on the day, more than half in its month, a quarter in the
// first week of the month after, since people often report then what happened in the month before.
func (d span) near(day int32) float32 {
	if d.yearless {
		d = d.inYearOf(day)
	}
	if d.days() > 31 {
		if day >= d.from && day <= d.to {
			return 0.2
		}
		return 0
	}
	year, month, date := dateOf(day)
	y, m, _ := dateOf(d.from)
	switch {
	case y == year && m == month && d.days() == 1:
		return 0.5 + 0.5*max(0, 1-float32(distance(day, d.from))/14)
	case day >= d.from && day <= d.to, y == year && m == month:
		return 0.5
	case date <= 7 && (year*12+int(month))-(y*12+int(m)) == 1:
		return 0.25
	}
	return 0
}

// inYearOf is a date without a year in the year where it is nearest to day.
func (d span) inYearOf(day int32) span {
	_, month, date := dateOf(d.from)
	from := nearest(month, date, day)
	return span{from: from, to: from + d.days() - 1}
}

// meets scores how well a date in a text fits one of a question: 1 if both are the same days.
func (d span) meets(o span) float32 {
	switch {
	case d.yearless:
		d = d.inYearOf(o.from)
	case o.yearless:
		o = o.inYearOf(d.from)
	}
	shared := min(d.to, o.to) - max(d.from, o.from) + 1
	if shared <= 0 {
		return 0
	}
	return float32(shared) / float32(max(d.days(), o.days()))
}
