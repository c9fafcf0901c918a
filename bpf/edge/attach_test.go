package edge

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/internal/testlab"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// lab is an interface at which programs are attached, the other end of its link, and a BPF file
// system.
type lab struct {
	ns        *netns.NS
	far, near netns.Link
	pins      string
}

func newLab(t *testing.T, mtu int) *lab {
	t.Helper()
	testlab.NeedRoot(t)
	bpffs := t.TempDir()
	l := &lab{ns: netns.New(t), pins: filepath.Join(bpffs, "edge")}
	l.far, l.near = netns.Veth(t, netns.New(t), "rcfar", l.ns, "rcnear", netns.VethOptions{MTU: mtu})
	err := unix.Mount("bpf", bpffs, "bpf", 0, "")
	testlab.Permitted(t, err)
	t.Cleanup(func() { testlab.Must(t, unix.Unmount(bpffs, 0)) })
	return l
}

// attach skips the test where the kernel has none of the modes.
func (l *lab) attach(t *testing.T, modes ...Mode) *Program {
	t.Helper()
	p, err := l.try(modes...)
	if errors.Is(err, ebpf.ErrNotSupported) || err != nil && strings.Contains(err.Error(), "the kernel has no module cls_bpf") {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (l *lab) try(modes ...Mode) (p *Program, err error) {
	err = l.ns.Do(func() (err error) {
		p, err = Attach(l.near.Name, l.pins, modes)
		return err
	})
	return p, err
}

func (l *lab) detach(t *testing.T) {
	t.Helper()
	testlab.Must(t, l.ns.Do(func() error { return Detach(l.near.Name, l.pins) }))
}

func (l *lab) look(t *testing.T) (s State) {
	t.Helper()
	testlab.Must(t, l.ns.Do(func() (err error) {
		s, err = Look(l.near.Name, l.pins)
		return err
	}))
	return s
}

// interfaceState is what iproute2 says of the interface, apart from numbers that grow.
func (l *lab) interfaceState(t *testing.T) string {
	t.Helper()
	return l.ns.MustRun(t, "ip -d link show dev rcnear") + l.ns.MustRun(t, "tc qdisc show dev rcnear") +
		l.ns.MustRun(t, "tc filter show dev rcnear ingress")
}

// send lets a frame come in, and waits until the program has mapped it.
func (l *lab) send(t *testing.T, p *Program, frame []byte) {
	t.Helper()
	before, err := p.Counters()
	testlab.Must(t, err)
	testlab.Must(t, l.far.NS.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: l.far.Index})
	}))
	testlab.Eventually(t, testlab.Patience, "the program has mapped a frame", func() bool {
		now, err := p.Counters()
		return err == nil && now.Mapped == before.Mapped+1
	}, nil)
}

