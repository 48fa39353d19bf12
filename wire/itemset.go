package wire

// ItemSet is a set of items by the memory of their bytes: an equal item that was read elsewhere is another one. Items without
// bytes are in none.
type ItemSet map[*byte]bool

// NewItemSet returns the set of some items.
func NewItemSet(items []Item) ItemSet {
	s := make(ItemSet, len(items))
	for i := range items {
		s.Add(items[i])
	}
	return s
}

// Add adds an item.
func (s ItemSet) Add(it Item) {
	if len(it.Raw) > 0 {
		s[&it.Raw[0]] = true
	}
}

// Has reports whether an item is in the set.
func (s ItemSet) Has(it Item) bool { return len(it.Raw) > 0 && s[&it.Raw[0]] }
