package responses

import "remora/wire"

// converter splits items into parts, and builds items from parts of other dialects.
type converter struct{}

func (converter) ReadPart(raw []byte) (wire.ContentPart, bool) {
	switch wire.Text(wire.Member(raw, "type")) {
	case "text", "input_text", "output_text":
		return wire.ContentPart{Value: wire.Member(raw, "text")}, true
	case "refusal", "input_audio":
		return wire.ContentPart{Kind: wire.PartAlike, Value: raw}, true
	case "input_image":
		url := wire.Member(raw, "image_url")
		if _, ok := wire.Inside(url); !ok { // no other dialect has images of an account
			return wire.ContentPart{Kind: wire.PartImage}.InWords(), wire.StoredFile(raw)
		}
		return wire.ContentPart{Kind: wire.PartImage, Value: url, Detail: wire.Member(raw, "detail")}, true
	case "input_file":
		return wire.ContentPart{Kind: wire.PartFile, Value: wire.WithoutMembers(raw, "type")}, true
	}
	return wire.ContentPart{}, false
}

func (converter) AppendPart(dst []byte, p wire.ContentPart) []byte {
	switch p.Kind {
	case wire.PartImage:
		dst = append(append(dst, `{"type":"input_image","image_url":`...), wire.OrEmpty(p.Value)...)
		if _, ok := wire.Inside(p.Detail); ok {
			dst = append(append(dst, `,"detail":`...), p.Detail...)
		}
		return append(dst, '}')
	case wire.PartFile:
		// The members are named as in Chat, which puts them one level down.
		return append(append(dst, `{"type":"input_file",`...), p.Value[1:]...)
	default:
		return append(dst, p.Value...)
	}
}

func (converter) ReadCalls(it wire.Item) []wire.SaidCall {
	if !it.HasCalls() {
		return nil
	}
	call := wire.SaidCall{
		Call: it.Parts[0].Call, Custom: it.Parts[0].Call.Family == wire.FamilyCustom,
		CallID: wire.Member(it.Raw, "call_id"), ToolName: wire.Member(it.Raw, "name"),
	}
	switch call.Family {
	case wire.FamilyFunction:
		call.Input = wire.StringArguments(wire.Member(it.Raw, "arguments"))
	case wire.FamilyCustom:
		call.Input = wire.Member(it.Raw, "input")
	default:
		call.Alone = true
	}
	return []wire.SaidCall{call}
}

func (converter) MakeCalls(calls []wire.SaidCall) [][]byte {
	var items [][]byte
	for _, call := range calls {
		typ, input := "function_call", "arguments"
		if call.Custom {
			typ, input = "custom_tool_call", "input"
		}
		out := append(wire.AppendString([]byte(`{"type":`), typ), `,"call_id":`...)
		out = append(append(out, wire.OrEmpty(call.CallID)...), `,"name":`...)
		out = append(append(out, wire.OrEmpty(call.ToolName)...), ',')
		out = append(wire.AppendString(out, input), ':')
		items = append(items, append(append(out, wire.OrEmpty(call.Input)...), '}'))
	}
	return items
}
