// Command rocast talks to rocastd over its socket.
//
// Commands that are nouns only read; commands that are verbs change state. Every command takes
// --socket PATH and --json. With --json the command always writes exactly one JSON document to
// standard output: the answer, or {"error": {"kind", "message", "line"}}. Without --json the
// command writes the answer as a table to standard output, and an error as a sentence to standard
// error.
//
// Exit status: 0: success; 1: the daemon refused or failed; 2: wrong arguments, and no request was
// sent; 3: no daemon answers; 4: rocast status found the box not healthy, or rocast doctor found
// something that needs a look.
package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/signal"
	"time"
)

const (
	exitOK          = 0
	exitRefused     = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitUnhealthy   = 4
)

// env holds everything that a command uses from outside the program. Tests set it to run a command
// as a shell would.
type env struct {
	args           []string
	stdin          io.Reader
	stdout, stderr io.Writer
	dial           func(context.Context) (net.Conn, error) // nil: connect to the socket
	every          time.Duration                           // between two tables of a command that watches; 0: watchEvery
	patience       time.Duration                           // after which a command says that it is not done yet; 0: it never does
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	e := env{args: os.Args[1:], stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr}
	if isTerminal(os.Stderr) { // somebody waits
		e.patience = time.Second
	}
	exit := e.run(ctx)
	stop()
	os.Exit(exit)
}

// run executes the command line and returns the exit status.
func (e *env) run(ctx context.Context) int {
	a := &app{env: e, screen: e.stdout}
	cmd := a.root()
	cmd.SetArgs(e.args)
	cmd.SetOut(e.stdout)
	cmd.SetErr(e.stderr)
	strictDefaults(cmd)
	switch err := cmd.ExecuteContext(ctx); {
	case errors.Is(err, errUnhealthy):
		return exitUnhealthy
	case err != nil:
		return a.fail(err)
	}
	return exitOK
}
