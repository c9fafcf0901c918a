package ctl

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/rocast/rocast/ctl/ctltest"
	"github.com/rocast/rocast/ctl/groupfile"
	"github.com/rocast/rocast/ctl/nexthop"
	"github.com/rocast/rocast/ctl/store"
	"github.com/rocast/rocast/internal/testlab"
)

// newQuiet returns a Controller on test doubles that logs nothing and knows the hosts of groupText.
func newQuiet(b *testing.B) *Controller {
	b.Helper()
	state, err := store.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { state.Close() })
	hops, known := ctltest.NewHops(), map[string]nexthop.Hop{}
	for k := range 513 {
		known[hostAt(k).String()] = ctltest.Hop(1+k%3, fmt.Sprintf("eth%d", 1+k%3), 1500, byte(k))
	}
	hops.Set(known)
	return New(Parts{
		Switch: ctltest.NewSwitch("eth1", "eth2", "eth3"), NextHops: hops, Addresses: ctltest.NewAddresses(),
		Store: state, Log: zap.NewNop(),
	})
}

func hostAt(k int) netip.Addr { return netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)}) }

// groupText returns the file of group i.
func groupText(i, receivers int) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "name: group-%06d\nip: 10.%d.%d.%d\nqpn: 1\nmtu: 1024\n", i, 78+i>>16, i>>8&0xFF, i&0xFF)
	fmt.Fprintf(&b, "memory: {va: 0x10000, rkey: 0x77}\nmembers:\n")
	fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: 1000, role: source}\n", hostAt(0), 2+i)
	for k := range receivers {
		fmt.Fprintf(&b, "  - {ip: %v, qpn: %d, psn: 5, regions: [{va: 0x7f0000000000, length: 4096, rkey: 0x1234}]}\n", hostAt(1+k), 2+i)
	}
	return []byte(b.String())
}

// create creates a group without storing its file, because the disk is not measured.
func create(b *testing.B, c *Controller, text []byte) {
	b.Helper()
	file, err := groupfile.Parse(text)
	if err == nil {
		_, err = c.create(b.Context(), file, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkCreate measures the time to create one group of three members, from its file to the
// table, until this many groups exist. It does not include the entries of the kernel's classifier
// (BenchmarkEntries in package bpf) and the disk.
func BenchmarkCreate(b *testing.B) {
	for _, n := range []int{1000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				c := newQuiet(b)
				for i := range n {
					create(b, c, groupText(i, 3))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/group")
		})
	}
	b.Run("kept/1000", func(b *testing.B) {
		for b.Loop() {
			c := newQuiet(b)
			for i := range 1000 {
				if _, err := c.Create(b.Context(), groupText(i, 3)); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/group")
	})
}

// BenchmarkMemory measures the memory of one group in the daemon: table and merging state, which
// BenchmarkMemory of packages mft and dataplane measure alone, and the state of control.
func BenchmarkMemory(b *testing.B) {
	const paths = 60_000
	for _, receivers := range []int{3, 64, 512} {
		b.Run(fmt.Sprint(receivers), func(b *testing.B) {
			for b.Loop() {
				c, n := newQuiet(b), paths/receivers
				testlab.MeasureHeap(b, n, receivers, func() any {
					for i := range n {
						create(b, c, groupText(i, receivers))
					}
					return c
				})
			}
		})
	}
}
