package redact_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"remora/memory/redact"
)

// Keys that scanners of repositories would take for real ones are put together here.
var (
	slack = "xo" + "xb-123456789012-abcDEF123456"
	pem   = "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nqwerty\n-----END " + "RSA PRIVATE KEY-----"
	jwt   = "eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"
)

var secrets = []struct{ text, secret string }{
	// Keys that services mark.
	{"my key is sk-proj-Ab12Cd34Ef56Gh78", "sk-proj-Ab12Cd34Ef56Gh78"},
	{"export OPENAI_API_KEY=sk-abc123", "sk-abc123"},
	{"use sk-ant-api03-Zz9Yy8Xx7Ww6-Vv5 for the tests", "sk-ant-api03-Zz9Yy8Xx7Ww6-Vv5"},
	{"sk-or-v1-0123456789abcdef0123 is for OpenRouter", "sk-or-v1-0123456789abcdef0123"},
	{"push with ghp_16C7e42F292c6912E7710c838347Ae178B4a please", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"},
	{"glpat-Xy12Zw34Vu56Ts78Rq90 works", "glpat-Xy12Zw34Vu56Ts78Rq90"},
	{"the bot posts with " + slack, slack},
	{"AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"},
	{"POST https://api.example.com/hooks/sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"},
	{"it is here...AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"},
	{"aws says wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"},
	{"maps uses AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q", "AIzaSyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q"},
	{"hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"},
	{"gsk_a1B2c3D4e5F6g7H8i9J0k1L2m3N4", "gsk_a1B2c3D4e5F6g7H8i9J0k1L2m3N4"},
	{"(npm_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8)", "npm_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"},
	{"stripe: sk_" + "live_4eC39HqLyjWDarjtT1zdp7dc", "4eC39HqLyjWDarjtT1zdp7dc"},
	{"here it is\n" + pem + "\nthanks", "qwerty"},
	{"-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk", "b3BlbnNzaC1rZXk"},
	{"Authorization: Bearer " + jwt, jwt},
	{"curl -H 'Authorization: Basic YWRtaW46aHVudGVyMg=='", "YWRtaW46aHVudGVyMg=="},
	{"postgres://app:Tr0ub4dor@db.internal:5432/app", "Tr0ub4dor"},
	{"redis://:s3cr3t@cache:6379/0", "s3cr3t"},
	{"amqps://svc:plainword@mq/vhost", "plainword"},
	{"curl -u admin:swordfish https://x.example", "swordfish"},
	{`curl --user "svc:plain word" https://x.example`, "plain word"},
	{"curl -usvc:swordfish x", "swordfish"},
	{`The wifi key is "correct horse battery staple"`, "correct horse battery staple"},
	{"Der WLAN-Schlüssel ist Sommer2024", "Sommer2024"},
	{"https://hooks.example/x?access_token=9f8e7d6c5b4a", "9f8e7d6c5b4a"},
	{`{"client_secret": "a8b7c6d5e4", "scope": "read"}`, "a8b7c6d5e4"},
	{"clientSecret: 'zX9-yW8-vU7'", "zX9-yW8-vU7"},
	{"AWS_SECRET_ACCESS_KEY=abcd1234efgh5678", "abcd1234efgh5678"},
	{"my api key is 7c9e6679f1b2", "7c9e6679f1b2"},
	{"the API token for staging is Zebra-99-Kilo", "Zebra-99-Kilo"},
	{"notre clé API est f00ba4-7781-zz", "f00ba4-7781-zz"},
	{"mein API-Schlüssel lautet 88aa77bb66cc", "88aa77bb66cc"},
	{"my license key is A1B2-C3D4-E5F6-G7H8", "A1B2-C3D4-E5F6-G7H8"},
	{"My licence key is ABCDE-12345-FGHIJ-67890-KLMNO.", "ABCDE-12345-FGHIJ-67890-KLMNO"},
	{"the license keys are ABCDE-12345-FGHIJ / KLMNO-67890-PQRST", "KLMNO-67890-PQRST"},
	{"token: Ab3dEf7h(valid for a day)", "Ab3dEf7h"},
	{`token = "FooBarBaz(qux"`, "FooBarBaz(qux"},
	{"token: abcdef:12ab34cd", "12ab34cd"},
	{"Authorization: Basic FooBarBazQuxx(", "FooBarBazQuxx"},

	// Passwords.
	{"my password is hunter2", "hunter2"},
	{"My password is swordfish.", "swordfish"},
	{"db password: Tr0ub4dor&3", "Tr0ub4dor&3"},
	{"Password: correcthorse", "correcthorse"},
	{"Password:\nhunter2", "hunter2"},
	{"**Password:** `hunter2`", "hunter2"},
	{"the wifi password is sunflower and the router is in the hall", "sunflower"},
	{"the password for the guest wifi is Sommer2026", "Sommer2026"},
	{"I changed my password to Winter!2027 yesterday", "Winter!2027"},
	{"password hunter2 doesn't work", "hunter2"},
	{"log in with admin, password = \"open sesame\"", "open sesame"},
	{"hunter2 is my password", "hunter2"},
	{"use swordfish as the password", "swordfish"},
	{"user: admin pass: S3cr3t!", "S3cr3t!"},
	{"PGPASSWORD=letmein psql -h db", "letmein"},
	{"my passphrase is correct horse battery staple", "horse battery"},
	{"seed phrase: ripple scissors kick mammal hire column oak again sun offer wealth tomorrow", "mammal hire"},
	{"Mein Passwort ist geheim123", "geheim123"},
	{"das Kennwort lautet Blumenkohl", "Blumenkohl"},
	{"mon mot de passe est soleil99", "soleil99"},
	{"le mot de passe du wifi est tournesol.", "tournesol"},
	{"mi contraseña es gato1234", "gato1234"},
	{"la contraseña: girasol", "girasol"},
	{"minha senha é abacaxi7", "abacaxi7"},
	{"la password è Ferrari458", "Ferrari458"},
	{"mijn wachtwoord is tulp2020", "tulp2020"},
	{"moje hasło to kotek77", "kotek77"},
	{"мой пароль солнце77", "солнце77"},
	{"пароль: qwerty", "qwerty"},
	{"şifrem: istanbul34", "istanbul34"},
	{"mitt lösenord är sommar12", "sommar12"},
	{"パスワードはhunter2です", "hunter2"},
	{"密码是abc12345", "abc12345"},
	{"我的密码：qwe789xyz", "qwe789xyz"},
	{"비밀번호는 hunter2 입니다", "hunter2"},
	{"كلمة المرور: hunter2", "hunter2"},
	{"मेरा पासवर्ड है tiger99", "tiger99"},
	{"mật khẩu là hanoi1010", "hanoi1010"},
	{"credentials: admin:hunter2", "hunter2"},
	{"my login is bob/S3cret99", "S3cret99"},
	{"My password (for GitHub) is hunter2.", "hunter2"},
	{"My password (GitHub2) is hunter2.", "hunter2"},
	{"the password for guests (downstairs) is sunflower.", "sunflower"},
	{"I changed my password (for GitHub) to hunter2", "hunter2"},
	{"My password (hunter2) is wrong", "hunter2"},
	{"API key [staging]: abc123def", "abc123def"},
	{"My PIN (4 digits) is 4821", "4821"},
	{"My mother's maiden name and password are Miller / Tr0ub4dor&3.", "Tr0ub4dor&3"},
	{"My passwords are hunter2 and Xk29sLq0.", "Xk29sLq0"},
	{"My login for the bank is ada / Xk29sLq0.", "Xk29sLq0"},
	{"My password is hunter2 / swordfish.", "swordfish"},
	{"My username and password are ada / swordfish.", "swordfish"},
	{"username / password: ada / swordfish", "swordfish"},
	{"My passwords are hunter2, swordfish and tulip.", "tulip"},
	{"credentials: admin / swordfish", "swordfish"},
	{"login: ada/swordfish", "swordfish"},
	{"my login is ada / swordfish.", "swordfish"},
	{"I changed my pass to blue42sky.", "blue42sky"},
	{"set the pass to blue42sky", "blue42sky"},
	{"my password was changed to hunter2", "hunter2"},
	{"Password changed to Winter2025.", "Winter2025"},
	{"Passwort geändert auf Winter2025", "Winter2025"},

	// One-time codes and others.
	{"Your verification code is 482913", "482913"},
	{"the code is 483920", "483920"},
	{"G-482913 is your Google verification code", "482913"},
	{"482913 is your verification code", "482913"},
	{"the OTP is 99 12 34", "99 12 34"},
	{"my PIN is 4821", "4821"},
	{"PIN: 0000, it's for the tablet", "0000"},
	{"cvv 123", "123"},
	{"the CVC is 998", "998"},
	{"the alarm code is 7781", "7781"},
	{"backup codes: 8832-1123", "8832-1123"},
	{"Die PIN lautet 7391", "7391"},
	{"Ihr Bestätigungscode: 551 204", "551 204"},
	{"Die TAN ist 884213", "884213"},
	{"votre code de vérification est 771204", "771204"},
	{"tu código de verificación es 662019", "662019"},
	{"код подтверждения: 4417", "4417"},
	{"doğrulama kodu: 553311", "553311"},
	{"验证码是 839201", "839201"},
	{"認証コードは 552199 です", "552199"},
	{"인증번호: 118833", "118833"},

	// Payment cards.
	{"my new card is 4111 1111 1111 1111, can you use that one", "4111 1111 1111 1111"},
	{"5555-5555-5555-4444", "5555-5555-5555-4444"},
	{"amex 378282246310005", "378282246310005"},
	{"6011111111111117 exp 12/29", "6011111111111117"},
	{"it's 3530 1113 3330 0000 for the hotel", "3530 1113 3330 0000"},
	{"2223003122003222", "2223003122003222"},
	{"diners 3056 930902 5904", "3056 930902 5904"},
	{"４１１１ １１１１ １１１１ １１１１", "１１１１ １１１１"},
	{"karta 4242\u00a04242\u00a04242\u00a04242", "4242\u00a04242"},
	{"card number 1234 5678 9012 3456", "9012"},
	{"カード番号は4111111111111111です", "4111111111111111"},

	// Bank accounts.
	{"My IBAN is DE89 3704 0044 0532 0130 00", "0532 0130"},
	{"send it to GB29NWBK60161331926819 please", "GB29NWBK60161331926819"},
	{"FR14 2004 1010 0505 0001 3M02 606", "0505 0001"},
	{"nl91abna0417164300", "nl91abna0417164300"},
	{"IBAN: DE00 1234 5678 9012 3456 78", "9012"},
	{"my account number is 12345678", "12345678"},
	{"Kontonummer 0532013000", "0532013000"},
	{"sort code 20-00-00", "20-00-00"},
	{"routing number: 021000021", "021000021"},

	// Social security.
	{"my SSN is 123-45-6789", "123-45-6789"},
	{"078-05-1120", "078-05-1120"},
	{"social security number 123456789", "123456789"},
	{"NI number QQ 12 34 56 C", "12 34 56"},
	{"numéro de sécurité sociale 1 84 12 76 451 089 46", "451 089"},
	{"1 84 12 76 451 089 46", "451 089"},
	{"CPF 529.982.247-25", "529.982.247-25"},
	{"主民 880101-1234567", "880101-1234567"},
	{"11010519491231002X", "11010519491231002X"},
	{"meine Steuer-ID: 86095742719", "86095742719"},
	{"mi DNI es 12345678Z", "12345678Z"},
	{"personnummer 811228-9874", "811228-9874"},
	{"PESEL 44051401359", "44051401359"},
	{"my Aadhaar is 2341 2341 2346", "2341 2346"},
}

var harmless = []string{
	"docker run -u node:node alpine",
	"curl -u $USER:$PASS https://x.example",
	"sort -u /tmp/a:b",
	"git push -u origin main:main",
	"sudo -u deploy ls",
	"the network key figures are up",
	// Numbers of other things.
	"my order is 88231-B", "order 4711 4712 4713 4714", "the ticket is PLAT-1432", "issue #20931", "the tracking number is JD0146000",
	"parcel 00340434161094042557", "the invoice is 2026-000123", "refund R-5512 of 89.90 euros", "customer number 20011", "flight LH 1234 at 07:35",
	"my phone is +49 151 23456789", "sorry, my number is 030 5550199", "My number is 415-555-2671.", "call 555-123-4567", "call me at (212) 555-0187", "+1 415 555 2671", "tel. 030 901820", "fax 0049-30-1234567",
	"+34 612 345 678", "ISBN 978-3-16-148410-0", "build 20261122.3", "2026-11-22 13:52:27", "between 10.0.0.1 and 192.168.100.200", "port 6379",
	"we serve 200 requests per second", "3.2 GB of memory", "the plate is M-KL 2041", "room 4.113", "PO-2024-991 from March", "HRB 12345",
	"commit e3ad62bf5a2ce30d483b18e094d64b85953ab1c2", "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
	"f47ac10b-58cc-4372-a567-0e02b2c3d479", "1 234 567 890 123 456 euros", "4111 1111 1111 1112 is not valid", "the number 4532 0151 1283 0367",
	"card ending in 4242", "my Visa ends with 1881", "DE12 3456 is not an IBAN", "zip code 10115", "the zip code is 10115", "exit code 137", "error code: 4040",
	"country code 49", "promo code SAVE2026", "area code 2125", "status code is 5030", "booking code X7J9KQ", "the dress code is formal", "the source code is 4000 lines",

	// Talk about secrets.
	"I forgot my password", "the password is wrong", "my password is too short", "password is required", "the password field is empty",
	"passwords are hashed with argon2", "the password policy is strict", "my password manager is Bitwarden", "reset the password for me",
	"I need the password to log in", "the password is stored in the vault", "password reset doesn't work", "What is my password?", "is this the right password",
	"the token is expired", "max_tokens: 64000", "the token budget is 4000", "tokens: 128000", "a token costs 3 cents", "the API key is missing",
	"my API key is in 1Password", "set API_KEY=$OPENAI_KEY", "password: ${DB_PASSWORD}", "password: ********", "Password: <your password>", "token = os.Getenv(\"TOKEN\")",
	"the secret is to use butter", "Secret Santa is on 20 December", "the key is under the mat", "the key question is cost", "press any key", "PLAT-1432 is the key of the ticket",
	"my PIN is blocked", "pin the message", "pin it to the top", "the pin on the map", "I like login forms that are simple", "the login page is slow",
	"Basic plan for 10 users", "the basic idea is simple", "bearer of bad news", "I have a credit card", "which card should I take", "a card game with 52 cards",
	"Das Passwort ist falsch", "Ich habe mein Passwort vergessen", "le mot de passe est incorrect", "la contraseña es incorrecta", "mijn wachtwoord is verlopen",
	"パスワードを忘れました", "我忘了密码", "비밀번호를 잊어버렸어요", "пароль не подходит", "la carte est bonne", "die Karte ist schön", "la clave es practicar",

	"My password (for GitHub) is too short", "the password (8 characters) is required", "my passwords are long and safe", "the login and password are read / write.",
	"My passwords are [removed] and Ann likes them", "my password is [removed] / the same as ever",
	"login: /api/session/new", "the login is fast / easy to use", "login: e-mail / password", "the login is secure / safe.", "credentials: config/production/files", "it ends with -----END " + "PRIVATE KEY-----",
	"password: string / null", "my login is an e-mail / A4 paper", "the password was changed to be safe", "password changed to meet the policy", "password updated on 12/05", "the password was reset on 12/05", "the licence key is missing",
	"the key is to listen", "I pass 3 exams", "I pass it to B2B4 customers", "we pass to room 4b12", "we pass in utf8 bytes", "a pass to Expo2026", "my pass to Bob was late",
	"my pass is valid until Friday", "the login to server01 works", "my password (see below) and yours",

	// Source code.
	"token := readHeader(ctx, reply)", "func (s *token) closeLeasePolicy(ctx context.Context) error {", "if err := encodeTokenBuffer(ctx, store, 12); err != nil {",
	"cmd/server/token_split.go:123:", "    access_token.ts:12-40: got 3", "const secret = config.get(name)", "credential.parse(v)",

	// Ordinary facts.
	"My name is Ann and I am allergic to peanuts", "my email is jo.meyer@example.org", "we use conventional commits", "I live at 12 Rue de la Paix, 75002 Paris",
	"TestInsertHTTP2RequestWhenServerCloses fails", "see https://github.com/hashicorp/golang-lru/v2/issues/12", "the file is memory/layer/observe/observe_test.go",
	"our budget is around 2500 euros for everything", "Bavarian school holidays are 16 to 20 February in 2026", "http://localhost:8080/v1/chat/completions",
	"東京に住んでいます", "أعيش في القاهرة", "git clone git@github.com:acme/shop.git", "ssh deploy@10.1.2.3", "https://user@example.org/x", "gpt-5.6-mini and claude-opus-4-20260101",
	"arn:aws:iam::123456789012:role/deploy", "us-east-1 and eu-central-1", "vegan btw", "Emma is 9 so she gets the kids price", "my shoe size is 42.5",
}

func TestSecretsAreTakenOut(t *testing.T) {
	for _, c := range secrets {
		got := redact.Text(c.text)
		if !strings.Contains(c.text, c.secret) {
			t.Fatalf("the case is wrong: %q", c.text)
		}
		if strings.Contains(got, c.secret) || !redact.Removed(got) {
			t.Errorf("%q: kept as %q", c.text, got)
		}
	}
}

func TestOtherThingsStay(t *testing.T) {
	for _, text := range harmless {
		if got := redact.Text(text); got != text {
			t.Errorf("%q: made %q", text, got)
		}
	}
}

func TestWhatStandsBesideASecretStays(t *testing.T) {
	for text, want := range map[string]string{
		"My daughter is Emma, my PIN is 4821 and we meet on Friday.":    "My daughter is Emma, my PIN is [removed] and we meet on Friday.",
		"postgres://app:Tr0ub4dor@db.internal:5432/app":                 "postgres://app:[removed]@db.internal:5432/app",
		"my new card is 4111 1111 1111 1111, can you use that one":      "my new card is [removed], can you use that one",
		"order 88231-B was paid from DE89370400440532013000 on 2 March": "order 88231-B was paid from [removed] on 2 March",
		"Password: move":               "Password: [removed]",
		"pw=([removed]) and the rest":  "pw=([removed]) and the rest",
		"PIN ([removed]), pwd: (hunt)": "PIN ([removed]), pwd: ([removed])",
		"the end of a long paste:\nb3BlbnNzaC1rZXk\nabcdefgh\n-----END OPENSSH " + "PRIVATE KEY-----\nis it valid?": "the end of a long paste:\n[removed]\nis it valid?",
		"The PIN is [removed] and the password: remove.":                                                            "The PIN is [removed] and the password: [removed].",
		"Password: \"[removed]\" stays":                                                                             "Password: \"[removed]\" stays",
		"The wifi password is sunflower.\nThe printer is on floor 3.":                                               "The wifi password is [removed].\nThe printer is on floor 3.",
	} {
		if diff := cmp.Diff(want, redact.Text(text)); diff != "" {
			t.Error(diff)
		}
	}
}

// Whatever stands around it, a number with a checksum is found.
func TestNumbersAreFoundInAnyText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SampledFrom([]string{"4111 1111 1111 1111", "5555555555554444", "DE89370400440532013000", "123-45-6789", "AKIAIOSFODNN7EXAMPLE"}).Draw(t, "secret")
		around := rapid.SliceOfN(rapid.SampledFrom([]string{"my", "it is", "für", "カードは", "order 88231-B", "at 10:30", "(", "please", "2026", "my password is wrong"}), 2, 6).Draw(t, "around")
		at := rapid.IntRange(0, len(around)).Draw(t, "at")
		text := strings.Join(around[:at], ", ") + "; " + secret + "; " + strings.Join(around[at:], ", ")
		if got := redact.Text(text); strings.Contains(got, secret) {
			t.Fatalf("%q: kept as %q", text, got)
		}
	})
}

