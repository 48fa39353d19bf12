package index

// Features that score a turn for a question, each between 0 and about 1.
const (
	// How well words match: BM25, divided by the best of the question. turnMatch has these.
	fTurn      = iota // of the turn
	fTurnOther        // of the turn, without names of speakers
	fWindow3          // of it and its neighbours
	fWindow5          // and their neighbours
	fWindow5Other
	fPairs      // pairs of words that stand together in both
	fNear       // pairs that stand within four words of each other
	fCover      // the share of the question's rarity that the turn has
	fCover5     // and that its window has
	fTurnSquare // of fTurn
	fRelated    // of the turn, by words that mean or are spelt nearly the same
	fRelated3   // of it and its neighbours

	// The session.
	fSession
	fSessionOther
	fSessionCover // the share of the question's rarity that it has
	fSessionBest  // its best turn
	fSessionSum   // the sum of squares of its turns

	// The turns around it.
	fNext
	fNext2
	fBefore
	fBefore2
	fAnswers  // the turn before asks, and matches
	fAnswers2 // likewise, of the turn before that
	fFirst    // of its session
	fLast     // of its session
	fOnlyAsks
	fAsks

	// Who.
	fSpeaker // the only one that the question names
	fSpeakerMatch

	// How long.
	fLong
	fLong40
	fLong40Match

	// What kind of answer.
	fName
	fNameMatch
	fNameQuote
	fTime
	fTimeMatch
	fNumber
	fNumberMatch
	fReason
	fReasonMatch

	// When.
	fDate      // a date of the question is that of the turn
	fDateMatch // likewise, times the match
	fSaidDate  // a date of the question is one that the turn speaks of
	fSaidDateMatch

	featureCount
)

// featureNames are the features as tables spell them.
var featureNames = [featureCount]string{
	"turn", "turn-other", "window3", "window5", "window5-other", "pairs", "near", "cover", "cover5", "turn-square", "related", "related3",
	"session", "session-other", "session-cover", "session-best", "session-sum",
	"next", "next2", "before", "before2", "answers", "answers2", "first", "last", "only-asks", "asks",
	"speaker", "speaker-match",
	"long", "long40", "long40-match",
	"name", "name-match", "name-quote", "time", "time-match", "number", "number-match", "reason", "reason-match",
	"date", "date-match", "said-date", "said-date-match",
}

// Features returns the names of the features, in the order of a Sample.
func Features() []string { return featureNames[:] }

// featureVector is a value for each feature.
type featureVector [featureCount]float32

func (v *featureVector) dot(w *featureVector) float32 {
	sum := float32(0)
	for i := range v {
		sum += v[i] * w[i]
	}
	return sum
}

func flag(b bool) float32 {
	if b {
		return 1
	}
	return 0
}

// features writes what turn at is scored by.
func (s *scratch) features(ix *Index, at int32, v *featureVector) {
	*v = featureVector{}
	q, it := &s.question, &ix.items[at]
	copy(v[:], s.words.turns[at][:])
	match := v[fTurn]

	se := &s.words.sessions[it.session]
	v[fSession], v[fSessionOther], v[fSessionCover], v[fSessionBest], v[fSessionSum] = se.match, se.other, se.cover, se.best, se.sum

	if it.next >= 0 {
		v[fNext] = s.words.turns[it.next][fTurn]
		if next := ix.items[it.next].next; next >= 0 {
			v[fNext2] = s.words.turns[next][fTurn]
		}
	} else {
		v[fLast] = 1
	}
	if it.prev >= 0 {
		before := s.words.turns[it.prev][fTurn]
		v[fBefore] = before
		v[fAnswers] = flag(ix.items[it.prev].traits&asks != 0) * before
		if prev := ix.items[it.prev].prev; prev >= 0 {
			before := s.words.turns[prev][fTurn]
			v[fBefore2] = before
			v[fAnswers2] = flag(ix.items[prev].traits&asks != 0) * before
		}
	} else {
		v[fFirst] = 1
	}
	v[fOnlyAsks], v[fAsks] = flag(it.traits&onlyAsks != 0), flag(it.traits&asks != 0)

	if q.speaker >= 0 && q.speaker == it.speaker || q.speaker < 0 && q.role != "" && q.role == it.Role {
		v[fSpeaker], v[fSpeakerMatch] = 1, match
	}

	tokens := float32(len(it.Text)) / 4
	v[fLong], v[fLong40] = min(1, tokens/90), min(1, tokens/40)
	v[fLong40Match] = v[fLong40] * match

	if q.wants&wantName != 0 {
		v[fName] = min(1, float32(it.capitals)/3)
		v[fNameMatch] = v[fName] * match
		v[fNameQuote] = flag(it.traits&quoted != 0)
	}
	if q.wants&wantTime != 0 && it.traits&timed != 0 {
		v[fTime], v[fTimeMatch] = 1, match
	}
	if q.wants&wantNumber != 0 && it.traits&numbered != 0 {
		v[fNumber], v[fNumberMatch] = 1, match
	}
	if q.wants&wantReason != 0 && it.traits&reasoned != 0 {
		v[fReason], v[fReasonMatch] = 1, match
	}

	if len(q.spans) == 0 {
		return
	}
	if it.day != s.day {
		s.day, s.near = it.day, 0
		for _, d := range q.spans {
			s.near = max(s.near, d.near(it.day))
		}
	}
	v[fDate], v[fDateMatch] = s.near, s.near*match
	for _, o := range ix.spans[it.span : it.span+it.dates] {
		for _, d := range q.spans {
			v[fSaidDate] = max(v[fSaidDate], o.meets(d))
		}
	}
	v[fSaidDateMatch] = v[fSaidDate] * match
}
