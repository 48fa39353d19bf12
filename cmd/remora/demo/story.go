package demo

import (
	"bytes"
	"encoding/json"
	"fmt"

	"remora/test/scripted"
	"remora/wire"
	"remora/wire/dialects"
)

// habit is how a client of the story talks to the API.
type habit struct {
	title string
	// session and resource are sent as X-Session-Id and X-Resource-Id.
	session, resource string
	dialect           wire.Dialect
	// whole: the client resends the whole conversation on every call, as most do.
	whole bool
	// history is sent as X-History, unless empty. A client that sends only new items in a session whose history was resent so
	// far must declare that: otherwise it looks like one that starts over.
	history string
}

// path returns the endpoint, below /v1.
func (h habit) path() string {
	if h.dialect == dialects.Chat {
		return "chat/completions"
	}
	return "responses"
}

// chapter is a part of the story: one client and its user's messages.
type chapter struct {
	habit
	acts []act
	// show are the turns to print in full, 0 being the chapter's first.
	show []int
}

// act is one user message and the model's answers: one with tool calls for each of rounds, then a text.
type act struct {
	user   string
	rounds []scripted.Answer
	say    string
	// fact is a word that the model must have been sent to answer say; without it, it answers unknown. Empty: always say.
	fact string
	// killAfter is the round after whose answer the proxy is killed and restarted; 0 is never. It needs a client that sends
	// only new items: one that resends everything would repair any loss.
	killAfter int
}

// shelves is the length of the long tool loop.
const shelves = 30

const systemPrompt = "You keep the books of a small bookshop."

// unknown is the model's answer if its view lacks the fact.
const unknown = "I do not know."

const (
	// shop is the resource that two of the sessions share, stocktaking the session that is long enough for a window.
	shop        = "bookshop"
	stocktaking = "stocktaking"
	// noteTool is the tool of the layer working_memory, as its layer and the proxy name it.
	noteTool = "working-memory_update"
	// maxCopies is the limit of the steering rule for one order.
	maxCopies = 50
	// refusal is the rule's guidance for an order above that.
	refusal = "At most 50 copies an order: make a smaller one, and say so."
)

// The facts to recall, and the owner of the shelf in one of them.
const (
	shelfFact  = "Shelf 9 is Bento's, by the way."
	shelfOwner = "Bento"
	noteFact   = `{"reorder":{"Ulysses":"below three copies"}}`
	noteWord   = "below three copies"
)

// story returns the chapters: a bookshop's stocktaking in one session, and the day after in two others.
func story() []chapter {
	return []chapter{
		{
			habit: habit{
				title:   "A client that resends the whole conversation on every call",
				session: stocktaking, resource: shop, dialect: dialects.Chat, whole: true,
			},
			show: []int{5, 12}, // the model has noted something; the window has fired
			acts: []act{
				{user: "Hi, I am Ada. Let us take stock.", say: "Welcome, Ada. Tell me what to count."},
				{
					user:   "Always reorder Ulysses when fewer than three are left. How many are there?",
					rounds: calls("", note(noteFact), stock("Ulysses")),
					say:    "One copy is left. I keep your rule in mind.",
				},
				{user: "How many copies of Dune are there?", rounds: calls("", stock("Dune")), say: "Seven copies of Dune."},
				{
					user:   "And of Emma, Ulysses and Middlemarch?",
					rounds: calls("Let me look all three up.", stock("Emma"), stock("Ulysses"), stock("Middlemarch")),
					say:    "Three, one and four.",
				},
				{user: "What does Ulysses cost?", rounds: calls("", price("Ulysses")), say: "Fourteen euros."},
				{user: "Order two more of it.", rounds: calls("", order("Ulysses", 2)), say: "Two copies of Ulysses are on their way."},
				{user: "Stock and price of Beloved?", rounds: calls("", stock("Beloved"), price("Beloved")), say: "Five copies at eleven euros."},
				{user: shelfFact, say: "Noted: shelf 9 is Bento's."},
				{user: "Count the books on shelves 1 to 8.", rounds: countShelves(8), say: "Eight shelves are counted."},
				{
					user:   "Check Dune, Emma and Beloved once more.",
					rounds: calls("", stock("Dune"), stock("Emma"), stock("Beloved")),
					say:    "Seven, three and five, as before.",
				},
			},
		},
		{
			habit: habit{
				title:   "The same session from a client that sends only what is new (X-History: server)",
				session: stocktaking, resource: shop, dialect: dialects.Chat, history: "server",
			},
			show: []int{4 + shelves/2}, // the first one after the restart
			acts: []act{
				{user: "Ada again, from my phone. Is Dune still there?", rounds: calls("", stock("Dune")), say: "Yes, all seven."},
				{user: "Order four of Emma and one of Dune.", rounds: calls("", order("Emma", 4), order("Dune", 1)), say: "Both are ordered."},
				{
					user:      fmt.Sprintf("Now count all %d shelves, one after the other.", shelves),
					rounds:    countShelves(shelves),
					say:       fmt.Sprintf("All %d shelves are counted.", shelves),
					killAfter: shelves / 2,
				},
			},
		},
		{
			habit: habit{title: "The same session through the Responses API", session: stocktaking, resource: shop, dialect: dialects.Responses},
			show:  []int{0},
			acts: []act{
				{user: "When do we reorder Ulysses?", say: "When fewer than three are left.", fact: noteWord},
				{user: "Is Ulysses here yet?", rounds: calls("", stock("Ulysses")), say: "Not yet: still one copy."},
				{user: "Emma and Middlemarch?", rounds: calls("", stock("Emma"), stock("Middlemarch")), say: "Three and four."},
				{user: "Good night.", say: "Good night, Ada."},
			},
		},
		{
			habit: habit{
				title:   "The next day: another session of the same resource",
				session: "next day", resource: shop, dialect: dialects.Chat, whole: true,
			},
			show: []int{0, 3},
			acts: []act{
				{user: "Whose is shelf 9?", say: "It is Bento's.", fact: shelfOwner},
				{
					user:   "Order 500 copies of Dune.",
					rounds: append(calls("", order("Dune", 500)), calls("", order("Dune", maxCopies))...),
					say:    "I ordered 50: no order may be larger.",
				},
				{user: "Good. See you.", say: "See you, Ada."},
			},
		},
		{
			habit: habit{
				title:   "A session of another resource",
				session: "elsewhere", resource: "library", dialect: dialects.Chat, whole: true,
			},
			show: []int{0},
			acts: []act{{user: "Do you know whose shelf 9 is?", say: "It is Bento's.", fact: shelfOwner}},
		},
	}
}

