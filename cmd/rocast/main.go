// Command rocast talks to rocastd over its socket.
//
// Nouns only read, verbs change. Every command takes --socket PATH and --json. With --json exactly one JSON document goes to
// standard output, whatever happens: the answer, or {"error": {"kind", "message", "line"}}. Without it answers are tables
// on standard output and errors a sentence on standard error.
//
// Exit status: 0 done; 1 the daemon refused or failed; 2 wrong arguments, nothing was sent; 3 no daemon answers.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"

	"github.com/rocast/rocast/ctl/api"
)

const (
	exitOK          = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
)

// env is what a command sees of the world, so that tests call it as a shell would.
type env struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           api.Dial // nil: the socket itself
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	e := env{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	exit := e.run(ctx)
	stop()
	os.Exit(exit)
}

// run executes the command line and returns the exit status.
func (e *env) run(ctx context.Context) int {
	a := &app{env: e}
	cmd := a.root()
	cmd.SetArgs(e.args)
	cmd.SetOut(e.stdout)
	cmd.SetErr(e.stderr)
	if err := cmd.ExecuteContext(ctx); err != nil {
		return a.fail(err)
	}
	return exitOK
}
