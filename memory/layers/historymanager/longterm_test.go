package historymanager

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"remora/memory/layer"
	"remora/wire"
)

func contents(entries []Entry, _ error) []string {
	var texts []string
	for _, e := range entries {
		texts = append(texts, e.Content)
	}
	return texts
}

func TestFilters(t *testing.T) {
	at := func(s int) int64 { return start.Add(time.Duration(s) * time.Second).UnixMilli() }
	all := Memories{
		{Type: Fact, Content: "tea red", Agent: "x", User: "ann", Conversation: "A", At: at(0)},
		{Type: Summary, Content: "tea blue", Agent: "x", User: "ann", Conversation: "B", At: at(1)},
		{Type: Instruction, Content: "tea green", Agent: "y", User: "bob", Conversation: "C", At: at(2)},
	}
	for _, c := range []struct {
		name string
		f    Filters
		want []string // best first; all match alike, so the newest
	}{
		{"none", Filters{}, []string{"tea green", "tea blue", "tea red"}},
		{"conversation A's are not recalled for B", Filters{Conversation: "B"}, []string{"tea blue"}},
		{"agent", Filters{Agent: "x"}, []string{"tea blue", "tea red"}},
		{"user", Filters{User: "bob"}, []string{"tea green"}},
		{"types", Filters{Types: []Type{Fact, Instruction}}, []string{"tea green", "tea red"}},
		{"no types are all", Filters{Types: []Type{}}, []string{"tea green", "tea blue", "tea red"}},
		{"strictly newer", Filters{After: start.Add(time.Second)}, []string{"tea green"}},
		{"all at once", Filters{User: "ann", Types: []Type{Fact}, After: start.Add(-time.Second)}, []string{"tea red"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, contents(all.search("tea", 10, c.f, start), nil)); diff != "" {
				t.Error(diff)
			}
			left := slices.Clone(all)
			n, err := left.Forget(t.Context(), c.f)
			if found := left.search("tea", 10, c.f, start); err != nil || n != len(c.want) || len(left) != len(all)-n || found != nil {
				t.Errorf("forgot %d, left %v: %v", n, left, err)
			}
		})
	}
}

