// Package seal encrypts what a [cache.Store] and a spool keep: values and records with AES-256-GCM, names of groups and
// values so that equal names stay equal and nothing else can be told.
//
// What an attacker who can read store, backup or disk still sees: owners (which are hashes of credentials), how many
// groups and values there are, how large they are, when they change, and the id of the key. One who can also write can
// delete, and can put back an older value of the same name, but can neither change nor invent one, nor move it to
// another name, group or owner.
package seal

// Sealer seals stores and spools. A nil Sealer seals nothing. It may be used by any number of goroutines.
type Sealer struct {
	ring   *ring
	names  *names
	accept bool
}

// New returns nil where o configures nothing, and the problems of o as [Options.Validate] does.
func New(o Options) (*Sealer, error) {
	if !o.Enabled() {
		return nil, nil
	}
	keys, namesKey, err := o.decode()
	if err != nil {
		return nil, err
	}
	s := &Sealer{accept: o.AcceptPlaintext}
	if s.ring, err = newRing(keys); err != nil {
		return nil, err
	}
	if s.names, err = newNames(namesKey); err != nil {
		return nil, err
	}
	return s, nil
}

// open reads a value that was read from the store, in its bytes.
func (s *Sealer) open(b, place []byte) ([]byte, error) {
	if s.accept && !isSealed(b) {
		return b, nil
	}
	return s.ring.open(b, place)
}
