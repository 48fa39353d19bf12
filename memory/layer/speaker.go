package layer

import (
	"strings"
	"unicode"

	"remora/wire"
)

// SpeakerOf returns the name of the person who says a message, in a conversation of several: its member name, empty if it has none
// that can be shown.
func SpeakerOf(it wire.Item) string {
	if name := wire.Text(wire.Member(it.Raw, "name")); IsSpeaker(name) {
		return name
	}
	return ""
}

// IsSpeaker reports whether a message's member name can be shown as the speaker: APIs accept letters, digits and a few signs.
func IsSpeaker(s string) bool {
	const longest = 40 // bytes
	sign := func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_-.@", r)
	}
	return s != "" && len(s) <= longest && !IsLabel(s) && !strings.ContainsFunc(s, sign)
}

// IsLabel reports whether a text before a colon would be taken for more than a name.
func IsLabel(s string) bool { return labels[strings.ToLower(s)] }

// labels stand before a colon as well, and would be taken for more than a name.
var labels = Words(`user assistant system developer tool human ai instruction instructions important note warning attention override
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
