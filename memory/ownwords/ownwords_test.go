package ownwords_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"remora/memory/ownwords"
)

func TestSentencesOfTheUser(t *testing.T) {
	f := func(text string, want ...string) {
		t.Helper()
		own, _ := ownwords.Of(text, false)
		if diff := cmp.Diff(want, ownwords.Sentences(own)); diff != "" {
			t.Errorf("%q (-want +have):\n%s", text, diff)
		}
	}

	f("My sister is Ada. She lives in Lyon!", "My sister is Ada.", "She lives in Lyon!")
	f("Dr. Weber called.\n- Ask the new cook **Ben**\n1. and Eve", "Dr. Weber called.", "Ask the new cook Ben", "and Eve")

	f("Frieda heiratet am 14. Mai 2027. Der Termin ist am 3. Dezember.", "Frieda heiratet am 14. Mai 2027.", "Der Termin ist am 3. Dezember.")
	f("I am 32. I have a cat. In May 2014. May I?", "I am 32.", "I have a cat.", "In May 2014.", "May I?")

	// Pasted, quoted and played.
	f("Please answer.\nFrom: Ruth <r@acme.test>\nSubject: parcel\n\nI live in Hamburg.", "Please answer.")
	f("Translate this: I live in Hamburg.")
	f("Here is the letter:\nI live in Hamburg.")
	f("This is important: I am allergic to nuts.", "This is important: I am allergic to nuts.")
	f("Here's what to know: I'm vegan.", "Here's what to know: I'm vegan.")
	f("Dear Sir,\nI live in Hamburg.\nYours,\nRuth")
	f("He said \"I live in Hamburg, Anna.\" to me", "He said   to me")
	f("Let's role-play: I am Nemo.")
	f("Schreib mir eine kurze Geschichte: Ich wohne auf dem Mond.")
	f("Raconte-moi une histoire drôle : j'habite sur la lune.")
	f("Escríbeme un cuento: vivo en la luna.")
	f("翻译成英文：我住在罗马。")
	f("Ich habe meiner Oma einen Brief geschrieben.", "Ich habe meiner Oma einen Brief geschrieben.")

	// Of programs.
	f("Look:\n```\nI live in Hamburg.\n```\n<recalled_text>\nI live in Hamburg.\n</recalled_text>\nDone.", "Look:", "Done.")
	f(strings.Repeat("<my-tag> ", 40)+"\nI live in Hamburg.\n<recalled_text>\nI live in Lyon.\n</recalled_text>\nDone.", "I live in Hamburg.", "Done.")
	f("Chunk ID: 3fa2\nWall time: 0.1 seconds\nOriginal token count: 12\nProcess exited with code 0\nexit code: 137\nExit code 1\nMy exit code: 7", "My exit code: 7")
	f("return x\n$ ls -l\nfunc main() {\nOk.", "Ok.")
}

func TestPlay(t *testing.T) {
	for _, text := range []string{
		"Let's role-play, I am Nemo.", "Lass uns ein Rollenspiel machen, ich bin Nemo.", "Jouons un jeu de rôle, je suis Nemo.", "Juguemos un juego de rol, soy Nemo.",
		"我们来角色扮演吧，我是尼莫。", "ロールプレイをしましょう。私はネモです。",
	} {
		if own, plays := ownwords.Of(text, false); own != "" || !plays {
			t.Errorf("%q: no role play begins, and %q is said", text, own)
		}
		if own, plays := ownwords.Of("I live at the bottom of the sea.", true); own != "" || !plays {
			t.Errorf("it ends, and %q is said", own)
		}
	}
	for text, want := range map[string]bool{
		"ok, stop the role play": true, "Stop!": true, "okay, enough of this": true, "Let's end the game here": true, "ooc: where were we?": true, "back to reality": true,
		"Schluss mit dem Rollenspiel!": true, "Ok, stopp.": false, "Stopp!": true, "Arrêtons le jeu.": true, "¡Basta!": true, "结束角色扮演吧": true, "ロールプレイを終わりましょう": true,
		"All hands on deck!": false, "Stoppt das Schiff!": false, "Schluss, aus, an die Ruder!": false, "停船！": false, "Enough talk! Draw your sword!": false, "I will never stop looking for her": false, "This is the end, Nemo": false,
	} {
		if _, plays := ownwords.Of(text, true); plays == want {
			t.Errorf("%q ends the play: %v", text, !want)
		}
	}
}
