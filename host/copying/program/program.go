// Package program is the command rocast-cp, for any transport: that of librocast, and that of the
// soft NICs of the lab.
package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/host/copying"
)

// Membership is what a transport joins.
type Membership struct {
	Box     string // ADDRESS:PORT
	Group   string
	Members int
	Wait    time.Duration // for the other members
}

// Sending is a membership of a source.
type Sending interface {
	copying.Sender
	Local() netip.Addr // of this host, as the receivers reach it
	Close() error
}

// Receiving is a membership of a receiver.
type Receiving interface {
	copying.Inbox
	Local() netip.Addr // of this host, as other receivers reach it
	// Has reports whether a host is another member of the group, as the box says.
	Has(netip.Addr) bool
	Close() error
}

// Transport joins groups. Its calls return when all members have come, or after Membership.Wait.
// Their context ends only if the user interrupts the program.
type Transport interface {
	Send(context.Context, Membership) (Sending, error)
	Receive(context.Context, Membership) (Receiving, error)
}

// withdrawTime is how long an interrupted program waits for its box.
const withdrawTime = 3 * time.Second

// Interruptible calls join, which hears no context. If the user interrupts the program meanwhile,
// withdraw tells the box so, which ends join. If the box does not answer, it notices the end of the
// program by itself.
func Interruptible[M io.Closer](ctx context.Context, join func() (M, error), withdraw func(context.Context) error) (M, error) {
	type outcome struct {
		member M
		err    error
	}
	joined := make(chan outcome, 1)
	go func() {
		m, err := join()
		joined <- outcome{m, err}
	}()
	select {
	case o := <-joined:
		return o.member, o.err
	case <-ctx.Done():
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTime)
	defer cancel()
	_ = withdraw(leaving) // it may have been too early
	select {
	case o := <-joined:
		if o.err == nil {
			_ = o.member.Close() // it was left already
		}
	case <-leaving.Done():
	}
	return *new(M), context.Cause(ctx)
}

// Exit statuses.
const (
	exitOK      = 0
	exitError   = 1
	exitLacking = 3
	exitLeftOut = 4
	exitUsage   = 64
)

// BoxVariable is the variable of the environment with the box's address, as in librocast.
const BoxVariable = "ROCAST_BOX"

// patience is how long a member that has come may do nothing.
const patience = 30 * time.Second

// Environment is what surrounds a command.
type Environment struct {
	Transport
	In       io.Reader
	Out, Err io.Writer
	Getenv   func(string) string
	DNS      *net.Resolver // nil: that of the host
	Terminal bool          // Err is one
}

// statusError is an error with its exit status.
type statusError struct {
	error
	status int
}

// errEarly is the end of a program that was interrupted before the copy began.
var errEarly = statusError{errors.New("interrupted while it waited for the other members"), exitError}

// notJoined is the end of a program that has not joined, for this reason or by its user.
func notJoined(ctx context.Context, reason error) error {
	if ctx.Err() != nil {
		return errEarly
	}
	return statusError{reason, exitError}
}

// Execute runs a command, and returns its exit status.
func (env *Environment) Execute(ctx context.Context, root *cobra.Command, args []string) int {
	root.SetArgs(args)
	root.SetOut(env.Out)
	root.SetErr(env.Err)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if ctx.Err() != nil && !errors.Is(err, errEarly) {
		err = statusError{errors.New("interrupted"), exitError}
	}
	fmt.Fprintln(env.Err, "rocast-cp:", err)
	var s statusError
	if errors.As(err, &s) {
		return s.status
	}
	return exitUsage
}

// options are the flags of both commands.
type options struct {
	Membership
	json bool
}

// Command returns the command line.
func (env *Environment) Command(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "rocast-cp",
		Short: "Copy files from one host to many at the cost of one",
		Long: `One host sends, and all others receive at the same time. rocast's box copies each packet, so the source's link carries everything
once, whatever the number of receivers.

  rocast-cp send model/ --group weights --members 4 --box 10.77.0.254:7472    # on one host
  rocast-cp recv /srv --group weights --members 4 --box 10.77.0.254:7472      # on three others
  tar c data | rocast-cp send - --group data --members 4                      # and recv - | tar x on the others

Each receiver checks the SHA-256 of a file before the file gets its name. Directories, symlinks, holes, modes and times are kept;
owners, hard links and extended attributes are not. A receiver that comes later gets what it lacks when the others have everything:
from the source, or with recv --from-peers from one of them.
If the group stops working, the source goes on by a connection to each receiver, and says so.

Exit status: 0 all is where it belongs; 1 it failed; 3 send: some receivers do not have everything, and are named; 4 some files
were left out, because they could not be read or were changed meanwhile; 64 wrong arguments.`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // --help says the same
	root.AddCommand(env.sendCommand(), env.receiveCommand())
	return root
}

