// Package tokens counts the tokens of text and items, by the vocabulary of the model.
//
// Counts of text equal those of OpenAI's tiktoken: the vocabularies are built in; splitting and merging are implemented
// here, in time linear in any text. The cost of an item beside its text is an estimate, since no upstream documents it;
// so are counts for models of other makers. The first count by a vocabulary waits some ten milliseconds until that is loaded: an
// estimate in its place would choose other views after a restart than before.
package tokens

import (
	"hash/maphash"
	"sync"

	"remora/wire"
)

const (
	// defaultMemo is room for the histories of some hundred conversations, in half a megabyte.
	defaultMemo = 1 << 16
	// minMemo is the shortest text, in bytes, whose count is cached: a shorter one is counted as fast.
	minMemo = 128
	// maxScratch is the largest text buffer that is kept for later use, in bytes.
	maxScratch = 1 << 20
)

// Counter counts tokens. It is safe for concurrent use.
type Counter struct {
	seed         maphash.Seed
	memo         memo
	vocabularies [encodings]func() *vocabulary // each is loaded by its first use
	walkers      sync.Pool                     // of *walker
}

// New returns a Counter that has loaded nothing yet.
func New() *Counter { return withMemo(defaultMemo) }

// withMemo is New with another number of remembered counts, 8 bytes each, at least one.
func withMemo(counts int) *Counter {
	c := &Counter{seed: maphash.MakeSeed(), memo: newMemo(counts), walkers: sync.Pool{New: func() any { return new(walker) }}}
	classes := sync.OnceValue(newClasses)
	for e := range encodings {
		c.vocabularies[e] = sync.OnceValue(func() *vocabulary {
			v, err := load(e, classes())
			if err != nil {
				panic("BUG: " + err.Error()) // it is part of the executable
			}
			return v
		})
	}
	return c
}

// Count returns the number of tokens of text for a model.
func (c *Counter) Count(model, text string) int {
	e := encodingOf(model)
	v := c.vocabularies[e]()
	if len(text) < minMemo {
		return c.count(v, text)
	}
	key := c.key(maphash.String(c.seed, text), e, 0)
	n, ok := c.memo.get(key)
	if !ok {
		n = c.count(v, text)
		c.memo.put(key, n)
	}
	return n
}

// CountItem returns what an item costs a model: its texts, names, arguments and results to the token, a flat sum for
// itself, for each call and for each image or file, never the data of one. The target of a reference is estimated by its
// size. The constants in item.go say how much.
func (c *Counter) CountItem(model string, it wire.Item) int {
	if it.Target > 0 {
		return itemTokens + estimate(int(it.Target))
	}
	e := encodingOf(model)
	key := c.key(maphash.Bytes(c.seed, it.Raw), e, 1+uint64(it.Dialect.Code())<<8|uint64(it.Kind))
	n, ok := c.memo.get(key)
	if !ok {
		n = c.countItem(c.vocabularies[e](), it)
		c.memo.put(key, n)
	}
	return n
}

func (c *Counter) countItem(v *vocabulary, it wire.Item) int {
	w := c.borrow()
	n := w.item(v, it)
	c.giveBack(w)
	return n
}

// key returns the key of a count. Its seed is drawn by this process, so that a caller cannot make two texts collide.
func (c *Counter) key(hash uint64, e encoding, what uint64) uint64 {
	return mix(hash ^ mix(uint64(e)<<32|what))
}

func (c *Counter) count(v *vocabulary, text string) int {
	w := c.borrow()
	w.v, w.text = v, append(w.text[:0], text...)
	n := w.count()
	c.giveBack(w)
	return n
}

func (c *Counter) borrow() *walker {
	w, _ := c.walkers.Get().(*walker)
	return w
}

func (c *Counter) giveBack(w *walker) {
	w.release()
	c.walkers.Put(w)
}

// estimate returns about how many tokens n bytes are: n / 3.6, rounded up.
func estimate(n int) int { return (n*5 + 17) / 18 }
