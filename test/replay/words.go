package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// words generates text as coding agents read and write it, from a seed.
type words struct{ *rand.Rand }

const instructions = `You are a coding agent in the terminal of a developer. You read files, search, edit and run commands
through tools, and you work until the task is done or you need an answer.

- Read before you change. Keep changes small and in the manner of the file that you are in.
- Run the tests of what you changed. A test that fails is a finding, not an obstacle.
- Call several tools at once where none needs the result of another.
- Never write credentials into files or commands. Never push.
- Say what you did at the end, in a few sentences, with the files that you changed.`

func agentTools() []object {
	text := func(what string) object { return object{"type": "string", "description": what} }
	number := func(what string) object { return object{"type": "integer", "description": what} }
	function := func(name, what string, required []string, properties object) object {
		return object{"name": name, "description": what, "parameters": object{
			"type": "object", "properties": properties, "required": required, "additionalProperties": false,
		}}
	}
	return []object{
		function("read_file", "Read lines of a file.", []string{"path"},
			object{"path": text("from the root of the project"), "offset": number("first line, from 1"), "limit": number("lines at most")}),
		function("shell", "Run a command in the project and return what it prints.", []string{"command"},
			object{"command": text("for sh"), "timeout_ms": number("after which it is ended")}),
		function("grep", "Find lines that match a regular expression.", []string{"pattern"},
			object{"pattern": text("RE2"), "path": text("folder or file")}),
		function("edit_file", "Replace a piece of a file that occurs once.", []string{"path", "old", "new"},
			object{"path": text("from the root of the project"), "old": text("exactly as it stands"), "new": text("what stands there then")}),
		function("list_files", "List a folder.", []string{"path"}, object{"path": text("from the root of the project")}),
	}
}

var (
	nouns   = strings.Fields("session index buffer window cursor token header request reply store cache lease worker queue batch record schema policy route handler")
	verbs   = strings.Fields("load store merge split parse encode decode flush close open resolve match append trim count watch retry drain")
	folders = strings.Fields("cmd/server internal/store internal/api pkg/client web/src tests docs deploy")
	ends    = strings.Fields("go ts py go sql md go yaml")
	reasons = []string{
		"the lock is held while the reply is written", "two workers may see the same lease", "the header is parsed before its length is known",
		"an empty batch is taken for the end", "the cursor is kept as a 32 bit number", "the cache is filled before the schema is read",
		"the retry has no bound", "a closed queue still takes records",
	}
)

func (w words) pick(list []string) string { return list[w.IntN(len(list))] }

// identifier returns one of ten thousand identifiers, so that the same one hardly occurs twice by chance.
func (w words) identifier() string {
	verb, of, noun := w.pick(verbs), w.pick(nouns), w.pick(nouns)
	return verb + strings.ToUpper(of[:1]) + of[1:] + strings.ToUpper(noun[:1]) + noun[1:]
}

func (w words) path() string {
	return fmt.Sprintf("%s/%s_%s.%s", w.pick(folders), w.pick(nouns), w.pick(verbs), w.pick(ends))
}

// file returns one of the session's files, mostly one of the current five.
func (g *author) file() string {
	if g.IntN(100) < 8 {
		return g.pick(g.files)
	}
	return g.files[(g.answer/12+g.IntN(5))%len(g.files)]
}

func (w words) command() string {
	return []string{
		"go test ./" + w.pick(folders) + "/...", "go build ./... && go vet ./...", "git diff --stat", "git log --oneline -20 -- " + w.path(),
		"make lint", "npm test -- " + w.pick(nouns), "python -m pytest -q tests/test_" + w.pick(nouns) + ".py",
	}[w.IntN(7)]
}

func (w words) clause() string {
	return fmt.Sprintf("%s has to %s the %s before the %s", w.identifier(), w.pick(verbs), w.pick(nouns), w.pick(nouns))
}

