package chat

import "remora/wire"

// converter splits items into parts, and builds items from parts of other dialects.
type converter struct{}

func (converter) ReadPart(raw []byte) (wire.ContentPart, bool) {
	switch wire.Text(wire.Member(raw, "type")) {
	case "text", "input_text", "output_text":
		return wire.ContentPart{Value: wire.Member(raw, "text")}, true
	case "refusal", "input_audio":
		return wire.ContentPart{Kind: wire.PartAlike, Value: raw}, true
	case "image_url":
		image := wire.Member(raw, "image_url")
		return wire.ContentPart{Kind: wire.PartImage, Value: wire.Member(image, "url"), Detail: wire.Member(image, "detail")}, true
	case "file":
		file := wire.Member(raw, "file")
		return wire.ContentPart{Kind: wire.PartFile, Value: file}, wire.IsObject(file) && wire.HasChildren(file)
	}
	return wire.ContentPart{}, false
}

func (converter) AppendPart(dst []byte, p wire.ContentPart) []byte {
	switch p.Kind {
	case wire.PartImage:
		dst = append(append(dst, `{"type":"image_url","image_url":{"url":`...), wire.OrEmpty(p.Value)...)
		if _, ok := wire.Inside(p.Detail); ok {
			dst = append(append(dst, `,"detail":`...), p.Detail...)
		}
		return append(dst, "}}"...)
	case wire.PartFile:
		file, ok := ownFile(p.Value)
		if !ok {
			return append(append(append(dst, `{"type":"text","text":`...), p.InWords().Value...), '}')
		}
		return append(append(append(dst, `{"type":"file","file":`...), file...), '}')
	default:
		return append(dst, p.Value...)
	}
}

// ownFile returns a file with the members that Chat has. ok is false if it is none of its own: Responses has files by URL, too.
func ownFile(file []byte) (own []byte, ok bool) {
	own = wire.Edit(file, func(_ int, m wire.Child) ([]byte, bool) {
		name := string(m.Name)
		content := name == "file_data" || name == "file_id"
		ok = ok || content
		return m.Value, content || name == "filename"
	})
	return own, ok
}

func (converter) ReadCalls(it wire.Item) []wire.SaidCall {
	var calls []wire.SaidCall
	for p := range wire.Children(wire.Member(it.Raw, "tool_calls")) {
		id := wire.Member(p.Value, "id")
		call := wire.SaidCall{Call: wire.Call{ID: wire.Text(id), Family: wire.FamilyFunction}, CallID: id}
		tool, custom := toolOf(p.Value)
		input := "arguments"
		if custom {
			input = "input"
		}
		call.Custom, call.Alone = custom, tool == nil
		call.ToolName, call.Input = wire.Member(tool, "name"), wire.StringArguments(wire.Member(tool, input))
		calls = append(calls, call)
	}
	if hasLegacyCall(it) {
		function := wire.Member(it.Raw, "function_call")
		calls = append(calls, wire.SaidCall{
			Call: it.Parts[len(it.Parts)-1].Call, ToolName: wire.Member(function, "name"), Input: wire.StringArguments(wire.Member(function, "arguments")),
		})
	}
	return calls
}

// MakeCalls makes one message of all calls.
func (converter) MakeCalls(calls []wire.SaidCall) [][]byte {
	out := []byte(`{"role":"assistant","content":null,"tool_calls":[`)
	for i, call := range calls {
		typ, input := "function", "arguments"
		if call.Custom {
			typ, input = "custom", "input"
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(out, `{"id":`...), wire.OrEmpty(call.CallID)...)
		out = append(wire.AppendString(append(out, `,"type":`...), typ), ',')
		out = append(append(wire.AppendString(out, typ), `:{"name":`...), wire.OrEmpty(call.ToolName)...)
		out = append(wire.AppendString(append(out, ','), input), ':')
		out = append(append(out, wire.OrEmpty(call.Input)...), "}}"...)
	}
	return [][]byte{append(out, "]}"...)}
}
