// Package lab builds the network of a measurement: a box with a port for the source and one for
// each receiver, over veth. It also chooses a CPU for the box and another one for the hosts.
//
//	hosts' namespace: eth0 ══ p0 ┬ box's namespace ┬ p1 ══ eth1 receiver 0
//	                  source     │                 ├ p2 ══ eth2 receiver 1
//	                             └                 └ p3 ══ eth3 receiver 2
//
// The hosts of a measurement never use the kernel's IP stack, so one namespace is enough for all of
// them. A lab for the daemon (Options.Routed) gives each host a namespace and an address, because
// the daemon asks the kernel where they are.
//
// # CPU time of the switch
//
// On veth, the receive work of a port (NAPI: the XDP program, the copy into an AF_XDP socket, the
// kernel's bridge or tc) runs by default in the sender's thread, and would count as CPU time of the
// source. The box's ports have threaded NAPI instead (/sys/class/net/X/threaded): a kernel thread
// for each port and queue does that work, and its CPU time can be read like that of any process.
// These count as CPU time of the switch, and nothing else:
//
//	forwarder  its process: user and kernel time, and all softirq work that its sendto causes
//	ingress    the NAPI threads of the box's ports; if the kernel forwards, they do all the work
//	softirq    ksoftirqd of the switch's CPUs: work that softirqs there left over
//
// The clocks are those of the scheduler (CPUCLOCK_SCHED), which count nanoseconds and not ticks. If
// the forwarder is a process, the NAPI threads run on the hosts' CPU: on the CPU of a spinning
// forwarder each would get half of the time. If the kernel forwards, they run on the switch's CPU.
//
// At the receiver's end of a veth pair an XDP program counts and drops the copies. For every
// contestant this is the same program, and it runs in the sender's time. A copy that comes as a
// socket buffer costs more there than a copy that comes by XDP redirect; on a real box it costs
// more to send. At the source's end an XDP program redirects each answer to an AF_XDP socket, in
// the sender's time too.
package lab

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/internal/testlab/netns"
	"github.com/rocast/rocast/roce"
)

// Options describe a lab.
type Options struct {
	Receivers int
	MTU       int // bytes, of every interface
	Queues    int // of every interface; 0: 1
	// Routed: the hosts have addresses and namespaces of their own, and the box's ports are in a
	// bridge.
	Routed bool
}

// Lab is the topology.
type Lab struct {
	Options
	Box   *netns.NS
	Ports []netns.Link // the box's side: the source's, then the receivers'
	Ends  []netns.Link // the hosts' side, in the same order
	hosts []*netns.NS
}

// Bridge is the box's bridge in a Routed lab. Its network holds the hosts and the groups.
const Bridge = "br0"

// New builds a lab. Close removes it.
func New(o Options) (*Lab, error) {
	o.Queues = max(o.Queues, 1)
	l := &Lab{Options: o}
	if err := l.build(); err != nil {
		return nil, errors.Join(fmt.Errorf("build the lab: %w", err), l.Close())
	}
	return l, nil
}

