package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// hopHeaders are headers that differ on each connection, and Date. A request's Content-Length is shown if it is 0.
var hopHeaders = []string{"Host", "Connection", "Content-Length", "Date"}

// volatile are the values that differ between runs, and the tokens of blocks, which change with each word of theirs.
var volatile = []struct {
	found *regexp.Regexp
	text  string
}{
	{regexp.MustCompile(`dur=[0-9.]+`), "dur=<ms>"},
	{regexp.MustCompile(`recalled=[1-9][0-9]*`), "recalled=<tokens>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?(\.\d+)?(Z|[+-]\d\d:\d\d)`), "<time>"},
	{regexp.MustCompile(`\[\d{4}-\d\d-\d\d \d\d:\d\d\]`), "[<time>]"},
	{regexp.MustCompile(`\[\d{4}-\d\d-\d\d( \d{6}-\d+\]|, \d+ messages?)`), "[<date>$1"},
	{regexp.MustCompile(`\((\w{3} )?\d{4}-\d\d-\d\d\)`), "(<date>)"},
	{regexp.MustCompile(`\b01[0-9A-HJKMNP-TV-Z]{24}\b`), "a refused turn"}, // no client has its id
}

// normal replaces the values that differ between runs.
func (p *player) normal(text string) string {
	for id, label := range p.labels {
		text = strings.ReplaceAll(text, id, label)
	}
	text = strings.ReplaceAll(text, p.upstream.origin, "$UPSTREAM")
	text = strings.ReplaceAll(text, strings.TrimPrefix(p.upstream.origin, "http://"), "$UPSTREAM_ADDRESS")
	text = strings.ReplaceAll(text, p.dir, "$DIR")
	for _, v := range volatile {
		text = v.found.ReplaceAllString(text, v.text)
	}
	return text
}

// show prints a request that upstream got, compared with the body that the client sent.
func (r received) show(sent string) string {
	method, rest, _ := strings.Cut(r.start, " ")
	path, _, _ := strings.Cut(rest, " ")
	text := r.head(method + " " + path)
	switch {
	case r.body == "" && sent == "":
	case r.body == sent:
		text += "\n(the client's body, unchanged)\n"
	default:
		text += "\n" + layOut(r.body, sent) + "\n"
	}
	return text + r.end
}

// showAnswer prints the client's answer, compared with the last body that upstream sent.
func (r received) showAnswer(sent string) string {
	if r.start == "" {
		return r.end
	}
	text := r.head(strings.TrimPrefix(r.start, "HTTP/1.1 "))
	if r.interim != "" {
		text = r.interim + "\n\n" + text
	}
	switch {
	case r.body == "":
	case r.body == sent && r.end != clientLeft:
		text += "\n(upstream's body, unchanged)\n"
	case r.end == clientLeft && strings.HasPrefix(sent, r.body):
		text += "\n(upstream's body, as far as it had come)\n"
	case isEventStream(headerOf(r.headers, "Content-Type")):
		text += "\n" + r.body
	default:
		text += "\n" + layOut(r.body, "") + "\n"
	}
	if r.end != "" {
		text = strings.TrimRight(text, "\n") + "\n" + r.end
	}
	return text
}

func (r received) head(start string) string {
	var b strings.Builder
	b.WriteString(start + "\n")
	for _, h := range r.headers {
		name, value, _ := strings.Cut(h, ":")
		isAnswer := strings.HasPrefix(r.start, "HTTP/")
		isEmpty := !isAnswer && strings.EqualFold(h, "Content-Length: 0")
		if !isEmpty && slices.ContainsFunc(hopHeaders, func(n string) bool { return strings.EqualFold(n, name) }) {
			continue
		}
		if isAnswer && strings.EqualFold(name, "Transfer-Encoding") {
			continue
		}
		fmt.Fprintf(&b, "%s:%s\n", name, value)
	}
	return b.String()
}

// listed are the members whose elements are printed one per line.
var listed = []string{"messages", "input", "tools", "output", "choices"}

// layOut prints a JSON object with one member per line, and lists of items with one item per line. Items that are not in the body
// before are marked with +, missing ones with -.
func layOut(body, before string) string {
	members, err := membersOf(body)
	if err != nil {
		return body
	}
	was, err := membersOf(before)
	if err != nil {
		was = nil
	}

	var lines []string
	for _, m := range members {
		var items, old []json.RawMessage
		if !slices.Contains(listed, m.name) || json.Unmarshal(m.value, &items) != nil {
			mark := " "
			if w := find(was, m.name); was != nil && !bytes.Equal(w, m.value) {
				mark = "+"
			}
			lines = append(lines, fmt.Sprintf("%s %q: %s", mark, m.name, m.value))
			continue
		}
		if w := find(was, m.name); w == nil || json.Unmarshal(w, &old) != nil {
			old = nil
		}
		if was == nil {
			old = items
		}
		lines = append(lines, fmt.Sprintf("  %q: [", m.name))
		lines = append(lines, compareItems(old, items)...)
		lines = append(lines, "  ]")
	}
	for _, w := range was {
		if find(members, w.name) == nil {
			lines = append(lines, fmt.Sprintf("- %q: %s", w.name, w.value))
		}
	}
	return "{\n" + strings.Join(lines, "\n") + "\n}"
}

// compareItems lists the items of both lists, in order. It is not the shortest comparison where an item occurs twice.
func compareItems(old, items []json.RawMessage) []string {
	var lines []string
	for len(old) > 0 || len(items) > 0 {
		same := func(it json.RawMessage) bool { return bytes.Equal(it, old[0]) }
		switch {
		case len(old) > 0 && len(items) > 0 && same(items[0]):
			lines = append(lines, "    "+string(items[0]))
			old, items = old[1:], items[1:]
		case len(old) > 0 && !slices.ContainsFunc(items, same):
			lines = append(lines, "-   "+string(old[0]))
			old = old[1:]
		default:
			lines = append(lines, "+   "+string(items[0]))
			items = items[1:]
		}
	}
	return lines
}

// member is a member of a JSON object, with the bytes of its value.
type member struct {
	name  string
	value json.RawMessage
}

func membersOf(object string) ([]member, error) {
	dec := json.NewDecoder(strings.NewReader(object))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("no object")
	}
	var all []member
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var m member
		m.name, _ = name.(string)
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

func find(members []member, name string) json.RawMessage {
	for _, m := range members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

// exportLine holds the used members of a line of `remora transcript`.
type exportLine struct {
	Item *struct {
		Seq     uint64          `json:"seq"`
		Parent  uint64          `json:"parent"`
		Turn    string          `json:"turn"`
		Chain   string          `json:"chain"`
		Content string          `json:"content"`
		OnHead  bool            `json:"on_head"`
		Off     bool            `json:"off_chain"`
		Summary bool            `json:"client_summary"`
		Partial bool            `json:"partial"`
		Side    bool            `json:"side"`
		Hidden  bool            `json:"hidden"`
		JSON    json.RawMessage `json:"json"`
		Raw     []byte          `json:"raw"`
	} `json:"item"`
	Turn *struct {
		ID         string          `json:"id"`
		Status     string          `json:"status"`
		Open       bool            `json:"open"`
		Relation   string          `json:"relation"`
		Rule       string          `json:"rule"`
		Alone      bool            `json:"alone"`
		ParentID   string          `json:"parent_session"`
		Side       string          `json:"side"`
		HTTPStatus int             `json:"http_status"`
		Cut        string          `json:"cut"`
		Degraded   bool            `json:"degraded"`
		Usage      json.RawMessage `json:"usage"`
	} `json:"turn"`
	SystemPrompt *struct {
		Record struct {
			Instructions []byte   `json:"instructions"`
			Items        [][]byte `json:"items"`
		} `json:"record"`
	} `json:"system_prompt"`
	Block *struct {
		Text []byte `json:"text"`
	} `json:"block"`
}

// show prints the stored items of a session.
func (p *player) show(l *look) {
	p.t.Helper()
	name := kindStored + ": " + l.session
	args := []string{"transcript", "--config", filepath.Join(p.dir, "config.yaml"), "--session", l.session}
	if l.key != "" {
		name += " of " + l.key
		args = append(args, "--key", l.key)
	}
	out, err := p.launcher.Command(p.t, p.dir, args...)
	if err != nil {
		if strings.Contains(err.Error(), "no such session") {
			p.write(name, "(nothing)\n")
			return
		}
		p.t.Fatalf("stored: %s: %v", l.session, err)
	}

	var prompts, items, turns strings.Builder
	numbers := map[uint64]int{0: 0} // of the items, in the order of the list
	dec := json.NewDecoder(strings.NewReader(out))
	for {
		var line exportLine
		if err := dec.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			p.t.Fatalf("stored: %s: %v", l.session, err)
		}
		switch {
		case line.Item != nil:
			p.showItem(&items, l.session, &line, numbers)
		case line.SystemPrompt != nil:
			for _, text := range append([][]byte{line.SystemPrompt.Record.Instructions}, line.SystemPrompt.Record.Items...) {
				if len(text) > 0 {
					fmt.Fprintf(&prompts, "system prompt: %s\n", text)
				}
			}
		case line.Block != nil:
			fmt.Fprintf(&turns, "told by a layer: %q\n", line.Block.Text)
		case line.Turn != nil:
			showTurn(&turns, &line)
		}
	}
	p.write(name, p.normal(prompts.String()+items.String()+turns.String()))
}

func (p *player) showItem(b *strings.Builder, session string, line *exportLine, numbers map[uint64]int) {
	it := line.Item
	n := len(numbers)
	numbers[it.Seq] = n
	p.hashes = append(p.hashes, fmt.Sprintf("%s %s %d content=%s chain=%s\n", p.name, session, n, it.Content, it.Chain))

	var marks []string
	if parent := numbers[it.Parent]; parent == 0 && n > 1 {
		marks = append(marks, "a new beginning")
	} else if parent != n-1 {
		marks = append(marks, fmt.Sprintf("after %d", parent))
	}
	for _, m := range []struct {
		set  bool
		name string
	}{
		{!it.OnHead && !it.Off && !it.Side && !it.Hidden, "not in the conversation"},
		{it.Side, "side"},
		{it.Summary, "the client's own summary"},
		{it.Hidden, "hidden from the client"},
		{it.Partial, "partial"},
	} {
		if m.set {
			marks = append(marks, m.name)
		}
	}
	text := it.JSON
	if it.Raw != nil {
		text = it.Raw
		var compact bytes.Buffer
		if json.Compact(&compact, it.Raw) == nil {
			text = compact.Bytes()
		}
	}
	fmt.Fprintf(b, "%d ", n)
	if len(marks) > 0 {
		fmt.Fprintf(b, "(%s) ", strings.Join(marks, ", "))
	}
	fmt.Fprintf(b, "%s\n", text)
}

func showTurn(b *strings.Builder, line *exportLine) {
	t := line.Turn
	fmt.Fprintf(b, "%s: %s, %s", t.ID, t.Status, t.Relation)
	if t.Alone {
		fmt.Fprintf(b, ", alone (%s)", t.Rule)
	}
	if t.Open {
		b.WriteString(", open")
	}
	if t.HTTPStatus != 0 && t.HTTPStatus != 200 {
		fmt.Fprintf(b, ", HTTP status %d", t.HTTPStatus)
	}
	for _, m := range []struct{ name, value string }{
		{"cut", t.Cut}, {"side", t.Side}, {"parent session", t.ParentID}, {"usage", string(t.Usage)},
	} {
		if m.value != "" {
			fmt.Fprintf(b, ", %s %s", m.name, m.value)
		}
	}
	if t.Degraded {
		b.WriteString(", degraded")
	}
	b.WriteString("\n")
}

// vectors are the hashes of all stored items by scenario, a line each, in one file: content and chain hashes must never change, or
// every stored session is lost.
type vectors map[string][]string

func readVectors(t *testing.T, file string) vectors {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	v := vectors{}
	for line := range strings.Lines(string(text)) {
		scenario, _, _ := strings.Cut(line, " ")
		v[scenario] = append(v[scenario], line)
	}
	return v
}

func (v vectors) write(t *testing.T, file string) {
	t.Helper()
	var text strings.Builder
	for _, scenario := range slices.Sorted(maps.Keys(v)) {
		text.WriteString(strings.Join(v[scenario], ""))
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
