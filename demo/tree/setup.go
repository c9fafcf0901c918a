package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rocast/rocast/ctl/api"
)

// measure prints how long it takes to create groups of several sizes over the three boxes. Half of
// the members are at each leaf. A first group holds the group IP: to ask the hosts whether an IP is
// taken takes 0.3 s, and is done once for an IP.
func (d *demo) measure(ctx context.Context, sizes []int, rounds int) error {
	if err := d.addMembers(slices.Max(sizes)); err != nil {
		return err
	}
	root := d.set.Boxes[0].Client()
	began := time.Now()
	if _, err := root.CreateGroup(ctx, d.sized("first", 0x5000, 3)); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "the first group with its IP took %v\n", time.Since(began).Round(time.Millisecond))
	w := tabwriter.NewWriter(d.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MEMBERS\tBOXES\tROUNDS\tP50\tP99")
	for _, size := range sizes {
		var took []time.Duration
		for i := range rounds + 1 {
			began := time.Now()
			g, err := root.CreateGroup(ctx, d.sized("sized", 0x6000, size))
			if err != nil {
				return err
			}
			if i > 0 { // in the first round the boxes learn the MACs of the hosts
				took = append(took, time.Since(began))
				if g.State != api.Ready {
					return fmt.Errorf("%d members: the group is %s: %s", size, g.State, g.Reason)
				}
			}
			if _, err := root.RemoveGroup(ctx, "sized"); err != nil {
				return err
			}
		}
		slices.Sort(took)
		fmt.Fprintf(w, "%d\t%d\t%d\t%v\t%v\n", size, len(names), rounds, took[len(took)/2].Round(100*time.Microsecond),
			took[len(took)*99/100].Round(100*time.Microsecond))
	}
	return w.Flush()
}

// extra is an address of member i, and the box that it is at.
func (d *demo) extra(i int) (ip string, box int) {
	box = i % 2 * 2 // the first leaf and the second one in turn
	group := d.lab.Boxes[box].GroupIP().As4()
	return fmt.Sprintf("%d.%d.%d.%d", group[0], group[1], 1+i/2/200, 1+i/2%200), box
}

// addMembers gives the hosts of the leaves more addresses: a member needs one, and no NIC.
func (d *demo) addMembers(n int) error {
	for i := range n {
		ip, box := d.extra(i)
		if err := d.lab.Boxes[box].Hosts[1].End.AddAddress(ip + "/22"); err != nil {
			return err
		}
	}
	return nil
}

// sized returns the file of a group with a source and n receivers, whose QPNs begin with first.
func (d *demo) sized(name string, first, n int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: %s\nip: %v\nqpn: %d\nmtu: %d\nmembers:\n", name, d.lab.Boxes[0].GroupIP(), first, pathMTU)
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: 1, role: source}\n", d.lab.Boxes[0].Hosts[0].IP, first)
	for i := range n {
		ip, _ := d.extra(i)
		fmt.Fprintf(&b, "  - {ip: %s, qpn: %d, psn: %d}\n", ip, first, 5+i)
	}
	return []byte(b.String())
}
