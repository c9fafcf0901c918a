package softroce

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/rocast/rocast/test/softroce/control"
	"github.com/rocast/rocast/test/softroce/image"
	"github.com/rocast/rocast/test/softroce/wire"
	"golang.org/x/sys/unix"
)

const (
	qemu          = "qemu-system-x86_64"
	controlFD     = 3 // the first of exec.Cmd's ExtraFiles
	dataFD        = 4 // of the first NIC; the other NICs follow
	consoleBytes  = 64 << 10
	kernelOptions = "console=ttyS0 loglevel=4 panic=-1 no_timer_check nowatchdog mitigations=off random.trust_cpu=on"
	diskOptions   = " root=/dev/vda rw net.ifnames=0"
)

// hardware is what machines differ in.
type hardware struct {
	memoryMiB int
	cpus      int // 1 or 2
	nics      []nic
}

type nic struct {
	model nicModel
	mac   net.HardwareAddr
}

// nicModel is a QEMU device with its properties. A NIC offers no offload, so a frame is as it is on
// the wire.
type nicModel string

const (
	virtioNet nicModel = "virtio-net-pci,csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off," +
		"guest_ufo=off,host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off"
	// virtioNetDMA is a virtio-net that the guest addresses by way of the DMA API, which AF_XDP's
	// zero-copy needs.
	virtioNetDMA = virtioNet + ",disable-legacy=on,iommu_platform=on"
	// virtioNetDeaf is a virtio-net that takes an XDP program and never runs it: without mergeable
	// buffers, the driver of a device with a large MTU has another way to receive.
	virtioNetDeaf          = virtioNet + ",mrg_rxbuf=off,host_mtu=4200"
	vmxnet3       nicModel = "vmxnet3"
	e1000e        nicModel = "e1000e"
)

// machine is one run of a guest, from power on to power off: of QEMU, or of the agent in a
// namespace.
type machine struct {
	cmd     *exec.Cmd
	control *control.Client
	nics    []io.ReadWriteCloser // one Read or Write is one frame
	console *console
	exited  chan struct{}

	// Of a guest that is a namespace; else nil. unplug lets nothing leave any more, and remove
	// removes what is left when all processes have ended.
	unplug, remove func() error
}

// powerOn starts QEMU. The machine has nothing in the file system: its channels are socket pairs.
func powerOn(guestImage image.Image, accel string, h hardware) (_ *machine, err error) {
	m := &machine{console: &console{}, exited: make(chan struct{})}
	var conns []net.Conn
	defer func() {
		for _, far := range m.cmd.ExtraFiles {
			far.Close()
		}
		if err != nil {
			for _, near := range conns {
				near.Close()
			}
		}
	}()
	m.cmd = exec.Command(qemu, qemuArgs(guestImage, accel, h)...)
	for range 1 + len(h.nics) {
		near, far, err := socketPair()
		if err != nil {
			return nil, err
		}
		conns, m.cmd.ExtraFiles = append(conns, near), append(m.cmd.ExtraFiles, far)
	}
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends this process only
	if err := spawn(m.cmd, nil); err != nil {
		return nil, fmt.Errorf("start %s: %w", qemu, err)
	}
	m.control = control.NewClient(conns[0])
	for _, conn := range conns[1:] {
		m.nics = append(m.nics, wire.Framed(conn))
	}
	go m.await()
	return m, nil
}

func (m *machine) await() {
	defer close(m.exited)
	_ = m.cmd.Wait()
}

// diskArgs give the machine a disk, of which it changes a copy that ends with QEMU. In front of the
// NICs of the lab it gets one without a cable: eth0, which is for management. The machine may
// reboot.
func diskArgs(path string) []string {
	return []string{
		"-drive", "if=none,id=disk,format=raw,snapshot=on,file=" + path, "-device", "virtio-blk-pci,drive=disk",
		"-device", "virtio-net-pci,mac=52:54:00:77:02:01,romfile=",
	}
}

// qemuArgs describes the machine. Two CPUs are always possible. With one possible CPU,
// software emulation omits memory barriers, and a virtio ring stalls for ever after some ten
// thousand packets.
func qemuArgs(guestImage image.Image, accel string, h hardware) []string {
	options, more := " oops=panic", []string{"-no-reboot"} // a guest with a dead thread ends at once
	if guestImage.Disk != "" {
		options, more = diskOptions, diskArgs(guestImage.Disk)
	}
	options = kernelOptions + tscOption(accel) + options
	if guestImage.NeedsCX16 {
		options += " clearcpuid=cx16" // only programs use it
	}
	args := []string{
		"-accel", accel, "-cpu", cpuModel(accel, guestImage.NeedsCX16), "-smp", fmt.Sprintf("%d,maxcpus=2", h.cpus), "-m", strconv.Itoa(h.memoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-serial", "stdio",
		"-kernel", guestImage.Vmlinux, "-initrd", guestImage.Initramfs, "-append", options,
		"-device", "virtio-serial-pci",
		"-chardev", fmt.Sprintf("socket,id=control,fd=%d", controlFD),
		"-device", "virtserialport,chardev=control,name=" + control.PortName,
	}
	args = append(args, more...)
	for i, n := range h.nics {
		args = append(args,
			"-netdev", fmt.Sprintf("socket,id=data%d,fd=%d", i, dataFD+i),
			"-device", fmt.Sprintf("%s,netdev=data%d,mac=%s,romfile=", n.model, i, n.mac))
	}
	return args
}

// cpuModel is every feature of the host with KVM. With software emulation it is a CPU without
// AVX and without the large state of AVX, which is twice as fast. With RDRAND the guest does not
// wait for entropy. CMPXCHG16B is missing if no program needs it, and the kernel always does
// without: QEMU 7.2 computes wrong flags for it, because it has not stored the operation of which
// they are computed. An interrupt right behind it then ends the guest's kernel with a double fault.
func cpuModel(accel string, cx16 bool) string {
	switch {
	case accel == "kvm":
		return "max"
	case cx16:
		return "Nehalem,+rdrand,+cx16"
	default:
		return "Nehalem,+rdrand,-cx16"
	}
}

// socketPair returns our end as a connection and QEMU's end as a file.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "lab"), os.NewFile(uintptr(fds[1]), "guest")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// hello waits until the agent can be asked. It fails at once if QEMU ends.
func (m *machine) hello(ctx context.Context) (control.Hello, error) {
	hello, err := m.control.Hello(ctx)
	if err != nil {
		return hello, fmt.Errorf("%w; console:\n%s", err, m.console)
	}
	return hello, nil
}

// powerOff cuts the power. It may be called twice.
func (m *machine) powerOff() {
	if m.unplug != nil {
		_ = m.unplug() // fails if the interface is gone
	}
	_ = m.cmd.Process.Kill() // fails if it has exited
	<-m.exited
	m.control.Close()
	for _, nic := range m.nics {
		nic.Close()
	}
	if m.remove != nil {
		_ = m.remove() // fails if somebody has removed the name
	}
}

// console keeps the end of what the kernel of the guest and QEMU print.
type console struct {
	mu   sync.Mutex
	text []byte
}

func (c *console) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = append(c.text, b...)
	if extra := len(c.text) - consoleBytes; extra > 0 {
		c.text = c.text[extra:]
	}
	return len(b), nil
}

func (c *console) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.ReplaceAll(string(c.text), "\r", "")
}
