// Package manual writes the man page of a program from its commands, so that the page says what
// --help says.
package manual

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page is what a man page has besides the commands of a program.
type Page struct {
	Section int
	Version string // of the program
	Files   []Item
	SeeAlso []string // such as rocastd(8)
}

// Item is a name and a text about it.
type Item struct{ Name, Text string }

// Command returns the hidden command man, which prints the man page of the program to which it is
// added.
func Command(p Page) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Short:  "Print the man page of this program",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.write(cmd.OutOrStdout(), cmd.Root())
		},
	}
}

func (p Page) write(out io.Writer, root *cobra.Command) error {
	var w roff
	w.line(".TH %s %d \"\" %s", strings.ToUpper(root.Name()), p.Section, quoted("rocast "+p.Version))
	w.section("NAME")
	w.line("%s \\- %s", escaped(root.Name()), escaped(root.Short))
	w.section("SYNOPSIS")
	commands := runnable(root)
	for _, c := range commands {
		w.line(".B %s", quoted(c.UseLine()))
		w.line(".br")
	}
	w.section("DESCRIPTION")
	w.text(root.Long)
	if len(commands) > 1 {
		w.section("COMMANDS")
		for _, c := range commands {
			w.line(".SS %s", quoted(strings.TrimSuffix(c.UseLine(), " [flags]")))
			w.text(longest(c))
			w.flags(c.LocalNonPersistentFlags())
		}
	}
	w.section("OPTIONS")
	w.flags(root.LocalFlags())
	w.section("FILES")
	for _, f := range p.Files {
		w.item(escaped(f.Name), f.Text)
	}
	w.section("SEE ALSO")
	w.line("%s", strings.Join(p.SeeAlso, ", "))
	_, err := io.WriteString(out, w.String())
	return err
}

// runnable returns the commands that a user can run, or root alone if it has none.
func runnable(root *cobra.Command) (list []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			list = append(list, runnable(c)...)
		}
	}
	if len(list) == 0 {
		list = []*cobra.Command{root}
	}
	return list
}

func longest(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short + "."
}

// roff is a man page in the language of man(7).
type roff struct{ strings.Builder }

func (w *roff) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
func (w *roff) section(title string)            { w.line(".SH %s", quoted(title)) }

func (w *roff) item(name, text string) {
	w.line(".TP\n.B %s\n%s", name, escaped(text))
}

// text writes paragraphs. A paragraph with an indented line is an example and keeps its lines.
func (w *roff) text(text string) {
	for _, paragraph := range strings.Split(strings.TrimSpace(text), "\n\n") {
		example := strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ")
		w.line(".PP")
		if example {
			w.line(".nf")
		}
		for line := range strings.SplitSeq(paragraph, "\n") {
			w.line("%s", escaped(line))
		}
		if example {
			w.line(".fi")
		}
	}
}

func (w *roff) flags(set *pflag.FlagSet) {
	set.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		value, text := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		if byItself := f.DefValue == "" || f.DefValue == "false" || f.DefValue == "0" || f.DefValue == "[]"; !byItself {
			text += fmt.Sprintf(" (default %s)", f.DefValue)
		}
		w.item(quoted(name), text)
	})
}

var special = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, `^`, `\(ha`, `~`, `\(ti`, "`", `\(ga`)

// escaped makes roff print a line as it is.
func escaped(line string) string {
	line = special.Replace(line)
	if strings.HasPrefix(line, ".") {
		line = `\&` + line
	}
	return line
}

// quoted makes a text one argument of a macro.
func quoted(text string) string {
	return `"` + strings.ReplaceAll(escaped(text), `"`, `\(dq`) + `"`
}
