// Command rocast-cp copies files from one host to many by a group of librocast.
//
// make build makes it without a C compiler, and then it can only say so: the package librocast has
// the one that copies (packaging/librocast).
package main

import (
	"context"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/host/copying/program"
	"github.com/rocast/rocast/packaging/manual"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	_, err := unix.IoctlGetTermios(int(os.Stderr.Fd()), unix.TCGETS)
	env := &program.Environment{
		Transport: transport{}, In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Getenv: os.Getenv, Terminal: err == nil,
	}
	root := env.Command(version.Build().Version)
	root.AddCommand(manual.Command(manual.Page{
		Section: 1, Version: root.Version, SeeAlso: []string{"rocast(3)", "rocast(1)", "rocastd(8)"},
	}))
	os.Exit(env.Execute(ctx, root, os.Args[1:]))
}
