package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rocast/rocast/ctl/api"
)

// topReading is what happened between two answers of the daemon. Rates are per second.
type topReading struct {
	At      time.Time    `json:"at"`
	Seconds float64      `json:"seconds"` // between the two answers
	Groups  []groupRates `json:"groups"`
	More    int          `json:"more"` // groups that are left out
}

type groupRates struct {
	Name       string             `json:"name"`
	State      string             `json:"state"`
	Reason     string             `json:"reason,omitempty"`
	Carrier    string             `json:"carrier,omitempty"`
	InPackets  float64            `json:"inPackets"`
	InBytes    float64            `json:"inBytes"`
	OutPackets float64            `json:"outPackets"`
	OutBytes   float64            `json:"outBytes"`
	Resent     float64            `json:"resent"`
	Drops      map[string]float64 `json:"drops"`             // by reason
	Slowest    string             `json:"slowest,omitempty"` // absent: none is behind, or all are equally far behind
	Receivers  []receiverRates    `json:"receivers"`
	Shares     []shareRates       `json:"shares,omitempty"`
}

// shareRates is what leaves by a leg that receivers share.
type shareRates struct {
	IP      string  `json:"ip"`
	QPN     uint32  `json:"qpn"`
	Members int     `json:"members"`
	Working int     `json:"working"`
	Packets float64 `json:"packets"`
	Saved   float64 `json:"saved"`
}

type receiverRates struct {
	IP         string  `json:"ip"`
	RemoteQPN  uint32  `json:"remoteQPN"`
	Box        string  `json:"box,omitempty"`
	Port       string  `json:"port,omitempty"`
	State      string  `json:"state"`
	Trouble    string  `json:"trouble,omitempty"`
	Reason     string  `json:"reason,omitempty"`
	Packets    float64 `json:"packets"` // acknowledged
	Goodput    float64 `json:"goodput"` // bytes of payload: of packets of the group's mean size
	Lag        uint64  `json:"lag"`
	LagSeconds float64 `json:"lagSeconds"`
	NAKs       float64 `json:"naks"`
	RNRs       float64 `json:"rnrs"`
	CNPs       float64 `json:"cnps"`
	Repaired   float64 `json:"repaired"`
}

func (r *receiverRates) name() string {
	if r.Box != "" {
		return "box " + r.Box
	}
	return r.IP
}

// between computes rates. A group or a receiver that is new has none yet, and neither has what was
// made anew: its totals have fallen.
func between(before, now api.Traffic) topReading {
	t := topReading{At: now.At, Seconds: now.At.Sub(before.At).Seconds(), Groups: []groupRates{}, More: now.More}
	for i := range now.Groups {
		g := &now.Groups[i]
		k := slices.IndexFunc(before.Groups, func(b api.GroupTraffic) bool { return b.Name == g.Name })
		was := g
		if k >= 0 {
			was = &before.Groups[k]
		}
		t.Groups = append(t.Groups, ratesOf(was, g, t.Seconds))
	}
	return t
}

// rate is the growth of a total in a second.
func rate(was, is uint64, seconds float64) float64 {
	if is < was || seconds <= 0 {
		return 0
	}
	return float64(is-was) / seconds
}

func ratesOf(was, is *api.GroupTraffic, seconds float64) groupRates {
	g := groupRates{
		Name: is.Name, State: is.State, Reason: is.Reason, Carrier: is.Carrier,
		InPackets: rate(was.Packets, is.Packets, seconds), InBytes: rate(was.Bytes, is.Bytes, seconds),
		OutPackets: rate(was.Copies, is.Copies, seconds), OutBytes: rate(was.CopyBytes, is.CopyBytes, seconds),
		Resent: rate(was.Resent, is.Resent, seconds), Drops: map[string]float64{}, Receivers: []receiverRates{},
	}
	for reason, n := range is.Drops {
		if r := rate(was.Drops[reason], n, seconds); r > 0 {
			g.Drops[reason] = r
		}
	}
	size := 0.0 // of a packet
	if g.InPackets > 0 {
		size = g.InBytes / g.InPackets
	} else if is.Packets > 0 {
		size = float64(is.Bytes) / float64(is.Packets)
	}
	for i := range is.Receivers {
		r := &is.Receivers[i]
		k := slices.IndexFunc(was.Receivers, func(b api.ReceiverTraffic) bool { return b.IP == r.IP && b.RemoteQPN == r.RemoteQPN })
		before := r
		if k >= 0 {
			before = &was.Receivers[k]
		}
		of := receiverRates{
			IP: r.IP, RemoteQPN: r.RemoteQPN, Box: r.Box, Port: r.Port, State: r.State, Trouble: r.Trouble, Reason: r.Reason,
			Packets: rate(before.Acknowledged, r.Acknowledged, seconds), Lag: r.Lag, LagSeconds: r.LagSeconds,
			NAKs: rate(before.NAKs, r.NAKs, seconds), RNRs: rate(before.RNRs, r.RNRs, seconds),
			CNPs: rate(before.CNPs, r.CNPs, seconds), Repaired: rate(before.Repaired, r.Repaired, seconds),
		}
		of.Goodput = of.Packets * size
		g.Receivers = append(g.Receivers, of)
	}
	for i := range is.Shares {
		s := &is.Shares[i]
		k := slices.IndexFunc(was.Shares, func(b api.Share) bool { return b.IP == s.IP && b.QPN == s.QPN })
		before := s
		if k >= 0 {
			before = &was.Shares[k]
		}
		g.Shares = append(g.Shares, shareRates{
			IP: s.IP, QPN: s.QPN, Members: s.Members, Working: s.Working,
			Packets: rate(before.Packets, s.Packets, seconds), Saved: rate(before.Saved, s.Saved, seconds),
		})
	}
	if slowest, name := g.slowest(); slowest != nil && name != everyReceiver {
		g.Slowest = name
	}
	return g
}