// In each mode a packet is mapped, also by the program of the next process, which finds the
// mappings and the counters. Afterwards the interface is as before.
func TestAttachedProgramsOutliveTheirProcess(t *testing.T) {
	for _, mode := range Modes {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t, 1500)
			before := l.interfaceState(t)
			p := l.attach(t, mode)
			if p.Mode() != mode {
				t.Fatalf("attached as %v", p.Mode())
			}
			m := families[0].mapping()
			m.MAC = roce.MAC(l.near.MAC)
			testlab.Must(t, p.Put(m))
			// A datagram socket gets the payload: the frame went on to this host.
			testlab.Must(t, l.near.AddAddress("10.77.0.2/24"))
			var socket net.PacketConn
			testlab.Must(t, l.ns.Do(func() (err error) {
				socket, err = net.ListenPacket("udp4", "10.77.0.2:4791")
				return err
			}))
			defer socket.Close()
			frame := packet{
				dst: m.To, mac: multicastMAC(m.To), qpn: legQPN, psn: 1, opcode: roce.OpSendOnly, hop: 9, rest: make([]byte, 1024),
			}
			expect := func(p *Program) {
				t.Helper()
				l.send(t, p, frame.frame(t, m.From))
				want := frame
				want.dst, want.qpn, want.psn = m.Host, m.HostQPN, frame.psn.Add(int32(m.AddPSN))
				all := want.frame(t, m.From)
				got := make([]byte, 2000)
				n, _, err := socket.ReadFrom(got)
				if err != nil || !bytes.Equal(got[:n], all[len(all)-n:]) {
					t.Errorf("%x, %v; want %x", got[:min(n, 20)], err, all[42:62])
				}
			}
			// The host must know the way back to the sender, or it takes the packet for forged.
			l.ns.MustRun(t, "ip neigh replace 10.77.0.100 lladdr %v dev rcnear", l.far.MAC)
			expect(p)
			testlab.Must(t, p.Close())
			if s := l.look(t); s.Mode != mode || !s.Attached || len(s.Mappings) != 1 || s.Counters.Mapped != 1 {
				t.Errorf("without a process: %+v", s)
			}
			// The next process tries all modes, and keeps this one.
			p = l.attach(t, Modes...)
			if p.Mode() != mode {
				t.Errorf("taken over as %v", p.Mode())
			}
			expect(p)
			if s := l.look(t); s.Counters.Mapped != 2 {
				t.Errorf("in the next process: %+v", s)
			}
			l.detach(t) // while the process still runs
			testlab.Must(t, p.Close())
			l.ns.MustRun(t, "ip addr flush dev rcnear")
			if after := l.interfaceState(t); after != before {
				t.Errorf("the interface was\n%s\nand is\n%s", before, after)
			}
			if _, err := os.Stat(l.pins); !os.IsNotExist(err) {
				t.Errorf("something is left: %v", err)
			}
			l.detach(t)
		})
	}
}

// The first mode that works is taken: what the interface has already stays.
func TestTheFirstModeThatWorks(t *testing.T) {
	foreign := func(t *testing.T, l *lab, flags link.XDPAttachFlags) {
		t.Helper()
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R0, xdpPass), asm.Return(),
		}})
		testlab.Must(t, err)
		held, err := l.near.AttachXDP(program, flags)
		testlab.Must(t, err)
		t.Cleanup(func() { testlab.Must(t, errors.Join(held.Close(), program.Close())) })
	}
	t.Run("native", func(t *testing.T) {
		l := newLab(t, 9000)
		defer l.attach(t, Modes...).Close()
		if s := l.look(t); s.Mode != NativeFrags {
			t.Errorf("%+v", s)
		}
	})
	t.Run("native without frags at a large MTU", func(t *testing.T) {
		l := newLab(t, 9000)
		defer l.attach(t, Native, TCX).Close()
		if s := l.look(t); s.Mode != TCX {
			t.Errorf("%+v", s)
		}
	})
	t.Run("beside another XDP program", func(t *testing.T) {
		l := newLab(t, 1500)
		foreign(t, l, link.XDPDriverMode)
		defer l.attach(t, Modes...).Close()
		if s := l.look(t); s.Mode != TCX {
			t.Errorf("%+v", s)
		}
	})
	t.Run("none", func(t *testing.T) {
		l := newLab(t, 1500)
		foreign(t, l, link.XDPGenericMode)
		p, err := l.try(NativeFrags, Generic)
		if err == nil {
			p.Close()
			t.Fatal("attached beside another program")
		}
		for _, want := range []string{"no way to attach the program works: xdp native frags: ", "\nxdp generic: "} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v\nlacks %q", err, want)
			}
		}
		if _, err := os.Stat(l.pins); !os.IsNotExist(err) {
			t.Errorf("something is left: %v", err)
		}
	})
}

