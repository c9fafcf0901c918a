package manual

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// program has a command with everything that a page shows, and two that no page shows.
func program() *cobra.Command {
	run := func(*cobra.Command, []string) error { return nil }
	root := &cobra.Command{Use: "prog", Short: "Does it", Long: "First.\nSecond 'quoted'.\n\n.exec \\ begins a line"}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().Bool("json", false, "print JSON")
	noun := &cobra.Command{Use: "group", Short: "Groups"}
	verb := &cobra.Command{Use: "show NAME", Short: "Show", Long: "Show.\n\nSo:\n  a: 1  # two\n  b: 2", RunE: run}
	verb.Flags().StringP("file", "f", "/etc/x", "the `FILE`")
	noun.AddCommand(verb)
	root.AddCommand(noun, &cobra.Command{Use: "rm", Short: "Remove", RunE: run}, Command(Page{
		Section: 1, Version: "v1", Files: []Item{{Name: "/run/s", Text: "the socket"}}, SeeAlso: []string{"other(8)"},
	}))
	return root
}

func page(t *testing.T, root *cobra.Command) string {
	t.Helper()
	var out strings.Builder
	root.SetOut(&out)
	root.SetArgs([]string{"man"})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestThePageHasEveryCommand(t *testing.T) {
	const want = `.TH PROG 1 "" "rocast v1"
.SH "NAME"
prog \- Does it
.SH "SYNOPSIS"
.B "prog group show NAME [flags]"
.br
.B "prog rm"
.br
.SH "DESCRIPTION"
.PP
First.
Second \(aqquoted\(aq.
.PP
\&.exec \e begins a line
.SH "COMMANDS"
.SS "prog group show NAME"
.PP
Show.
.PP
.nf
So:
  a: 1  # two
  b: 2
.fi
.TP
.B "\-f, \-\-file FILE"
the FILE (default /etc/x)
.SS "prog rm"
.PP
Remove.
.SH "OPTIONS"
.TP
.B "\-\-json"
print JSON
.SH "FILES"
.TP
.B /run/s
the socket
.SH "SEE ALSO"
other(8)
`
	if got := page(t, program()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A program without commands has its own flags, and no list of commands.
func TestAProgramWithoutCommandsHasAPage(t *testing.T) {
	root := &cobra.Command{Use: "daemon", Short: "Runs", Long: "It runs.", RunE: func(*cobra.Command, []string) error { return nil }}
	root.Flags().Bool("check", false, "only check")
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(Command(Page{Section: 8}))
	got := page(t, root)
	for _, want := range []string{".B \"daemon [flags]\"\n", ".B \"\\-\\-check\"\nonly check\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "COMMANDS") {
		t.Errorf("it has commands:\n%s", got)
	}
}
