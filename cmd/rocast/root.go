package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/packaging/manual"
)

// app is one execution of the program.
type app struct {
	*env
	json     bool
	socket   string
	remote   remote
	watching bool      // the command shows the same again and again
	screen   io.Writer // standard output, whatever stdout is at the moment
}

func (a *app) client() *client.Client {
	if a.remote.url != "" {
		return a.remote.client()
	}
	if a.dial != nil {
		return client.Over(a.socket, a.dial)
	}
	return client.New(a.socket)
}

func (a *app) root() *cobra.Command {
	root := a.noun("rocast", "One RC queue pair, many receivers: ask rocastd, and tell it",
		a.noun("group", "Groups: a source and its receivers",
			a.patient(a.groupCreate()), a.patient(a.groupUpdate()), a.watchable(a.groupList()), a.watchable(a.groupShow()),
			a.patient(a.groupTree()), a.patient(a.groupRemove())),
		a.noun("member", "Members: the QPs of a group", a.patient(a.memberReady())),
		a.noun("region", "Regions: the memory of a group, while it runs",
			a.patient(a.regionAdd()), a.patient(a.regionLoad()), a.patient(a.regionRemove()), a.regionList()),
		a.noun("perftest", "perftest: unmodified ib_write_bw and ib_send_bw over a group",
			a.patient(a.perftestUp()), a.patient(a.perftestDown()), a.perftestList()),
		a.noun("cm", "RDMA-CM: programs connect to a group as to a host",
			a.patient(a.cmUp()), a.patient(a.cmDown()), a.cmList()),
		a.noun("trace", "Traces: what would happen with a frame, and what does happen", a.traceInject(), a.traceGroup()),
		a.noun("port", "Ports: the interfaces that carry groups", a.watchable(a.portList())),
		a.noun("log", "The daemon's log", a.logLevel()),
		a.watchable(a.status()), a.watchable(a.stats()), a.top(), a.watchable(a.drops()),
		a.events(), a.capture(), a.features(), a.patient(a.reload()), a.patient(a.doctor()), a.bundle(), a.version(),
		manual.Command(manual.Page{
			Section: 1, Version: version.Build().Version, SeeAlso: []string{"rocastd(8)"},
			Files: []manual.Item{{Name: client.DefaultSocket, Text: "the daemon's socket"}},
		}),
	)
	root.Long = `rocast controls rocastd over its socket. The commands ls, show, tree, status, top, stats, drops, events, features, version,
doctor and bundle only read. So do capture and trace, which only root may use; while capture and trace group run, the kernel engine leaves their
groups to AF_XDP. create, update, add, rm, ready, up, down and reload change something, and so does log level with a level.

A daemon on another machine is asked with --api, --cert, --key and --ca; clients: in its config has to name the certificate.

With --json rocast always writes exactly one JSON document to standard output: the answer, or
{"error": {"kind": ..., "message": ..., "line": ...}}. Without --json errors go to standard error.

Exit status: 0 done; 1 the daemon refused or failed; 2 wrong arguments, nothing was sent; 3 no daemon answers; 4 rocast status
found that the box is not healthy, or rocast doctor that something needs a look.`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&a.socket, "socket", client.DefaultSocket, "the daemon's socket `path`")
	a.remote.addFlags(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		return cmp.Or(refuseEmptyFlags(cmd), a.remote.check(cmd))
	}
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print one JSON document, errors included")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(cmd, "%v", err)
	})
	strictNumbers(root)
	return root
}

// patient lets a command that may take long say so after a while.
func (a *app) patient(cmd *cobra.Command) *cobra.Command {
	do := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.patience > 0 {
			said := make(chan struct{})
			timer := time.AfterFunc(a.patience, func() {
				fmt.Fprintln(a.stderr, "not done yet; this may take some seconds")
				close(said)
			})
			defer func() {
				if !timer.Stop() {
					<-said // the error comes behind it
				}
			}()
		}
		return do(cmd, args)
	}
	return cmd
}

// noun returns a command that only holds other commands.
func (a *app) noun(name, short string, verbs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE:  refuseNoun,
	}
	cmd.AddCommand(verbs...)
	return cmd
}

// refuseNoun says which commands a noun has. It is executed if the command line names none of them.
func refuseNoun(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(cmd, "there is no %q here", args[0])
	}
	var names []string
	for _, verb := range cmd.Commands() {
		if verb.IsAvailableCommand() {
			names = append(names, verb.Name())
		}
	}
	return usage(cmd, "a command is missing: %s", strings.Join(names, ", "))
}

// strictDefaults lets the commands that cobra adds refuse what they do not know, like all others.
func strictDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, refuseNoun
		case "help":
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if _, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return usage(cmd, "there is no command %q", strings.Join(args, " "))
				}
				return nil
			}
		}
	}
}

// refuseEmptyFlags refuses flags that are given without a value: in a script a variable may be
// unset, and what is meant is neither everything nor the default.
func refuseEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		list, isList := f.Value.(pflag.SliceValue)
		if err == nil && (f.Value.String() == "" || isList && len(list.GetSlice()) == 0) {
			err = usage(cmd, "--%s is empty; write a value, or leave --%[1]s out", f.Name)
		}
	})
	return err
}

// takes returns a check that a command line has exactly the named arguments.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usage(cmd, "%s is missing", strings.Join(names[len(args):], " "))
		}
		return mayTake(names...)(cmd, args)
	}
}

// mayTake returns a check that a command line has no others than the named arguments.
func mayTake(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > len(names) {
			return usage(cmd, "%q is one argument too many", args[len(names)])
		}
		if i := slices.Index(args, ""); i >= 0 {
			return usage(cmd, "%s is empty", names[i])
		}
		return nil
	}
}

// groupFlag lets a command show what is about one group only.
func (a *app) groupFlag(cmd *cobra.Command, group *string, text string) {
	cmd.Flags().StringVar(group, "group", "", text)
	completeFlag(cmd, "group", completed(a.anyGroup))
}

// strictNumber is the value of a flag that is a number.
type strictNumber struct{ pflag.Value }

func (n strictNumber) Set(text string) error {
	if api.LeadingZero(text) {
		return api.ErrLeadingZero
	}
	return n.Value.Set(text)
}

// strictNumbers lets the flags of all commands refuse numbers with a leading zero.
func strictNumbers(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if strings.Contains(f.Value.Type(), "int") { // int and uint32, too
			f.Value = strictNumber{f.Value}
		}
	})
	for _, sub := range cmd.Commands() {
		strictNumbers(sub)
	}
}

// usage returns an error about the command line itself.
func usage(cmd *cobra.Command, format string, args ...any) error {
	e := api.Errorf(api.Usage, format, args...)
	e.Message += "; see " + cmd.CommandPath() + " --help"
	return e
}
