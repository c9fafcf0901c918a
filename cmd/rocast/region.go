package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/client"
	"github.com/rocast/rocast/ctl/api"
)

func (a *app) regionAdd() *cobra.Command {
	var region api.NewRegion
	var at []string
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
	cmd.Flags().StringArrayVar(&at, "at", nil, "`IP=VA:RKEY`: where a receiver has it; once for each receiver")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := needed(cmd, "va", "length", "rkey", "at"); err != nil {
			return err
		}
		region.VA, region.RKey = *va, *rkey
		for _, text := range at {
			p, err := readAt(text)
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

func (a *app) regionLoad() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "load GROUP -f FILE",
		Short: "Let the regions that a file lists come to a running group",
		Long: `Let the regions that a file lists come to a running group, up to 1,048,576 of them. Each line has what rocast region add takes: VA,
length, R_Key, and for each receiver where it has the region:

  0x20000000 4096 0x78 10.77.0.2=0x7f2000000000:0x2234 10.77.0.3=0x7f3000000000:0x2235

Empty lines and lines that begin with # have no meaning. The memory of a group with more than a few thousand regions is a table: its
group file has memory: table, its members have no regions there, and all of them are at this box. Regions come in changes of a few
thousand. If one is refused, the error says how many regions have come before, and these stay.`,
		Args: takes("GROUP"),
	}
	cmd.Flags().StringVarP(&file, "file", "f", "", "the `file` with the regions; - is standard input")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if file == "" {
			return usage(cmd, "-f FILE is missing")
		}
		from, err := a.open(file, "file of regions")
		if err != nil {
			return err
		}
		defer from.Close()
		lines := regionLines{from: bufio.NewScanner(from)}
		added, err := a.client().AddRegions(cmd.Context(), args[0], lines.all)
		if lines.err != nil {
			err = usage(cmd, "%s: line %d: %v", file, lines.line, lines.err)
		}
		if err != nil {
			if e := (*api.Error)(nil); added > 0 && errors.As(err, &e) {
				err = api.Errorf(e.Kind, "the first %d regions have come, and then: %s", added, e.Message)
			}
			return err
		}
		return a.print(loaded{args[0], added}, func(w io.Writer) { fmt.Fprintf(w, "group %s updated, regions that came: %d\n", args[0], added) })
	}
	return cmd
}

type loaded struct {
	Group string `json:"group"`
	Added int    `json:"added"`
}

// regionLines reads regions from lines.
type regionLines struct {
	from *bufio.Scanner
	line int
	err  error // of that line, or of reading
}

// all yields the regions of the lines until one cannot be read.
func (l *regionLines) all(yield func(client.NewRegion) bool) {
	const longest = 1 << 17 // a region with 1024 receivers
	l.from.Buffer(nil, longest)
	for l.from.Scan() {
		l.line++
		fields := strings.Fields(l.from.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		var r client.NewRegion
		if r, l.err = readRegion(fields); l.err != nil || !yield(r) {
			return
		}
	}
	l.err = l.from.Err()
}

// readRegion reads VA, length, R_Key, and where each receiver has the region.
func readRegion(fields []string) (r client.NewRegion, err error) {
	if len(fields) < 4 {
		return r, errors.New("write VA, length, R_Key and IP=VA:RKEY for each receiver")
	}
	if err := r.VA.UnmarshalText([]byte(fields[0])); err != nil {
		return r, fmt.Errorf("%q is no address; write a number such as 0x20000000", fields[0])
	}
	if r.Length, err = api.Number(fields[1], 64); err != nil {
		return r, fmt.Errorf("%q is no length; write a number of bytes, without a leading zero", fields[1])
	}
	if err := r.RKey.UnmarshalText([]byte(fields[2])); err != nil {
		return r, errors.New("the third word is no R_Key; write a number such as 0x78") // R_Keys are not quoted
	}
	for _, text := range fields[3:] {
		p, err := readAt(text)
		if err != nil {
			return r, errors.New("a place is not IP=VA:RKEY, such as 10.77.0.2=0x7f0000000000:0x1234")
		}
		r.At = append(r.At, p)
	}
	return r, nil
}

func (a *app) regionList() *cobra.Command {
	var from, count int
	cmd := &cobra.Command{
		Use:   "ls GROUP",
		Short: "List the regions of a group's memory, and where each receiver has them",
		Args:  takes("GROUP"),
	}
	cmd.Flags().IntVar(&from, "from", 0, "`N`, the first region that is listed, counted from 0")
	cmd.Flags().IntVar(&count, "count", 0, "list `N` regions at most (default: all)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if from < 0 || count < 0 {
			return usage(cmd, "--from and --count cannot be below 0")
		}
		list := client.Regions{From: from, Regions: []api.GroupRegion{}}
		for listed := 0; count == 0 || listed < count; {
			page, err := a.client().Regions(cmd.Context(), args[0], from+listed, min(max(0, count-listed), api.MaxRegions))
			if err != nil {
				return err
			}
			switch list.Total = page.Total; {
			case a.json:
				list.Regions = append(list.Regions, page.Regions...)
			default:
				if err := a.print(nil, func(w io.Writer) { printRegions(w, page, listed == 0) }); err != nil {
					return err
				}
			}
			if listed += len(page.Regions); len(page.Regions) == 0 || from+listed >= page.Total {
				break
			}
		}
		if a.json {
			return a.printJSON(list)
		}
		return nil
	}
	return cmd
}

// printRegions prints regions, and before the first ones what the columns are.
func printRegions(w io.Writer, page client.Regions, first bool) {
	if first && len(page.Regions) > 0 {
		row(w, "MEMORY", "VA", "LENGTH", "RKEY")
	}
	for _, r := range page.Regions {
		row(w, "group", r.VA, r.Length, rkey(r.RKey))
		for _, m := range r.At {
			row(w, "  "+m.IP, m.VA, m.Length, rkey(m.RKey))
		}
	}
}

func (a *app) changeRegions(cmd *cobra.Command, group string, change client.RegionChange) error {
	g, err := a.client().ChangeRegions(cmd.Context(), group, change)
	if err != nil {
		return err
	}
	return a.print(g, func(w io.Writer) {
		fmt.Fprintf(w, "group %s updated, regions of memory: %d\n", g.Name, len(g.Memory)+g.RegionCount)
	})
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

// readAt reads IP=VA:RKEY or IP/REMOTEQPN=VA:RKEY.
func readAt(text string) (p api.RegionAt, err error) {
	host, at, _ := strings.Cut(text, "=")
	ip, qpn, several := strings.Cut(host, "/")
	if p.IP = ip; several {
		n, err := api.Number(qpn, 24)
		if err != nil {
			return p, err
		}
		p.RemoteQPN = uint32(n)
	}
	va, rkey, _ := strings.Cut(at, ":")
	if err := p.VA.UnmarshalText([]byte(va)); err != nil {
		return p, err
	}
	return p, p.RKey.UnmarshalText([]byte(rkey))
}
