package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
	"github.com/rocast/rocast/feedback"
)

func (a *app) groupCreate() *cobra.Command {
	return a.fromFile(&cobra.Command{
		Use:   "create -f FILE",
		Short: "Create the group that a file describes",
		Long: `Create the group that a file describes. If the file has a mistake, nothing is created, and the error
names the line and the mend.

  name: g1
  ip: 10.77.0.100                        # the peer IP of the members' QPs
  qpn: 100                               # the remote QPN of the source's QP; Wireshark takes 0 and 1 for management
  mtu: 1024                              # the path MTU of the members' QPs
  addressing: group-ip                   # or virtual-qpn, switch-ip
  engine: auto                           # the kernel, if it can; or afxdp: only user space
  copies: auto                           # receivers share them where they can (docs/edge.md); or own: each has its own
  degraded-below: 10%                    # of its best goodput: the group is degraded if packets wait and it is below that
  degraded-after: 3s                     # for that long; 0: never
  hosts: false                           # or true: programs on hosts may join and leave (docs/host.md)
` + policyHelp() + `  memory: {va: 0x10000, rkey: 0x77}      # the source WRITEs to it; a list: each member has as many regions; table: see rocast region load
  members:
    - {ip: 10.77.0.1, qpn: 17, psn: 1000, role: source}
    - {ip: 10.77.0.2, qpn: 18, psn: 5, regions: [{va: 0x7f0000000000, length: 67108864, rkey: 0x1234}]}

psn is the first PSN that a source's QP sends, or that a receiver's QP expects. A receiver's QP has the group's ip and qpn
as its peer; remoteQPN: N in its entry sets another remote QPN. A member with role: both is a receiver that may become the
source; it also has sendPSN, the first PSN that its QP sends. If no member has role: source, the first member with role: both
is the first source. A member is behind another box if its route leads there, or if it has via: NEIGHBOUR; the box asks that
one to carry the group on. A receiver with confirm: true is waited for until its program runs rocast member ready.`,
	}, func(cmd *cobra.Command, file string, text []byte) error {
		g, err := a.client().CreateGroup(cmd.Context(), text)
		if err != nil {
			return inFile(file, err)
		}
		return a.print(g, func(w io.Writer) { printMade(w, g, "created") })
	})
}

// policyHelp are the lines of a group file with its policy, each with the default.
func policyHelp() (lines string) {
	for _, k := range feedback.Keys {
		if fallback, _, _ := strings.Cut(k.Default, ";"); !k.Repairs {
			lines += fmt.Sprintf("  %-38s # %s; %s\n", k.Name+": "+fallback, k.Values, k.Meaning)
		}
	}
	return lines
}

// fromFile completes a command that sends a group file.
func (a *app) fromFile(cmd *cobra.Command, send func(cmd *cobra.Command, file string, text []byte) error) *cobra.Command {
	var file string
	cmd.Args = takes()
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if file == "" {
			return usage(cmd, "-f FILE is missing")
		}
		text, err := a.readFile(file)
		if err != nil {
			return err
		}
		return send(cmd, file, text)
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the group `file`; - is standard input")
	return cmd
}

func (a *app) readFile(name string) ([]byte, error) {
	from, err := a.open(name, "group file")
	if err != nil {
		return nil, err
	}
	defer from.Close()
	text, err := io.ReadAll(io.LimitReader(from, api.MaxGroupFileBytes+1)) // one byte more, so that the daemon refuses the file
	if err != nil {
		return nil, api.Errorf(api.Usage, "read the group file: %v", err)
	}
	return text, nil
}

// open opens a file; - is standard input.
func (a *app) open(name, what string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(a.stdin), nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, api.Errorf(api.Usage, "read the %s: %v", what, err)
	}
	return file, nil
}

// inFile puts the file name and the line number before the message, as compilers do.
func inFile(file string, err error) error {
	var e *api.Error
	if errors.As(err, &e) && e.Line > 0 {
		return &fileError{file: file, cause: e}
	}
	return err
}

type fileError struct {
	file  string
	cause *api.Error
}

func (e *fileError) Error() string {
	return fmt.Sprintf("%s:%d: %s", e.file, e.cause.Line, e.cause.Message)
}
func (e *fileError) Unwrap() error { return e.cause }

func printMade(w io.Writer, g api.Group, done string) {
	printReached(w, g, done)
	for _, note := range g.Notes {
		fmt.Fprintln(w, note)
	}
}

// printReached reports whether all members are reached.
func printReached(w io.Writer, g api.Group, done string) {
	if g.WaitingCount == 0 {
		fmt.Fprintf(w, "group %s %s, all %d members are reached\n", g.Name, done, g.MemberCount)
		return
	}
	fmt.Fprintf(w, "group %s %s; waiting for:\n", g.Name, done)
	for _, m := range g.Members {
		if m.State == api.Waiting {
			row(w, "  "+m.IP, m.Reason)
		}
	}
	for _, l := range g.Links {
		for _, a := range l.Waiting {
			row(w, "  "+a.Member, "at box "+a.Box+": "+a.Reason)
		}
	}
}