func TestRecallFrom(t *testing.T) {
	s := kept(t, nil, Entry{Type: Fact, Content: "tea K", User: "ann", Conversation: "A"}, Entry{Type: Fact, Content: "tea B", User: "ann", Conversation: "B"},
		Entry{Type: Custom, Content: "tea C", User: "bob", Conversation: "C", Agent: "helper", At: start.UnixMilli()})
	for _, c := range []struct {
		o        Options
		resource string
		want     string
	}{
		{Options{}, "ann", "B C K"},
		{Options{RecallFrom: FromUser}, "ann", "B K"},
		{Options{RecallFrom: FromUser}, "", "K"},
		{Options{RecallFrom: FromConversation}, "ann", "K"},
		{Options{MemoryTypes: []string{"fact"}}, "ann", "B K"},
		{Options{MemoryMaxAge: time.Hour}, "ann", "C"},
		{Options{AgentID: "helper"}, "ann", "C"},
	} {
		c.o.EnableLongTermMemory = true
		tu := asking("tea")
		tu.Resource = c.resource
		var got []string
		for line := range strings.Lines(recall(t, open(t, c.o), tu, s, 1000)) {
			if _, name, ok := strings.Cut(strings.TrimSpace(line), "tea "); ok {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if have := strings.Join(got, " "); have != c.want {
			t.Errorf("%+v, resource %q: %s, want %s", c.o, c.resource, have, c.want)
		}
	}
}

func TestRanking(t *testing.T) {
	m := Memories{
		fact("Ann planned the trip to Oslo and then the trip home"), fact("The user likes trips"), fact("Ann has a dog"),
		fact("予算は四千ユーロです"), fact("Der Hund heißt Bello"), fact("Ann and Bob"), fact("Grandma bought a boat"),
	}
	for _, c := range []struct {
		query string
		topK  int
		want  []string
	}{
		{"Where does Ann plan to go? Oslo?", 1, []string{m[0].Content}},
		{"planning trips", 5, []string{m[0].Content, m[1].Content}},
		{"dogs", 5, []string{m[2].Content}},
		{"予算はいくら", 5, []string{m[3].Content}},
		{"What would grandma buy?", 1, []string{m[6].Content}}, // an irregular form
		{"HUND", 5, []string{m[4].Content}},
		{"what is the and of to", 5, nil},
		{"?!", 5, nil},
		{"ann", 0, nil},
		{strings.Repeat("x ", 1<<20) + "ann", 5, nil},
	} {
		if diff := cmp.Diff(c.want, contents(m.search(c.query, c.topK, Filters{}, start), nil)); diff != "" {
			t.Errorf("%.40q: %s", c.query, diff)
		}
	}
}

// TestRecallByDate: "yesterday" is the day before the question, not before the newest memory.
func TestRecallByDate(t *testing.T) {
	day := func(n int) int64 { return start.AddDate(0, 0, n).UnixMilli() }
	m := Memories{
		{Type: Fact, Content: "The tea was green.", At: day(-3)}, {Type: Fact, Content: "The tea was black.", At: day(-2)}, {Type: Fact, Content: "The tea was white.", At: day(-1)},
	}
	tu := turn()
	tu.Now = start
	found, err := BuiltIn(tu, &m).Recall(t.Context(), "Which tea did I drink yesterday?", 1, Filters{})
	if diff := cmp.Diff([]string{"The tea was white."}, contents(found, err)); diff != "" {
		t.Error(diff)
	}
	tu.Now = start.AddDate(0, 0, -1)
	found, err = BuiltIn(tu, &m).Recall(t.Context(), "Which tea did I drink yesterday?", 1, Filters{})
	if diff := cmp.Diff([]string{"The tea was black."}, contents(found, err)); diff != "" {
		t.Error(diff)
	}
}

func TestTools(t *testing.T) {
	l := open(t, Options{EnableLongTermMemory: true, MemoryTools: true})
	run := map[string]func(args string, s layer.State) (string, layer.State, error){}
	for _, tool := range l.Tools() {
		run[tool.Name] = func(args string, s layer.State) (string, layer.State, error) {
			return tool.Run(t.Context(), turn(), s, []byte(args))
		}
	}
	var s layer.State
	var err error
	for _, args := range []string{`{"content":"Ann drinks tea","type":"fact"}`, `{"content":"Be brief","type":"instruction"}`, `{"content":"Ann drinks tea","type":"fact"}`} {
		if _, s, err = run["remember"](args, s); err != nil {
			t.Fatal(err)
		}
	}
	st := decode(s)
	want := Memories{
		{Type: Instruction, Content: "Be brief", User: "ann", Conversation: "A", At: start.UnixMilli()},
		{Type: Fact, Content: "Ann drinks tea", User: "ann", Conversation: "A", At: start.UnixMilli()},
	}
	if diff := cmp.Diff(want, st.Memories); diff != "" {
		t.Error(diff)
	}
	if _, with, err := run["remember"](`{"content":"Ann's password is hunter2","type":"fact"}`, s); err != nil || strings.Contains(string(with), "hunter2") {
		t.Errorf("remember a secret: kept %s, %v", with, err)
	}
	for _, args := range []string{`{"content":"","type":"fact"}`, `{"content":"x","type":"summary"}`, `{"content":"x","type":"y"}`, `[`} {
		if _, _, err := run["remember"](args, s); err == nil {
			t.Errorf("remember %s: no error", args)
		}
	}
	if _, _, err := run["forget"](`{}`, s); err == nil {
		t.Error("forget everything: no error")
	}
	said, next, err := run["forget"](`{"type":"fact"}`, s)
	if st := decode(next); err != nil || said != "Forgot 1." || len(st.Memories) != 1 {
		t.Errorf("%s, %v, %v", said, st, err)
	}
	st.Chapters = []chapter{{Conversation: "A", Parts: []string{"of A"}}, {Conversation: "B", Parts: []string{"of B"}}}
	_ = st.Memories.Store(t.Context(), Entry{Type: Fact, Content: "of B", Conversation: "B"})
	if s, err = st.encode(); err != nil {
		t.Fatal(err)
	}
	said, next, err = run["forget"](`{"this_conversation":true}`, s)
	if st := decode(next); err != nil || said != "Forgot 2." || len(st.Memories) != 1 || len(st.Chapters) != 1 || len(st.find("B").Parts) != 1 {
		t.Errorf("%s, %+v, %v", said, st, err)
	}
}

// elsewhere is a long-term memory that is not in the layer's state.
type elsewhere struct {
	Memories
	fails bool
}

var errElsewhere = errors.New("unreachable")

func (e *elsewhere) Store(ctx context.Context, entry Entry) error {
	if e.fails {
		return errElsewhere
	}
	return e.Memories.Store(ctx, entry)
}

func (e *elsewhere) Recall(_ context.Context, query string, topK int, f Filters) ([]Entry, error) {
	if e.fails {
		return nil, errElsewhere
	}
	return e.search(query, topK, f, start), nil
}

func (e *elsewhere) Forget(ctx context.Context, f Filters) (int, error) {
	if e.fails {
		return 0, errElsewhere
	}
	return e.Memories.Forget(ctx, f)
}

// TestAnotherBackend: summaries and what the model remembers go to another long-term memory, are recalled from it and
// forgotten in it; one that fails hides no summary, and what it has is not taken for forgotten.
func TestAnotherBackend(t *testing.T) {
	b := &elsewhere{}
	l, err := NewWith(Options{EnableSummarization: true, EnableLongTermMemory: true, MemoryTools: true}, func(*layer.Turn, *Memories) Backend { return b })
	if err != nil {
		t.Fatal(err)
	}
	s, err := evicted(t.Context(), l, turn(), nil, []wire.Item{says(wire.User, "I drink tea. My password is hunter2.")})
	if err != nil {
		t.Fatal(err)
	}
	if _, s, err = l.runRemember(t.Context(), turn(), s, []byte(`{"content":"tea is hot","type":"fact"}`)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(s), "memories") || strings.Contains(string(s), "hunter2") || len(b.Memories) != 2 || strings.Contains(b.Memories[0].Content, "hunter2") {
		t.Fatalf("state %s, elsewhere %v", s, b.Memories)
	}
	if text := recall(t, l, asking("tea"), s, 1000); !strings.Contains(text, "- [fact] tea is hot") || strings.Contains(text, "- [summary]") {
		t.Errorf("told %q", text)
	}

	b.fails = true
	if text := recall(t, l, asking("tea"), s, 1000); !strings.Contains(text, "I drink tea.") || strings.Contains(text, "tea is hot") {
		t.Errorf("of a memory that fails: %q", text)
	}
	gone := func(digest string) bool { return digest == layer.Digest("A") }
	if _, err := l.Forget(t.Context(), turn(), s, gone); !errors.Is(err, errElsewhere) {
		t.Errorf("forget: %v", err)
	}
	b.fails = false
	if s, err = l.Forget(t.Context(), turn(), s, gone); err != nil || len(s) > 0 || len(b.Memories) > 0 {
		t.Errorf("after forget: %s, %v, %v", s, b.Memories, err)
	}
}

// TestRolledUpOnce: a conversation has one summary in long-term memory, however often it was extended, and a model that fails for long
// leaves a state that is bounded.
func TestRolledUpOnce(t *testing.T) {
	l := open(t, Options{EnableSummarization: true, EnableLongTermMemory: true})
	said := make([]wire.Item, batchLines)
	for i := range said {
		said[i] = says(wire.User, strings.Repeat("tea ", 30))
	}
	var s layer.State
	var err error
	for _, text := range []string{"first", "second"} {
		tu := turn()
		tu.Ask = answers(text)
		if s, err = evicted(t.Context(), l, tu, s, said[:3]); err != nil {
			t.Fatal(err)
		}
		if s, err = evicted(t.Context(), l, tu, s, said); err != nil {
			t.Fatal(err)
		}
		st := decode(s)
		if diff := cmp.Diff([]string{text}, contents(st.Memories, nil)); diff != "" {
			t.Error(diff)
		}
	}
	for range 50 {
		tu := turn()
		tu.Ask = answers("")
		s, _ = evicted(t.Context(), l, tu, s, said)
	}
	st := decode(s)
	if c := st.find("A"); c.waiting() > maxPending || len(c.Pending) > maxLines || c.Parts[0] != "second" {
		t.Errorf("%d bytes wait in %d lines", c.waiting(), len(c.Pending))
	}
}
