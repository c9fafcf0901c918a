// Command rocast-edge is the edge of a receiver's host with Soft-RoCE: it maps the shared copies of
// boxes, each of which reaches many hosts by one packet, to this host's queue pairs.
//
// rocast-edge run stays in the foreground. What it attaches stays when it ends, so that a restart
// loses nothing; rocast-edge remove takes it away.
//
// Exit status: 0: it was stopped, or the command is done; 1: it failed; 64: wrong arguments.
package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bpf/edge"
	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/cmd/rocast-edge/agent"
	"github.com/rocast/rocast/ctl/logs"
	"github.com/rocast/rocast/ctl/version"
	"github.com/rocast/rocast/packaging/manual"
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64 // as rocastd
)

// memoryLimit keeps the process small: it holds little, and asks often.
const memoryLimit = 8 << 20

func main() {
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM, unix.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	exit := exitUsage // until the arguments are parsed
	cmd := command(&exit)
	cmd.SetArgs(args)
	cmd.SetOut(stdout)
	cmd.SetErr(stderr)
	if err := cmd.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "rocast-edge:", err)
		return exit
	}
	return exitOK
}

// paths are where an edge keeps what outlives it.
type paths struct{ pins, state string }

const defaultState = "/run/rocast-edge/state.json"

func command(exit *int) *cobra.Command {
	var at paths
	root := &cobra.Command{
		Use:   "rocast-edge",
		Short: "Map the shared copies of rocast's boxes to the queue pairs of a host",
		Long: `A box with edges: in its rocastd.yaml sends one copy of each packet to a multicast address, instead of one to each receiver.
rocast-edge attaches an XDP or tc program in front of the host's Soft-RoCE device, which turns such a copy into the packet
that a queue pair of this host expects. It joins the multicast addresses, and asks the boxes at their address hosts: listen
which queue pairs there are. A receiver whose edge does not work gets copies of its own.

In front of a host whose NIC takes RoCE by itself, rocast-edge runs on a machine in the wire: a bridge of two ports, or the
cores of a DPU. With --wire it maps at the port towards the boxes, and the bridge carries the packet to the host. It asks from
an address of its own machine, and edges: wires: in rocastd.yaml says so.

Exit status: 0 it was stopped, or the command is done; 1 it failed; 64 wrong arguments.`,
		Version:       version.Build().Version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.PersistentFlags().StringVar(&at.pins, "pins", edge.DefaultPins, "`folder` in a BPF file system for what outlives the process")
	root.PersistentFlags().StringVar(&at.state, "state", defaultState, "`file` by which status learns what run does")
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{Hidden: true}) // --help says the same
	parsed := func(run func(*cobra.Command) error) func(*cobra.Command, []string) error {
		return func(cmd *cobra.Command, _ []string) error {
			*exit = exitError
			return run(cmd)
		}
	}
	root.AddCommand(
		runCommand(&at, exit),
		&cobra.Command{
			Use: "status", Short: "Show what the edge does", Args: cobra.NoArgs,
			RunE: parsed(func(cmd *cobra.Command) error { return at.status(cmd.OutOrStdout()) }),
		},
		&cobra.Command{
			Use: "remove", Short: "Detach the programs of all interfaces, so that the host is as before the first run", Args: cobra.NoArgs,
			RunE: parsed(func(cmd *cobra.Command) error {
				names, err := agent.Remove(at.pins)
				for _, name := range names {
					fmt.Fprintf(cmd.OutOrStdout(), "%s has no program of rocast-edge any more\n", name)
				}
				return err
			}),
		},
		manual.Command(manual.Page{
			Section: 8, Version: root.Version, SeeAlso: []string{"rocastd(8)"},
			Files: []manual.Item{
				{Name: "/etc/rocast/edge.conf", Text: "the boxes that the service asks"},
				{Name: edge.DefaultPins, Text: "what outlives the process"},
				{Name: defaultState, Text: "what status shows"},
			},
		}),
	)
	return root
}

func runCommand(at *paths, exit *int) *cobra.Command {
	c := agent.Config{Changed: at.write}
	var boxes, ips, attach []string
	cmd := &cobra.Command{
		Use:   "run --box ADDRESS:PORT",
		Short: "Ask the boxes, and map what they share, until a signal",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			modes, err := parse(&c, boxes, ips, attach)
			if err != nil {
				return err
			}
			*exit = exitError
			log, err := logs.New(logs.Auto, "info", cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			c.Log = log.Logger
			c.Ask = func(box netip.AddrPort, from netip.Addr) agent.Asker { return client.NewHost(box, from) }
			edges := agent.New(c, at.pins, modes)
			at.write(edges.State()) // status has something to show before the first answer
			if _, err := daemon.SdNotify(false, daemon.SdNotifyReady); err != nil {
				return err
			}
			return edges.Run(cmd.Context())
		},
	}
	cmd.Flags().StringArrayVar(&boxes, "box", nil, "`address:port` of a box, hosts: listen of its rocastd.yaml; may be repeated")
	cmd.Flags().StringArrayVar(&ips, "ip", nil, "`address` of an RDMA device; may be repeated; without it the one from which this host reaches the box")
	cmd.Flags().StringVar(&c.Wire, "wire", "", "`port` of this machine towards the boxes, in a bridge with the port to the host that has the addresses --ip")
	cmd.Flags().StringArrayVar(&attach, "attach", nil, "only this `mode`: "+modeNames()+"; may be repeated; without it the first that works")
	return cmd
}

func modeNames() (names string) {
	for i, m := range edge.Modes {
		if i > 0 {
			names += ", "
		}
		names += string(m)
	}
	return names
}

// parse reads the arguments of run.
func parse(c *agent.Config, boxes, ips, attach []string) (modes []edge.Mode, err error) {
	for _, text := range boxes {
		box, err := netip.ParseAddrPort(text)
		if err != nil {
			return nil, fmt.Errorf("--box %s: write ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml", text)
		}
		c.Boxes = append(c.Boxes, box)
	}
	if len(c.Boxes) == 0 {
		return nil, fmt.Errorf("no box is named: write --box ADDRESS:PORT, as hosts: listen has it in the box's rocastd.yaml")
	}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("--ip %s: write an address of an RDMA device", text)
		}
		c.IPs = append(c.IPs, ip)
	}
	if c.Wire != "" && len(ips) == 0 {
		return nil, fmt.Errorf("--wire %s: write --ip ADDRESS too, of the host that is behind this machine", c.Wire)
	}
	for _, text := range attach {
		mode := edge.Mode(text)
		if !slices.Contains(edge.Modes, mode) {
			return nil, fmt.Errorf("--attach %s: write one of these: %s", text, modeNames())
		}
		modes = append(modes, mode)
	}
	if len(modes) == 0 {
		modes = edge.Modes
	}
	return modes, nil
}