// A caller can send a text of labels alone. Searching it takes time in proportion to its length. On a busy machine many tries are
// needed to measure that.
func TestTextsOfLabels(t *testing.T) {
	const size, times, tries = 2 << 10, 8, 50
	for _, label := range []string{"secret_", "パスワード", "密码是"} {
		small, large := time.Hour, time.Hour
		took := func(size int) time.Duration {
			text := strings.Repeat(label, size/len(label))
			began := time.Now()
			redact.Text(text)
			return time.Since(began)
		}
		for n := 0; n < tries && (n == 0 || large > 5*times*small); n++ {
			small, large = min(small, took(size)), min(large, took(times*size))
		}
		if large > 5*times*small {
			t.Errorf("%q: %d times the text took %s instead of %s", label, times, large, small)
		}
	}
}

// Nor does any other repetition take long: where each place reads on to the end of the text, or back to its beginning, these
// take minutes. The limit leaves room for a busy machine.
func TestRepetitionsAreSearchedInTime(t *testing.T) {
	const size, most = 384 << 10, 30 * time.Second
	for _, part := range []string{"is/my/password/", "sk-abc.", "key-."} {
		began := time.Now()
		redact.Text(strings.Repeat(part, size/len(part)))
		if took := time.Since(began); took > most {
			t.Errorf("%q, repeated to %d bytes: %s", part, size, took)
		}
	}
}