// everyReceiver stands for the slowest receiver where no receiver is the last.
const everyReceiver = "all"

// slowest is the receiver that is furthest behind, and its name; nil: none is behind. Of several
// that are equally far behind it is one in trouble. If all are, and none is in trouble, the name is
// everyReceiver.
func (g *groupRates) slowest() (last *receiverRates, name string) {
	tied := 0
	for i := range g.Receivers {
		switch r := &g.Receivers[i]; {
		case last == nil || r.Lag > last.Lag:
			last, tied = r, 1
		case r.Lag == last.Lag:
			tied++
			if last.Trouble == "" && r.Trouble != "" {
				last = r
			}
		}
	}
	switch {
	case last == nil || last.Lag == 0:
		return nil, ""
	case tied > 1 && tied == len(g.Receivers) && last.Trouble == "":
		return last, everyReceiver
	}
	return last, last.name()
}

func (g *groupRates) sum(of func(*receiverRates) float64) (sum float64) {
	for i := range g.Receivers {
		sum += of(&g.Receivers[i])
	}
	return sum
}

func (g *groupRates) drops() (sum float64) {
	for _, n := range g.Drops {
		sum += n
	}
	return sum
}

// orders are the ways to sort groups; the largest come first.
var orders = map[string]func(a, b groupRates) int{
	"in":    func(a, b groupRates) int { return cmp.Compare(b.InBytes, a.InBytes) },
	"out":   func(a, b groupRates) int { return cmp.Compare(b.OutBytes, a.OutBytes) },
	"drops": func(a, b groupRates) int { return cmp.Compare(b.drops(), a.drops()) },
	"lag":   func(a, b groupRates) int { return cmp.Compare(b.lag(), a.lag()) },
	"name":  func(a, b groupRates) int { return strings.Compare(a.Name, b.Name) },
}

func (g *groupRates) lag() uint64 {
	if r, _ := g.slowest(); r != nil {
		return r.Lag
	}
	return 0
}

// printTop writes a line for each group, and another one for a group that is not ready.
func printTop(w io.Writer, t topReading) {
	row(w, "GROUP", "IN", "OUT", "SLOWEST", "GOODPUT", "LAG", "TIME", "NAK", "RNR", "CNP", "REPAIR", "DROP", "ENGINE")
	for i := range t.Groups {
		g := &t.Groups[i]
		var slowest, goodput, lag, age string
		if r, name := g.slowest(); r != nil {
			slowest, goodput, lag, age = name, bits(r.Goodput), amount(float64(r.Lag)), seconds(r.LagSeconds)
		}
		row(w, g.Name, bits(g.InBytes), bits(g.OutBytes), slowest, goodput, lag, age,
			amount(g.sum(func(r *receiverRates) float64 { return r.NAKs })), amount(g.sum(func(r *receiverRates) float64 { return r.RNRs })),
			amount(g.sum(func(r *receiverRates) float64 { return r.CNPs })), amount(g.sum(func(r *receiverRates) float64 { return r.Repaired })),
			amount(g.drops()), g.Carrier)
		if g.State != api.Ready {
			fmt.Fprintln(w, shorten("  "+because(g.State, g.Reason)))
		}
	}
	if t.More > 0 {
		fmt.Fprintf(w, "and %d more groups: rocast top NAME\n", t.More)
	}
}

// printTopGroup writes a line for each receiver of a group.
func printTopGroup(w io.Writer, g *groupRates) {
	fmt.Fprintln(w, shorten(g.Name+" is "+because(g.State, g.Reason)))
	fmt.Fprintf(w, "in %sb/s, %s packets/s; out %sb/s, %s copies/s; resent %s/s; engine %s\n",
		bits(g.InBytes), amount(g.InPackets), bits(g.OutBytes), amount(g.OutPackets), amount(g.Resent), orDash(g.Carrier))
	if r, name := g.slowest(); r != nil {
		fmt.Fprintf(w, "slowest: %s, %s packets and %s behind\n", name, amount(float64(r.Lag)), seconds(r.LagSeconds))
	}
	for _, s := range g.Shares {
		fmt.Fprintf(w, "shared: %s packets/s to %s (QPN %d) for %d of %d receivers, %s copies/s saved\n",
			amount(s.Packets), s.IP, s.QPN, s.Working, s.Members, amount(s.Saved))
	}
	for _, reason := range slices.Sorted(maps.Keys(g.Drops)) {
		fmt.Fprintf(w, "dropped: %s/s %s\n", amount(g.Drops[reason]), reason)
	}
	fmt.Fprintln(w)
	row(w, "RECEIVER", "PORT", "GOODPUT", "PACKETS", "LAG", "TIME", "NAK", "RNR", "CNP", "REPAIR", "STATE")
	for i := range g.Receivers {
		r := &g.Receivers[i]
		row(w, r.name(), r.Port, bits(r.Goodput), amount(r.Packets), amount(float64(r.Lag)), seconds(r.LagSeconds),
			amount(r.NAKs), amount(r.RNRs), amount(r.CNPs), amount(r.Repaired), cmp.Or(r.Trouble, r.State))
	}
}

