package peer

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rocast/rocast/bench/workload"
	"github.com/rocast/rocast/dataplane/xsk"
)

var ovsCommands = []string{"ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl"}

const ovsBridge = "ovs0"

// ovs is a private instance of Open vSwitch. Its sockets, database and logs are in a directory of
// its own, and its processes run in the box.
type ovs struct {
	dir     string
	setting Setting
	daemons []*daemon
}

// daemon is one process of the instance.
type daemon struct {
	cmd   *exec.Cmd
	ended chan error
}

// startOVS runs the userspace datapath with ports of one type: afxdp, or system, which is
// AF_PACKET.
func startOVS(portType string) func(s Setting) (*Forwarder, error) {
	return func(s Setting) (*Forwarder, error) {
		dir, err := os.MkdirTemp("", "rocbench-ovs-")
		if err != nil {
			return nil, err
		}
		o := &ovs{dir: dir, setting: s}
		if err := o.start(portType); err != nil {
			return nil, errors.Join(fmt.Errorf("start Open vSwitch: %w", err), o.stop())
		}
		return &Forwarder{PIDs: []int{o.daemons[1].cmd.Process.Pid}, stop: o.stop}, nil
	}
}

func (o *ovs) start(portType string) error {
	if err := o.run("ovsdb-tool", "create", o.path("conf.db")); err != nil {
		return err
	}
	if err := o.daemon("ovsdb-server", o.path("conf.db"), "--remote=punix:"+o.path("db.sock"), "--unixctl="+o.path("db.ctl")); err != nil {
		return err
	}
	if err := o.await(o.path("db.sock")); err != nil {
		return err
	}
	if err := o.vsctl("--no-wait", "init"); err != nil {
		return err
	}
	if err := o.vsctl("--no-wait", "set", "Open_vSwitch", ".", fmt.Sprintf("other_config:pmd-cpu-mask=%#x", 1<<o.setting.CPUs.Switch[0])); err != nil {
		return err
	}
	if err := o.daemon("ovs-vswitchd", "unix:"+o.path("db.sock"), "--unixctl="+o.path("switch.ctl")); err != nil {
		return err
	}
	if err := o.addPorts(portType); err != nil {
		return err
	}
	return o.addFlows()
}

func (o *ovs) addPorts(portType string) error {
	args := []string{"add-br", ovsBridge, "--", "set", "bridge", ovsBridge, "datapath_type=netdev", "fail-mode=secure"}
	for i, p := range o.setting.Lab.PortNames() {
		args = append(args, "--", "add-port", ovsBridge, p, "--", "set", "interface", p, "type="+portType, fmt.Sprintf("ofport_request=%d", 1+i))
		if portType == "afxdp" {
			args = append(args, "options:n_rxq=1", "options:xdp-mode=native")
		}
	}
	if err := o.vsctl(args...); err != nil {
		return err
	}
	// ovs-vsctl succeeds although a port could not be opened.
	problems, err := o.output("ovs-vsctl", o.db(), "--bare", "--columns=name,error", "find", "interface", "error!=[]")
	if err == nil && strings.TrimSpace(problems) != "" {
		err = errors.New(strings.Join(strings.Fields(problems), " "))
	}
	return err
}

// addFlows replicates the packets of the source, and brings the receivers' packets to the source.
// Open vSwitch does not know the BTH, so it rewrites only addresses.
func (o *ovs) addFlows() error {
	s := o.setting
	group := "group_id=1,type=all"
	src := workload.GroupIP(0)
	for r := range s.Receivers {
		group += fmt.Sprintf(",bucket=actions=set_field:%s->eth_src,set_field:%s->eth_dst,set_field:%v->ip_src,set_field:%v->ip_dst,output:%d",
			mac(s.PortMACs[1+r]), mac(s.HostMACs[1+r]), src, workload.ReceiverIP(r), 2+r)
	}
	bridge := "unix:" + o.path(ovsBridge+".mgmt")
	if err := o.await(o.path(ovsBridge + ".mgmt")); err != nil {
		return err
	}
	if err := o.run("ovs-ofctl", "-O", "OpenFlow13", "add-group", bridge, group); err != nil {
		return err
	}
	flows := "in_port=1,udp,tp_dst=4791,actions=group:1\n"
	for r := range s.Receivers {
		flows += fmt.Sprintf("in_port=%d,udp,tp_dst=4791,actions=output:1\n", 2+r)
	}
	file := o.path("flows")
	if err := os.WriteFile(file, []byte(flows), 0o600); err != nil {
		return err
	}
	return o.run("ovs-ofctl", "-O", "OpenFlow13", "add-flows", bridge, file)
}