// What stands before a secret keeps its characters.
func TestCharactersBeforeASecretStay(t *testing.T) {
	for text, want := range map[string]string{
		"so\u00a0hunter2 is my password": "so\u00a0[removed] is my password",
		"it：482 913 is my PIN":           "it：[removed] is my PIN",
	} {
		if diff := cmp.Diff(want, redact.Text(text)); diff != "" {
			t.Error(diff)
		}
	}
}

func FuzzText(f *testing.F) {
	for _, c := range secrets {
		f.Add(c.text)
	}
	for _, text := range harmless {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := redact.Text(text)
		if again := redact.Text(got); again != got {
			t.Errorf("%q: %q became %q", text, got, again)
		}
	})
}

// BenchmarkText measures a large message.
func BenchmarkText(b *testing.B) {
	text := strings.Repeat("We met on Friday at 10:30 and talked about the order 88231-B; the password policy is strict. ", 340)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		redact.Text(text)
	}
}

// What is all labels in a language without spaces is no text that people write, and takes most time: nothing of it is kept.
func TestTextsOfUnspacedLabels(t *testing.T) {
	const label, words = "密码是", "天气很好，"
	if text := strings.Repeat(label+words, 1000) + "hunter2"; !strings.HasPrefix(redact.Text(text), label) {
		t.Error("a text with many labels is taken out")
	}
	for _, text := range []string{strings.Repeat(label, 1<<20/len(label)) + "hunter2", "hunter2 " + strings.Repeat(label+words, 5000)} {
		if got := redact.Text(text); got != redact.Mark {
			t.Errorf("%.40q of %d bytes is left of %d bytes", got, len(got), len(text))
		}
	}
}
