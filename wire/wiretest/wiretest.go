// Package wiretest judges histories as a strict upstream does, for tests and for programs that measure, and what tests want of items.
package wiretest

import (
	"fmt"
	"slices"

	"remora/wire"
)

// Check returns every violation of the pairing rules of dialect d, in the order of the items; none for a history that
// a strict upstream accepts. A call needs its result and a result its call, once each. In Responses the call comes
// first, wherever the result stands; in Chat the results of a message stand directly after it.
//
// A Responses result without call id is legal and not judged. Whether a call may be unknown here because upstream
// stores it (previous_response_id, conversation, references) is for the caller to know.
func Check(d wire.Dialect, items []wire.Item) []error {
	if d.Rules().ResultsAdjacent {
		return checkAdjacent(items)
	}
	return checkAnywhere(items)
}

func checkAnywhere(items []wire.Item) []error {
	type open struct {
		call     wire.Call
		item     int
		answered bool
	}
	var errs []error
	calls := make(map[string][]*open)
	var order []*open
	for i, it := range items {
		for _, c := range it.Calls() {
			o := &open{call: c, item: i}
			if slices.ContainsFunc(calls[c.ID], func(o *open) bool { return !o.answered && o.call.Family == c.Family }) {
				errs = append(errs, fmt.Errorf("item %d: second %s call %q, and the first has no result yet", i, c.Family, c.ID))
			}
			calls[c.ID], order = append(calls[c.ID], o), append(order, o)
		}
		answers := it.Answers()
		if it.Kind != wire.ToolResult || answers.ID == "" {
			continue
		}
		matching := slices.DeleteFunc(slices.Clone(calls[answers.ID]), func(o *open) bool { return !wire.Matches(o.call, answers) })
		k := slices.IndexFunc(matching, func(o *open) bool { return !o.answered })
		switch {
		case k >= 0:
			matching[k].answered = true
		case len(matching) > 0:
			errs = append(errs, fmt.Errorf("item %d: second result for %s call %q", i, answers.Family, answers.ID))
		default:
			errs = append(errs, fmt.Errorf("item %d: result without a %s call %q before it", i, answers.Family, answers.ID))
		}
	}
	for _, o := range order {
		if !o.answered {
			errs = append(errs, fmt.Errorf("item %d: %s call %q without result", o.item, o.call.Family, o.call.ID))
		}
	}
	return errs
}

func checkAdjacent(items []wire.Item) []error {
	var c adjacentChecker
	for i, it := range items {
		if it.Kind == wire.ToolResult {
			c.result(i, it.Answers())
			continue
		}
		c.settle()
		c.maker = i
		for _, call := range it.Calls() {
			c.calls, c.answered = append(c.calls, call), append(c.answered, false)
		}
	}
	c.settle()
	return c.errs
}

// adjacentChecker holds the message whose results may come now.
type adjacentChecker struct {
	maker    int
	calls    []wire.Call
	answered []bool
	errs     []error
}

func (c *adjacentChecker) result(i int, answers wire.Call) {
	again := false
	for k, call := range c.calls {
		if !wire.Matches(call, answers) {
			continue
		}
		if !c.answered[k] {
			c.answered[k] = true
			return
		}
		again = true
	}
	if again {
		c.errs = append(c.errs, fmt.Errorf("item %d: second result for call %q", i, callName(answers)))
		return
	}
	c.errs = append(c.errs, fmt.Errorf("item %d: result without call %q in the message before", i, callName(answers)))
}

func (c *adjacentChecker) settle() {
	for k, ok := range c.answered {
		if !ok {
			c.errs = append(c.errs, fmt.Errorf("item %d: call %q without result directly behind it", c.maker, callName(c.calls[k])))
		}
	}
	c.calls, c.answered = nil, nil
}

func callName(c wire.Call) string {
	if c.ID == "" {
		return c.Name
	}
	return c.ID
}
