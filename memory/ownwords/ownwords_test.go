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
		own, _ := ownwords.Of(text)
		if diff := cmp.Diff(want, ownwords.Sentences(own)); diff != "" {
			t.Errorf("%q (-want +have):\n%s", text, diff)
		}
	}

	f("My sister is Ada. She lives in Lyon!", "My sister is Ada.", "She lives in Lyon!")
	f("Dr. Weber called.\n- Ask the new cook **Ben**\n1. and Eve", "Dr. Weber called.", "Ask the new cook Ben", "and Eve")

	// Pasted, quoted and played.
	f("Please answer.\nFrom: Ruth <r@acme.test>\nSubject: parcel\n\nI live in Hamburg.", "Please answer.")
	f("Translate this: I live in Hamburg.")
	f("Here is the letter:\nI live in Hamburg.")
	f("This is important: I am allergic to nuts.", "This is important: I am allergic to nuts.")
	f("Here's what to know: I'm vegan.", "Here's what to know: I'm vegan.")
	f("Dear Sir,\nI live in Hamburg.\nYours,\nRuth")
	f("He said \"I live in Hamburg, Anna.\" to me", "He said   to me")
	f("Let's role-play: I am Nemo.")

	// Of programs.
	f("Look:\n```\nI live in Hamburg.\n```\n<recalled_text>\nI live in Hamburg.\n</recalled_text>\nDone.", "Look:", "Done.")
	f(strings.Repeat("<my-tag> ", 40)+"\nI live in Hamburg.\n<recalled_text>\nI live in Lyon.\n</recalled_text>\nDone.", "I live in Hamburg.", "Done.")
	f("Chunk ID: 3fa2\nWall time: 0.1 seconds\nOriginal token count: 12\nProcess exited with code 0\nexit code: 137\nExit code 1\nMy exit code: 7", "My exit code: 7")
	f("return x\n$ ls -l\nfunc main() {\nOk.", "Ok.")
}

func TestPlay(t *testing.T) {
	if _, plays := ownwords.Of("Let's role-play, I am Nemo."); !plays {
		t.Error("a role play does not begin")
	}
	for text, want := range map[string]bool{
		"ok, stop the role play": true, "Stop!": true, "okay, enough of this": true, "Let's end the game here": true, "ooc: where were we?": true, "back to reality": true,
		"All hands on deck!": false, "Enough talk! Draw your sword!": false, "I will never stop looking for her": false, "This is the end, Nemo": false,
	} {
		if ownwords.EndsPlay(text) != want {
			t.Errorf("%q ends the play: %v", text, !want)
		}
	}
}
