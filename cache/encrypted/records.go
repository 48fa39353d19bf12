package encrypted

import (
	"fmt"

	"remora/cache/spool"
)

// records encrypts those of a spool.
type records struct {
	spool.Records

	seal, open func(rec []byte) ([]byte, error)
}

// Append implements [spool.Records].
func (r *records) Append(rec []byte) (spool.Ref, error) {
	sealed, err := r.seal(rec)
	if err != nil {
		return 0, err
	}
	return r.Records.Append(sealed)
}

// Read implements [spool.Records].
func (r *records) Read(ref spool.Ref) ([]byte, error) {
	sealed, err := r.Records.Read(ref)
	if err != nil {
		return nil, err
	}
	rec, err := r.open(sealed)
	if err != nil {
		return nil, fmt.Errorf("read spool: %w", err)
	}
	return rec, nil
}

// Adopt implements [spool.Records].
func (r *records) Adopt(f func(ref spool.Ref, rec []byte) error) (spool.Adopted, error) {
	return r.Records.Adopt(func(ref spool.Ref, sealed []byte) error {
		rec, err := r.open(sealed)
		if err != nil {
			return fmt.Errorf("read spool: %w", err)
		}
		return f(ref, rec)
	})
}

// plain is the seal and the open of records that are not encrypted, and recognises encrypted records.
func plain(rec []byte) ([]byte, error) {
	if isSealed(rec) {
		return nil, errSealed
	}
	return rec, nil
}
