package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/doctor"
	"github.com/rocast/rocast/internal/testlab"
)

const reference = "../../docs/reference.md"

// What rocast itself explains is in the reference, too; -update writes it there.
func TestTheReferenceHasWhatRocastExplains(t *testing.T) {
	counters := [][]string{{"counter", "one for each time that this happened"}}
	all := meanings()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		counters = append(counters, []string{"`" + name + "`", all[name]})
	}
	testlab.Table(t, reference, "## Every counter", *update, counters...)
	events := [][]string{{"event", "meaning"}}
	for _, m := range api.EventMeanings() {
		events = append(events, []string{"`" + string(m.Kind) + "`", m.Meaning})
	}
	testlab.Table(t, reference, "## Events", *update, events...)
	checks := [][]string{{"check", "what should be seen", "by hand"}}
	for _, c := range doctor.Checks() {
		checks = append(checks, []string{"`" + c.Name + "`", c.Want, "`" + c.Command + "`"})
	}
	testlab.Table(t, reference, "## Checks of the doctor", *update, checks...)
	hardware := [][]string{{"name", "what nobody has seen", "command", "what it should show"}}
	for _, h := range doctor.Hardware() {
		hardware = append(hardware, []string{"`" + h.Name + "`", h.Unseen, "`" + h.Command + "`", h.Shows})
	}
	testlab.Table(t, "../../docs/install.md", "## What only real hardware can show", *update, hardware...)
	commands := [][]string{{"command", "what it does", "flags"}}
	for _, cmd := range leaves(newRoot()) {
		var flags []string
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			if f.Name != "help" {
				flags = append(flags, "`--"+f.Name+"`")
			}
		})
		commands = append(commands, []string{"`" + cmd.CommandPath() + "`", cmd.Short, strings.Join(flags, ", ")})
	}
	testlab.Table(t, reference, "## Commands", *update, commands...)
}

// The table of NICs says of every driver that the doctor calls tried how it was.
func TestTheTableOfNICsHasTheDriversThatWereTried(t *testing.T) {
	page, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), "\n", " ")
	if want := "calls these drivers tried: `" + strings.Join(doctor.Tried, "`, `") + "`."; !strings.Contains(text, want) {
		t.Errorf("docs/install.md does not have: %s", want)
	}
	for _, driver := range doctor.Tried {
		if !regexp.MustCompile(`(?m)^\|.*\b` + strings.ReplaceAll(driver, "_", "-") + `\b.*\| .make `).MatchString(string(page)) {
			t.Errorf("docs/install.md has no row of %s that says how it was tried", driver)
		}
	}
}

func newRoot() *cobra.Command { return (&app{env: &env{}}).root() }

// leaves returns the commands that do something.
func leaves(cmd *cobra.Command) (list []*cobra.Command) {
	for _, c := range cmd.Commands() {
		if !c.Hidden {
			list = append(list, leaves(c)...)
		}
	}
	if len(list) == 0 {
		list = append(list, cmd)
	}
	return list
}

// documents returns what users read.
func documents(t *testing.T) []string {
	t.Helper()
	var files []string
	for _, glob := range []string{"../../*.md", "../../docs/*.md"} {
		found, err := filepath.Glob(glob)
		if err != nil || len(found) == 0 {
			t.Fatal(glob, err)
		}
		files = append(files, found...)
	}
	return files
}

// typed finds a command line of rocast that begins in one of these ways.
var typed = regexp.MustCompile("(?m)(?:`|^\\s*(?:\\$ |# |on the box +)?|&& )(?:sudo )?rocast((?: [a-z-]+| --?[a-z-]+(?:[= ][^\\s`|-]\\S*)?)+)")

// prose is what stands outside of blocks of code, apart from words in backquotes.
var prose = regexp.MustCompile("(?ms)(^```.*?^```$)|`[^`\n]*`|.")

// code returns the blocks and the words in backquotes of a document.
func code(document string) string {
	return prose.ReplaceAllStringFunc(document, func(s string) string {
		if len(s) == 1 && s != "\n" || len(s) > 1 && s[0] != '`' {
			return ""
		}
		return s
	})
}

// Every command line in the documents has commands and flags that exist.
func TestDocumentsNameCommandsThatExist(t *testing.T) {
	found := 0
	for _, file := range documents(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range typed.FindAllStringSubmatch(code(string(text)), -1) {
			found++
			if what := wrong(strings.Fields(m[1])); what != "" {
				t.Errorf("%s: rocast%s: %s", file, m[1], what)
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d command lines were found", found)
	}
	for line, want := range map[string]string{
		"group ls": "", "status --json": "", "events -w": "", "group shwo g1": "there is no command shwo", "stats --explian": "there is no flag --explian",
		"grp": "there is no command grp", "events -q": "there is no flag -q", "member ready g1 --ip x --qpn 1": "",
	} {
		if got := wrong(strings.Fields(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// wrong says what in a command line does not exist.
func wrong(words []string) string {
	cmd := newRoot()
	for i := 0; i < len(words); i++ {
		name, _, given := strings.Cut(words[i], "=")
		switch {
		case name == "-h", name == "--help":
		case strings.HasPrefix(name, "-"):
			flag := cmd.Flag(strings.TrimPrefix(name, "--"))
			if short := strings.TrimPrefix(name, "-"); len(short) == 1 {
				flag = cmd.Flags().ShorthandLookup(short)
			}
			if flag == nil {
				return "there is no flag " + name
			}
			if !given && flag.Value.Type() != "bool" {
				i++ // its value
			}
		case cmd.HasSubCommands() && name != "help" && name != "completion":
			next, _, err := cmd.Find([]string{name})
			if err != nil || next == cmd {
				return "there is no command " + name
			}
			cmd = next
		}
	}
	return ""
}
