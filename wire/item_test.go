package wire

import "testing"

func TestOnlyCalls(t *testing.T) {
	const raw = `{"role":"assistant","content":"hm","x":1,"tool_calls":[ {"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}, {"id":"b","type":"function","function":{"name":"g","arguments":"{}"}} ]}`
	it, err := ParseItem(Chat, []byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	got, ok := it.OnlyCalls(func(i int) bool { return i == 1 })
	const want = `{"role":"assistant","content":null,"tool_calls":[{"id":"b","type":"function","function":{"name":"g","arguments":"{}"}}]}`
	if !ok || string(got.Raw) != want || len(got.Calls) != 1 || got.Calls[0].ID != "b" || got.HasText {
		t.Errorf("OnlyCalls = %s, %v", got.Raw, ok)
	}
	if _, ok := it.OnlyCalls(func(int) bool { return false }); ok {
		t.Error("OnlyCalls of none = true")
	}
}
