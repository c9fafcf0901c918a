// Command rocastd is the daemon. It forwards the frames of groups between the interfaces that its
// config names.
//
// The daemon stays in the foreground. It is ready when its socket answers, and then sends READY=1
// to systemd. It writes its log to standard error. On SIGTERM or SIGINT it releases everything: BPF
// programs, sockets and addresses. Groups stay in the state directory, and the next start restores
// them. On SIGHUP the daemon reloads its config (package ctl/reload), as after rocast reload.
//
// Exit status: 0: the daemon was stopped; 1: the daemon could not start or could not continue; 64:
// wrong arguments; 78: every start with this config would fail in the same way. After 64 or 78,
// packaging/rocastd.service does not start the daemon again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/dataplane/afxdp"
	"github.com/rocast/rocast/packaging/manual"
)

const (
	exitOK    = 0
	exitError = 1
	// The values come from sysexits.h. The value 2 is not used here: a Go program that panics exits
	// with 2, and systemd must restart the daemon after a panic.
	exitUsage  = 64
	exitConfig = 78
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	exit = exitUsage // valid until the arguments are parsed
	cmd := command(func(file string, onlyCheck bool) error {
		exit = exitConfig
		c, err := config.Load(file)
		if err == nil && onlyCheck {
			if err = check(&c); err == nil {
				fmt.Fprintf(stdout, "%s: rocastd can start with this config\n", file)
				for _, note := range afxdp.Notes(c.Ports) {
					fmt.Fprintf(stdout, "%s: %s\n", file, note)
				}
			}
			return err
		}
		if err == nil {
			checked := c // serve looks the ports up again
			err = findMistakes(&checked)
		}
		if err != nil {
			return err
		}
		if err = serve(ctx, c, hangups, stderr); !errors.As(err, new(mistake)) {
			exit = exitError
		}
		return err
	})
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "rocastd:", err)
		return exit
	}
	return exitOK
}

func command(start func(configFile string, onlyCheck bool) error) *cobra.Command {
	var file string
	var onlyCheck bool
	cmd := &cobra.Command{
		Use:   "rocastd",
		Short: "Carry RoCEv2 groups: one source's RC queue pair, many receivers",
		Long: `rocastd forwards the frames of groups between the interfaces that its config names. It stays in the foreground, and writes its
log to standard error. It is ready when its socket answers, and then tells systemd so.

On SIGTERM or SIGINT it releases everything: BPF programs, sockets and addresses. The groups stay in the state directory,
and the next start restores them. On SIGHUP it reloads the config, like rocast reload, and logs the outcome.

Exit status: 0 it was stopped; 1 it could not start or could not continue; 64 wrong arguments; 78 every start with this
config would fail in the same way. After 64 or 78 the unit rocastd.service does not start it again.`,
		Args:          cobra.NoArgs,
		Version:       version.Build().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return start(file, onlyCheck) },
	}
	cmd.Flags().BoolVar(&onlyCheck, "check", false, "only check the config and what it names; change nothing")
	cmd.Flags().StringVar(&file, "config", config.DefaultFile, "config `file`")
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.SetHelpCommand(&cobra.Command{Hidden: true}) // --help says the same
	cmd.AddCommand(manual.Command(manual.Page{
		Section: 8, Version: cmd.Version, SeeAlso: []string{"rocast(1)"},
		Files: []manual.Item{
			{Name: config.DefaultFile, Text: "the config; its comments explain every key"},
			{Name: api.DefaultSocket, Text: "the socket of the API"},
			{Name: config.DefaultStateDir, Text: "the groups that a start restores"},
		},
	}))
	return cmd
}

// serve opens the service and runs it until ctx is done.
func serve(ctx context.Context, c config.Config, hangups <-chan os.Signal, stderr io.Writer) error {
	log, err := newLog(c, stderr)
	if err != nil {
		return err
	}
	collect := putOffGC()
	defer collect()
	d, err := open(c, log, openSwitch)
	if err != nil {
		return err
	}
	d.hangups = hangups
	d.ready = func() error {
		defer collect()
		probe()
		return dropStartCapability()
	}
	return d.run(ctx)
}
