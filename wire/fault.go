package wire

import (
	"encoding/json"
	"fmt"
)

// Fault is an error of a gateway for clients of a dialect.
type Fault struct {
	Message, Type, Code string
	// Param is the invalid member of the request, empty if there is none.
	Param string
}

// ErrorBody returns the body of an error answer. If no dialect is known it is Chat's.
func (d Dialect) ErrorBody(f Fault) []byte {
	type inner struct {
		Message string  `json:"message"`
		Type    string  `json:"type"`
		Param   *string `json:"param"`
		Code    string  `json:"code"`
	}
	v := inner{Message: f.Message, Type: f.Type, Code: f.Code}
	if f.Param != "" {
		v.Param = &f.Param
	}
	return encodeFault(struct {
		Error inner `json:"error"`
	}{v})
}

// ErrorEvent returns the event that ends a stream with the fault, so that clients raise it. number is its sequence number, in a
// dialect whose events have one.
func (d Dialect) ErrorEvent(f Fault, number int) []byte {
	if d.Rules().ErrorEvent == "" {
		return fmt.Appendf(nil, "data: %s\n\n", d.ErrorBody(f))
	}
	type event struct {
		Type    string  `json:"type"`
		Code    string  `json:"code"`
		Message string  `json:"message"`
		Param   *string `json:"param"`
		Number  int     `json:"sequence_number"`
	}
	name := d.Rules().ErrorEvent
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, encodeFault(event{Type: name, Code: f.Code, Message: f.Message, Number: number}))
}

func encodeFault(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: encode an error: " + err.Error()) // strings alone
	}
	return b
}
