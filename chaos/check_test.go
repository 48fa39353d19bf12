package chaos

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"remora/cache"
	"remora/memory"
	"remora/proxy"
)

// archive reads what is stored. No proxy may have the store open if it is a file.
type archive struct {
	t      *testing.T
	memory *memory.Memory
}

// openArchive opens the store that a proxy in dir has under url.
func openArchive(t *testing.T, dir, url string) *archive {
	t.Helper()
	if path, ok := strings.CutPrefix(url, "bolt:"); ok && !filepath.IsAbs(path) {
		url = "bolt:" + filepath.Join(dir, path)
	}
	store, err := cache.Open(url, cache.Options{DialTimeout: callLimit, OpTimeout: callLimit})
	if err != nil {
		t.Fatal(err)
	}
	a := &archive{t: t, memory: memory.New(store, nil, memory.Options{ReadWait: callLimit})}
	t.Cleanup(func() {
		a.memory.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

// stored are the user texts of a session: on the line that ends with the head, and on all branches.
type stored struct {
	line, all []string
	twice     int // items that are there under two numbers
}

func (a *archive) session(session, key string) (s stored) {
	a.t.Helper()
	scope := memory.Scope{Tenant: new(proxy.SessionOptions).Tenant([]byte(key)), Session: session}
	out, in := io.Pipe()
	go func() { in.CloseWithError(a.memory.Export(a.t.Context(), scope, in)) }()
	chains := map[string]bool{}
	for dec := json.NewDecoder(out); ; {
		var line struct {
			Item *struct {
				Chain  string
				OnHead bool `json:"on_head"`
				JSON   message
			}
		}
		if err := dec.Decode(&line); errors.Is(err, io.EOF) {
			return s
		} else if err != nil {
			a.t.Fatalf("transcript of %s: %v", session, err)
		}
		if line.Item == nil {
			continue
		}
		if chains[line.Item.Chain] {
			a.t.Errorf("session %s: item %q is stored twice", session, line.Item.JSON.Content)
			s.twice++
		}
		chains[line.Item.Chain] = true
		if line.Item.JSON.Role != "user" {
			continue
		}
		s.all = append(s.all, line.Item.JSON.Content)
		if line.Item.OnHead {
			s.line = append(s.line, line.Item.JSON.Content)
		}
	}
}

// check compares what clients saw with what is stored: every turn once, in the client's order. The turns of a client
// that shares its session with others and resends its own history are a branch; all others are on the head line.
func (a *archive) check(clients []*talker) (lost, doubled int) {
	a.t.Helper()
	sharers := map[string]int{}
	read := map[string]stored{}
	for _, c := range clients {
		sharers[c.session+"\x00"+c.key]++
	}
	for _, c := range clients {
		if len(c.said) == 0 {
			continue // it was stopped before its first answer
		}
		id := c.session + "\x00" + c.key
		if _, ok := read[id]; !ok {
			read[id] = a.session(c.session, c.key)
			doubled += read[id].twice
		}
		texts := read[id].line
		if !c.onlyNew && sharers[id] > 1 {
			texts = read[id].all
		}
		l, d := a.checkOrder(c, texts)
		lost, doubled = lost+l, doubled+d
	}
	return lost, doubled
}

func (a *archive) checkOrder(c *talker, texts []string) (lost, doubled int) {
	a.t.Helper()
	at := make(map[string][]int, len(texts))
	for i, text := range texts {
		at[text] = append(at[text], i)
	}
	last := -1
	for _, text := range c.said {
		found := at[text]
		if len(found) != 1 {
			a.t.Errorf("client %s, session %q: turn %s is stored %d times", c.name, c.session, text, len(found))
			if len(found) == 0 {
				lost++
			} else {
				doubled++
			}
			continue
		}
		if found[0] < last {
			a.t.Errorf("client %s, session %q: turn %s is out of order", c.name, c.session, text)
		}
		last = found[0]
	}
	return lost, doubled
}
