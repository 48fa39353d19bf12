package index

import (
	"bytes"
	"slices"
	"strings"
	"sync"
)

// irregular has the forms that no rule of endings brings together, each under its stem.
var irregular = sync.OnceValue(func() map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(`
		be was were been
		become became
		begin began begun
		bite bit bitten
		blow blew blown
		break broke broken
		bring brought
		build built
		buy bought
		catch caught
		child children
		choose chose chosen
		come came
		cost costs
		deal dealt
		die died dying dies
		draw drew drawn
		dream dreamt
		drink drank drunk
		drive drove driven
		eat ate eaten
		fall fell fallen
		feed fed
		feel felt
		fight fought
		find found
		fly flew flown flies
		foot feet
		forget forgot forgotten
		forgive forgave forgiven
		freeze froze frozen
		give gave given
		goose geese
		grow grew grown
		hang hung
		hear heard
		hide hid hidden
		hold held
		keep kept
		kneel knelt
		lead led
		learn learnt
		leave left
		lend lent
		lie lay lain lying
		life lives
		lose lost
		make made
		man men
		mean meant
		meet met
		mouse mice
		pay paid
		person people
		ride rode ridden
		ring rang rung
		rise rose risen
		run ran
		see saw seen
		sell sold
		send sent
		sew sewn
		shake shook shaken
		shelf shelves
		shine shone
		shoot shot
		show shown
		sing sang sung
		sink sank sunk
		sit sat
		sleep slept
		slide slid
		speak spoke spoken
		spend spent
		stand stood
		steal stole stolen
		stick stuck
		strike struck
		swear swore sworn
		sweep swept
		swim swam swum
		swing swung
		take took taken
		teach taught
		tear tore torn
		tell told
		throw threw thrown
		tooth teeth
		understand understood
		wake woke woken
		wear wore worn
		weave wove woven
		wife wives
		win won
		wolf wolves
		woman women
		write wrote written
		happy happier happiest happily
		good better best
		bad worse worst
		mum mom mommy mummy mama
		dad daddy papa
		photo photos photograph photographs photography
		tv television
		bike bicycle bicycles
		favourite favorite favorites favourites
		colour color colors colours
		neighbour neighbor neighbors neighbours
		theatre theater theaters theatres
		centre center centers centres`) {
		forms := strings.Fields(line)
		if len(forms) == 0 {
			continue
		}
		base := forms[0]
		stemmed := string(regular([]byte(base)))
		for _, f := range forms {
			all[f] = stemmed
		}
	}
	return all
})

// stem takes the commonest English endings off a word in lower case, so that plans, planned, planning and planner are one.
// It may change w, and returns a part of it or a constant.
func stem(w []byte) []byte {
	if base, ok := irregular()[string(w)]; ok {
		return append(w[:0], base...)
	}
	return regular(w)
}

func regular(w []byte) []byte {
	if len(w) <= 3 || !plain(w) {
		return w
	}

	switch {
	case ends(w, "ies") && len(w) > 4:
		w = append(w[:len(w)-3], 'y')
	case ends(w, "sses"), ends(w, "xes"), ends(w, "ches"), ends(w, "shes"), ends(w, "zes"):
		w = w[:len(w)-2]
	case ends(w, "s") && !ends(w, "ss") && !ends(w, "us") && !ends(w, "is"):
		w = w[:len(w)-1]
	}

	switch {
	case ends(w, "ied") && len(w) > 4:
		w = append(w[:len(w)-3], 'y')
	case ends(w, "ing") && len(w) > 5 && voiced(w[:len(w)-3]):
		w = undouble(w[:len(w)-3])
	case ends(w, "ed") && len(w) > 4 && voiced(w[:len(w)-2]):
		w = undouble(w[:len(w)-2])
	}

	switch {
	case ends(w, "ly") && len(w) > 5:
		w = w[:len(w)-2]
	case ends(w, "ment") && len(w) > 7:
		w = w[:len(w)-4]
	case ends(w, "ness") && len(w) > 7:
		w = w[:len(w)-4]
	case ends(w, "tion") && len(w) > 6, ends(w, "sion") && len(w) > 6:
		w = w[:len(w)-3]
	case ends(w, "er") && len(w) > 5:
		w = undouble(w[:len(w)-2])
	case ends(w, "or") && len(w) > 6:
		w = w[:len(w)-2]
	}

	switch {
	case ends(w, "e") && len(w) > 3:
		w = w[:len(w)-1]
	case ends(w, "y") && len(w) > 3:
		w[len(w)-1] = 'i'
	}
	return w
}

// plain reports whether a word has Latin letters alone: endings of numbers and of other scripts are left alone.
func plain(w []byte) bool {
	return !slices.ContainsFunc(w, func(c byte) bool { return c < 'a' || c > 'z' })
}

func ends(w []byte, ending string) bool {
	return len(w) >= len(ending) && string(w[len(w)-len(ending):]) == ending
}

// voiced reports whether a word has a vowel, without which what looks like an ending is the word itself, as in "bring".
func voiced(w []byte) bool { return bytes.ContainsAny(w, "aeiouy") }

// undouble takes away the second of two equal consonants at the end, as in "plann".
func undouble(w []byte) []byte {
	n := len(w)
	if n > 3 && w[n-1] == w[n-2] && !bytes.ContainsRune([]byte("aeiouls"), rune(w[n-1])) {
		return w[:n-1]
	}
	return w
}
