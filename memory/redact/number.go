package redact

import (
	"iter"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// group is a run of digits in any script, as ASCII, and its place in the text.
type group struct {
	digits string
	span
	before byte // the separator from the group before, 0 where that does not adjoin
}

// groups yields the runs of digits in a text, in lists joined by one separator each: "4111 1111 1111 1111". A run that touches a
// letter is left out: it is part of a name. A list is valid until the next one.
func groups(text string) iter.Seq[[]group] {
	return func(yield func([]group) bool) {
		var list []group
		var lastEnd int
		letter := false // the character before is one

		for from := 0; from < len(text); {
			r, size := utf8.DecodeRuneInString(text[from:])
			if digitOf(r) < 0 {
				letter = wordLetter(r)
				from += size
				continue
			}
			digits, to := digitsAt(text, from)
			next, _ := utf8.DecodeRuneInString(text[to:])
			partOfName := letter || wordLetter(next)
			before := byte(0)
			if len(list) > 0 && !partOfName {
				before = separator(text[lastEnd:from])
			}
			if len(list) > 0 && before == 0 {
				if !yield(list) {
					return
				}
				list = list[:0]
			}
			if !partOfName {
				list = append(list, group{digits, span{from, to}, before})
				lastEnd = to
			}
			letter = false
			from = to
		}
		if len(list) > 0 {
			yield(list)
		}
	}
}

// digitsAt returns the run of digits that begins at from, as ASCII, and its end.
func digitsAt(text string, from int) (digits string, to int) {
	for to = from; to < len(text) && asciiDigit(text[to]); to++ {
	}
	if r, _ := utf8.DecodeRuneInString(text[to:]); digitOf(r) < 0 {
		return text[from:to], to
	}
	var b strings.Builder
	for to = from; to < len(text); {
		r, size := utf8.DecodeRuneInString(text[to:])
		d := digitOf(r)
		if d < 0 {
			break
		}
		b.WriteByte("0123456789"[d])
		to += size
	}
	return b.String(), to
}

// wordLetter reports whether a letter next to a number makes one word of both. Letters of scripts without spaces do
// not.
func wordLetter(r rune) bool {
	return (unicode.IsLetter(r) || r == '_') && !unspaced(r)
}

func unspaced(r rune) bool {
	return r > unicode.MaxLatin1 && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Thai) || r == 'ー'
}

// separator is the sign that joins two groups, 0 if it is none.
func separator(s string) byte {
	switch s {
	case " ", "-", ".", "/":
		return s[0]
	case "\u00a0", "\u2009", "\u202f", "\u3000":
		return ' '
	case "–", "‐", "‑", "－", " - ":
		return '-'
	default:
		return 0
	}
}

// digitOf returns the value of a digit in any script, or -1.
func digitOf(r rune) int {
	if '0' <= r && r <= '9' {
		return int(r - '0')
	}
	if r < utf8.RuneSelf || !unicode.Is(unicode.Nd, r) {
		return -1
	}
	first := r // decimal digits stand in tens from zero to nine
	for unicode.Is(unicode.Nd, first-1) {
		first--
	}
	return int(r-first) % 10
}

// numbers finds payment card numbers, and social security numbers that have a recognisable form.
func numbers(text string, found []span) []span {
	const mostGroups = 8 // of one number
	for list := range groups(text) {
		for i := 0; i < len(list); i++ {
			if list[i].from > 0 && text[list[i].from-1] == '+' {
				continue // a phone number
			}
			var digits strings.Builder
			end := -1
			for j := i; j < len(list) && j < i+mostGroups; j++ {
				digits.WriteString(list[j].digits)
				if digits.Len() > 19 {
					break
				}
				if d := digits.String(); card(d) && evenGroups(list[i:j+1]) || socialSecurity(d, list[i:j+1]) {
					end = j
				}
			}
			if end >= 0 {
				found = append(found, span{list[i].from, list[end].to})
				i = end
			}
		}
	}
	return chineseIDs(text, found)
}

// evenGroups reports whether digits are grouped as on cards: one group, or several of three to seven digits with the
// same separator.
func evenGroups(list []group) bool {
	for i, g := range list {
		if len(list) > 1 && (len(g.digits) < 3 || len(g.digits) > 7) || i > 1 && g.before != list[1].before {
			return false
		}
	}
	return true
}

// card reports whether digits are a payment card number: a scheme's prefix and length, and a valid check digit.
func card(d string) bool {
	n := len(d)
	if n < 14 {
		return false
	}
	six, err := strconv.Atoi(d[:6])
	if err != nil {
		return false
	}
	two, three, four := six/10000, six/1000, six/100
	scheme := false
	switch {
	case two == 34 || two == 37: // American Express
		scheme = n == 15
	case three >= 300 && three <= 305 || two == 36 || two == 38 || two == 39: // Diners Club
		scheme = n == 14 || n == 16
	case six/100000 == 4: // Visa
		scheme = n == 16 || n == 19
	case two >= 51 && two <= 55, four >= 2221 && four <= 2720, four >= 2200 && four <= 2204: // Mastercard, Mir
		scheme = n == 16
	case four == 6011, two == 65, three >= 644 && three <= 649, two == 62, four >= 3528 && four <= 3589,
		two == 50, two >= 56 && two <= 69, two == 81: // Discover, UnionPay, JCB, Maestro, RuPay
		scheme = n >= 16
	}
	return scheme && luhn(d) && strings.Trim(d, d[:1]) != ""
}

// luhn reports whether the last digit is the right Luhn check digit.
func luhn(d string) bool {
	sum := 0
	for i := range len(d) {
		v := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			if v *= 2; v > 9 {
				v -= 9
			}
		}
		sum += v
	}
	return sum%10 == 0
}

