package past

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// notRecalled are the tags whose text may be recalled when a message quotes it, and why.
var notRecalled = map[string]string{
	"documents": "clients put documents of their own into this tag, which are a part of what was said",

	"procedure": "the operator's text", "reminder": "the operator's text", "plan_mode": "the operator's text", "steering_feedback": "the operator's text",
	"current_datetime": "the time", "plan_outcome": "one line, without the plan",

	"transcript": "a prompt", "known": "a prompt", "conversation": "a prompt", "summary_so_far": "a prompt", "request": "a prompt", "file": "a prompt",
}

// A tag that a kind of layer puts around its block is one of toldTags, or there is a reason why not.
func TestToldTagsAreComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../layers/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, "../summary/summary.go", "../view/update.go")
	tags := regexp.MustCompile(`Block\("([a-z_]+)"|BlockWithin\([^"\n]*"([a-z_]+)"|\b(?:tag|updateTag)(?:, text)?\s*=\s*"([a-z_]+)"|["\x60]<([a-z_]+)[ >]`)
	found, withTag, recalls := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Base(filepath.Dir(file))
		recalls[folder] = recalls[folder] || strings.Contains(string(source), ") Recall(")
		for _, m := range tags.FindAllStringSubmatch(string(source), -1) {
			tag := strings.Join(m[1:], "")
			found[tag], withTag[folder] = true, true
			if notRecalled[tag] == "" && !strings.Contains(" "+toldTags+" ", " "+tag+" ") {
				t.Errorf("%s: recall repeats what a message quotes of the block <%s>", file, tag)
			}
		}
	}

	for tag := range strings.FieldsSeq(toldTags) {
		if !found[tag] {
			t.Errorf("no layer has a block <%s>", tag)
		}
	}
	for folder := range recalls {
		configured := folder == "staticcontent" || folder == "http" // the operator names the tag
		if recalls[folder] && !configured && !withTag[folder] {
			t.Errorf("no tag was found in %s", folder)
		}
	}
}

func TestQuotedBlocksAreNotStated(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"You said:\n<recalled>\n- a\n</recalled>\nIs it so?":                                       "You said:\n\n\nIs it so?",
		"<tool_memory tool=\"x\">\nResults\nr\n</tool_memory> I see.":                              "I see.",
		"<memory_update>\nThis is new:\n<working_memory>\n{}\n</working_memory>\n</memory_update>": "",
		"a <recalled>\n1\n</recalled> b <recalled>\n2\n</recalled> c":                              "a \n b \n c",
		"<recalled>\nnever closed":                                                                 "<recalled>\nnever closed",
		"<recalled_x>\n1\n</recalled_x>":                                                           "<recalled_x>\n1\n</recalled_x>",
		"<documents>\nThe contract ends in May.\n</documents>\nWhen is the end?":                   "<documents>\nThe contract ends in May.\n</documents>\nWhen is the end?",
		"  I wrote <b>this</b>.\n":                                                                 "  I wrote <b>this</b>.\n",
	} {
		if have := withoutTold(text); have != want {
			t.Errorf("%q states %q, want %q", text, have, want)
		}
	}
}
