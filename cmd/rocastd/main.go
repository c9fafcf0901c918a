// Command rocastd is the daemon: it carries groups between the interfaces its config names.
//
// It stays in the foreground, is ready once its socket answers (systemd is told: READY=1), keeps its log on standard error,
// and gives everything back on SIGTERM or SIGINT: programs, sockets, addresses. Groups stay in the state directory and come
// back with the next start. The config is read at the start alone: SIGHUP changes nothing, and the log says so.
//
// It exits with 0 after a stop, with 1 when it could not start or go on, with 64 after wrong arguments, with 78 when every
// start with this config would fail in the same way. packaging/rocastd.service does not try the last two again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/ctl/config"
	"github.com/rocast/rocast/ctl/version"
)

const (
	exitOK    = 0
	exitError = 1
	// sysexits.h has names for these. Not 2: a Go program that panics ends with it, and has to be started again.
	exitUsage  = 64
	exitConfig = 78
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the program at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (exit int) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, unix.SIGHUP)
	defer signal.Stop(hangups)
	exit = exitUsage // until the arguments are understood
	cmd := command(func(file string) error {
		exit = exitConfig
		c, err := config.Load(file)
		if err == nil {
			_, err = groupID(c.SocketGroup)
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

func command(start func(configFile string) error) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:           "rocastd",
		Short:         "Carry RoCEv2 groups: one source's RC queue pair, many receivers",
		Args:          cobra.NoArgs,
		Version:       version.Build().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(*cobra.Command, []string) error { return start(file) },
	}
	cmd.Flags().StringVar(&file, "config", config.DefaultFile, "config `file`")
	return cmd
}

// serve is the daemon's life.
func serve(ctx context.Context, c config.Config, hangups <-chan os.Signal, stderr io.Writer) error {
	log, err := newLog(c, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go sayConfigStays(ctx, hangups, log)
	d, err := open(c, log, openSwitch)
	if err != nil {
		return err
	}
	return d.run(ctx)
}

// sayConfigStays answers each SIGHUP, by which people expect a daemon to read its config again, until ctx is done.
func sayConfigStays(ctx context.Context, hangups <-chan os.Signal, log *zap.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			log.Warn("SIGHUP ignored: the config is read only at the start; use systemctl restart rocastd")
		}
	}
}