func (l *Lab) build() (err error) {
	if l.Box, err = netns.Create(); err != nil {
		return err
	}
	if l.Routed {
		if err := l.addBridge(); err != nil {
			return err
		}
	}
	for i := range 1 + l.Receivers {
		if err := l.addHost(i); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) addHost(i int) error {
	if len(l.hosts) == 0 || l.Routed {
		ns, err := netns.Create()
		if err != nil {
			return err
		}
		l.hosts = append(l.hosts, ns)
	}
	ns := l.hosts[len(l.hosts)-1]
	port, end, err := netns.CreateVeth(l.Box, portName(i), ns, "eth"+strconv.Itoa(i), netns.VethOptions{MTU: l.MTU, Queues: l.Queues})
	if err != nil {
		return err
	}
	l.Ports, l.Ends = append(l.Ports, port), append(l.Ends, end)
	// A veth takes frames that XDP redirects to it when its far end has NAPI, as any NIC takes
	// them.
	if err := l.run("ip", "netns", "exec", ns.Name(), "ethtool", "-K", end.Name, "gro", "on"); err != nil {
		return err
	}
	if !l.Routed {
		return nil
	}
	address := workload.SourceIP
	if i > 0 {
		address = workload.ReceiverIP(i - 1)
	}
	return errors.Join(l.run("ip", "link", "set", port.Name, "master", Bridge), end.AddAddress(address.String()+"/8"))
}

func (l *Lab) addBridge() error {
	return l.Run([][]string{
		{"ip", "link", "add", Bridge, "type", "bridge", "mcast_snooping", "0"},
		{"ip", "address", "add", "10.255.255.254/8", "dev", Bridge},
		{"ip", "link", "set", Bridge, "mtu", strconv.Itoa(l.MTU), "up"},
	})
}

// portName returns the name of a port of the box. It has the process ID, so that the kernel threads
// of the port's NAPI can be found among all threads of the machine.
func portName(i int) string {
	return "b" + strconv.FormatInt(int64(os.Getpid()), 36) + "p" + strconv.Itoa(i)
}

// PortNames are the names of all ports.
func (l *Lab) PortNames() (names []string) {
	for _, p := range l.Ports {
		names = append(names, p.Name)
	}
	return names
}

// Workload is traffic for this lab.
func (l *Lab) Workload(payload, groups int) (*workload.Workload, error) {
	w := &workload.Workload{Payload: payload, Receivers: l.Receivers, Groups: groups}
	for i := range l.Ports {
		w.PortMACs = append(w.PortMACs, roce.MAC(l.Ports[i].MAC))
		w.HostMACs = append(w.HostMACs, roce.MAC(l.Ends[i].MAC))
	}
	return w, w.Check()
}

// Run runs commands in the box, one after the other, until one fails.
func (l *Lab) Run(commands [][]string) error {
	for _, c := range commands {
		if err := l.run(c[0], c[1:]...); err != nil {
			return err
		}
	}
	return nil
}

func (l *Lab) run(name string, args ...string) error {
	_, err := l.Box.Exec(name, args...)
	return err
}

// ThreadNAPI moves the ports' receive work to kernel threads, binds them to a CPU, and returns
// their process IDs. Call it after the forwarder has started: before, a port of a veth pair may
// have no NAPI, and then ThreadNAPI fails, because that port would receive in the sender's thread.
//
// sysfs shows the interfaces of the namespace in which it was mounted, so "ip netns exec" mounts
// another.
func (l *Lab) ThreadNAPI(cpu int) ([]int, error) {
	script := forEach(l.Ports, "echo 1 > /sys/class/net/$p/threaded")
	if err := l.run("ip", "netns", "exec", l.Box.Name(), "sh", "-ec", script); err != nil {
		return nil, fmt.Errorf("make NAPI of the ports a thread's: %w", err)
	}
	pids, err := l.napiThreads()
	if err != nil {
		return nil, err
	}
	return pinLiving(pids, cpu)
}

// NAPIWithoutXDP gives the ports NAPI although no XDP program is attached. A veth port has NAPI if
// GRO is on and the peer sends without TSO. Without NAPI the kernel would receive frames on the
// sender's thread.
func (l *Lab) NAPIWithoutXDP() error {
	if _, err := l.hosts[0].Exec("sh", "-ec", forEach(l.Ends, "ethtool -K $p tso off")); err != nil {
		return err
	}
	return l.run("sh", "-ec", forEach(l.Ports, "ethtool -K $p gro on"))
}

// forEach is a shell command for each interface, $p.
func forEach(interfaces []netns.Link, command string) string {
	names := ""
	for _, i := range interfaces {
		names += " " + i.Name
	}
	return fmt.Sprintf("for p in%s; do %s; done", names, command)
}

// Close removes the lab.
func (l *Lab) Close() error {
	var errs []error
	for _, ns := range l.hosts {
		errs = append(errs, ns.Close())
	}
	if l.Box != nil {
		errs = append(errs, l.Box.Close())
	}
	return errors.Join(errs...)
}