// socialSecurity reports whether digits, with their grouping, are a social security or taxpayer number of the United
// States, France, Brazil or South Korea.
func socialSecurity(d string, list []group) bool {
	switch {
	case grouped(list, "3-2-4"):
		return d[:3] != "000" && d[:3] != "666" && d[0] != '9' && d[3:5] != "00" && d[5:] != "0000"
	case grouped(list, "3.3.3-2"):
		return cpf(d)
	case grouped(list, "6-7"):
		_, err := time.Parse("060102", d[:6])
		return err == nil && d[6] >= '1' && d[6] <= '8'
	case len(d) == 15 && (d[0] == '1' || d[0] == '2') && len(list) != 2:
		body, _ := strconv.ParseInt(d[:13], 10, 64)
		check, _ := strconv.ParseInt(d[13:], 10, 64)
		month, _ := strconv.Atoi(d[3:5])
		return month >= 1 && month <= 12 && 97-body%97 == check
	default:
		return false
	}
}

// grouped reports whether groups have these lengths and separators.
func grouped(list []group, form string) bool {
	if len(list) != (len(form)+1)/2 {
		return false
	}
	for i, g := range list {
		if len(g.digits) != int(form[2*i]-'0') || i > 0 && g.before != form[2*i-1] {
			return false
		}
	}
	return true
}

// cpf reports whether eleven digits are a Brazilian taxpayer number.
func cpf(d string) bool {
	check := func(n int) byte {
		sum := 0
		for i := range n {
			sum += int(d[i]-'0') * (n + 1 - i)
		}
		return byte('0' + sum*10%11%10)
	}
	return strings.Trim(d, d[:1]) != "" && check(9) == d[9] && check(10) == d[10]
}

// chineseIDs finds numbers of resident identity cards: 17 digits and a check digit that may be X.
func chineseIDs(text string, found []span) []span {
	const n = 18
	weights := [n - 1]int{7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2}
	digit := func(i int) bool { return i >= 0 && i < len(text) && asciiDigit(text[i]) }
	for from := 0; from+n <= len(text); from++ {
		if !digit(from) || digit(from-1) {
			continue
		}
		run := from
		for digit(run) {
			run++
		}
		end := from + n
		last := text[end-1]
		if run != end && (run != end-1 || last != 'X' && last != 'x') {
			from = run
			continue
		}
		if _, err := time.Parse("20060102", text[from+6:from+14]); err != nil {
			continue
		}
		sum := 0
		for i, w := range weights {
			sum += int(text[from+i]-'0') * w
		}
		if "10X98765432"[sum%11] == strings.ToUpper(string(last))[0] {
			found = append(found, span{from, end})
		}
		from = run
	}
	return found
}

// ibanLength is how many characters an IBAN of a country has.
var ibanLength = map[string]int{
	"AD": 24, "AE": 23, "AL": 28, "AT": 20, "AZ": 28, "BA": 20, "BE": 16, "BG": 22, "BH": 22, "BR": 29, "BY": 28, "CH": 21, "CR": 22,
	"CY": 28, "CZ": 24, "DE": 22, "DK": 18, "DO": 28, "EE": 20, "EG": 29, "ES": 24, "FI": 18, "FO": 18, "FR": 27, "GB": 22, "GE": 22,
	"GI": 23, "GL": 18, "GR": 27, "GT": 28, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IQ": 23, "IS": 26, "IT": 27, "JO": 30, "KW": 30,
	"KZ": 20, "LB": 28, "LC": 32, "LI": 21, "LT": 20, "LU": 20, "LV": 21, "LY": 25, "MC": 27, "MD": 24, "ME": 22, "MK": 19, "MR": 27,
	"MT": 31, "MU": 30, "NL": 18, "NO": 15, "PK": 24, "PL": 28, "PS": 29, "PT": 25, "QA": 29, "RO": 24, "RS": 22, "SA": 24, "SC": 31,
	"SE": 24, "SI": 19, "SK": 24, "SM": 27, "ST": 25, "SV": 28, "TL": 23, "TN": 24, "TR": 26, "UA": 29, "VA": 22, "VG": 24, "XK": 20,
}

// ibans finds account numbers by their checksum, with or without spaces.
func ibans(text string, found []span) []span {
	for from := 0; from+4 < len(text); from++ {
		if !asciiLetter(text[from]) || from > 0 && alphanumeric(text[from-1]) ||
			!asciiLetter(text[from+1]) || !asciiDigit(text[from+2]) && text[from+2] != ' ' {
			continue
		}
		want := ibanLength[strings.ToUpper(text[from:from+2])]
		if want == 0 {
			continue
		}
		compact := make([]byte, 0, want)
		to := from
		for ; to < len(text) && len(compact) < want; to++ {
			switch c := text[to]; {
			case alphanumeric(c):
				compact = append(compact, c)
				continue
			case (c == ' ' || c == '-' || c == '.') && to+1 < len(text) && alphanumeric(text[to+1]):
				continue
			}
			break
		}
		apart := to >= len(text) || !alphanumeric(text[to])
		if len(compact) == want && apart && mod97(strings.ToUpper(string(compact))) {
			found = append(found, span{from, to})
			from = to
		}
	}
	return found
}

func asciiLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }

func asciiDigit(c byte) bool { return '0' <= c && c <= '9' }

func alphanumeric(c byte) bool { return asciiLetter(c) || asciiDigit(c) }

// mod97 reports whether the checksum of an IBAN is right.
func mod97(iban string) bool {
	rest := 0
	for _, c := range []byte(iban[4:] + iban[:4]) {
		if asciiDigit(c) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c-'A') + 10) % 97
		}
	}
	return rest == 1
}
