package past

import "testing"

func TestIsName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"Ann": true, "Ann Miller": true, "Maître Dupont": true, "林晓梅": true, "田中さん": true, "김민수": true, "สมชาย": true, "محمد": true, "राहुल": true, "דוד": true, "タナカ": true,
		"": false, "my address": false, "System": false, "Budget": false, "Anweisung": false, "Système": false, "Me": false, "IMPORTANT": false, "系统": false, "重要": false, "システム": false, "시스템": false, "النظام": false,
		"我的地址": false, "今天天气很好": false, "他说": false, "林晓梅，": false, "12": false, "http": false, "<林>": false,
	} {
		if isName(s) != want {
			t.Errorf("%q is a name: %v, want %v", s, !want, want)
		}
	}
}