func (env *Environment) add(cmd *cobra.Command, o *options) {
	f := cmd.Flags()
	f.StringVar(&o.Group, "group", "", "`name` of the group: a letter or digit first, then also - _ . ,")
	f.IntVar(&o.Members, "members", 0, "`number` of hosts, the source included; the copy begins when so many have come")
	f.StringVar(&o.Box, "box", "", "`address:port` of the box, hosts: listen of its rocastd.yaml; without it $"+BoxVariable+", or the one that DNS names")
	f.DurationVar(&o.Wait, "wait", 5*time.Minute, "how long to wait for the others at the beginning")
	f.BoolVar(&o.json, "json", false, "print events as lines of JSON")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		o.Box = cmp.Or(o.Box, env.Getenv(BoxVariable))
		switch {
		case o.Group == "":
			return errors.New("write --group NAME, the same at all hosts")
		case o.Members < 2:
			return errors.New("write --members N, the number of hosts, the source included: at least 2")
		case o.Box == "":
			if o.Box, err = findBox(cmd.Context(), env.DNS); err != nil {
				return err
			}
		}
		return run(cmd, args)
	}
}

func (env *Environment) sendCommand() *cobra.Command {
	var o options
	var limit rate
	cmd := &cobra.Command{
		Use: "send PATH... --group NAME --members N", Short: "Send files and directories, or - for the standard input",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			s := &copying.Source{Receivers: o.Members - 1, Paths: paths, Patience: patience, Rate: int64(limit)}
			if slices.Contains(paths, "-") {
				if len(paths) > 1 {
					return errors.New("- is the standard input, and is sent alone")
				}
				s.Paths, s.Input = nil, env.In
			}
			return env.send(cmd.Context(), &o, s)
		},
	}
	env.add(cmd, &o)
	cmd.Flags().Var(&limit, "rate", "send no more than so many `bytes` a second, such as 800k, 50M or 1.5G; 0: as fast as it goes")
	return cmd
}

func (env *Environment) send(ctx context.Context, o *options, s *copying.Source) (err error) {
	m, err := env.Send(ctx, o.Membership)
	if err != nil {
		return notJoined(ctx, err)
	}
	defer func() {
		if failure := m.Close(); err == nil && failure != nil {
			err = statusError{failure, exitError}
		}
	}()
	s.Sender = m
	if s.Listener, err = net.Listen("tcp", netip.AddrPortFrom(m.Local(), 0).String()); err != nil {
		return statusError{err, exitError}
	}
	s.Address = s.Listener.Addr().String()
	p := env.printer(o.json, env.Out)
	s.Events = p.print
	sent, err := s.Run(ctx)
	p.clear()
	return outcome(sent, err)
}

// outcome is the sentence with which a source ends.
func outcome(sent copying.Sent, err error) error {
	var lack []string
	for name, why := range sent.Gone {
		lack = append(lack, name+": "+why)
	}
	slices.Sort(lack)
	switch n, all := len(lack), len(lack)+len(sent.Complete); {
	case n > 0:
		if err != nil {
			lack = append(lack, err.Error())
		}
		return statusError{fmt.Errorf("%d of %d receivers do not have everything: %s", n, all, strings.Join(lack, "; ")), exitLacking}
	case err != nil:
		return statusError{err, exitError}
	case len(sent.LeftOut) > 0:
		return statusError{fmt.Errorf("%d files or directories were left out; all else is at %d receivers", len(sent.LeftOut), all), exitLeftOut}
	}
	return nil
}

func (env *Environment) receiveCommand() *cobra.Command {
	var o options
	var resume, fromPeers bool
	cmd := &cobra.Command{
		Use: "recv DIR --group NAME --members N", Short: "Receive into a directory, or to the standard output with -",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if fromPeers && args[0] == "-" {
				return errors.New("--from-peers needs a directory: the standard output cannot be read again")
			}
			return env.receive(cmd.Context(), &o, args[0], resume, fromPeers)
		},
	}
	env.add(cmd, &o)
	cmd.Flags().BoolVar(&fromPeers, "from-peers", false, "get files from receivers that have them, instead of from the source, and give them to others that say the same")
	cmd.Flags().BoolVar(&resume, "resume", false, "use what an earlier recv has left here, and leave it if this one is interrupted")
	return cmd
}

func (env *Environment) receive(ctx context.Context, o *options, directory string, resume, fromPeers bool) (err error) {
	defer func() {
		var s statusError
		if err != nil && !errors.As(err, &s) {
			err = statusError{err, exitError}
		}
	}()
	dialer := net.Dialer{Timeout: patience}
	r := &copying.Receiver{Dial: func(ctx context.Context, address string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	}}
	r.Host, _ = os.Hostname() // only for the eyes
	events := env.Out
	if directory == "-" {
		r.Output, events = env.Out, env.Err
	} else {
		if r.Target, err = copying.OpenTarget(directory, resume); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Target.Close()) }()
	}
	m, err := env.Receive(ctx, o.Membership)
	if err != nil {
		return notJoined(ctx, err)
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	r.Inbox, r.Member = m, m.Has
	if fromPeers {
		own := net.TCPAddrFromAddrPort(netip.AddrPortFrom(m.Local(), 0))
		if r.Peers, err = net.ListenTCP("tcp", own); err != nil {
			return err
		}
		dialer.LocalAddr = own // the source names other receivers only the host from which this one reports
	}
	p := env.printer(o.json, events)
	r.Events = p.print
	got, err := r.Run(ctx)
	p.clear()
	if err != nil {
		return err
	}
	p.print(copying.Event{Event: copying.Done, Bytes: got.Bytes, Files: got.Files})
	if got.LeftOut > 0 {
		return statusError{fmt.Errorf("the source has left out %d files", got.LeftOut), exitLeftOut}
	}
	return nil
}
