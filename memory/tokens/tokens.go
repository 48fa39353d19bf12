// Package tokens counts the tokens of text and items, by the vocabulary of the model.
//
// Counts of text equal those of OpenAI's tiktoken: the vocabularies are built in; splitting and merging are implemented
// here, in time linear in any text. The cost of an item beside its text is an estimate, since no upstream documents it;
// so are counts for models of other makers. Until a vocabulary is loaded, which its first use begins in the background,
// bytes are divided by 3.6.
package tokens

import (
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"unicode/utf8"

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

// Counter counts tokens. It is safe for concurrent use and must be closed.
type Counter struct {
	seed         maphash.Seed
	memo         memo
	classes      func() *classes
	vocabularies [encodings]lazy
	walkers      sync.Pool // of *walker

	mu      sync.Mutex // guards closed, and loading against being waited for while it grows
	closed  bool
	loading sync.WaitGroup
}

// lazy is a vocabulary that may not be there yet.
type lazy struct {
	v     atomic.Pointer[vocabulary]
	begun atomic.Bool // in the background, or not at all because the Counter is closed
	once  sync.Once
	err   error // set by once
}

// New returns a Counter that has loaded nothing yet.
func New() *Counter { return withMemo(defaultMemo) }

// withMemo is New with another number of remembered counts, 8 bytes each, at least one.
func withMemo(counts int) *Counter {
	return &Counter{
		seed:    maphash.MakeSeed(),
		memo:    newMemo(counts),
		classes: sync.OnceValue(newClasses),
		walkers: sync.Pool{New: func() any { return new(walker) }},
	}
}

// Load reads the vocabularies of models: once it has returned, counts are exact. It may run concurrently with counts and
// other loads. An error means that the executable is damaged; counts are estimates then.
func (c *Counter) Load(models ...string) error {
	var errs []error
	for _, m := range models {
		errs = append(errs, c.load(encodingOf(m)))
	}
	return errors.Join(errs...)
}

// Close waits for vocabularies that are loading, some ten milliseconds. Counting still works afterwards, with those
// that are loaded.
func (c *Counter) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.loading.Wait()
}

// Count returns the number of tokens of text for a model.
func (c *Counter) Count(model, text string) int {
	e := encodingOf(model)
	v := c.vocabulary(e)
	if v == nil {
		return estimate(len(text))
	}
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
	v := c.vocabulary(e)
	key := c.key(maphash.Bytes(c.seed, it.Raw), e, 1+uint64(it.Dialect.Code())<<8|uint64(it.Kind))
	if v != nil {
		if n, ok := c.memo.get(key); ok {
			return n
		}
	}
	n := c.countItem(v, it)
	if v != nil {
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
	if utf8.ValidString(text) {
		w.text = append(w.text[:0], text...)
	} else {
		w.text = w.text[:0]
		for _, r := range text { // each bad byte becomes U+FFFD, as it does on its way to a model
			w.text = utf8.AppendRune(w.text, r)
		}
	}
	n := v.count(&w.merger, w.text)
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

// vocabulary returns the vocabulary of an encoding. The first call begins to load it; until that is done, it is nil.
func (c *Counter) vocabulary(e encoding) *vocabulary {
	l := &c.vocabularies[e]
	if v := l.v.Load(); v != nil || l.begun.Swap(true) {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.loading.Go(func() { _ = c.load(e) }) // Load returns the error
	}
	return nil
}

func (c *Counter) load(e encoding) error {
	l := &c.vocabularies[e]
	l.once.Do(func() {
		v, err := load(e, c.classes())
		if l.err = err; err == nil {
			l.v.Store(v)
		}
	})
	return l.err
}

// estimate returns about how many tokens n bytes are: n / 3.6, rounded up.
func estimate(n int) int { return (n*5 + 17) / 18 }
