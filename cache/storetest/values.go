package storetest

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"remora/cache"
)

func testReadYourWrites(s *suite) {
	g := s.group("g")
	s.want(g, 0, []string{"a", "b"}, nil, nil)
	s.version(g, 1, s.commit(put(g, "a", "1", "b", "2")))
	s.want(g, 1, []string{"b", "a", "none", "a"}, []byte("2"), []byte("1"), nil, []byte("1"))
	v := s.version(g, 2, s.commit(put(g, "a", "3")))
	s.want(g, 2, []string{"a", "b"}, []byte("3"), []byte("2"))
	v = s.version(g, 3, s.commit(cache.Batch{Group: g, Expect: v}))
	s.want(g, 3, nil)

	got, err := s.Read(s.Context(), []cache.Query{{Group: s.group("none"), Names: []string{"a"}}, {Group: g, Names: []string{"a"}}})
	want := []cache.Result{{Values: [][]byte{nil}}, {Version: v, Values: [][]byte{[]byte("3")}}}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		s.Fatalf("two queries: %v\n%s", err, d)
	}
	if got, err := s.Read(s.Context(), nil); err != nil || len(got) != 0 {
		s.Fatalf("no queries: %v, %v", got, err)
	}
	if got := s.Commit(s.Context(), nil); len(got) != 0 {
		s.Fatalf("no batches: %v", got)
	}
}

func testMissingIsNotEmpty(s *suite) {
	g := s.group("g")
	s.commit(cache.Batch{Group: g, Puts: []cache.Put{{Name: "empty", Data: []byte{}}, {Name: "nil"}, {Name: ""}}})
	s.want(g, 1, []string{"empty", "nil", "", "missing"}, []byte{}, []byte{}, []byte{}, nil)
}

func testResultsBelongToCaller(s *suite) {
	g := s.group("g")
	data := []byte("abc")
	s.commit(cache.Batch{Group: g, Puts: []cache.Put{{Name: "a", Data: data}, {Name: "b", Data: data}}})
	data[0] = 'x' // callers may reuse their buffers
	got := s.read(g, "a", "b")
	if string(got.Values[0]) != "abc" {
		s.Fatalf("the store kept the caller's slice: %q", got.Values[0])
	}
	got.Values[0][0] = 'y'
	_ = append(got.Values[0], "zzzz"...)
	if string(got.Values[1]) != "abc" {
		s.Fatalf("values share memory: %q", got.Values[1])
	}
	s.want(g, 1, []string{"a"}, []byte("abc"))
}

func testDeletesBeforePuts(s *suite) {
	g := s.group("g")
	s.commit(put(g, "a", "1", "b", "1", "c", "1"))
	b := put(g, "b", "2", "d", "2", "d", "3")
	b.Deletes = []string{"a", "b", "never"}
	v := s.commit(b)
	s.want(g, 2, []string{"a", "b", "c", "d"}, nil, []byte("2"), []byte("1"), []byte("3"))
	s.commit(cache.Batch{Group: g, Expect: v, Deletes: []string{"b", "c", "d"}})
	s.want(g, 3, []string{"b", "c", "d"}, nil, nil, nil) // without values, but it exists
}

// awkward returns identifiers that have broken key schemes.
func awkward() []string {
	return []string{
		"", "a", "a:b", ":", "::", "{", "}", "{}", "{a}", "a{b}c", "\x00", "a\x00", "\x00a", "a\x00b", "v", "l", ".", ".v", "..",
		"*", "r1:{a:b}", "\xff", "\xff\xfe", "a\r\nb", "$-1\r\n", "\"", "~", "=", "=YQ", "YQ", "~a", "A", "é", "e\u0301", " ", "a ",
		strings.Repeat("x", 48), strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat(":", 48), strings.Repeat(":", 49),
		strings.Repeat("x", 254), strings.Repeat("x", 255), strings.Repeat("x", 256), strings.Repeat("\x00", 256),
		strings.Repeat("x", 40000), strings.Repeat("x", 40001),
	}
}

func testBinarySafe(s *suite) {
	g := s.group("g")
	names := awkward()
	b := cache.Batch{Group: g}
	want := make([][]byte, len(names))
	for i, name := range names {
		want[i] = fmt.Appendf(nil, "%d\r\n\x00{:}%s", i, name)
		b.Puts = append(b.Puts, cache.Put{Name: name, Data: want[i]})
	}
	big := bytes.Repeat([]byte("0123456789abcde\x00"), 1<<16)
	b.Puts = append(b.Puts, cache.Put{Name: "big", Data: big})
	s.commit(b)
	s.want(g, 1, append(names, "big"), append(want, big)...)
}

func testCraftedGroupsNeverMeet(s *suite) {
	ids := awkward()
	var batches []cache.Batch
	var queries []cache.Query
	for _, owner := range ids {
		for _, name := range ids[:len(ids)/2] {
			g := cache.Group{Owner: s.owner + owner, Name: name}
			batches = append(batches, put(g, "a", fmt.Sprintf("%q of %q", name, owner)))
			queries = append(queries, cache.Query{Group: g, Names: []string{"a"}})
		}
		batches = append(batches, put(cache.Group{Owner: s.owner, Name: owner}, "a", fmt.Sprintf("%q", owner)))
		queries = append(queries, cache.Query{Group: cache.Group{Owner: s.owner, Name: owner}, Names: []string{"a"}})
	}
	want := map[cache.Group]string{}
	for i, o := range s.Commit(s.Context(), batches) {
		if o.Err != nil {
			s.Fatalf("commit %q: %v", batches[i].Group, o.Err)
		}
		want[batches[i].Group] = string(batches[i].Puts[0].Data)
	}
	got, err := s.Read(s.Context(), queries)
	if err != nil {
		s.Fatal(err)
	}
	for i, r := range got {
		if g := queries[i].Group; string(r.Values[0]) != want[g] {
			s.Fatalf("group %q holds what belongs to another: %q", g, r.Values[0])
		}
	}
}

func testBigCommit(s *suite) {
	const n = 3000
	g := s.group("g")
	names := numbered("n", n)
	b := cache.Batch{Group: g}
	want := make([][]byte, n)
	for i, name := range names {
		want[i] = []byte("value of " + name)
		b.Puts = append(b.Puts, cache.Put{Name: name, Data: want[i]})
	}
	v := s.commit(b)
	s.want(g, 1, names, want...)
	b = cache.Batch{Group: g, Expect: v, Deletes: names[:n-1]}
	b.Puts = append(b.Puts, cache.Put{Name: "new", Data: []byte("1")})
	s.commit(b)
	s.want(g, 2, []string{names[0], names[n-2], names[n-1], "new"}, nil, nil, want[n-1], []byte("1"))
}