// An interface that is made anew under the same name gets the program again, with the mappings.
func TestInterfacesThatAreMadeAnew(t *testing.T) {
	for _, mode := range []Mode{NativeFrags, TCX, Clsact} {
		t.Run(string(mode), func(t *testing.T) {
			l := newLab(t, 1500)
			p := l.attach(t, mode)
			testlab.Must(t, p.Put(families[0].mapping()))
			l.ns.MustRun(t, "ip link del rcnear")
			testlab.Must(t, p.Close())
			l.far, l.near = netns.Veth(t, l.far.NS, "rcfar", l.ns, "rcnear", netns.VethOptions{})
			p = l.attach(t, mode)
			defer p.Close()
			if s := l.look(t); !s.Attached || len(s.Mappings) != 1 {
				t.Errorf("%+v", s)
			}
			l.send(t, p, packet{
				dst: families[0].to, mac: multicastMAC(families[0].to), qpn: legQPN, opcode: roce.OpSendOnly,
			}.frame(t, families[0].from))
			l.ns.MustRun(t, "ip link del rcnear")
			l.detach(t)
		})
	}
}

// A clsact qdisc that somebody else uses stays.
func TestOtherFiltersStay(t *testing.T) {
	for _, first := range []bool{true, false} {
		l := newLab(t, 1500)
		other := func() {
			l.ns.MustRun(t, "tc filter add dev rcnear egress protocol ip prio 3 u32 match ip dst 10.9.9.9/32 flowid 1:1")
		}
		l.attach(t, Clsact).Close()
		l.detach(t)
		if first {
			l.ns.MustRun(t, "tc qdisc add dev rcnear clsact")
			other()
		}
		p := l.attach(t, Clsact)
		if !first {
			other()
		}
		testlab.Must(t, p.Close())
		l.detach(t)
		if got := l.ns.MustRun(t, "tc filter show dev rcnear egress"); !strings.Contains(got, "pref 3 u32") {
			t.Errorf("the other one was first %v: the filters are %q", first, got)
		}
		if got := l.ns.MustRun(t, "tc filter show dev rcnear ingress"); got != "" {
			t.Errorf("ours is still there: %q", got)
		}
	}
}

// Maps of a build that has others are not taken over.
func TestMapsOfAnotherBuild(t *testing.T) {
	l := newLab(t, 1500)
	folder := filepath.Join(l.pins, l.near.Name)
	testlab.Must(t, os.MkdirAll(folder, 0o700))
	old, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	testlab.Must(t, err)
	testlab.Must(t, old.Pin(filepath.Join(folder, edgeMapMappings)))
	testlab.Must(t, old.Close())
	p := l.attach(t, Generic)
	defer p.Close()
	testlab.Must(t, p.Put(families[0].mapping()))
}

func TestPinsOutsideOfABPFFileSystem(t *testing.T) {
	l := newLab(t, 1500)
	pins := t.TempDir()
	err := l.ns.Do(func() error {
		_, err := Attach(l.near.Name, pins, Modes)
		return err
	})
	if err == nil || !strings.HasSuffix(err.Error(), "mount one with: mount -t bpf bpf /sys/fs/bpf") {
		t.Error(err)
	}
	if left, err := os.ReadDir(pins); err != nil || len(left) != 0 {
		t.Errorf("what is left: %v, %v", left, err)
	}
}

func TestPinnedInterfaces(t *testing.T) {
	l := newLab(t, 1500)
	defer l.attach(t, Generic).Close()
	if names, err := Pinned(l.pins); err != nil || !slices.Equal(names, []string{"rcnear"}) {
		t.Errorf("%q, %v", names, err)
	}
	if names, err := Pinned(filepath.Join(l.pins, "nowhere")); err != nil || len(names) != 0 {
		t.Errorf("%q, %v", names, err)
	}
}

// Whoever looks while another process attaches the program sees what is there so far.
func TestLookingWhileTheProgramIsAttached(t *testing.T) {
	l := newLab(t, 1500)
	testlab.Must(t, os.MkdirAll(filepath.Join(l.pins, l.near.Name), 0o700))
	if s := l.look(t); s.Attached || s.Mode != "" || len(s.Mappings) != 0 {
		t.Errorf("%+v", s)
	}
}
