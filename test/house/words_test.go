package house

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// avoided are words that a comment does not have, and what it has instead.
var avoided = []struct {
	word    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\bsays whether\b`), "reports whether, as in Go's own packages"},
}

// objectionsToWords returns what a line of a comment has instead of the usual word.
func objectionsToWords(line string) (objections []string) {
	for _, a := range avoided {
		if word := a.word.FindString(line); word != "" {
			objections = append(objections, word+": write "+a.instead)
		}
	}
	return objections
}

// A reader takes two words for two things.
func TestCommentsHaveTheUsualWords(t *testing.T) {
	checked := 0
	prose(t, func(file string, number int, line string) {
		if !strings.HasSuffix(file, ".go") {
			return
		}
		checked++
		for _, o := range objectionsToWords(line) {
			t.Errorf("%s:%d: %s", file, number, o)
		}
	})
	if checked < 5000 {
		t.Errorf("only %d lines of comments were found", checked)
	}
}

func TestObjectionsToWords(t *testing.T) {
	if got := objectionsToWords("// known says whether it is known."); len(got) != 1 {
		t.Errorf("%q", got)
	}
	if got := objectionsToWords("// known reports whether it is known; the note says why."); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// meaning is a word that stands for one thing in the names of packages' declarations.
type meaning struct {
	forms []string // of the word, in lower case
	means string
	// rooms are the folders in which a name with the word has this meaning; with a * at its end,
	// the folders below too.
	rooms []string
	// only are the folders that the rule is about, because the word means nothing elsewhere but
	// what every reader takes it for; none: all.
	only []string
	// names are names that have this meaning in a folder that is not one of rooms.
	names []string
	// others is how many names with another meaning there are below each top folder. A number only
	// falls: whoever renames some lowers it, at the latest when it is slackNames too high.
	others map[string]int
}

const slackNames = 5

var meanings = []meaning{
	{
		forms: []string{"place", "places", "placed"}, means: "the PSN up to which the source has come in its round",
		rooms: []string{"verify/model", "verify/sim"}, names: []string{"feedback.place"},
	},
	{
		forms: []string{"turn", "turns"}, means: "a member's time as the source",
		rooms: []string{"ctl", "ctl/chronicle", "ctl/ctltest", "ctl/edges", "ctl/groups", "ctl/refused", "ctl/shared", "ctl/watch", "dataplane", "feedback", "mft", "verify/sim"},
	},
	{
		forms: []string{"leave", "leaves"}, means: "a member's part in a group ends",
		rooms: []string{"client", "ctl", "ctl/branches", "ctl/chronicle", "ctl/cm", "ctl/gather", "ctl/hosts", "ctl/services", "feedback", "verify/sim"},
		// How a host's request and a service's end it.
		names: []string{"ctl/server.Leave", "ctl/server.leaveHost"},
	},
	{
		forms: []string{"tell", "tells"}, means: "the source is sent an ACK or a NAK; else write notify, report or send",
		rooms: []string{"dataplane*", "feedback", "internal/merger", "verify/model"},
	},
	{
		forms: []string{"settle", "settles", "settled"}, means: "nothing is under way any more",
		rooms: []string{"client", "ctl/cm", "dataplane", "feedback"},
	},
	{
		forms: []string{"leg", "legs"}, means: "the way from the box to one host: how a copy leaves by it, and what repair knows of it",
		rooms: []string{"bench*", "ctl*", "dataplane*", "feedback", "mft", "verify/sim"},
	},
	{
		// IBTA's word of a packet. The box's question what a QP has is such a packet too, or a NAK
		// that is answered in the same way. What a NAK says is that a packet is lacked.
		forms: []string{"ask", "asks", "asked", "asking"}, means: "an answer is wanted: a packet requests an ACK, or a question is put to a QP",
		only:  []string{"bpf", "dataplane*", "feedback", "internal/rnic", "mft", "roce*", "verify/model"},
		rooms: []string{"bpf", "dataplane", "dataplane/porttest", "feedback", "internal/rnic", "roce"},
		names: []string{"verify/model.Asks", "verify/model.asked", "verify/model.asks", "verify/model.asksAnyway"},
	},
	{
		forms: []string{"served"}, means: "nothing: write repaired, answered or visited",
	},
	{
		forms: []string{"mend", "mends", "mended", "mending", "nudge", "feed", "feeds", "fed"},
		means: "nothing: the box repairs, the source resends, and a probe is sent because of silence",
	},
	{
		forms: []string{"push"}, means: "onto a queue", only: []string{"feedback", "dataplane"}, names: []string{"dataplane.Push"},
	},
	{
		forms: []string{"takeback"}, means: "nothing: write disarm, undo or release",
	},
}

var wordOf = regexp.MustCompile(`[A-Z]?[a-z0-9]+|[A-Z]+`)

// has reports whether a name has the word, which may be two words of the name.
func (m *meaning) has(name string) bool {
	words := wordOf.FindAllString(name, -1)
	for i := range words {
		words[i] = strings.ToLower(words[i])
	}
	for i, w := range words {
		if slices.Contains(m.forms, w) || i > 0 && slices.Contains(m.forms, words[i-1]+w) {
			return true
		}
	}
	return false
}

// isIn reports whether a folder is one of some.
func isIn(folder string, some []string) bool {
	return slices.ContainsFunc(some, func(s string) bool {
		if below, all := strings.CutSuffix(s, "*"); all {
			return folder == below || strings.HasPrefix(folder, below+"/")
		}
		return folder == s
	})
}

// another reports whether a name, which stands for its folder and itself as in feedback.place, has
// the word in another meaning.
func (m *meaning) another(folder, name string) bool {
	return m.has(name) && (m.only == nil || isIn(folder, m.only)) && !isIn(folder, m.rooms) && !slices.Contains(m.names, folder+"."+name)
}

// declared returns the names that a file declares: types, functions, parameters, fields, constants
// and variables.
func declared(f *ast.File) (names []string) {
	add := func(ids ...*ast.Ident) {
		for _, id := range ids {
			names = append(names, id.Name)
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			add(n.Name)
		case *ast.TypeSpec:
			add(n.Name)
		case *ast.Field:
			add(n.Names...)
		case *ast.ValueSpec:
			add(n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, x := range n.Lhs {
					if id, ok := x.(*ast.Ident); ok {
						add(id)
					}
				}
			}
		}
		return true
	})
	return names
}

// Two things with one name are taken for one.
func TestAWordHasOneMeaning(t *testing.T) {
	found := make([]map[string][]string, len(meanings)) // by top folder: the names with another meaning
	for _, s := range mustSources(t) {
		if s.isTest() || strings.Contains(s.path, "_bpfel") {
			continue
		}
		top, _, _ := strings.Cut(s.path, "/")
		for _, name := range declared(s.syntax) {
			for i := range meanings {
				if meanings[i].another(s.folder(), name) && !slices.Contains(found[i][top], name) {
					if found[i] == nil {
						found[i] = map[string][]string{}
					}
					found[i][top] = append(found[i][top], name)
				}
			}
		}
	}
	for i, m := range meanings {
		for top, names := range found[i] {
			slices.Sort(names)
			if len(names) > m.others[top] {
				t.Errorf("%s means: %s. Below %s %d names have it in another meaning, and %d may: %s", m.forms[0], m.means, top, len(names), m.others[top], strings.Join(names, " "))
			}
		}
		for _, top := range slices.Sorted(maps.Keys(m.others)) {
			if got := len(found[i][top]); got <= m.others[top]-slackNames || got == 0 {
				t.Errorf("below %s only %d names have the word %s in another meaning: write that number into the table", top, got, m.forms[0])
			}
		}
	}
}

func TestMeanings(t *testing.T) {
	m := meaning{forms: []string{"place", "takeback"}, rooms: []string{"verify/sim"}, only: []string{"verify*", "ctl"}, names: []string{"ctl.place"}}
	for entry, want := range map[string]bool{
		"ctl.places": false, "ctl.place": false, "ctl.samePlace": true, "ctl.replace": false, "ctl.takeBack": true,
		"verify/sim.place": false, "verify/model.place": true, "feedback.place": false,
	} {
		folder, name, _ := strings.Cut(entry, ".")
		if got := m.another(folder, name); got != want {
			t.Errorf("%s: %v", entry, got)
		}
	}
}
