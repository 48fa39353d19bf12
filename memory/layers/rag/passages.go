package rag

import (
	"fmt"
	"path"
	"strings"

	"remora/memory/layer"
)

// passage is a part of a document that is found and shown as a whole.
type passage struct {
	file, section string // section is the headings above it, or the line numbers if there are none
	text          string
}

// head cites the passage.
func (p *passage) head() string {
	return "[" + strings.NewReplacer("[", "(", "]", ")").Replace(layer.Line(p.file+", "+p.section, maxHead)) + "]"
}

// searched returns the text to index: the passage with its file's name and headings.
func (p *passage) searched() string {
	name := strings.TrimSuffix(p.file, path.Ext(p.file))
	return strings.NewReplacer("/", " ", "-", " ", "_", " ").Replace(name) + "\n" + p.section + "\n" + p.text
}

// Sizes of passages, in bytes: paragraphs are joined up to enough, and longer ones than most are split.
const (
	enough = 800
	most   = 1600
)

// maxDepth is the maximum number of nested headings in a section's name.
const maxDepth = 6

// divider splits a document.
type divider struct {
	file     string
	headings []string
	all      []passage

	text  []string // the lines of the current passage
	size  int      // in bytes
	first int      // line number of the first
	last  int      // line number of the last one that is not empty
}

// divide returns the passages of a document: a heading begins one, and paragraphs below a heading are joined.
func divide(file, text string) []passage {
	d := &divider{file: file}
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	fence := ""
	for i := frontMatter(lines); i < len(lines); i++ {
		line := strings.TrimRight(lines[i], " \t\r")
		trimmed := strings.TrimLeft(line, " \t")
		if mark := fenceOf(trimmed); mark != "" && (fence == "" || strings.HasPrefix(mark, fence) && mark == trimmed) {
			if fence == "" {
				fence = mark
			} else {
				fence = ""
			}
			d.add(i, line)
			continue
		}
		if fence != "" {
			d.add(i, line)
			continue
		}

		if level, title := d.heading(line); level > 0 {
			d.section(level, title)
			continue
		}
		if i+1 < len(lines) {
			if level := underlined(line, lines[i+1]); level > 0 {
				d.section(level, trimmed)
				i++
				continue
			}
		}
		if line == "" && d.size >= enough {
			d.end()
			continue
		}
		d.add(i, line)
	}
	d.end()
	return d.all
}

// frontMatter returns the number of lines of the front matter.
func frontMatter(lines []string) int {
	const longest = 100
	if strings.TrimSpace(lines[0]) != "---" {
		return 0
	}
	for i := 1; i < min(len(lines), longest); i++ {
		if strings.TrimSpace(lines[i]) == "---" {
			return i + 1
		}
	}
	return 0
}

// fenceOf returns the marks of a code fence. Code has no headings.
func fenceOf(line string) string {
	for _, mark := range []string{"`", "~"} {
		if rest := strings.TrimLeft(line, mark); len(line)-len(rest) >= 3 {
			return line[:len(line)-len(rest)]
		}
	}
	return ""
}

var (
	markdown = layer.Lazily(`^ {0,3}(#{1,6})[ \t]+(.*?)(?:[ \t]+#+)?$`)
	asciidoc = layer.Lazily(`^(={1,6}) +(.*)$`)
)

// heading returns the level and the text of a heading, 0 for another line.
func (d *divider) heading(line string) (level int, title string) {
	pattern := markdown()
	switch path.Ext(d.file) {
	case ".adoc":
		pattern = asciidoc()
	case ".rst", ".txt":
		return 0, ""
	}
	m := pattern.FindStringSubmatch(line)
	if m == nil {
		return 0, ""
	}
	return len(m[1]), m[2]
}

// underlined returns the level of a heading by the line below it, 0 for another line.
func underlined(line, below string) int {
	const marks = "=-~^\"+*"
	title, below := strings.TrimSpace(line), strings.TrimRight(below, " \t\r")
	if len(below) < 3 || title == "" || strings.ContainsAny(title[:1], "|>-+*`~=") {
		return 0
	}
	level := strings.IndexByte(marks, below[0]) + 1
	if level == 0 || strings.Trim(below, below[:1]) != "" {
		return 0
	}
	return level
}

// section begins a section.
func (d *divider) section(level int, title string) {
	d.end()
	level = min(level, maxDepth)
	for len(d.headings) < level-1 {
		d.headings = append(d.headings, "") // a level was skipped
	}
	d.headings = append(d.headings[:level-1:level-1], strings.TrimSpace(title))
}

// add appends a line to the current passage.
func (d *divider) add(number int, line string) {
	if d.size+len(line) > most && d.size > 0 {
		d.end()
	}
	if line == "" && len(d.text) == 0 {
		return
	}
	if len(d.text) == 0 {
		d.first = number + 1
	}
	for len(line) > most {
		head := layer.Head(line, most)
		if at := strings.LastIndex(head, ". "); at > most/2 {
			head = head[:at+1]
		}
		d.text, d.last = append(d.text, head), number+1
		d.end()
		line, d.first = strings.TrimLeft(line[len(head):], " "), number+1
	}
	d.text, d.size = append(d.text, line), d.size+len(line)+1
	if line != "" {
		d.last = number + 1
	}
}

// end ends the current passage.
func (d *divider) end() {
	text := strings.TrimSpace(strings.Join(d.text, "\n"))
	if text != "" {
		d.all = append(d.all, passage{d.file, d.name(), text})
	}
	d.text, d.size = d.text[:0], 0
}

// name returns the headings above the passage, or its line numbers if there are none.
func (d *divider) name() string {
	var titles []string
	for _, h := range d.headings {
		if h != "" {
			titles = append(titles, h)
		}
	}
	if len(titles) > 0 {
		return strings.Join(titles, " > ")
	}
	if d.first == d.last {
		return fmt.Sprintf("line %d", d.first)
	}
	return fmt.Sprintf("lines %d-%d", d.first, d.last)
}
