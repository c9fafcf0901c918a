package house

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// longest is the number of words that a sentence of a document may have.
const longest = 29

// byHand is where a program ends that writes a document from what it has measured, and a person
// begins.
const byHand = "<!-- Written by hand from here on"

var (
	listItem    = regexp.MustCompile(`^\s*(?:[-*]|\d+\.)\s`)
	inlineCode  = regexp.MustCompile("`[^`]*`")
	sentenceEnd = regexp.MustCompile(`[.?!][)*]*(?:\s|$)`)
)

// longSentences returns the sentences of a document that have too many words, each with its number
// of words. Blocks of code, tables and headings have none; code within a line is one word.
func longSentences(document string) (long []string) {
	judge := func(paragraph string) {
		text := inlineCode.ReplaceAllString(paragraph, "code")
		for len(text) > 0 {
			end := len(text)
			if at := sentenceEnd.FindStringIndex(text); at != nil {
				end = at[1]
			}
			n := 0
			for _, word := range strings.Fields(text[:end]) {
				if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
					n++
				}
			}
			if n > longest {
				long = append(long, fmt.Sprintf("%d words: %s", n, strings.TrimSpace(text[:end])))
			}
			text = text[end:]
		}
	}
	paragraph, code := "", false
	for _, line := range strings.Split(document, "\n") {
		fence := strings.HasPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence || code || strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") || strings.HasPrefix(strings.TrimSpace(line), "|"):
			judge(paragraph)
			paragraph, code = "", code != fence
		case listItem.MatchString(line):
			judge(paragraph)
			paragraph = listItem.ReplaceAllString(line, "")
		default:
			paragraph += " " + strings.TrimSpace(line)
		}
	}
	judge(paragraph)
	return long
}

// Readers are strangers, and many are not native speakers.
func TestSentencesAreShort(t *testing.T) {
	documents := 0
	for _, name := range mustFiles(t) {
		if dir := path.Dir(name); path.Ext(name) != ".md" || dir != "." && dir != "docs" {
			continue
		}
		documents++
		text := read(t, name)
		if _, hand, found := strings.Cut(text, byHand); found {
			text = hand
		}
		for _, long := range longSentences(text) {
			t.Errorf("%s: a sentence is longer than %d words; make two of it: %s", name, longest, long)
		}
	}
	if documents < 15 {
		t.Errorf("only %d documents were found", documents)
	}
}

func TestLongSentences(t *testing.T) {
	words := strings.TrimSuffix(strings.Repeat("word ", longest), " ")
	for text, want := range map[string]int{
		words + ".":                             0,
		words + " more.":                        1,
		words + " more":                         1,
		words + ". More " + words:               1,
		words + ". " + words + "? " + words:     0,
		words + ".) " + words:                   0,
		words + "\nmore.":                       1,
		words + "\n\nmore.":                     0,
		words + "\n- more.":                     0,
		words + "\n2. more.":                    0,
		"- " + words:                            0,
		"- " + words + "\n  more":               1,
		words[5:] + " `go test ./x -run 'Y z'`": 0,
		words + " `go test`":                    1,
		words + " - + =":                        0,
		"# " + words + " more":                  0,
		"| " + words + " more |":                0,
		"```\n" + words + " more\n```":          0,
		"```\nx\n```\n" + words + " more":       1,
		words + "\n```\nmore\n```":              0,
		words[5:] + " docs/a.md again":          1,
	} {
		if got := longSentences(text); len(got) != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}
