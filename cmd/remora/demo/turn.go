package demo

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"remora/wire"
)

// turn is one call, as seen by its client, by the model and in X-Memory. Counts are of entries, without the system prompt.
type turn struct {
	talk     *talk
	act      act
	id       string // X-Turn-Id
	title    string // of the chapter that it begins, or empty
	show     bool   // print it in full
	client   string // what the client sent
	streamed bool
	said     int      // length of talk.line including the request
	heard    int      // length of talk.line including the answer
	fresh    int      // entries that the request added
	saw      []entry  // what the model got, without system prompt and blocks
	prompts  int      // system prompts that the model got
	blocks   []string // blocks that the model got
	tools    []string // offered to the model
	report   report   // X-Memory
	calls    int      // tool calls in the answer that the client got
}

// left returns the number of entries that the model did not get.
func (t *turn) left() int { return t.said - len(t.saw) }

// read parses a request that the model got: the system prompt, blocks, then the conversation.
func (t *turn) read(h habit, body []byte) ([]entry, error) {
	got, err := wire.Parse(h.dialect, body)
	if err != nil {
		return nil, fmt.Errorf("read what the upstream got: %w", err)
	}
	saw := entriesOf(got.Items())
	t.tools = got.Tools()
	t.prompts, t.blocks = 0, nil
	for t.prompts < len(saw) && saw[t.prompts] == (entry{who: "system", text: systemPrompt}) {
		t.prompts++
	}
	saw = saw[t.prompts:]
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

// reportedRight compares X-Memory with what the model got. Of hidden entries X-Memory only counts those near the end of the
// conversation.
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

// view describes the turn's view, and the line of a block that its answer needs.
func (t *turn) view(blocks []block) string {
	text := fmt.Sprintf("%d of %d items", len(t.saw), t.said)
	for _, b := range blocks {
		for line := range strings.SplitSeq(b.text, "\n") {
			if t.act.fact != "" && strings.Contains(line, t.act.fact) {
				return fmt.Sprintf("%s, and of %s: %s", text, b.layer, cut(strings.Trim(line, " -"), 50))
			}
		}
	}
	return text
}

// last returns the index in the talk's line of the end of the model's answer to the user's message.
func (t *turn) last() int {
	at := t.said
	for i := t.said; i < len(t.talk.line) && t.talk.line[i].who != "user"; i++ {
		at = i
	}
	return at
}

// whole estimates the tokens of the conversation so far, sent those of the part that the model got and of blocks.
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

// estimate estimates the tokens of a text.
func estimate(text string) int { return (len(text) + 3) / 4 }

// report holds the counts from X-Memory: items not sent, and tokens of blocks.
type report struct{ windowed, orphans, recalled int }

// reported matches the counts in X-Memory, a structured field such as ok;items=12;sent=9.
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
