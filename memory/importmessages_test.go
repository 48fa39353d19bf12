package memory_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"remora/cache"
	"remora/memory"
)

// messageFile makes lines of a file of messages: "u:hello@2" is said two hours after midnight, "#s,r" begins session s of resource r.
func messageFile(words string) string {
	var b strings.Builder
	for w := range strings.FieldsSeq(words) {
		if name, ok := strings.CutPrefix(w, "#"); ok {
			session, resource, _ := strings.Cut(name, ",")
			fmt.Fprintf(&b, `{"session":%q,"resource":%q}`+"\n", session, resource)
			continue
		}
		said, hour, timed := strings.Cut(w, "@")
		b.WriteString(`{"message":` + say(said))
		if timed {
			fmt.Fprintf(&b, `,"time":"2023-05-08T0%s:00:00Z"`, hour)
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// turnsOf describes a session turn by turn: the hour of each, its input, and after a bar its answer.
func (l *lab) turnsOf(session string) string {
	l.t.Helper()
	hours, turns, said := map[string]time.Time{}, []string{}, map[string]string{}
	err := l.m.Walk(l.t.Context(), memory.Scope{Tenant: "tenant", Session: session}, func(line memory.ExportLine) error {
		switch {
		case line.Item != nil:
			if said[line.Item.Turn] == "" {
				turns = append(turns, line.Item.Turn)
			}
			said[line.Item.Turn] += " " + string(line.Item.Bytes())
		case line.Turn != nil:
			var r struct {
				ID   string
				Time time.Time
			}
			if err := json.Unmarshal(line.Turn, &r); err != nil {
				return err
			}
			hours[r.ID] = r.Time
		}
		return nil
	})
	if err != nil {
		l.t.Fatal(err)
	}
	var b strings.Builder
	for _, id := range turns {
		texts := strings.NewReplacer(`{"role":"user","content":"`, "u:", `{"role":"assistant","content":"`, "a:", `"}`, "").Replace(said[id])
		fmt.Fprintf(&b, "%d:%s\n", hours[id].Hour(), texts)
	}
	return b.String()
}

func TestImportMessages(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	file := messageFile("u:hello@1 a:hi@2 u:how@3 a:well a:so u:bye@4 a:bye@4 #second,ada a:first@5 u:then@5 a:last@5 u:open@6")
	n, err := l.m.ImportMessages(t.Context(), memory.Scope{Tenant: "tenant", Session: "first", Resource: "ada"}, strings.NewReader(file))
	if n != 2 || err != nil {
		t.Fatal(n, err)
	}
	for session, want := range map[string]string{
		"first":  "1: u:hello a:hi\n3: u:how a:well a:so\n4: u:bye a:bye\n",
		"second": "5: a:first u:then a:last\n6: u:open\n",
	} {
		if got := l.turnsOf(session); got != want {
			t.Errorf("%s:\n%s, want\n%s", session, got, want)
		}
	}

	// They are of the resource, and go with it.
	if n, err := l.m.Forget(t.Context(), "tenant", "ada"); n != 2 || err != nil {
		t.Error(n, err)
	}
}

// TestImportedSessionGoesOn: a client finds the conversation as if it had been had through the proxy.
func TestImportedSessionGoesOn(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	_, err := l.m.ImportMessages(t.Context(), scope, strings.NewReader(messageFile("u:hello@1 a:hi u:more@2 a:well u:open@3")))
	if err != nil {
		t.Fatal(err)
	}
	view := l.turnOf(memory.Call{Scope: scope, History: memory.HistoryServer}, "u:new", "a:done")
	l.wantView(view, "u:hello a:hi u:more a:well u:open u:new")
	if err := l.importable(scope); err != nil {
		t.Error(err)
	}
}

func TestImportMessagesIsRefused(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	for file, want := range map[string]string{
		"": "no message",
		`{"message":{"role":"usr","content":"Hi"}}`:            "message.role: want system, developer, user, assistant or tool",
		messageFile("#a,r u:x #a,r u:y"):                       "import line 3: session: it is there already",
		`{"session":""}`:                                       "import line 1: session: missing",
		`{"message":{"role":"user","content":"x"},"time":"x"}`: `import line 1: time: want a text such as "2023-05-08T13:56:00Z"`,
		`{"message":{"role":"user","content":"x"},"time":7}`:   "import line 1: time: want a text",
		`{"message":{"role":"user","content":"x"},"when":"x"}`: `import line 1: json: unknown field "when"`,
		`{"message":7}`:                                  "import line 1",
		`{"message":{},"dialect":"x"}`:                   `import line 1: dialect "x"`,
		`{"message":{"said":"x"},"dialect":"responses"}`: "import line 1: message: want a message",
	} {
		_, err := l.m.ImportMessages(t.Context(), memory.Scope{Tenant: "tenant", Session: "s"}, strings.NewReader(file))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
	once := func() error {
		_, err := l.m.ImportMessages(t.Context(), scope, strings.NewReader(messageFile("u:x a:y")))
		return err
	}
	if err := once(); err != nil {
		t.Error(err)
	}
	if err := once(); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Error(err)
	}
	if got := l.turnsOf(scope.Session); !strings.HasSuffix(got, ": u:x a:y\n") || strings.Count(got, "\n") != 1 {
		t.Error(got)
	}
}

// TestImportLeavesAnExistingSession: an import that cannot look whether its session exists deletes nothing.
func TestImportLeavesAnExistingSession(t *testing.T) {
	withServers(t, func(l *lab, store *servers, _ *journal) {
		l.wantView(l.turnOf(memory.Call{Scope: named("there")}, "u:1", "a:1"), "u:1")
		store.own["there"] = &cache.Error{Fault: cache.FaultKey, Err: errors.New("no answer")}
		_, err := l.m.ImportMessages(t.Context(), named("there"), strings.NewReader(messageFile("u:x@1 a:y")))
		if err == nil {
			t.Error("imported")
		}
		delete(store.own, "there")
		l.wantLine(named("there"), "u:1 a:1")
	})
}

// TestImportBesideAClient: a client that begins the session while an import does keeps it.
func TestImportBesideAClient(t *testing.T) {
	t.Parallel()
	l := newLab(t, memory.Options{})
	begins := sync.OnceFunc(func() { l.turnOf(memory.Call{Scope: scope}, "u:1", "a:1") })
	way := &tapped{Store: l.store, onCommit: func(_ context.Context, b []cache.Batch) error {
		if ofSession(b) {
			begins()
		}
		return nil
	}}
	m := memory.New(way, nil, patient(memory.Options{}))
	defer m.Close()
	_, err := m.ImportMessages(t.Context(), scope, strings.NewReader(messageFile("u:x@1 a:y u:z@2 a:z")))
	if !errors.Is(err, memory.ErrSessionExists) {
		t.Error(err)
	}
	l.wantTranscript("u:1 a:1", 2)
}