// calls returns one round of parallel calls, after an optional text.
func calls(text string, all ...scripted.Call) []scripted.Answer {
	return []scripted.Answer{{Text: text, Calls: all}}
}

func countShelves(n int) []scripted.Answer {
	rounds := make([]scripted.Answer, n)
	for i := range rounds {
		rounds[i].Calls = []scripted.Call{{Name: "count_shelf", Arguments: fmt.Sprintf(`{"shelf":%d}`, i+1)}}
	}
	return rounds
}

func stock(title string) scripted.Call {
	return scripted.Call{Name: "stock", Arguments: fmt.Sprintf(`{"title":%q}`, title)}
}

func price(title string) scripted.Call {
	return scripted.Call{Name: "price", Arguments: fmt.Sprintf(`{"title":%q}`, title)}
}

func order(title string, copies int) scripted.Call {
	return scripted.Call{Name: "order", Arguments: fmt.Sprintf(`{"title":%q,"copies":%d}`, title, copies)}
}

// note returns a call that only the proxy sees.
func note(change string) scripted.Call { return scripted.Call{Name: noteTool, Arguments: change} }

// model returns the answers of the story. It finds the place in the story from the items of the request.
func model(chapters []chapter) func(scripted.Prompt) (scripted.Answer, bool) {
	acts := make(map[string]act)
	for _, c := range chapters {
		for _, a := range c.acts {
			acts[a.user] = a
		}
	}
	return func(p scripted.Prompt) (scripted.Answer, bool) {
		a, ok := acts[p.User]
		if !ok {
			return scripted.Answer{}, false
		}
		if p.Round < len(a.rounds) {
			return a.rounds[p.Round], true
		}
		if !bytes.Contains(p.Body, []byte(a.fact)) {
			return scripted.Answer{Text: unknown}, true
		}
		return scripted.Answer{Text: a.say}, true
	}
}

// runTool is the client's side of a call: the shop's own data.
func runTool(name, arguments string) (string, error) {
	var in struct {
		Title  string `json:"title"`
		Copies int    `json:"copies"`
		Shelf  int    `json:"shelf"`
	}
	if err := json.Unmarshal([]byte(arguments), &in); err != nil {
		return "", fmt.Errorf("read arguments of %s: %w", name, err)
	}
	books := map[string]struct{ stock, price int }{
		"Dune": {7, 12}, "Emma": {3, 9}, "Ulysses": {1, 14}, "Middlemarch": {4, 10}, "Beloved": {5, 11},
	}
	switch name {
	case "stock":
		return fmt.Sprintf("%s: %d in stock", in.Title, books[in.Title].stock), nil
	case "price":
		return fmt.Sprintf("%s: %d euros", in.Title, books[in.Title].price), nil
	case "order":
		return fmt.Sprintf("%s: %d ordered", in.Title, in.Copies), nil
	case "count_shelf":
		return fmt.Sprintf("%d books on shelf %d", 20+in.Shelf*7%23, in.Shelf), nil
	}
	return "there is no tool " + name, nil
}

// toolNames are the tools that the clients offer.
func toolNames() []string { return []string{"stock", "price", "order", "count_shelf"} }
