package session

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"remora/cache"
	"remora/memory/media"
)

// values reads values of the session.
func (l *lab) values(names ...string) [][]byte {
	l.t.Helper()
	got, err := l.Read(context.Background(), []cache.Query{{Group: scope.Group(), Names: names}})
	if err != nil {
		l.t.Fatal(err)
	}
	return got[0].Values
}

// Large media are stored once per digest, and views, exports and imports have them as they were said.
func TestLargeMediaAreStoredOnce(t *testing.T) {
	l := newLab(t)
	picture := "u:" + strings.Repeat("x", media.Large)
	l.sees(HistoryServer, picture, "a:1")
	l.sees(HistoryServer, picture, "a:2")
	l.want("view", l.sees(HistoryServer, "u:3", "a:3"), strings.Join([]string{picture, "a:1", picture, "a:2", "u:3"}, " "))
	names := map[string]bool{}
	for _, name := range l.puts {
		if strings.HasPrefix(name, mediaPrefix) {
			names[name] = true
		}
	}
	if len(names) != 1 {
		t.Errorf("%d values of one picture", len(names))
	}
	for i, v := range l.values(itemName(1), itemName(3)) {
		if len(v) == 0 || len(v) > 300 {
			t.Errorf("message %d with the picture takes %d bytes besides", i+1, len(v))
		}
	}
	export := func(l *lab) []byte {
		var b bytes.Buffer
		if err := l.log.Export(context.Background(), scope, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	first, other := export(l), newLab(t)
	if n := bytes.Count(first, []byte(picture[2:])); n != 2 {
		t.Errorf("the export has the picture %d times", n)
	}
	if err := other.log.Import(context.Background(), scope, bytes.NewReader(first)); err != nil {
		t.Fatal(err)
	}
	if again := export(other); !bytes.Equal(again, first) || len(other.values(itemName(1))[0]) > 300 {
		t.Error("the export of the import is another, or holds the picture in its items")
	}
}

// A turn that takes its input back, to write it after another one's, leaves what both have said.
func TestRetractedMediaStay(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:0", "a:0")
	picture := "u:" + strings.Repeat("x", media.Large)
	one, two := l.enter(HistoryServer, picture), l.enter(HistoryServer, picture)
	l.commit(one, "") // the inputs alone, before the answers
	l.commit(two, "")
	l.commit(two, "a:2")
	l.commit(one, "a:1")
	if got := l.sees(HistoryServer, "u:3", "a:3"); !strings.Contains(got, picture+" a:2") || !strings.HasSuffix(got, "u:3") {
		t.Errorf("view %.60s...", strings.ReplaceAll(got, picture, "u:picture"))
	}
}

// An item without its pieces is damaged, and told to be.
func TestMissingMedia(t *testing.T) {
	l := newLab(t)
	l.sees(HistoryServer, "u:"+strings.Repeat("x", media.Large), "a:1")
	for _, name := range l.puts {
		if strings.HasPrefix(name, mediaPrefix) {
			l.Commit(context.Background(), []cache.Batch{{Group: scope.Group(), Expect: cache.AnyVersion, Deletes: []string{name}}})
		}
	}
	if _, err := l.log.transcript(scope).items(context.Background(), 1, 2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without its picture: %v", err)
	}
}