func mac(m [6]byte) string {
	return fmt.Sprintf("%02x:%02x:%02x:%02x:%02x:%02x", m[0], m[1], m[2], m[3], m[4], m[5])
}

func (o *ovs) path(name string) string { return filepath.Join(o.dir, name) }

func (o *ovs) db() string { return "--db=unix:" + o.path("db.sock") }

func (o *ovs) env() []string {
	return append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir, "OVS_SYSCONFDIR="+o.dir)
}

func (o *ovs) vsctl(args ...string) error {
	return o.run("ovs-vsctl", append([]string{o.db(), "--timeout=" + strconv.Itoa(int(startPatience.Seconds()))}, args...)...)
}

func (o *ovs) run(name string, args ...string) error {
	_, err := o.output(name, args...)
	return err
}

func (o *ovs) output(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = o.env()
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w: %s%s", name, err, bytes.TrimSpace(output), o.log())
	}
	return string(output), nil
}

// daemon starts a process in the box, in the foreground.
func (o *ovs) daemon(name string, args ...string) error {
	output, err := os.Create(o.path(name + ".out"))
	if err != nil {
		return err
	}
	defer output.Close()
	d := &daemon{cmd: exec.Command(name, append(args, "-vconsole:warn", "-vsyslog:off")...), ended: make(chan error, 1)}
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = o.env(), output, output
	if err := start(o.setting, d.cmd); err != nil {
		return err
	}
	o.daemons = append(o.daemons, d)
	go func() { d.ended <- d.cmd.Wait() }()
	return nil
}

// await waits until a daemon listens on a socket.
func (o *ovs) await(socket string) error {
	for deadline := time.Now().Add(startPatience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("unix", socket); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("%s did not appear%s", filepath.Base(socket), o.log())
}

// log returns the output of the daemons, for an error.
func (o *ovs) log() (text string) {
	files, _ := filepath.Glob(o.path("*.out"))
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && len(b) > 0 {
			text += "\n" + filepath.Base(f) + ": " + lastLine(b)
		}
	}
	return text
}

func lastLine(text []byte) string {
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// stop ends the switch before its database.
func (o *ovs) stop() error {
	var errs []error
	for i := len(o.daemons) - 1; i >= 0; i-- {
		d := o.daemons[i]
		_ = d.cmd.Process.Signal(unix.SIGTERM)
		timer := time.AfterFunc(stopPatience, func() { _ = d.cmd.Process.Kill() })
		<-d.ended // the error only says that a signal ended it
		timer.Stop()
	}
	return errors.Join(append(errs, os.RemoveAll(o.dir))...)
}

func ovsCannot(portType string) func(s Setting) string {
	return func(s Setting) string {
		if portType == "afxdp" && s.FrameBytes() > xsk.FrameBytes {
			return "its AF_XDP ports drop frames of several buffers"
		}
		return oneWorker(s)
	}
}

// packetSocketWindow returns the largest window that fits into the receive buffer of a packet
// socket, 208 KiB by default. The kernel charges whole buffers: 2.25 KiB for a frame of 1,024
// bytes, 9 KiB for one of 4,096.
func packetSocketWindow(s Setting) int {
	switch {
	case s.Payload <= 1024:
		return 64
	case s.Payload <= 2048:
		return 32
	}
	return 16
}
