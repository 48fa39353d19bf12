package past

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"remora/memory/index"
	"remora/memory/layer"
	"remora/memory/redact"
	"remora/memory/session"
	"remora/wire"
)

// add puts a message into an index, in parts if it is long.
func add(ix *index.Index, e *Embeddings, name string, it session.Said) {
	role := index.RoleUser
	if it.Role == wire.Assistant {
		role = index.RoleAssistant
	}
	text := withoutTold(it.Text)
	if text == "" {
		return
	}
	if len(text) > maxPart {
		text = redact.Text(text) // before it is divided: the label of a secret may be in another part
	}
	speaker := role
	if own, _, ok := strings.Cut(text, ": "); ok && isName(own) {
		speaker = own
	} else if isHandle(it.Name) {
		speaker, text = it.Name, it.Name+": "+text
	}
	id := sessionNumber(name) + "-" + strconv.FormatUint(it.Seq, 10)
	parts := partsOf(text)
	if len(parts) > maxParts { // people say what they want above what they paste, or below it
		parts = slices.Concat(parts[:maxParts-lastParts], parts[len(parts)-lastParts:])
	}
	for _, part := range parts {
		ix.Add(index.Turn{ID: id, Session: name, Role: role, Speaker: speaker, Time: it.Time, Text: part, Content: it.Content})
		if e != nil && e.Table != nil {
			ix.SetVectors(ix.Len()-1, []index.Vector{index.Quantise(e.Table(part))})
		}
	}
}

// toldTags are the tags of blocks with recalled text. A message that quotes such a block does not state it. The test lists the tags
// that are missing here, and why.
const toldTags = "recalled observations episodes conversation_memory conversation_summary remembered_facts names_seen_earlier " +
	"who_and_what_earlier working_memory tool_memory task_state active_plan referenced_files memory_update"

var toldBlocks = sync.OnceValue(func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for tag := range strings.FieldsSeq(toldTags) {
		all = append(all, regexp.MustCompile(`(?s)<`+tag+`(?: [^<>\n]*)?>\n.*?\n</`+tag+`>`))
	}
	return all
})

// withoutTold returns a text without quoted blocks, so that recalled text is not recalled again.
func withoutTold(text string) string {
	if !strings.Contains(text, "</") {
		return text
	}
	rest := text
	for _, block := range toldBlocks() {
		rest = block.ReplaceAllString(rest, "\n")
	}
	if rest == text {
		return text
	}
	return strings.TrimSpace(rest)
}

// sessionNumber names a session within its resource, in six digits: vocabularies have tokens for three.
func sessionNumber(name string) string {
	const digits = 1_000_000
	sum := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%06d", binary.BigEndian.Uint64(sum[:])%digits)
}

// isName reports whether the text before a colon can be a speaker's name, as in transcripts of several people.
func isName(s string) bool {
	const longest = 40 // bytes
	words := strings.Fields(s)
	if len(s) > longest || len(words) == 0 || len(words) > 3 || labels[strings.ToLower(s)] {
		return false
	}
	for _, w := range words {
		r, _ := utf8.DecodeRuneInString(w)
		if !unicode.IsUpper(r) && !nameWithoutCase(w) || strings.ContainsAny(w, ".,;!?()[]{}<>/\"'`*#") {
			return false
		}
	}
	return true
}

// isHandle reports whether a message's member name can be shown as the speaker: APIs accept letters, digits and a few signs.
func isHandle(s string) bool {
	const longest = 40 // bytes
	sign := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.@", r)
	}
	return s != "" && len(s) <= longest && !labels[strings.ToLower(s)] && !strings.ContainsFunc(s, sign)
}

// labels stand before a colon as well, and would be taken for more than a name.
var labels = layer.Words(`user assistant system developer tool human ai instruction instructions important note warning attention override
	remember reminder todo question answer update edit fyi ps re summary me correction hint tip example error fix bug issue problem
	solution task goal plan context background input output result text title subject topic name date time place address phone email
	budget price total deadline
	hinweis frage antwort wichtig achtung anmerkung anweisung anweisungen beispiel aufgabe ergebnis fehler betreff termin
	système réponse remarque exemple résultat objet consigne consignes sistema asistente instrucciones instrucción nota pregunta
	respuesta importante ejemplo tarea resultado asunto
	用户 使用者 助手 助理 系统 系統 开发者 工具 人类 指令 指示 命令 提示 说明 重要 注意 警告 备注 覆盖 时间 日期 地点 地址 电话 密码 答案 问题 总结 结论 例如
	ユーザー アシスタント システム 開発者 ツール 人間 説明 備考 質問 回答
	사용자 어시스턴트 시스템 개발자 도구 인간 지시 명령 중요 주의 경고 참고 질문 답변
	ผู้ใช้ ผู้ช่วย ระบบ คำสั่ง สำคัญ หมายเหตุ คำเตือน مستخدم المستخدم المساعد النظام تعليمات مهم ملاحظة تحذير משתמש עוזר מערכת הוראות חשוב הערה אזהרה
	उपयोगकर्ता सहायक सिस्टम निर्देश महत्वपूर्ण नोट चेतावनी`)

// nameWithoutCase reports whether a word of a script without capitals can be a name: letters alone, few, and in Chinese and
// Japanese none that sentences are made with.
func nameWithoutCase(w string) bool {
	const longest, longestHan = 12, 4 // letters
	letters, han := 0, 0
	for _, r := range w {
		switch {
		case unicode.IsMark(r):
		case !unicode.In(r, unicode.Lo, unicode.Lm), strings.ContainsRune("的是了我你您他她它们在有和不就也都这那吗呢吧", r):
			return false
		default:
			letters++
			if unicode.Is(unicode.Han, r) {
				han++
			}
		}
	}
	return letters > 0 && letters <= longest && (han < letters || han <= longestHan)
}

// partsOf divides a long text where a paragraph, a line or a sentence ends.
func partsOf(text string) []string {
	var parts []string
	for len(text) > maxPart {
		at := 0
		for _, end := range []string{"\n\n", "\n", ". ", "\u3002", " "} {
			if at = strings.LastIndex(text[:maxPart], end); at > maxPart/3 {
				at += len(end)
				break
			}
		}
		if at <= maxPart/3 {
			at = len(layer.Head(text, maxPart))
		}
		parts, text = append(parts, text[:at]), text[at:]
	}
	return append(parts, text)
}
