package inmemory

import (
	"testing"
	"time"

	"remora/cache"
)

// TestDeletedValuesAreDropped: what is deleted takes no memory until its time to live is over.
func TestDeletedValuesAreDropped(t *testing.T) {
	t.Parallel()
	s := New(cache.Options{})
	g := cache.Group{Owner: "o", Name: "n"}
	put := cache.Batch{Group: g, Puts: []cache.Put{{Name: "v", Data: []byte("x")}}, TTL: time.Hour}
	if err := s.Commit(t.Context(), []cache.Batch{put})[0].Err; err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	for _, e := range s.expiry {
		if len(e.group.values) > 0 {
			t.Errorf("%v still has its values", e.name)
		}
	}
}
