package corpus

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of a file.
const (
	maxFile     = 256 << 20 // bytes
	maxSessions = 10_000    // of a conversation
)

// sessionTime is LoCoMo's format of the start of a session.
const sessionTime = "3:04 pm on 2 January, 2006"

// evidenceID matches ids of turns as annotators wrote them: some lists are one text, some ids have an extra colon or zero.
var evidenceID = regexp.MustCompile(`D:?(\d+):(\d+)`)

// ReadFile reads a file in LoCoMo's format: see [Read].
func ReadFile(name string) ([]*Conversation, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // only read
	all, err := Read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return all, nil
}

// Read reads conversations in LoCoMo's format: a list of objects with sample_id, conversation (speaker_a, speaker_b, session_N
// and session_N_date_time) and qa. It ignores evidence that is no turn, and questions without other evidence. Errors name the
// conversation and the field, and quote nothing.
func Read(r io.Reader) ([]*Conversation, error) {
	var samples []locomoSample
	if err := json.NewDecoder(io.LimitReader(r, maxFile)).Decode(&samples); err != nil {
		return nil, fmt.Errorf("want a list of LoCoMo conversations: %w", err)
	}
	var all []*Conversation
	for i := range samples {
		c, err := samples[i].read()
		if err != nil {
			return nil, fmt.Errorf("conversation %d: %w", i+1, err)
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("want a list of LoCoMo conversations, have none")
	}
	return all, nil
}

type locomoSample struct {
	ID           string                     `json:"sample_id"`
	Conversation map[string]json.RawMessage `json:"conversation"`
	Questions    []locomoQuestion           `json:"qa"`
}

type locomoTurn struct {
	Speaker string `json:"speaker"`
	ID      string `json:"dia_id"`
	Text    string `json:"text"`
	Caption string `json:"blip_caption"`
}

type locomoQuestion struct {
	Text     string          `json:"question"`
	Answer   json.RawMessage `json:"answer"` // a text or a number
	Evidence []string        `json:"evidence"`
	Category int             `json:"category"`
}

func (s *locomoSample) read() (*Conversation, error) {
	c := &Conversation{Name: s.ID}
	for i, name := range []string{"speaker_a", "speaker_b"} {
		if err := json.Unmarshal(s.Conversation[name], &c.Speakers[i]); err != nil {
			return nil, fmt.Errorf("%s: want a text", name)
		}
	}

	known := map[string]bool{}
	for n := 1; n <= maxSessions; n++ {
		name := "session_" + strconv.Itoa(n)
		raw, ok := s.Conversation[name]
		if !ok {
			continue // some times have no session
		}
		session, err := readSession(name, raw, s.Conversation[name+"_date_time"])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, t := range session.Turns {
			known[t.ID] = true
		}
		c.Sessions = append(c.Sessions, session)
	}

	for _, q := range s.Questions {
		if read, ok := q.read(known); ok {
			c.Questions = append(c.Questions, read)
		}
	}
	return c, nil
}

func readSession(name string, raw, at json.RawMessage) (Session, error) {
	s := Session{Name: name}
	var turns []locomoTurn
	if json.Unmarshal(raw, &turns) != nil {
		return s, fmt.Errorf("want a list of turns")
	}
	var when string
	if json.Unmarshal(at, &when) != nil {
		return s, fmt.Errorf("date_time: want a text")
	}
	var err error
	if s.At, err = time.Parse(sessionTime, when); err != nil {
		return s, fmt.Errorf("date_time: want the form %q", sessionTime)
	}
	for _, t := range turns {
		id := t.ID
		if ids := evidenceIDs(id); len(ids) == 1 {
			id = ids[0]
		}
		s.Turns = append(s.Turns, Turn{ID: id, Speaker: t.Speaker, Text: strings.TrimSpace(t.Text), Caption: strings.TrimSpace(t.Caption)})
	}
	return s, nil
}

// read returns the question, false if none of its evidence is a known turn.
func (q *locomoQuestion) read(known map[string]bool) (Question, bool) {
	categories := map[int]Category{1: MultiHop, 2: Temporal, 3: Open, 4: SingleHop, 5: Adversarial}
	read := Question{Text: q.Text, Category: categories[q.Category], Answer: strings.Trim(string(q.Answer), `"`)}
	for _, text := range q.Evidence {
		for _, id := range evidenceIDs(text) {
			if known[id] && !slices.Contains(read.Evidence, id) {
				read.Evidence = append(read.Evidence, id)
			}
		}
	}
	return read, read.Category != "" && len(read.Evidence) > 0
}

// evidenceIDs returns the ids of turns in a text, without leading zeros.
func evidenceIDs(text string) []string {
	var ids []string
	for _, m := range evidenceID.FindAllStringSubmatch(text, -1) {
		session, err1 := strconv.Atoi(m[1])
		turn, err2 := strconv.Atoi(m[2])
		if err1 == nil && err2 == nil {
			ids = append(ids, fmt.Sprintf("D%d:%d", session, turn))
		}
	}
	return ids
}
