// Package peer has the contestants: rocast, and the forwarders that a lab would use instead. Each
// is started in the box of a lab and forwards from the source's port to the receivers' ports, and
// answers from these to the source's port, until it is stopped. It leaves nothing behind.
//
//	rocast.go   rocast's data path, a process of its own
//	c.go        forward.c, compiled with gcc -O2 when it is first used
//	bare.go     only the product's AF_XDP rings, a process of its own
//	kernel.go   the kernel's bridge, tc mirred
//	xdp.go      broadcast.c: XDP broadcast redirect, an egress program rewrites
//	ovs.go      Open vSwitch's userspace datapath, a private instance
//
// A forwarder in user space always runs in a process of its own, so that its CPU time can be read.
// The process ends when this process ends, for whatever reason.
//
// Start reading at Peer and All.
package peer

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"

	"github.com/rocast/rocast/bench/lab"
	"github.com/rocast/rocast/bench/workload"
)

// Setting describes one measurement of a contestant.
type Setting struct {
	*workload.Workload
	Lab     *lab.Lab
	Workers int
	CPUs    lab.CPUs
}

// Peer is one contestant.
type Peer struct {
	Name string
	What string // one line for the report
	// Rewriting says which parts of a copy it changes. The receivers verify this before anything is
	// measured.
	Rewriting workload.Rewriting
	Merges    bool // it merges the receivers' answers into one; the others bring all to the source
	InKernel  bool // it forwards in the NAPI threads of the box's ports
	Spins     bool // each of its threads uses a whole CPU
	NeedsNAPI bool // it attaches no XDP program to the ports
	// Needs are commands that must be installed.
	Needs []string
	// Cannot returns the reason why it cannot do a setting, or "".
	Cannot func(s Setting) string
	// Window returns the largest window whose bursts it does not lose; nil: the usual window.
	Window func(s Setting) int
	start  func(s Setting) (*Forwarder, error)
}

// Forwarder is a running contestant.
type Forwarder struct {
	PIDs []int // its processes; none: it is in the kernel
	stop func() error
}

// Stop ends it and removes what it made in the box.
func (f *Forwarder) Stop() error { return f.stop() }

// Start starts the contestant in the box.
func (p *Peer) Start(s Setting) (*Forwarder, error) {
	f, err := p.start(s)
	if err == nil && p.NeedsNAPI {
		if err = s.Lab.NAPIWithoutXDP(); err != nil {
			err = errors.Join(err, f.Stop())
		}
	}
	return f, err
}

// Excuse returns the reason why the contestant does not take part in a setting, or "".
func (p *Peer) Excuse(s Setting) string {
	for _, command := range p.Needs {
		if _, err := exec.LookPath(command); err != nil {
			return command + " is not installed"
		}
	}
	switch {
	case p.Spins && slices.Contains(s.CPUs.Switch, s.CPUs.Hosts):
		return fmt.Sprintf("each of its %d threads needs a CPU of its own, beside that of the hosts", s.Workers)
	case p.Rewriting < workload.Headers && s.Groups > 1:
		return "it knows no groups"
	case p.Cannot != nil:
		return p.Cannot(s)
	}
	return ""
}

// All has the contestants, in the order of the report. A new engine of rocast is a new entry with
// another rocastSpec.
var All = []*Peer{
	{
		Name: "rocast-busy", What: "rocast, AF_XDP engine, `wait: busy`",
		Spins: true, Rewriting: workload.All, Merges: true, start: startRocast(rocastSpec{Busy: true}),
	},
	{
		Name: "rocast-block", What: "rocast, AF_XDP engine, `wait: block`",
		Rewriting: workload.All, Merges: true, start: startRocast(rocastSpec{}),
	},
	{
		Name: "rocast-kernel", What: "rocast, `engine: auto`: the kernel carries plain packets, `wait: block`",
		Rewriting: workload.All, Merges: true, InKernel: true, Cannot: rocastKernelCannot, start: startRocast(rocastSpec{FanOut: true}),
	},
	{
		Name: "rocast-block-repair", What: "rocast-block with `repair: local`, nothing is lost",
		Rewriting: workload.All, Merges: true, Cannot: repairCannot, start: startRocast(rocastSpec{Repair: true}),
	},
	{
		Name: "rocast-kernel-repair", What: "rocast-kernel with `repair: local`, nothing is lost",
		Rewriting: workload.All, Merges: true, InKernel: true, Cannot: repairKernelCannot,
		start: startRocast(rocastSpec{FanOut: true, Repair: true}),
	},
	{
		Name: "c-inplace", What: "AF_XDP in C, rewrites in place, spins: the bar",
		Spins: true, Rewriting: workload.All, Needs: []string{"gcc"}, start: startC(false),
	},
	{
		Name: "c-memcpy", What: "AF_XDP in C, a memcpy for each copy, spins",
		Spins: true, Rewriting: workload.All, Needs: []string{"gcc"}, start: startC(true),
	},
	{
		Name: "bare-go", What: "AF_XDP in Go with rocast's rings, rewrites nothing, spins",
		Spins: true, Rewriting: workload.Nothing, Cannot: oneWorker, start: startBare,
	},
	{
		Name: "xdp-broadcast", What: "XDP broadcast redirect, an egress program rewrites all but the ICRC: the limit",
		Rewriting: workload.Headers, InKernel: true, Cannot: xdpCannot, start: startBroadcast,
	},
	{
		Name: "bridge", What: "the kernel's bridge, flooding",
		Rewriting: workload.Nothing, InKernel: true, NeedsNAPI: true, Cannot: oneWorker, start: startBridge,
	},
	{
		Name: "mirred", What: "tc mirred, the kernel's replication action",
		Rewriting: workload.Nothing, InKernel: true, NeedsNAPI: true, Cannot: mirredCannot, start: startMirred,
	},
	{
		Name: "ovs-afxdp", What: "Open vSwitch, AF_XDP ports, group type=all, set_field",
		Spins: true, Rewriting: workload.Addresses, Needs: ovsCommands, Cannot: ovsCannot("afxdp"), start: startOVS("afxdp"),
	},
	{
		Name: "ovs-afpacket", What: "Open vSwitch, AF_PACKET ports, group type=all, set_field",
		Rewriting: workload.Addresses, NeedsNAPI: true, Needs: ovsCommands, Cannot: ovsCannot("system"),
		Window: packetSocketWindow, start: startOVS("system"),
	},
}

// Named finds contestants by name.
func Named(names ...string) (peers []*Peer) {
	for _, p := range All {
		if slices.Contains(names, p.Name) {
			peers = append(peers, p)
		}
	}
	return peers
}

func oneWorker(s Setting) string {
	if s.Workers > 1 {
		return "it is run with one worker only"
	}
	return ""
}
