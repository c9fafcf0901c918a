package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func (a *app) regionAdd() *cobra.Command {
	var region api.NewRegion
	var places []string
	cmd := &cobra.Command{
		Use:   "add GROUP --va N --length N --rkey N --at IP=VA:RKEY ...",
		Short: "Let a region of memory come to a running group",
		Long: `Let a region of memory come to a running group. The source writes to the region by --va and --rkey; --at says, for every
receiver, where the receiver has it. When the command returns the source may write to it, also where the group spans several boxes.
A WRITE that comes before is refused, with NAK remote access, which ends the source's QP. A WRITE across two regions is refused too.

A host that has several receivers of the group is written IP/N, where N is the remote QPN of the one that is meant.`,
		Args: takes("GROUP"),
	}
	va, rkey := hexFlag(cmd, "va", "the address `N` that the source writes to"), hexFlag(cmd, "rkey", "the R_Key `N` that the source writes with")
	cmd.Flags().Uint64Var(&region.Length, "length", 0, "its length, `N` bytes")
	cmd.Flags().StringArrayVar(&places, "at", nil, "`IP=VA:RKEY`: where a receiver has it; once for each receiver")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := needed(cmd, "va", "length", "rkey", "at"); err != nil {
			return err
		}
		region.VA, region.RKey = *va, *rkey
		for _, text := range places {
			p, err := readPlace(text)
			if err != nil {
				return usage(cmd, "--at %q is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234", text)
			}
			region.At = append(region.At, p)
		}
		return a.changeRegions(cmd, args[0], client.RegionChange{Add: []api.NewRegion{region}})
	}
	return cmd
}

func (a *app) regionRemove() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm GROUP --va N --rkey N",
		Short: "Let a region of memory leave a running group",
		Long: `Let a region of memory leave a running group. The region is found by the address at which it begins and by the R_Key of the
source. WRITEs to it are refused from then on, with NAK remote access, which ends the source's QP: let the source complete what it
writes there first.`,
		Args: takes("GROUP"),
	}
	va, rkey := hexFlag(cmd, "va", "the address `N` at which it begins"), hexFlag(cmd, "rkey", "the R_Key `N` that the source writes with")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := needed(cmd, "va", "rkey"); err != nil {
			return err
		}
		return a.changeRegions(cmd, args[0], client.RegionChange{Remove: []api.RegionStart{{VA: *va, RKey: *rkey}}})
	}
	return cmd
}

func (a *app) regionList() *cobra.Command {
	return &cobra.Command{
		Use:   "ls GROUP",
		Short: "List the regions of a group's memory, and where each receiver has them",
		Args:  takes("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			g, err := a.client().Group(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(g, func(w io.Writer) { printMemory(w, g) })
		},
	}
}

func (a *app) changeRegions(cmd *cobra.Command, group string, change client.RegionChange) error {
	g, err := a.client().ChangeRegions(cmd.Context(), group, change)
	if err != nil {
		return err
	}
	return a.print(g, func(w io.Writer) { fmt.Fprintf(w, "group %s updated, regions of memory: %d\n", g.Name, len(g.Memory)) })
}

// hexFlag adds a flag for an address or an R_Key.
func hexFlag(cmd *cobra.Command, name, text string) *api.Hex {
	n := new(api.Hex)
	cmd.Flags().TextVar(n, name, api.Hex(0), text)
	return n
}

// needed refuses a command line that lacks a flag.
func needed(cmd *cobra.Command, names ...string) error {
	for _, name := range names {
		if !cmd.Flags().Changed(name) {
			return usage(cmd, "--%s is missing", name)
		}
	}
	return nil
}

// readPlace reads IP=VA:RKEY or IP/REMOTEQPN=VA:RKEY.
func readPlace(text string) (p api.RegionPlace, err error) {
	host, place, _ := strings.Cut(text, "=")
	ip, qpn, several := strings.Cut(host, "/")
	if p.IP = ip; several {
		n, err := strconv.ParseUint(qpn, 0, 24)
		if err != nil {
			return p, err
		}
		p.RemoteQPN = uint32(n)
	}
	va, rkey, _ := strings.Cut(place, ":")
	if err := p.VA.UnmarshalText([]byte(va)); err != nil {
		return p, err
	}
	return p, p.RKey.UnmarshalText([]byte(rkey))
}
