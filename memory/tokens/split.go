package tokens

// A vocabulary cuts text into pieces by a regular expression before it merges bytes, and no merge crosses a cut. The
// expressions are matched here by hand, because a backtracking engine takes ten times as long as all the rest. Each
// function returns where the piece ends that begins at b[i]; i is less than len(b), and so is i less than the result.
// Every character is looked at a bounded number of times, however the text is made.

// splitter finds the end of the piece that begins at b[i].
type splitter func(c *classes, b []byte, i int) int

// Sets of classes that the patterns name.
const (
	wordHead = upper | caseless | mark // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	wordTail = lower | caseless | mark // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	wordBoth = wordHead & wordTail
	notOther = letter | number | space | end // the complement of [^\s\p{L}\p{N}]
)

// splitO200k matches the pattern of o200k_base, alternative by alternative:
//
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n/]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func splitO200k(c *classes, b []byte, i int) int {
	first, size := c.at(b, i)
	if first&(newline|number) == 0 {
		start := i + size
		if first&letter != 0 {
			start = i
		}
		word, capitals := c.word(b, start)
		switch {
		case word > start:
			return afterContraction(b, word)
		case first&mark != 0:
			// The mark is taken for the character before a word first. There is none, so it is a word by itself.
			return afterContraction(b, i+size)
		case capitals > start:
			return afterContraction(b, capitals)
		}
	}
	if first&number != 0 {
		return c.digits(b, i)
	}
	if e := c.symbols(b, i); e > i {
		for e < len(b) && (b[e] == '\r' || b[e] == '\n' || b[e] == '/') {
			e++
		}
		return e
	}
	return c.blank(b, i)
}

// word matches the words of o200k_base's first two alternatives at b[i]. word is where the first ends, i if it does not
// match; capitals is where the second ends in that case.
func (c *classes) word(b []byte, i int) (word, capitals int) {
	word = i
	k, size := c.at(b, i)
	for k&wordHead != 0 {
		i += size
		if k&wordBoth != 0 {
			word = i // the head gives back what comes after this, so that the tail has its one character
		}
		k, size = c.at(b, i)
	}
	if k&wordTail != 0 {
		return c.run(b, i, wordTail), i
	}
	return word, i
}

// splitCl100k matches the pattern of cl100k_base, alternative by alternative:
//
//	(?i:'s|'t|'re|'ve|'m|'ll|'d)
//	[^\r\n\p{L}\p{N}]?\p{L}+
//	\p{N}{1,3}
//	 ?[^\s\p{L}\p{N}]+[\r\n]*
//	\s*[\r\n]+
//	\s+(?!\S)
//	\s+
func splitCl100k(c *classes, b []byte, i int) int {
	if e := afterContraction(b, i); e > i {
		return e
	}
	first, size := c.at(b, i)
	if first&number != 0 {
		return c.digits(b, i)
	}
	if first&newline == 0 {
		if e := c.run(b, i+size, letter); e > i+size || first&letter != 0 {
			return e
		}
	}
	if e := c.symbols(b, i); e > i {
		for e < len(b) && (b[e] == '\r' || b[e] == '\n') {
			e++
		}
		return e
	}
	return c.blank(b, i)
}

// digits matches \p{N}{1,3} at a number.
func (c *classes) digits(b []byte, i int) int {
	for range 3 {
		k, size := c.at(b, i)
		if k&number == 0 {
			break
		}
		i += size
	}
	return i
}

// symbols matches ` ?[^\s\p{L}\p{N}]+`; it returns i where that does not match.
func (c *classes) symbols(b []byte, i int) int {
	e := i
	if b[i] == ' ' {
		e++
	}
	start := e
	for {
		k, size := c.at(b, e)
		if k&notOther != 0 {
			break
		}
		e += size
	}
	if e == start {
		return i
	}
	return e
}

// blank matches `\s*[\r\n]+|\s+(?!\S)|\s+` at white space.
func (c *classes) blank(b []byte, i int) int {
	e, last, lines := i, i, i
	for {
		k, size := c.at(b, e)
		if k&space == 0 {
			break
		}
		last = e
		e += size
		if k&newline != 0 {
			lines = e
		}
	}
	switch {
	case lines > i: // up to the last line break
		return lines
	case e < len(b) && last > i: // the last one belongs to what follows
		return last
	default:
		return e
	}
}

// afterContraction returns where (?i:'s|'t|'re|'ve|'m|'ll|'d) ends at b[i]; i where there is none.
func afterContraction(b []byte, i int) int {
	if i+1 >= len(b) || b[i] != '\'' {
		return i
	}
	const toLower = 'a' - 'A'
	switch b[i+1] | toLower {
	case 's', 't', 'm', 'd':
		return i + 2
	case 'r', 'v':
		if i+2 < len(b) && b[i+2]|toLower == 'e' {
			return i + 3
		}
	case 'l':
		if i+2 < len(b) && b[i+2]|toLower == 'l' {
			return i + 3
		}
	}
	return i
}