func orDash(s string) string { return cmp.Or(s, "-") }

// bits writes bytes a second as bits a second, without the unit: 9.8G.
func bits(bytes float64) string { return amount(8 * bytes) }

// amount writes a number with at most four characters and its factor: 0, 12, 1.5K, 340M.
func amount(n float64) string {
	if n == 0 {
		return "0"
	}
	for _, factor := range []string{"", "K", "M", "G", "T"} {
		switch {
		case n < 9.95 && (factor != "" || n < 0.95):
			return fmt.Sprintf("%.1f%s", n, factor)
		case n < 999.5 || factor == "T":
			return fmt.Sprintf("%.0f%s", n, factor)
		}
		n /= 1000
	}
	return ""
}

// seconds writes a time of a receiver's lag: 120us, 35ms, 2.1s, 4m.
func seconds(s float64) string {
	switch {
	case s == 0:
		return "0"
	case s < 0.0009995:
		return fmt.Sprintf("%.0fus", 1e6*s)
	case s < 0.9995:
		return fmt.Sprintf("%.0fms", 1e3*s)
	case s < 60:
		return fmt.Sprintf("%.1fs", s)
	}
	return fmt.Sprintf("%.0fm", s/60)
}

// shorten cuts a text so that it is one line, and the table does not jump when the text changes.
func shorten(text string) string {
	if r := []rune(text); len(r) > narrow {
		return string(r[:narrow-1]) + "…"
	}
	return text
}

func (a *app) top() *cobra.Command {
	var once bool
	var times int
	var order string
	cmd := &cobra.Command{
		Use:   "top [NAME]",
		Short: "Show live what the groups carry, and who is slow",
		Long: `Show live what the groups carry, and who is slow. Every second the table is written anew; rates are those of the last second.

IN and OUT are bits a second: payload that came from the source, and payload of the copies. SLOWEST is the receiver that is
furthest behind (all: each of them is equally far behind), with its GOODPUT (payload that it acknowledges, in bits a second), its LAG in packets, and the TIME since the
first packet that it lacks was forwarded. NAK, RNR, CNP: what receivers answered in a second; REPAIR: packets that the box sent
again; DROP: frames of the group that were refused, whose reasons rocast top NAME shows. ENGINE carries the group: kernel or
afxdp. A group that is not ready has a line with the reason; such groups come first.

With the NAME of a group there is a line for each of its receivers. Its STATE is ready, or in one word why it does not get on. A line
for each leg that receivers share (docs/edge.md) says for how many of them its copies are, and how many copies that saves.

With --json each second is one JSON document on a line of its own.`,
		Args:              mayTake("NAME"),
		ValidArgsFunction: completed(a.groupNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			less := orders[order]
			if order != "" && less == nil {
				return usage(cmd, "--sort is %q; write %s", order, strings.Join(slices.Sorted(maps.Keys(orders)), ", "))
			}
			if times < 0 {
				return usage(cmd, "--count is %d; write a number of tables, or 0 to go on", times)
			}
			if once {
				times = 1
			}
			return a.showTop(cmd.Context(), strings.Join(args, ""), times, less)
		},
	}
	cmd.Flags().BoolVar(&once, "once", false, "write one table and end")
	cmd.Flags().IntVarP(&times, "count", "n", 0, "end after `N` tables")
	cmd.Flags().StringVar(&order, "sort", "", "sort groups by `COLUMN`: in, out, lag, drops or name")
	return cmd
}

// showTop writes so many tables, or with 0 one each second until ctx is done: of one group, or of
// all in the order that less gives.
func (a *app) showTop(ctx context.Context, group string, times int, less func(a, b groupRates) int) error {
	before, err := a.client().Traffic(ctx, group)
	if err != nil {
		return err
	}
	a.watching = times != 1
	return a.everySecond(ctx, times, func() error {
		now, err := a.client().Traffic(ctx, group)
		if err != nil {
			return err
		}
		t := between(before, now)
		before = now
		if less != nil {
			slices.SortStableFunc(t.Groups, less)
		}
		return a.print(t, func(w io.Writer) {
			if group != "" && len(t.Groups) == 1 {
				printTopGroup(w, &t.Groups[0])
				return
			}
			printTop(w, t)
		})
	})
}