// remark returns a sentence of the user. author.sentence returns one of the model.
func (w words) remark() string {
	return []string{
		"The failure comes from " + w.identifier() + ": " + w.pick(reasons) + ".",
		"I decided to keep " + w.identifier() + " as it is, because " + w.pick(reasons) + ".",
		"Next I look at " + w.path() + ", where " + w.clause() + ".",
		fmt.Sprintf("The test of %s takes %d ms and fails in %d of 50 runs.", w.identifier(), 20+w.IntN(900), 1+w.IntN(9)),
		"The " + w.pick(nouns) + " and the " + w.pick(nouns) + " disagree, since " + w.pick(reasons) + ".",
		"I will " + w.pick(verbs) + " the " + w.pick(nouns) + " first and then run the tests.",
	}[w.IntN(6)]
}

func (w words) remarks(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = w.remark()
	}
	return strings.Join(all, " ")
}

func (w words) goal() string { return w.pick(verbs) + " the " + w.pick(nouns) + ": " + w.pick(reasons) }

func (w words) task(i int) string {
	openings := []string{
		"Please find out why %s is slow. I prefer small commits and table tests.",
		"Good. Now change %s so that it survives a restart, and write a test for it.",
		"The tests of %s fail on my machine since Monday. Please fix them, and tell me the cause.",
		"That is what I meant. Do the same for %s.",
		"One more thing: %s must not block for more than 50 ms. We decided that with the operations team.",
	}
	return fmt.Sprintf(openings[i%len(openings)], w.identifier()) + " " + w.remarks(2)
}

// lines calls line until there are n bytes.
func lines(n int, line func(i int) string) string {
	var b strings.Builder
	b.Grow(n + 128)
	for i := 1; b.Len() < n; i++ {
		b.WriteString(line(i))
		b.WriteByte('\n')
	}
	return b.String()
}

func (w words) code(n int) string {
	return lines(n, func(i int) string {
		switch w.IntN(7) {
		case 0:
			return fmt.Sprintf("func (%c *%s) %s(ctx context.Context, %s string) (%s, error) {", "srqw"[w.IntN(4)], w.pick(nouns), w.identifier(), w.pick(nouns), w.pick(nouns))
		case 1:
			return fmt.Sprintf("\tif err := %s(ctx, %s, %d); err != nil {", w.identifier(), w.pick(nouns), w.IntN(4096))
		case 2:
			return fmt.Sprintf("\t\treturn nil, fmt.Errorf(%q, err)", w.pick(verbs)+" "+w.pick(nouns)+": %w")
		case 3:
			return "\t}"
		case 4:
			return fmt.Sprintf("\t// %s. See line %d.", w.clause(), i)
		case 5:
			return fmt.Sprintf("\t%s := make([]%s, 0, len(%ss))", w.pick(nouns), w.pick(nouns), w.pick(nouns))
		default:
			return fmt.Sprintf("\t%s.%s(%s[%d:], %q)", w.pick(nouns), w.identifier(), w.pick(nouns), w.IntN(64), w.pick(nouns))
		}
	})
}

func (w words) log(n int) string {
	return lines(n, func(i int) string {
		switch w.IntN(4) {
		case 0:
			return fmt.Sprintf("--- PASS: Test%s (%d.%02ds)", w.identifier(), w.IntN(3), w.IntN(100))
		case 1:
			return fmt.Sprintf("    %s:%d: got %d, want %d: %s", w.path(), 10+w.IntN(800), w.IntN(1000), w.IntN(1000), w.pick(reasons))
		case 2:
			return fmt.Sprintf("2026-11-%02dT%02d:%02d:%02dZ INFO %s took %d ms for %d records", 1+w.IntN(28), w.IntN(24), w.IntN(60), w.IntN(60), w.identifier(), w.IntN(5000), w.IntN(100000))
		default:
			return fmt.Sprintf("ok  \texample.com/%s\t%d.%03ds # %d", w.pick(folders), w.IntN(9), w.IntN(1000), i)
		}
	})
}

func (w words) matches(n int) string {
	return lines(n, func(int) string {
		return fmt.Sprintf("%s:%d:\t%s := %s(ctx, %s)", w.path(), 1+w.IntN(900), w.pick(nouns), w.identifier(), w.pick(nouns))
	})
}

func (w words) listing(n int) string {
	return lines(n, func(int) string { return fmt.Sprintf("%6d  %s", w.IntN(90000), w.path()) })
}
