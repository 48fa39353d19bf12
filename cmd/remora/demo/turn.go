package demo

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"remora/wire"
)

// turn is one call as its client, the model and X-Memory tell it. Counts are of entries, and without the instructions.
type turn struct {
	talk     *talk
	id       string // X-Turn-Id
	title    string // of the chapter that it begins
	show     bool   // to be printed in full
	client   string // what the client sent
	streamed bool
	said     int      // how much of talk.line there was with the request
	heard    int      // the same with the answer
	fresh    int      // how many entries the request added
	saw      []entry  // what the model got
	lead     int      // how many instructions it got before that
	blocks   []string // what layers told it between the two
	tools    []string // that it was offered
	report   report   // what X-Memory says
	calls    int      // tool calls in the answer that the client got
	told     string   // a word that its answer is to come from
}

// left is how many entries the model did not get.
func (t *turn) left() int { return t.said - len(t.saw) }

// read reads one request that the model got: the instructions, then what layers say, then the conversation.
func (t *turn) read(h habit, body []byte) ([]entry, error) {
	got, err := wire.Parse(h.dialect, body)
	if err != nil {
		return nil, fmt.Errorf("read what the upstream got: %w", err)
	}
	saw := entriesOf(got.Items())
	t.tools = got.Tools()
	t.lead, t.blocks = 0, nil
	for t.lead < len(saw) && saw[t.lead] == (entry{who: "system", text: systemPrompt}) {
		t.lead++
	}
	saw = saw[t.lead:]
	saw = slices.DeleteFunc(saw, func(e entry) bool {
		told := e.who == "system" || e.who == "developer"
		if told {
			t.blocks = append(t.blocks, e.text)
		}
		return told
	})
	for i := range saw {
		saw[i].hidden = saw[i].id != "" && !t.talk.ids[saw[i].id]
	}
	return saw, nil
}

// reportedRight compares X-Memory with what the model got. Of what the client never got X-Memory counts only what was
// near enough to the end of the conversation to be looked at.
func (t *turn) reportedRight() bool {
	hidden := 0
	for _, e := range t.talk.line[:t.said] {
		if e.hidden && !slices.Contains(t.saw, e) {
			hidden++
		}
	}
	counted := t.report.windowed + t.report.orphans
	return counted <= t.left() && counted >= t.left()-hidden
}

// view describes the turn's view, and the block line that its answer is from.
func (t *turn) view(blocks []block) string {
	text := fmt.Sprintf("%d of %d items", len(t.saw), t.said)
	for _, b := range blocks {
		for line := range strings.SplitSeq(b.text, "\n") {
			if t.told != "" && strings.Contains(line, t.told) {
				return fmt.Sprintf("%s, and of %s: %s", text, b.layer, cut(strings.Trim(line, " -"), 50))
			}
		}
	}
	return text
}

// last is the place in the talk's line of what ends the model's answer to the user's message.
func (t *turn) last() int {
	at := t.said
	for i := t.said; i < len(t.talk.line) && t.talk.line[i].who != "user"; i++ {
		at = i
	}
	return at
}

// whole is about how many tokens the conversation has so far, sent what the model got of it and of layers.
func (t *turn) whole() int {
	n := 0
	for _, e := range t.talk.line[:t.said] {
		n += estimate(e.text)
	}
	return n
}

func (t *turn) sent() int {
	n := 0
	for _, e := range t.saw {
		n += estimate(e.text)
	}
	for _, b := range t.blocks {
		n += estimate(b)
	}
	return n
}

// estimate is about how many tokens a text has.
func estimate(text string) int { return (len(text) + 3) / 4 }

// report holds the counts from X-Memory: items not sent, and tokens of blocks.
type report struct{ windowed, orphans, recalled int }

// reported finds the counts in X-Memory, a structured field such as ok;items=12;sent=9.
var reported = regexp.MustCompile(`;\s*(windowed|orphans|recalled)=(\d+)`)

func readReport(header string) (report, error) {
	if status, _, _ := strings.Cut(header, ";"); status != "ok" {
		return report{}, fmt.Errorf("memory did not serve the call: X-Memory is %q", header)
	}
	var r report
	for _, m := range reported.FindAllStringSubmatch(header, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return report{}, fmt.Errorf("read X-Memory %q: %w", header, err)
		}
		switch m[1] {
		case "windowed":
			r.windowed = n
		case "orphans":
			r.orphans = n
		case "recalled":
			r.recalled = n
		}
	}
	return r, nil
}
